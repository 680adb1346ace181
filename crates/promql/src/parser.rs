//! Parser: text to a type-checked syntax tree (lexer, Pratt parser, type checker), and the printer back.
//!
//! Invariants: every error has a position and Prometheus's text; the first error in reading order wins, and
//! types are checked only where the whole text could be read. Whatever the text, the stack stays small:
//! nesting is bounded by [`NESTING_MAX`], and chains of operators are built, checked and printed in loops.
//! Not here: evaluation.

use chronolith_model::Matcher;

use crate::ast::Expr;
use crate::parser::grammar::Parser;
use crate::parser::lexer::Failure;

pub use options::{DURATION_OPERATORS_MAX, NESTING_MAX, OPERATORS_MAX, ParserOptions, QUERY_BYTES_MAX};
pub use pretty::pretty;
pub use series::{SEQUENCE_VALUES_MAX, SequenceValue, SeriesDescription};

mod check;
mod duration;
mod grammar;
mod lexer;
mod number;
mod options;
mod pretty;
mod print;
mod quote;
mod selector;
mod series;
mod token;

/// Reason for refusing a query. `Display` is `1:8: parse error: ...` (line:column, both from 1; columns count
/// bytes). An empty text has no positions: both are 0, and the message begins with `unknown position`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: parse error: {message}", self.position())]
pub struct ParseError {
    /// From 1.
    pub line: usize,
    /// From 1.
    pub column: usize,
    /// Prometheus's text.
    pub message: String,
}

impl ParseError {
    fn locate(text: &str, failure: Failure) -> ParseError {
        if text.is_empty() {
            return ParseError { line: 0, column: 0, message: failure.message };
        }
        let before = text.as_bytes().get(..failure.at).unwrap_or(text.as_bytes());
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |idx| idx + 1);
        ParseError { line, column: failure.at - line_start + 1, message: failure.message }
    }
}

impl ParseError {
    fn position(&self) -> String {
        if self.line == 0 { "unknown position".to_owned() } else { format!("{}:{}", self.line, self.column) }
    }
}

/// Parses and checks a query.
///
/// # Errors
/// The first [`ParseError`].
pub fn parse_expr(text: &str, options: ParserOptions) -> Result<Expr, ParseError> {
    check_length(text)?;
    let mut expr = Parser::new(text, options).query().map_err(|failure| ParseError::locate(text, failure))?;
    check::check(&mut expr).map_err(|failure| ParseError::locate(text, failure))?;
    Ok(expr)
}

/// Parses a series selector, as `match[]` has them: a name, matchers in braces or both. Matchers that select
/// everything are let through. Cost: linear in the length of the text.
///
/// # Errors
/// The text is anything else.
pub fn parse_metric_selector(text: &str) -> Result<Vec<Matcher>, ParseError> {
    check_length(text)?;
    let selector = Parser::new(text, ParserOptions::default()).lone_selector();
    selector.map(|selector| selector.matchers).map_err(|failure| ParseError::locate(text, failure))
}

/// Parses a metric: a name, labels in braces, both or none. Labels are sorted by name; a name may occur
/// twice, and without a name in front of the braces a value may be empty, as in Prometheus.
///
/// # Errors
/// The text is anything else.
pub fn parse_metric(text: &str, options: ParserOptions) -> Result<Vec<(String, String)>, ParseError> {
    check_length(text)?;
    series::metric(text, options).map_err(|failure| ParseError::locate(text, failure))
}

/// Parses a series description. Cost: linear in the text and in its values.
///
/// # Errors
/// The text is anything else, or has more than [`SEQUENCE_VALUES_MAX`] values.
pub fn parse_series_description(text: &str, options: ParserOptions) -> Result<SeriesDescription, ParseError> {
    check_length(text)?;
    series::series_description(text, options).map_err(|failure| ParseError::locate(text, failure))
}

fn check_length(text: &str) -> Result<(), ParseError> {
    if text.len() <= QUERY_BYTES_MAX {
        return Ok(());
    }
    let message = format!("query has {} bytes, at most {QUERY_BYTES_MAX} are allowed", text.len());
    Err(ParseError { line: 1, column: 1, message })
}
