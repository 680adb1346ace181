//! Lexer: splits a query into tokens, one at a time, on demand.
//!
//! Invariants: tokens come in order and never overlap; a failure names the byte offset it is reported at. The
//! lexer knows whether it is inside braces or brackets, where other rules hold. Copying it is how the
//! parser looks two tokens ahead.
//! Not here: the value of literals (number, quote).

use std::sync::LazyLock;

use chronolith_model::GoRegex;

use crate::ast::BinaryOp;
use crate::parser::options::ParserOptions;
use crate::parser::quote::EscapeShape;
use crate::parser::token::{Token, TokenKind, Word, keyword};

/// Position of a refused query, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) at: usize,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(at: usize, message: impl Into<String>) -> Failure {
        Failure { at, message: message.into() }
    }
}

/// State of the lexer, which decides the rules for the next token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Open,
    /// Between `{` and `}`.
    Braces,
    /// After `[`, before the first number.
    BracketStart {
        colon_seen: bool,
    },
    /// After the first number in brackets.
    Bracket {
        colon_seen: bool,
    },
}

const BLANK: [char; 4] = [' ', '\t', '\n', '\r'];

/// Characters of names that need no quotes.
#[derive(Debug, Clone, Copy)]
struct NameChars {
    /// Letters of all scripts are letters, and dots may follow the first character.
    unquoted_utf8: bool,
}

impl NameChars {
    fn is_first(self, c: char) -> bool {
        c == '_' || c.is_ascii_alphabetic() || (self.unquoted_utf8 && !c.is_ascii() && is_letter(c))
    }

    fn is_next(self, c: char) -> bool {
        self.is_first(c) || c.is_ascii_digit() || (self.unquoted_utf8 && c == '.')
    }
}

/// Returns true for the general category Letter. Alphabetic characters of the standard library include marks.
fn is_letter(c: char) -> bool {
    static LETTER: LazyLock<Option<GoRegex>> = LazyLock::new(|| GoRegex::new(r"\p{L}").ok());
    LETTER.as_ref().is_some_and(|letter| letter.is_match(c.encode_utf8(&mut [0; 4])))
}

