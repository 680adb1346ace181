//! Parser: text to statements (scanner, token buffer, recursive descent).
//!
//! Invariants: error texts and positions are those of InfluxDB 1.8; positions count characters from 1, and
//! the end of the text may count twice, as there. Nesting is bounded by [`NESTING_MAX`], expressions by
//! [`TERMS_MAX`], texts by [`QUERY_BYTES_MAX`].
//! Not here: names of functions and types of fields (`semantics`).

mod access;
mod continuous;
mod duration;
mod error;
mod expression;
mod keyword;
mod parameter;
mod parser;
mod scanner;
mod schema;
mod select;
mod show;
mod source;
mod statement;
#[cfg(test)]
mod tests;
mod token;

use crate::ast::{Expr, Statement};

pub use duration::parse_duration;
pub use error::ParseError;
pub use parameter::{Parameter, Parameters};

pub(crate) use keyword::is_keyword;

use parser::Parser;

/// Bytes of a text of statements.
pub const QUERY_BYTES_MAX: usize = 8 << 20;
/// Levels of parentheses, calls and subqueries.
pub const NESTING_MAX: usize = 128;
/// Operands, arguments, fields and sources of one text of statements.
pub const TERMS_MAX: usize = 500_000;

/// Parses statements with `;` between them.
///
/// # Errors
/// [`ParseError`] of the first statement that has one.
pub fn parse_query(text: &str) -> Result<Vec<Statement>, ParseError> {
    parse_query_with(text, Parameters::default())
}

/// Parses statements with `;` between them, and values for `$name`.
///
/// # Errors
/// [`ParseError`] of the first statement that has one.
pub fn parse_query_with(text: &str, parameters: Parameters) -> Result<Vec<Statement>, ParseError> {
    Parser::new(text, parameters)?.query()
}

/// Parses the first statement of a text.
///
/// # Errors
/// [`ParseError`].
pub fn parse_statement(text: &str) -> Result<Statement, ParseError> {
    Parser::new(text, Parameters::default())?.statement()
}

/// Parses the expression that a text begins with.
///
/// # Errors
/// [`ParseError`].
pub fn parse_expr(text: &str) -> Result<Expr, ParseError> {
    Parser::new(text, Parameters::default())?.expr()
}
