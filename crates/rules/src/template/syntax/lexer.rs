//! Lexer: text and actions to tokens, one at a time, on demand of the parser.
//!
//! Invariants: an error is a token, and nothing is read after it; space that trim markers remove is in no
//! token.

use std::borrow::Cow;

use super::super::text::{is_letter_or_digit, is_printable, quote};
use super::token::{Keyword, Token, TokenKind};

const LEFT: &str = "{{";
const RIGHT: &str = "}}";
const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];
/// Bytes of a trim marker: a minus sign and a space.
const MARKER_LEN: usize = 2;

pub(super) struct Lexer<'a> {
    input: &'a str,
    position: usize,
    is_inside_action: bool,
    open_parens: usize,
    /// Position up to which lines are counted.
    counted_position: usize,
    line: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(input: &'a str) -> Lexer<'a> {
        Lexer { input, position: 0, is_inside_action: false, open_parens: 0, counted_position: 0, line: 1 }
    }

    pub(super) fn next_token(&mut self) -> Token<'a> {
        if self.is_inside_action { self.action() } else { self.text() }
    }

    fn rest(&self) -> &'a str {
        self.at(self.position)
    }

    fn at(&self, position: usize) -> &'a str {
        self.input.get(position..).unwrap_or("")
    }

    /// Returns the token from `start` up to `end`, and continues after it.
    fn token(&mut self, kind: TokenKind, start: usize, end: usize) -> Token<'a> {
        self.position = end;
        let text = Cow::Borrowed(self.input.get(start..end).unwrap_or(""));
        Token { kind, position: start, line: self.line_of(start), text }
    }

    fn error(&mut self, start: usize, message: String) -> Token<'a> {
        let line = self.line_of(start);
        self.position = self.input.len();
        Token { kind: TokenKind::Error, position: start, line, text: Cow::Owned(message) }
    }

    /// `position` is not before the position of the call before.
    fn line_of(&mut self, position: usize) -> usize {
        let passed = self.input.get(self.counted_position..position).unwrap_or("");
        self.line += passed.bytes().filter(|&b| b == b'\n').count();
        self.counted_position = position.max(self.counted_position);
        self.line
    }

    /// Text up to the next action, or the start of the action.
    fn text(&mut self) -> Token<'a> {
        loop {
            let start = self.position;
            let rest = self.rest();
            let Some(len) = rest.find(LEFT) else {
                let kind = if rest.is_empty() { TokenKind::End } else { TokenKind::Text };
                return self.token(kind, start, self.input.len());
            };
            let delimiter = start + len;
            let is_trimmed = has_left_marker(self.at(delimiter + LEFT.len()));
            let before = rest.get(..len).unwrap_or("");
            let kept = if is_trimmed { before.trim_end_matches(SPACES) } else { before };
            if !kept.is_empty() {
                let token = self.token(TokenKind::Text, start, start + kept.len());
                self.position = delimiter;
                return token;
            }
            let content = delimiter + LEFT.len() + if is_trimmed { MARKER_LEN } else { 0 };
            if self.at(content).starts_with("/*") {
                if let Some(error) = self.skip_comment(content) {
                    return error;
                }
                continue;
            }
            let token = self.token(TokenKind::LeftDelimiter, delimiter, delimiter + LEFT.len());
            self.position = content;
            self.is_inside_action = true;
            self.open_parens = 0;
            return token;
        }
    }

    /// Skips the comment at `start` and the delimiter after it; returns an error token if it has no end.
    fn skip_comment(&mut self, start: usize) -> Option<Token<'a>> {
        let Some(len) = self.at(start + 2).find("*/") else {
            return Some(self.error(start, "unclosed comment".to_owned()));
        };
        self.position = start + 2 + len + 2;
        let Some(is_trimmed) = right_delimiter(self.rest()) else {
            return Some(self.error(start, "comment ends before closing delimiter".to_owned()));
        };
        self.skip_right_delimiter(is_trimmed);
        None
    }

    fn skip_right_delimiter(&mut self, is_trimmed: bool) {
        self.position += RIGHT.len();
        if is_trimmed {
            self.position += MARKER_LEN;
            let rest = self.rest();
            self.position += rest.len() - rest.trim_start_matches(SPACES).len();
        }
    }

    fn right_delimiter_token(&mut self, is_trimmed: bool) -> Token<'a> {
        let start = self.position;
        let at = start + if is_trimmed { MARKER_LEN } else { 0 };
        let token = self.token(TokenKind::RightDelimiter, at, at + RIGHT.len());
        self.position = start;
        self.skip_right_delimiter(is_trimmed);
        self.is_inside_action = false;
        token
    }

    fn action(&mut self) -> Token<'a> {
        let start = self.position;
        if let Some(is_trimmed) = right_delimiter(self.rest()) {
            if self.open_parens == 0 {
                return self.right_delimiter_token(is_trimmed);
            }
            return self.error(start, "unclosed left paren".to_owned());
        }
        let Some(c) = self.rest().chars().next() else {
            return self.error(start, "unclosed action".to_owned());
        };
        let after = start + c.len_utf8();
        match c {
            c if SPACES.contains(&c) => self.space(),
            '=' => self.token(TokenKind::Assign, start, after),
            ':' if self.at(after).starts_with('=') => self.token(TokenKind::Declare, start, after + 1),
            ':' => self.error(start, "expected :=".to_owned()),
            '|' => self.token(TokenKind::Pipe, start, after),
            '"' => self.quoted(TokenKind::String, c, "unterminated quoted string"),
            '\'' => self.quoted(TokenKind::CharConstant, c, "unterminated character constant"),
            '`' => match self.at(after).find('`') {
                Some(len) => self.token(TokenKind::RawString, start, after + len + 1),
                None => self.error(start, "unterminated raw quoted string".to_owned()),
            },
            '$' => self.field_or_variable(TokenKind::Variable),
            '.' if self.at(after).starts_with(|c: char| !c.is_ascii_digit()) => {
                self.field_or_variable(TokenKind::Field)
            }
            '.' | '+' | '-' | '0'..='9' => self.number(),
            c if is_word_char(c) => self.identifier(),
            '(' => {
                self.open_parens += 1;
                self.token(TokenKind::LeftParen, start, after)
            }
            ')' => match self.open_parens.checked_sub(1) {
                Some(left) => {
                    self.open_parens = left;
                    self.token(TokenKind::RightParen, start, after)
                }
                None => self.error(start, "unexpected right paren".to_owned()),
            },
            c if c.is_ascii() && is_printable(c) => self.token(TokenKind::Char, start, after),
            c => self.error(start, format!("unrecognized character in action: {}", code_point(c))),
        }
    }

    /// A run of spaces; the last one may belong to a trim marker.
    fn space(&mut self) -> Token<'a> {
        let start = self.position;
        let rest = self.rest();
        let end = start + rest.len() - rest.trim_start_matches(SPACES).len();
        // All spaces are ASCII.
        if right_delimiter(self.at(end - 1)) == Some(true) {
            if end - 1 == start {
                return self.right_delimiter_token(true);
            }
            return self.token(TokenKind::Space, start, end - 1);
        }
        self.token(TokenKind::Space, start, end)
    }

    /// A literal up to the next `quote` that has no backslash before it.
    fn quoted(&mut self, kind: TokenKind, quote: char, unterminated: &str) -> Token<'a> {
        let start = self.position;
        let mut chars = self.rest().char_indices().skip(1);
        while let Some((idx, c)) = chars.next() {
            match c {
                '\\' => {
                    let escaped = chars.next();
                    if escaped.is_none_or(|(_, escaped)| escaped == '\n') {
                        break;
                    }
                }
                '\n' => break,
                c if c == quote => return self.token(kind, start, start + idx + 1),
                _ => {}
            }
        }
        self.error(start, unterminated.to_owned())
    }

    fn field_or_variable(&mut self, kind: TokenKind) -> Token<'a> {
        let start = self.position;
        let end = self.word_end(start + 1);
        if let Some(error) = self.check_terminated(end) {
            return error;
        }
        let is_alone = end == start + 1;
        let kind = if is_alone && kind == TokenKind::Field { TokenKind::Keyword(Keyword::Dot) } else { kind };
        self.token(kind, start, end)
    }

    fn identifier(&mut self) -> Token<'a> {
        let start = self.position;
        let end = self.word_end(start);
        if let Some(error) = self.check_terminated(end) {
            return error;
        }
        let word = self.input.get(start..end).unwrap_or("");
        let kind = match word {
            "true" | "false" => TokenKind::Bool,
            word => Keyword::from_word(word).map_or(TokenKind::Identifier, TokenKind::Keyword),
        };
        self.token(kind, start, end)
    }

    fn word_end(&self, from: usize) -> usize {
        let rest = self.at(from);
        from + rest.find(|c: char| !is_word_char(c)).unwrap_or(rest.len())
    }

    /// Returns an error if a word cannot end at `end`.
    fn check_terminated(&mut self, end: usize) -> Option<Token<'a>> {
        let rest = self.at(end);
        let c = rest.chars().next()?;
        let is_terminator = SPACES.contains(&c) || ".,|:)(".contains(c) || rest.starts_with(RIGHT);
        (!is_terminator).then(|| self.error(self.position, format!("bad character {}", code_point(c))))
    }

    /// A decimal, octal, hexadecimal, floating or imaginary number; the parser finds the faults within it.
    fn number(&mut self) -> Token<'a> {
        let start = self.position;
        let first = scan_number(self.rest());
        let mut end = start + first.len;
        let mut is_good = first.is_good;
        let mut kind = TokenKind::Number;
        if is_good && self.at(end).starts_with(['+', '-']) {
            // The imaginary part of a complex number.
            let second = scan_number(self.at(end));
            end += second.len;
            let text = self.input.get(start..end).unwrap_or("");
            is_good = second.is_good && text.ends_with('i');
            kind = TokenKind::Complex;
        }
        if is_good {
            return self.token(kind, start, end);
        }
        let text = self.input.get(start..end).unwrap_or("");
        self.error(start, format!("bad number syntax: {}", quote(text.as_bytes())))
    }
}

