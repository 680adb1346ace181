//! Parser: text to statements (scanner, token buffer, recursive descent).
//!
//! Invariants: error texts and positions equal InfluxDB 1.8's; positions count characters from 1, and the end
//! of the text may count twice, as there. Nesting is bounded by [`NESTING_MAX`], expressions by
//! [`TERMS_MAX`], texts by [`QUERY_BYTES_MAX`].
//! Not here: names of functions and types of fields (`semantics`).

mod access;
mod continuous;
mod duration;
mod erase;
mod error;
mod expression;
mod limits;
mod parameter;
mod parser;
mod scanner;
mod schema;
mod select;
mod show;
mod statement;
#[cfg(test)]
mod tests;
mod token;

use crate::ast::{Expr, Statement};

pub use duration::parse_duration;
pub use error::ParseError;
pub use limits::{NESTING_MAX, QUERY_BYTES_MAX, TERMS_MAX};
pub use parameter::{Parameter, Parameters};

use parser::Parser;

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
    statement::query(&mut Parser::new(text, parameters)?)
}

/// Parses the first statement of a text.
///
/// # Errors
/// [`ParseError`].
pub fn parse_statement(text: &str) -> Result<Statement, ParseError> {
    statement::statement(&mut Parser::new(text, Parameters::default())?)
}

/// Parses the expression that a text begins with.
///
/// # Errors
/// [`ParseError`].
pub fn parse_expr(text: &str) -> Result<Expr, ParseError> {
    expression::expr(&mut Parser::new(text, Parameters::default())?)
}
