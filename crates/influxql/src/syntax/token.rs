//! Tokens and their positions.

use std::fmt;

use crate::ast::BinaryOp;

/// Place of a character; both from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Position {
    pub(super) line: usize,
    pub(super) column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at line {}, char {}", self.line + 1, self.column + 1)
    }
}

/// Kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Illegal,
    End,
    Space,
    Comment,
    Ident,
    Parameter,
    Float,
    Integer,
    Duration,
    Text,
    /// String without its end.
    BadText,
    /// Unknown escape in a string or regex.
    BadEscape,
    Regex,
    /// Regex without its end.
    BadRegex,
    Op(BinaryOp),
    LeftParen,
    RightParen,
    Comma,
    Colon,
    DoubleColon,
    Semicolon,
    Dot,
    Keyword(&'static str),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) position: Position,
    /// Text of identifiers, literals, spaces and illegal characters; empty for all others.
    pub(super) literal: String,
}

impl Token {
    pub(super) fn new(kind: Kind, position: Position) -> Token {
        Token { kind, position, literal: String::new() }
    }

    pub(super) fn with_text(kind: Kind, position: Position, literal: impl Into<String>) -> Token {
        Token { kind, position, literal: literal.into() }
    }

    /// Text in `found X`.
    pub(super) fn text(&self) -> &str {
        if self.literal.is_empty() { self.kind.text() } else { &self.literal }
    }

    pub(super) fn is(&self, kind: Kind) -> bool {
        self.kind == kind
    }

    pub(super) fn is_keyword(&self, word: &str) -> bool {
        matches!(self.kind, Kind::Keyword(keyword) if keyword == word)
    }

    /// Returns true if the token is the identifier `word`, in any case.
    pub(super) fn is_ident(&self, word: &str) -> bool {
        self.kind == Kind::Ident && self.literal.eq_ignore_ascii_case(word)
    }
}

impl Kind {
    fn text(self) -> &'static str {
        match self {
            Kind::Illegal => "ILLEGAL",
            Kind::End => "EOF",
            Kind::Space => "WS",
            Kind::Comment => "COMMENT",
            Kind::Ident => "IDENT",
            Kind::Parameter => "BOUNDPARAM",
            Kind::Float => "NUMBER",
            Kind::Integer => "INTEGER",
            Kind::Duration => "DURATIONVAL",
            Kind::Text => "STRING",
            Kind::BadText => "BADSTRING",
            Kind::BadEscape => "BADESCAPE",
            Kind::Regex => "REGEX",
            Kind::BadRegex => "BADREGEX",
            Kind::Op(op) => op.text(),
            Kind::LeftParen => "(",
            Kind::RightParen => ")",
            Kind::Comma => ",",
            Kind::Colon => ":",
            Kind::DoubleColon => "::",
            Kind::Semicolon => ";",
            Kind::Dot => ".",
            Kind::Keyword(word) => word,
        }
    }
}
