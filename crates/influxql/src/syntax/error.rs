//! Errors of the parser.
//!
//! Invariants: the text is InfluxDB 1.8's; the prefix `error parsing query: ` is the caller's.

use super::token::{Position, Token};

/// Reason for refusing a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ParseError {
    message: String,
}

impl ParseError {
    /// `message` without a position.
    pub(crate) fn plain(message: impl Into<String>) -> ParseError {
        ParseError { message: message.into() }
    }

    /// `message` with a position after it.
    pub(super) fn at(message: impl std::fmt::Display, position: Position) -> ParseError {
        ParseError { message: format!("{message} {position}") }
    }

    /// `found X, expected A, B at line 1, char 8`.
    pub(super) fn unexpected(found: &Token, expected: &[&str]) -> ParseError {
        ParseError::at(
            format_args!("found {}, expected {}", found.text(), expected.join(", ")),
            found.position,
        )
    }

    /// The text.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}