struct ScannedNumber {
    /// Bytes of the number, and of the character that must not follow it.
    len: usize,
    is_good: bool,
}

fn scan_number(text: &str) -> ScannedNumber {
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let mut digits = "0123456789_";
    if let Some(after) = rest.strip_prefix('0') {
        rest = after;
        let prefixes = [('x', "0123456789abcdefABCDEF_"), ('o', "01234567_"), ('b', "01_")];
        for (letter, its_digits) in prefixes {
            if let Some(after) = rest.strip_prefix([letter, letter.to_ascii_uppercase()]) {
                rest = after;
                digits = its_digits;
                break;
            }
        }
    }
    let is_digit = |c: char| digits.contains(c);
    rest = rest.trim_start_matches(is_digit);
    if let Some(after) = rest.strip_prefix('.') {
        rest = after.trim_start_matches(is_digit);
    }
    let exponent = match digits.len() {
        11 => Some(['e', 'E']),
        23 => Some(['p', 'P']),
        _ => None,
    };
    if let Some(after) = exponent.and_then(|letters| rest.strip_prefix(letters)) {
        let after = after.strip_prefix(['+', '-']).unwrap_or(after);
        rest = after.trim_start_matches(|c: char| c.is_ascii_digit() || c == '_');
    }
    rest = rest.strip_prefix('i').unwrap_or(rest);
    let follower = rest.chars().next().filter(|&c| is_word_char(c));
    let len = text.len() - rest.len() + follower.map_or(0, char::len_utf8);
    ScannedNumber { len, is_good: follower.is_none() }
}

/// Returns true if `text` follows a left delimiter that trims the text before it.
fn has_left_marker(text: &str) -> bool {
    text.strip_prefix('-').is_some_and(|rest| rest.starts_with(SPACES))
}

/// `Some` if `text` begins with a right delimiter: `true` with a trim marker.
fn right_delimiter(text: &str) -> Option<bool> {
    let marked = text.strip_prefix(SPACES).and_then(|rest| rest.strip_prefix('-'));
    if marked.is_some_and(|rest| rest.starts_with(RIGHT)) {
        return Some(true);
    }
    text.starts_with(RIGHT).then_some(false)
}

fn is_word_char(c: char) -> bool {
    c == '_' || is_letter_or_digit(c)
}

/// Returns `U+0023 '#'`; a character that is not printable has no text.
fn code_point(c: char) -> String {
    let code = u32::from(c);
    if is_printable(c) { format!("U+{code:04X} '{c}'") } else { format!("U+{code:04X}") }
}
