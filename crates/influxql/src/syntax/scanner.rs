//! Scanner: characters to tokens.
//!
//! Invariants: `at` counts reads; reads after the last character return `END`, whose position is that after
//! the text for the first one, and one column more for all others. This is how clients know the positions of
//! InfluxDB 1.8. A carriage return, with or without a newline after it, is a newline; NUL ends the text.
//! Not here: tokens that are put back (`parser`).

use crate::ast::{BinaryOp, keyword};

use super::token::{Kind, Position, Token};

/// Returned by reads after the last character.
const END: char = '\0';

pub(super) struct Scanner {
    chars: Vec<char>,
    /// Index of the next character.
    at: usize,
    /// Index of the first character of each line, ascending.
    line_starts: Vec<usize>,
}

/// Text between quotes, or the kind of its error.
type Quoted = Result<String, (Kind, String)>;

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n')
}

fn is_ident_first(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

fn is_ident_char(c: char) -> bool {
    is_ident_first(c) || c.is_ascii_digit()
}

impl Scanner {
    pub(super) fn new(text: &str) -> Scanner {
        let text = text.split(END).next().unwrap_or_default();
        let mut chars: Vec<char> = Vec::with_capacity(text.len());
        let mut after_return = false;
        for c in text.chars() {
            if !(after_return && c == '\n') {
                chars.push(if c == '\r' { '\n' } else { c });
            }
            after_return = c == '\r';
        }
        let after_newlines = chars.iter().enumerate().filter(|(_, c)| **c == '\n').map(|(idx, _)| idx + 1);
        let line_starts = std::iter::once(0).chain(after_newlines).collect();
        Scanner { chars, at: 0, line_starts }
    }

    fn read(&mut self) -> char {
        let c = self.chars.get(self.at).copied().unwrap_or(END);
        self.at += 1;
        c
    }

    fn unread(&mut self) {
        self.at = self.at.saturating_sub(1);
    }

    /// Reads the next character if `is_match` holds for it.
    fn read_if(&mut self, is_match: impl Fn(char) -> bool) -> Option<char> {
        let c = self.read();
        if c != END && is_match(c) {
            return Some(c);
        }
        self.unread();
        None
    }

    /// Returns the next character without reading it; the end counts as read.
    pub(super) fn peek(&mut self) -> char {
        let c = self.read();
        if c != END {
            self.unread();
        }
        c
    }

    /// Position of read number `idx`.
    fn position_of(&self, idx: usize) -> Position {
        let idx = idx.min(self.chars.len() + 1);
        let line = self.line_starts.partition_point(|start| *start <= idx).saturating_sub(1);
        let start = self.line_starts.get(line).copied().unwrap_or(0);
        Position { line, column: idx - start }
    }

    /// Position of the character read last; the position of the start before any read.
    fn last_position(&self) -> Position {
        match self.at.checked_sub(1) {
            Some(idx) => self.position_of(idx),
            None => Position::default(),
        }
    }

    /// Returns the next token. Spaces and comments are tokens.
    pub(super) fn scan(&mut self) -> Token {
        let c = self.read();
        let position = self.last_position();
        match c {
            END => Token::new(Kind::End, position),
            c if is_space(c) => self.space(c, position),
            c if is_ident_first(c) => {
                self.unread();
                self.ident(true)
            }
            c if c.is_ascii_digit() => self.number(c, position),
            '"' => {
                self.unread();
                self.ident(true)
            }
            '\'' => {
                self.unread();
                let position = self.last_position();
                self.text(position)
            }
            '.' => {
                let is_number = self.read().is_ascii_digit();
                self.unread();
                if is_number { self.number('.', position) } else { Token::new(Kind::Dot, position) }
            }
            '$' => self.parameter(position),
            c => self.operator(c, position),
        }
    }

    fn space(&mut self, first: char, position: Position) -> Token {
        let mut literal = first.to_string();
        loop {
            match self.read() {
                END => break,
                c if is_space(c) => literal.push(c),
                _ => {
                    self.unread();
                    break;
                }
            }
        }
        Token::with_text(Kind::Space, position, literal)
    }

    /// A bare or quoted identifier. Parts of both kinds without a space between them are one token, of which
    /// the last quoted part counts.
    fn ident(&mut self, with_keywords: bool) -> Token {
        self.read();
        let position = self.last_position();
        self.unread();
        let mut literal = String::new();
        loop {
            match self.read() {
                END => break,
                '"' => {
                    self.unread();
                    let quote_position = self.last_position();
                    let token = self.text(quote_position);
                    if matches!(token.kind, Kind::BadText | Kind::BadEscape) {
                        return token;
                    }
                    return Token { kind: Kind::Ident, position, literal: token.literal };
                }
                c if is_ident_char(c) => {
                    self.unread();
                    self.bare_ident(&mut literal);
                }
                _ => {
                    self.unread();
                    break;
                }
            }
        }
        match keyword(&literal).filter(|_| with_keywords) {
            Some("AND") => Token::new(Kind::Op(BinaryOp::And), position),
            Some("OR") => Token::new(Kind::Op(BinaryOp::Or), position),
            Some(word) => Token::new(Kind::Keyword(word), position),
            None => Token::with_text(Kind::Ident, position, literal),
        }
    }

    fn bare_ident(&mut self, literal: &mut String) {
        loop {
            match self.read() {
                END => break,
                c if is_ident_char(c) => literal.push(c),
                _ => {
                    self.unread();
                    break;
                }
            }
        }
    }

    fn parameter(&mut self, position: Position) -> Token {
        let ident = self.ident(false);
        Token::with_text(Kind::Parameter, position, format!("${}", ident.literal))
    }

    /// A string; `position` is the position of the character before it.
    fn text(&mut self, position: Position) -> Token {
        match self.quoted() {
            Ok(literal) => Token::with_text(Kind::Text, position, literal),
            Err((Kind::BadEscape, escape)) => {
                let position = self.last_position();
                Token::with_text(Kind::BadEscape, position, escape)
            }
            Err((kind, literal)) => Token::with_text(kind, position, literal),
        }
    }

    fn quoted(&mut self) -> Quoted {
        let quote = self.read();
        let mut literal = String::new();
        loop {
            match self.read() {
                c if c == quote => return Ok(literal),
                END | '\n' => return Err((Kind::BadText, literal)),
                '\\' => match self.read() {
                    'n' => literal.push('\n'),
                    c @ ('\\' | '"' | '\'') => literal.push(c),
                    c => return Err((Kind::BadEscape, format!("\\{c}"))),
                },
                c => literal.push(c),
            }
        }
    }

    fn digits(&mut self, literal: &mut String) {
        while let Some(c) = self.read_if(|c| c.is_ascii_digit()) {
            literal.push(c);
        }
    }

    /// A number that begins with `first`, a digit or a point before one.
    fn number(&mut self, first: char, position: Position) -> Token {
        let mut literal = first.to_string();
        self.digits(&mut literal);
        if first == '.' {
            return Token::with_text(Kind::Float, position, literal);
        }
        if self.read_if(|c| c == '.').is_some() {
            // A point without digits after it is read, and not part of the literal.
            if let Some(digit) = self.read_if(|c| c.is_ascii_digit()) {
                literal.extend(['.', digit]);
                self.digits(&mut literal);
            }
            return Token::with_text(Kind::Float, position, literal);
        }
        let is_unit = |c: char| c.is_ascii_alphabetic() || c == 'µ';
        let Some(unit) = self.read_if(is_unit) else {
            return Token::with_text(Kind::Integer, position, literal);
        };
        literal.push(unit);
        while let Some(c) = self.read_if(|c| is_unit(c) || c.is_ascii_digit()) {
            literal.push(c);
        }
        Token::with_text(Kind::Duration, position, literal)
    }

    fn operator(&mut self, c: char, position: Position) -> Token {
        use BinaryOp as Op;
        let op = |op| Token::new(Kind::Op(op), position);
        match c {
            '+' => op(Op::Add),
            '-' if self.read_if(|c| c == '-').is_some() => {
                while !matches!(self.read(), '\n' | END) {}
                Token::new(Kind::Comment, position)
            }
            '-' => op(Op::Sub),
            '*' => op(Op::Mul),
            '/' if self.read_if(|c| c == '*').is_some() => self.comment(position),
            '/' => op(Op::Div),
            '%' => op(Op::Mod),
            '&' => op(Op::BitAnd),
            '|' => op(Op::BitOr),
            '^' => op(Op::BitXor),
            '=' if self.read_if(|c| c == '~').is_some() => op(Op::Match),
            '=' => op(Op::Eq),
            '!' if self.read_if(|c| c == '=').is_some() => op(Op::NotEq),
            '!' if self.read_if(|c| c == '~').is_some() => op(Op::NotMatch),
            '>' if self.read_if(|c| c == '=').is_some() => op(Op::GreaterEq),
            '>' => op(Op::Greater),
            '<' if self.read_if(|c| c == '=').is_some() => op(Op::LessEq),
            '<' if self.read_if(|c| c == '>').is_some() => op(Op::NotEq),
            '<' => op(Op::Less),
            '(' => Token::new(Kind::LeftParen, position),
            ')' => Token::new(Kind::RightParen, position),
            ',' => Token::new(Kind::Comma, position),
            ';' => Token::new(Kind::Semicolon, position),
            ':' if self.read_if(|c| c == ':').is_some() => Token::new(Kind::DoubleColon, position),
            ':' => Token::new(Kind::Colon, position),
            c => Token::with_text(Kind::Illegal, position, c),
        }
    }

    /// The rest of `/* .. */`; without an end it is illegal.
    fn comment(&mut self, position: Position) -> Token {
        loop {
            match self.read() {
                END => return Token::new(Kind::Illegal, position),
                '*' => loop {
                    match self.read() {
                        '/' => return Token::new(Kind::Comment, position),
                        '*' => {}
                        END => return Token::new(Kind::Illegal, position),
                        _ => break,
                    }
                },
                _ => {}
            }
        }
    }

    /// Returns the regex that the next character begins.
    pub(super) fn scan_regex(&mut self) -> Token {
        let position = self.last_position();
        if self.read() != '/' {
            return Token::new(Kind::BadRegex, position);
        }
        let mut literal = String::new();
        loop {
            match self.read() {
                '/' => return Token::with_text(Kind::Regex, position, literal),
                END | '\n' => return Token::new(Kind::BadRegex, position),
                '\\' => match self.read() {
                    '/' => literal.push('/'),
                    END | '\n' => return Token::new(Kind::BadRegex, position),
                    c => literal.extend(['\\', c]),
                },
                c => literal.push(c),
            }
        }
    }
}
