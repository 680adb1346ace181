//! Rules of DELETE and DROP SERIES.

use crate::ast::{Source, Statement};

use super::error::ParseError;
use super::parser::Parser;
use super::select::{condition, optional_from};
use super::token::Position;

pub(super) fn delete(parser: &mut Parser) -> Result<Statement, ParseError> {
    expect_from_or_where(parser)?;
    let sources = sources_of_database(parser)?;
    let condition = condition(parser)?;
    Ok(Statement::Delete { sources, condition })
}

pub(super) fn drop_series(parser: &mut Parser) -> Result<Statement, ParseError> {
    expect_from_or_where(parser)?;
    let sources = sources_of_database(parser)?;
    let condition = condition(parser)?;
    Ok(Statement::DropSeries { sources, condition })
}

fn expect_from_or_where(parser: &mut Parser) -> Result<(), ParseError> {
    let token = parser.next();
    if token.is_keyword("FROM") || token.is_keyword("WHERE") {
        parser.unscan();
        return Ok(());
    }
    Err(ParseError::unexpected(&token, &["FROM", "WHERE"]))
}

/// Sources of DELETE and DROP SERIES, which always mean the whole default database.
pub(super) fn sources_of_database(parser: &mut Parser) -> Result<Vec<Source>, ParseError> {
    let sources = optional_from(parser)?;
    for source in &sources {
        if let Source::Measurement(measurement) = source {
            let refused = [
                (&measurement.policy, "retention policy not supported"),
                (&measurement.database, "database not supported"),
            ];
            if let Some((_, message)) = refused.into_iter().find(|(name, _)| !name.is_empty()) {
                return Err(ParseError::at(message, Position::default()));
            }
        }
    }
    Ok(sources)
}
