//! The rule of CREATE CONTINUOUS QUERY.

use crate::ast::{CreateContinuousQuery, Resample, Select, Statement, format_duration};

use super::error::ParseError;
use super::parser::Parser;
use super::select::{TargetRule, select};

pub(super) fn create_continuous_query(parser: &mut Parser) -> Result<Statement, ParseError> {
    let name = parser.ident()?;
    parser.expect_keyword("ON")?;
    let database = parser.ident()?;
    let resample = if parser.next_keyword("RESAMPLE") { resample(parser)? } else { Resample::default() };
    parser.expect_keywords(&["BEGIN", "SELECT"])?;
    let select = select(parser, TargetRule::Required)?;
    check_windows(parser, &select)?;
    parser.expect_keyword("END")?;
    check_resample(resample, &select)?;
    let create = CreateContinuousQuery { name, database, resample, select };
    Ok(Statement::CreateContinuousQuery(Box::new(create)))
}

fn resample(parser: &mut Parser) -> Result<Resample, ParseError> {
    let every_ns = if parser.next_keyword("EVERY") { Some(parser.duration()?) } else { None };
    let for_ns = if parser.next_keyword("FOR") { Some(parser.duration()?) } else { None };
    let [every_ns, for_ns] = [every_ns, for_ns].map(|ns| ns.filter(|ns| *ns != 0));
    if every_ns.is_none() && for_ns.is_none() {
        let token = parser.next();
        return Err(ParseError::unexpected(&token, &["EVERY", "FOR"]));
    }
    Ok(Resample { every_ns, for_ns })
}

/// Refuses an aggregate without windows; the error is about the last token of the query.
fn check_windows(parser: &mut Parser, select: &Select) -> Result<(), ParseError> {
    let mut expected = vec!["GROUP BY time(...)"];
    match select.interval_ns() {
        _ if select.is_raw() => return Ok(()),
        Ok(Some(1..)) => return Ok(()),
        Ok(_) => {}
        Err(reason) => expected.push(reason),
    }
    parser.unscan();
    parser.unscan();
    Err(ParseError::unexpected(&parser.next(), &expected))
}

/// Refuses a FOR that is shorter than a window or than EVERY.
fn check_resample(resample: Resample, select: &Select) -> Result<(), ParseError> {
    let (Some(for_ns), Some(interval_ns)) = (resample.for_ns, select.interval_ns().ok().flatten()) else {
        return Ok(());
    };
    let min_ns = interval_ns.max(resample.every_ns.unwrap_or(0));
    if for_ns >= min_ns {
        return Ok(());
    }
    let [min, got] = [min_ns, for_ns].map(format_duration);
    let message = "FOR duration must be >= GROUP BY time duration";
    Err(ParseError::plain(format!("{message}: must be a minimum of {min}, got {got}")))
}