/// Position in the query.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    names: NameChars,
    pos: usize,
    start: usize,
    place: Place,
    /// Place that `}` leads back to.
    place_outside: Place,
    paren_depth: usize,
    /// True after brackets with a number: the message about a colon after `[` depends on it, as in
    /// Prometheus.
    duration_seen: bool,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str, options: ParserOptions) -> Lexer<'a> {
        Lexer {
            text,
            names: NameChars { unquoted_utf8: options.unquoted_utf8_names },
            pos: 0,
            start: 0,
            place: Place::Open,
            place_outside: Place::Open,
            paren_depth: 0,
            duration_seen: false,
        }
    }

    /// First byte from `at` on that is no blank.
    pub(super) fn behind_blanks(&self, at: usize) -> usize {
        let rest = self.text.get(at..).unwrap_or("");
        at + rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len()
    }

    /// The next token; [`TokenKind::End`] again and again at the end.
    pub(super) fn next(&mut self) -> Result<Token<'a>, Failure> {
        self.skip_blank();
        self.start = self.pos;
        match self.place {
            Place::Braces => self.next_in_braces(),
            Place::BracketStart { colon_seen } => self.next_in_bracket_start(colon_seen),
            Place::Open | Place::Bracket { .. } => self.next_in_statement(),
        }
    }

    fn skip_blank(&mut self) {
        loop {
            self.accept_while(|c| BLANK.contains(&c));
            if self.peek() != Some('#') || matches!(self.place, Place::BracketStart { .. }) {
                return;
            }
            self.accept_while(|c| c != '\n' && c != '\r');
        }
    }

    fn next_in_statement(&mut self) -> Result<Token<'a>, Failure> {
        let Some(c) = self.bump() else { return self.end() };
        match c {
            '(' => self.open_paren(),
            ')' => self.close_paren(),
            '{' => {
                self.place_outside = self.place;
                self.place = Place::Braces;
                Ok(self.token(TokenKind::LeftBrace))
            }
            '[' | ']' => self.bracket(c),
            '@' => Ok(self.token(TokenKind::At)),
            '"' | '\'' => self.string(c),
            '`' => self.raw_string(),
            '0'..='9' => self.number(),
            '.' if self.peek().is_some_and(|c| c.is_ascii_digit()) => self.number(),
            ':' | '_' | 'a'..='z' | 'A'..='Z' => self.name_or_colon(c),
            // Names that begin with other letters stand outside of brackets only, as in Prometheus.
            _ if self.place == Place::Open && self.names.is_first(c) => self.name_or_colon(c),
            _ => match self.operator(c)? {
                Some(kind) => Ok(self.token(kind)),
                None => Err(self.failed(format!("unexpected character: {}", quoted_char(Some(c))))),
            },
        }
    }

    fn next_in_braces(&mut self) -> Result<Token<'a>, Failure> {
        let Some(c) = self.bump() else { return Err(self.failed("unexpected end of input inside braces")) };
        match c {
            _ if self.names.is_first(c) => {
                let names = self.names;
                self.accept_while(|c| names.is_next(c));
                Ok(self.token(TokenKind::Identifier))
            }
            ',' => Ok(self.token(TokenKind::Comma)),
            '"' | '\'' => self.string(c),
            '`' => self.raw_string(),
            '=' if self.accept('~') => Ok(self.token(TokenKind::EqualRegex)),
            '=' => Ok(self.token(TokenKind::Assign)),
            '!' if self.accept('~') => Ok(self.token(TokenKind::NotEqualRegex)),
            '!' if self.accept('=') => Ok(self.token(TokenKind::Operator(BinaryOp::NotEqual))),
            '!' => {
                let next = quoted_char(self.peek());
                Err(self.failed(format!("unexpected character after '!' inside braces: {next}")))
            }
            '{' => Err(self.failed("unexpected left brace '{'")),
            '}' => {
                self.place = self.place_outside;
                Ok(self.token(TokenKind::RightBrace))
            }
            _ => Err(self.failed(format!("unexpected character inside braces: {}", quoted_char(Some(c))))),
        }
    }

    /// After `[` only what can open a duration is allowed: `foo[` is never followed by a name.
    fn next_in_bracket_start(&mut self, colon_seen: bool) -> Result<Token<'a>, Failure> {
        const REFUSED: &str = "unexpected character in duration expression";
        let Some(c) = self.bump() else {
            return Err(self.failed("unexpected end of input in duration expression"));
        };
        match c {
            '(' => self.open_paren(),
            ')' => self.close_paren(),
            ']' => self.bracket(c),
            ':' if self.duration_seen && colon_seen => {
                Err(Failure::new(self.pos, "unexpected repeated colon in duration expression"))
            }
            ':' if self.duration_seen => {
                self.place = Place::BracketStart { colon_seen: true };
                Ok(self.token(TokenKind::Colon))
            }
            ':' => Err(Failure::new(self.pos, "unexpected colon before duration in duration expression")),
            '0'..='9' => self.number(),
            '.' if self.peek().is_some_and(|c| c.is_ascii_digit()) => self.number(),
            'a'..='z' | 'A'..='Z' => match self.duration_word() {
                Some(kind) => {
                    self.duration_seen = true;
                    Ok(self.token(kind))
                }
                None => Err(self.failed(format!("{REFUSED}: {}", quoted_char(Some(c))))),
            },
            '+' | '-' | '*' | '/' | '%' | '^' | ',' => match self.operator(c)? {
                Some(kind) => Ok(self.token(kind)),
                None => Err(self.failed(format!("{REFUSED}: {}", quoted_char(Some(c))))),
            },
            _ => Err(self.failed(format!("{REFUSED}: {}", quoted_char(Some(c))))),
        }
    }

    fn operator(&mut self, c: char) -> Result<Option<TokenKind>, Failure> {
        let op = match c {
            ',' => return Ok(Some(TokenKind::Comma)),
            '+' => BinaryOp::Add,
            '-' => BinaryOp::Sub,
            '*' => BinaryOp::Mul,
            '/' => BinaryOp::Div,
            '%' => BinaryOp::Mod,
            '^' => BinaryOp::Pow,
            '=' if self.accept('=') => BinaryOp::Equal,
            '=' if self.peek() == Some('~') => return Err(self.failed("unexpected character after '=': '~'")),
            '=' => return Ok(Some(TokenKind::Assign)),
            '!' if self.accept('=') => BinaryOp::NotEqual,
            '!' => {
                let next = quoted_char(self.peek());
                return Err(self.failed(format!("unexpected character after '!': {next}")));
            }
            '<' if self.accept('=') => BinaryOp::LessEqual,
            '<' if self.accept('/') => BinaryOp::TrimUpper,
            '<' => BinaryOp::Less,
            '>' if self.accept('=') => BinaryOp::GreaterEqual,
            '>' if self.accept('/') => BinaryOp::TrimLower,
            '>' => BinaryOp::Greater,
            _ => return Ok(None),
        };
        Ok(Some(TokenKind::Operator(op)))
    }

    fn end(&mut self) -> Result<Token<'a>, Failure> {
        if self.paren_depth > 0 {
            return Err(self.failed("unclosed left parenthesis"));
        }
        if self.place != Place::Open {
            return Err(self.failed("unclosed left bracket"));
        }
        Ok(self.token(TokenKind::End))
    }

    fn open_paren(&mut self) -> Result<Token<'a>, Failure> {
        self.paren_depth += 1;
        Ok(self.token(TokenKind::LeftParen))
    }

    fn close_paren(&mut self) -> Result<Token<'a>, Failure> {
        match self.paren_depth.checked_sub(1) {
            Some(depth) => {
                self.paren_depth = depth;
                Ok(self.token(TokenKind::RightParen))
            }
            // Prometheus reports the position after it.
            None => Err(Failure::new(self.pos, "unexpected right parenthesis ')'")),
        }
    }

    fn bracket(&mut self, c: char) -> Result<Token<'a>, Failure> {
        match (c, self.place) {
            ('[', Place::Open) => {
                self.place = Place::BracketStart { colon_seen: false };
                self.duration_seen = false;
                Ok(self.token(TokenKind::LeftBracket))
            }
            ('[', _) => Err(self.failed("unexpected left bracket '['")),
            (_, Place::Open) => Err(self.failed("unexpected right bracket ']'")),
            _ => {
                self.place = Place::Open;
                Ok(self.token(TokenKind::RightBracket))
            }
        }
    }

    fn name_or_colon(&mut self, c: char) -> Result<Token<'a>, Failure> {
        if let Place::Bracket { colon_seen } = self.place {
            return match (c, colon_seen) {
                (':', false) => {
                    self.place = Place::Bracket { colon_seen: true };
                    Ok(self.token(TokenKind::Colon))
                }
                (':', true) => Err(self.failed("unexpected colon ':'")),
                _ => match self.duration_word() {
                    Some(kind) => Ok(self.token(kind)),
                    None => Err(self.failed(format!("unexpected character: '{c}', expected ':'"))),
                },
            };
        }
        let names = self.names;
        self.accept_while(|c| c == ':' || names.is_next(c));
        let name = self.taken();
        Ok(self.token(match keyword(name) {
            // The fill words came late: without a parenthesis they are names like any other.
            Some(TokenKind::Word(Word::Fill | Word::FillLeft | Word::FillRight))
                if !self.rest().trim_start_matches(BLANK).starts_with('(') =>
            {
                TokenKind::Identifier
            }
            Some(kind) => kind,
            None if name.contains(':') => TokenKind::MetricIdentifier,
            None => TokenKind::Identifier,
        }))
    }

    /// A word that is allowed in a computed duration; its first letter has been taken.
    fn duration_word(&mut self) -> Option<TokenKind> {
        let mut ahead = *self;
        ahead.accept_while(|c| c == '_' || c.is_ascii_alphabetic());
        let kind = keyword(ahead.taken())?;
        if !matches!(kind, TokenKind::Word(Word::Step | Word::Range | Word::MinOf | Word::MaxOf)) {
            return None;
        }
        *self = ahead;
        Some(kind)
    }

    fn string(&mut self, quote: char) -> Result<Token<'a>, Failure> {
        loop {
            match self.bump() {
                None | Some('\n') => return Err(self.failed("unterminated quoted string")),
                Some('\\') => self.escape(quote)?,
                Some(c) if c == quote => return Ok(self.token(TokenKind::String)),
                Some(_) => {}
            }
        }
    }

    fn raw_string(&mut self) -> Result<Token<'a>, Failure> {
        loop {
            match self.bump() {
                None => return Err(self.failed("unterminated raw string")),
                Some('`') => return Ok(self.token(TokenKind::String)),
                Some(_) => {}
            }
        }
    }

    fn escape(&mut self, quote: char) -> Result<(), Failure> {
        const NOT_TERMINATED: &str = "escape sequence not terminated";
        let Some(c) = self.bump() else { return Err(self.failed(NOT_TERMINATED)) };
        if c == quote || matches!(c, 'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '\\') {
            return Ok(());
        }
        let Some(shape) = EscapeShape::of(c) else {
            return Err(self.failed(format!("unknown escape sequence {}", code_point(c))));
        };
        // An octal escape has no letter in front: its first digit has been taken.
        let mut value = if shape.prefix_bytes == 0 { c.to_digit(shape.base).unwrap_or(0) } else { 0 };
        for _ in (1 - shape.prefix_bytes)..shape.digits {
            let Some(c) = self.bump() else { return Err(self.failed(NOT_TERMINATED)) };
            let Some(digit) = c.to_digit(shape.base) else {
                let message = format!("illegal character {} in escape sequence", code_point(c));
                return Err(self.failed(message));
            };
            value = value.saturating_mul(shape.base).saturating_add(digit);
        }
        if value > shape.max || (0xd800..0xe000).contains(&value) {
            return Err(self.failed("escape sequence is an invalid Unicode code point"));
        }
        Ok(())
    }

    /// A number or a duration; its first character has been taken.
    fn number(&mut self) -> Result<Token<'a>, Failure> {
        self.pos = self.start;
        if let Place::BracketStart { colon_seen } = self.place {
            self.place = Place::Bracket { colon_seen };
            self.duration_seen = true;
        }
        if self.scan_number() {
            return Ok(self.token(TokenKind::Number));
        }
        if self.scan_units() {
            return Ok(self.token(TokenKind::Duration));
        }
        Err(self.failed(format!("bad number or duration syntax: \"{}\"", self.taken())))
    }

    /// Takes what can belong to a number; false where it is none, or not only that. As in Prometheus, a point
    /// after a leading 0 does not count as one, and an `e` after the first digit of a hexadecimal number is
    /// an exponent.
    fn scan_number(&mut self) -> bool {
        let hex = self.accept('0') && (self.accept('x') || self.accept('X'));
        if hex {
            self.accept('_');
        }
        let is_digit = |c: char| if hex { c.is_ascii_hexdigit() } else { c.is_ascii_digit() };
        self.accept('.');
        if self.peek().is_some_and(is_digit) {
            self.bump();
        }
        let mut dot_seen = false;
        let mut exponent_seen = false;
        while let Some(c) = self.peek() {
            let refused_next = match c {
                '.' => "_.",
                'e' | 'E' | '_' => "._eE",
                c if is_digit(c) => {
                    self.accept_while(is_digit);
                    continue;
                }
                _ => break,
            };
            self.bump();
            let seen = match c {
                '.' => Some(&mut dot_seen),
                '_' => None,
                _ => Some(&mut exponent_seen),
            };
            if seen.is_some_and(|seen| std::mem::replace(seen, true)) {
                return false;
            }
            if matches!(c, 'e' | 'E') {
                let _ = self.accept('+') || self.accept('-');
            }
            match self.peek() {
                None if c != '.' => return false,
                Some(next) if refused_next.contains(next) => {
                    self.bump();
                    return false;
                }
                _ if c == '.' && hex => return false,
                _ => {}
            }
        }
        !self.peek().is_some_and(is_alphanumeric)
    }

    /// Takes the units of a duration, and the counts between them.
    fn scan_units(&mut self) -> bool {
        if !self.peek().is_some_and(|c| "smhdwy".contains(c)) {
            return false;
        }
        self.bump();
        self.accept('s');
        while self.peek().is_some_and(|c| c.is_ascii_digit()) {
            self.accept_while(|c| c.is_ascii_digit());
            if !self.peek().is_some_and(|c| "smhdw".contains(c)) {
                return false;
            }
            self.bump();
            self.accept('s');
        }
        if self.peek().is_some_and(is_alphanumeric) {
            self.bump();
            return false;
        }
        true
    }

    fn token(&self, kind: TokenKind) -> Token<'a> {
        Token { kind, text: self.taken(), start: self.start }
    }

    fn taken(&self) -> &'a str {
        self.text.get(self.start..self.pos).unwrap_or("")
    }

    fn failed(&self, message: impl Into<String>) -> Failure {
        Failure::new(self.start, message)
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.pos..).unwrap_or("")
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.pos += c.len_utf8();
        Some(c)
    }

    fn accept(&mut self, wanted: char) -> bool {
        let fits = self.peek() == Some(wanted);
        if fits {
            self.bump();
        }
        fits
    }

    fn accept_while(&mut self, fits: impl Fn(char) -> bool) {
        while self.peek().is_some_and(&fits) {
            self.bump();
        }
    }
}

fn is_alphanumeric(c: char) -> bool {
    c == '_' || c.is_ascii_alphanumeric()
}

/// A character in Go's single quotes; the end of the input shows as the replacement character.
fn quoted_char(c: Option<char>) -> String {
    let c = c.unwrap_or(char::REPLACEMENT_CHARACTER);
    match c {
        '\'' => "'\\''".to_owned(),
        '"' => "'\"'".to_owned(),
        _ => {
            let mut out = String::new();
            crate::parser::quote::write_go_quoted(&mut out, c.encode_utf8(&mut [0; 4]));
            out.replace('"', "'")
        }
    }
}

/// `U+0071 'q'`; the character only where it is printable.
fn code_point(c: char) -> String {
    let code = u32::from(c);
    let shown = quoted_char(Some(c));
    if shown.starts_with("'\\") && c != '\\' && c != '\'' {
        return format!("U+{code:04X}");
    }
    format!("U+{code:04X} '{c}'")
}
