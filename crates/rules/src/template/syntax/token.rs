//! Tokens of actions and the text between them.

use std::borrow::Cow;

use super::super::text::{quote, truncate};

/// Runes of a token in an error.
const SHOWN_RUNES_MAX: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    Error,
    Bool,
    /// A printable ASCII character without another meaning.
    Char,
    CharConstant,
    Complex,
    Assign,
    Declare,
    End,
    Field,
    Identifier,
    LeftDelimiter,
    LeftParen,
    Number,
    Pipe,
    RawString,
    RightDelimiter,
    RightParen,
    Space,
    String,
    Text,
    Variable,
    Keyword(Keyword),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keyword {
    Block,
    Break,
    Continue,
    Dot,
    Define,
    Else,
    End,
    If,
    Nil,
    Range,
    Template,
    With,
}

impl Keyword {
    pub(super) fn from_word(word: &str) -> Option<Keyword> {
        Some(match word {
            "block" => Keyword::Block,
            "break" => Keyword::Break,
            "continue" => Keyword::Continue,
            "define" => Keyword::Define,
            "else" => Keyword::Else,
            "end" => Keyword::End,
            "if" => Keyword::If,
            "nil" => Keyword::Nil,
            "range" => Keyword::Range,
            "template" => Keyword::Template,
            "with" => Keyword::With,
            _ => return None,
        })
    }
}

#[derive(Debug, Clone)]
pub(super) struct Token<'a> {
    pub(super) kind: TokenKind,
    pub(super) position: usize,
    /// Line of the first byte, from 1.
    pub(super) line: usize,
    /// Source, or the text of an error.
    pub(super) text: Cow<'a, str>,
}

impl Token<'_> {
    /// Returns the token as an error shows it.
    pub(super) fn shown(&self) -> String {
        match self.kind {
            TokenKind::End => "EOF".to_owned(),
            TokenKind::Error => self.text.clone().into_owned(),
            TokenKind::Keyword(_) => format!("<{}>", self.text),
            _ if self.text.len() > SHOWN_RUNES_MAX => {
                format!("{}...", quote(truncate(self.text.as_bytes(), SHOWN_RUNES_MAX)))
            }
            _ => quote(self.text.as_bytes()),
        }
    }
}
