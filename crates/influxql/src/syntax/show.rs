//! Rules of SHOW.

use crate::ast::{
    BinaryOp, Cardinality, CardinalityOf, KeyMatch, Page, ShowSeries, ShowTagValues, Statement,
};

use super::error::ParseError;
use super::parser::Parser;
use super::select::{Subqueries, condition, count, dimensions, optional_from, order_by, source};
use super::token::Kind;

const SHOWN: [&str; 16] = [
    "CONTINUOUS",
    "DATABASES",
    "DIAGNOSTICS",
    "FIELD",
    "GRANTS",
    "MEASUREMENT",
    "MEASUREMENTS",
    "QUERIES",
    "RETENTION",
    "SERIES",
    "SHARD",
    "SHARDS",
    "STATS",
    "SUBSCRIPTIONS",
    "TAG",
    "USERS",
];

pub(super) fn show(parser: &mut Parser) -> Result<Statement, ParseError> {
    let token = parser.next();
    let Kind::Keyword(word) = token.kind else { return Err(ParseError::unexpected(&token, &SHOWN)) };
    match word {
        "CONTINUOUS" => parser.expect_keyword("QUERIES").map(|()| Statement::ShowContinuousQueries),
        "DATABASES" => Ok(Statement::ShowDatabases),
        "DIAGNOSTICS" => module(parser).map(Statement::ShowDiagnostics),
        "FIELD" => show_field(parser),
        "GRANTS" => {
            parser.expect_keyword("FOR")?;
            parser.ident().map(Statement::ShowGrants)
        }
        "MEASUREMENT" => cardinality_of(parser, CardinalityOf::Measurements),
        "MEASUREMENTS" => show_measurements(parser),
        "QUERIES" => Ok(Statement::ShowQueries),
        "RETENTION" => {
            parser.expect_keyword("POLICIES")?;
            on_database(parser).map(Statement::ShowRetentionPolicies)
        }
        "SERIES" => show_series(parser),
        "SHARD" => parser.expect_keyword("GROUPS").map(|()| Statement::ShowShardGroups),
        "SHARDS" => Ok(Statement::ShowShards),
        "STATS" => module(parser).map(Statement::ShowStats),
        "SUBSCRIPTIONS" => Ok(Statement::ShowSubscriptions),
        "TAG" => show_tag(parser),
        "USERS" => Ok(Statement::ShowUsers),
        _ => Err(ParseError::unexpected(&token, &SHOWN)),
    }
}

/// The string after FOR, if that is next.
fn module(parser: &mut Parser) -> Result<String, ParseError> {
    if parser.next_keyword("FOR") { parser.text() } else { Ok(String::new()) }
}

fn on_database(parser: &mut Parser) -> Result<String, ParseError> {
    if parser.next_keyword("ON") { parser.ident() } else { Ok(String::new()) }
}

fn page(parser: &mut Parser, words: [&str; 2]) -> Result<Page, ParseError> {
    let [limit, offset] = words;
    Ok(Page { limit: count(parser, limit)?, offset: count(parser, offset)? })
}

/// ON and FROM.
fn scope(parser: &mut Parser) -> Result<ShowSeries, ParseError> {
    let database = on_database(parser)?;
    let sources = optional_from(parser)?;
    Ok(ShowSeries { database, sources, ..ShowSeries::default() })
}

/// Parses ORDER BY, LIMIT and OFFSET.
fn order_and_page(parser: &mut Parser, show: &mut ShowSeries) -> Result<(), ParseError> {
    show.sort = order_by(parser)?;
    show.page = page(parser, ["LIMIT", "OFFSET"])?;
    Ok(())
}

fn show_series(parser: &mut Parser) -> Result<Statement, ParseError> {
    let is_exact = parser.next_keyword("EXACT");
    if parser.next_keyword("CARDINALITY") {
        return cardinality(parser, CardinalityOf::Series, is_exact);
    }
    let mut show = scope(parser)?;
    show.condition = condition(parser)?;
    order_and_page(parser, &mut show)?;
    Ok(Statement::ShowSeries(show))
}

fn show_measurements(parser: &mut Parser) -> Result<Statement, ParseError> {
    let mut show = ShowSeries { database: on_database(parser)?, ..ShowSeries::default() };
    if parser.next_keyword("WITH") {
        parser.expect_keyword("MEASUREMENT")?;
        let token = parser.next();
        if !matches!(token.kind, Kind::Op(BinaryOp::Eq | BinaryOp::Match)) {
            return Err(ParseError::unexpected(&token, &["=", "=~"]));
        }
        show.sources.push(source(parser, Subqueries::Refused)?);
    }
    show.condition = condition(parser)?;
    order_and_page(parser, &mut show)?;
    Ok(Statement::ShowMeasurements(show))
}

fn show_field(parser: &mut Parser) -> Result<Statement, ParseError> {
    let token = parser.next();
    match token.kind {
        Kind::Keyword("KEY") => cardinality_of(parser, CardinalityOf::FieldKeys),
        Kind::Keyword("KEYS") => {
            let mut show = scope(parser)?;
            order_and_page(parser, &mut show)?;
            Ok(Statement::ShowFieldKeys(show))
        }
        _ => Err(ParseError::unexpected(&token, &["KEY", "KEYS"])),
    }
}

fn show_tag(parser: &mut Parser) -> Result<Statement, ParseError> {
    let token = parser.next();
    match token.kind {
        Kind::Keyword("KEY") => cardinality_of(parser, CardinalityOf::TagKeys),
        Kind::Keyword("KEYS") => {
            let mut show = scope(parser)?;
            show.condition = condition(parser)?;
            order_and_page(parser, &mut show)?;
            show.series_page = page(parser, ["SLIMIT", "SOFFSET"])?;
            Ok(Statement::ShowTagKeys(show))
        }
        Kind::Keyword("VALUES") => show_tag_values(parser),
        _ => Err(ParseError::unexpected(&token, &["KEY", "KEYS", "VALUES"])),
    }
}

fn show_tag_values(parser: &mut Parser) -> Result<Statement, ParseError> {
    let token = parser.next();
    parser.unscan();
    if token.is_keyword("EXACT") || token.is_keyword("CARDINALITY") {
        // The keys come after FROM: `cardinality` reads them.
        return cardinality_of(parser, CardinalityOf::TagValues(KeyMatch::In(Vec::new())));
    }
    let mut clauses = scope(parser)?;
    let keys = with_key(parser)?;
    clauses.condition = condition(parser)?;
    order_and_page(parser, &mut clauses)?;
    Ok(Statement::ShowTagValues(ShowTagValues { clauses, keys }))
}

fn with_key(parser: &mut Parser) -> Result<KeyMatch, ParseError> {
    parser.expect_keywords(&["WITH", "KEY"])?;
    let token = parser.next();
    match token.kind {
        Kind::Keyword("IN") => {
            parser.expect(Kind::LeftParen, "(")?;
            let keys = parser.idents()?;
            parser.expect(Kind::RightParen, ")")?;
            Ok(KeyMatch::In(keys))
        }
        Kind::Op(BinaryOp::Eq) => parser.ident().map(KeyMatch::Equal),
        Kind::Op(BinaryOp::NotEq) => parser.ident().map(KeyMatch::NotEqual),
        Kind::Op(op @ (BinaryOp::Match | BinaryOp::NotMatch)) => {
            let Some(regex) = parser.regex()? else {
                return Err(ParseError::unexpected(&parser.next(), &["regex"]));
            };
            let is_match = op == BinaryOp::Match;
            Ok(if is_match { KeyMatch::Matches(regex) } else { KeyMatch::NotMatches(regex) })
        }
        _ => Err(ParseError::unexpected(&token, &["IN", "=", "=~"])),
    }
}

/// `[EXACT] CARDINALITY` and its clauses.
fn cardinality_of(parser: &mut Parser, of: CardinalityOf) -> Result<Statement, ParseError> {
    let token = parser.next();
    match token.kind {
        Kind::Keyword("EXACT") => {
            parser.expect_keyword("CARDINALITY")?;
            cardinality(parser, of, true)
        }
        Kind::Keyword("CARDINALITY") => cardinality(parser, of, false),
        _ => Err(ParseError::unexpected(&token, &["EXACT", "CARDINALITY"])),
    }
}

fn cardinality(parser: &mut Parser, of: CardinalityOf, is_exact: bool) -> Result<Statement, ParseError> {
    let scope = scope(parser)?;
    let of = match of {
        CardinalityOf::TagValues(_) => CardinalityOf::TagValues(with_key(parser)?),
        of => of,
    };
    Ok(Statement::ShowCardinality(Cardinality {
        of,
        is_exact,
        database: scope.database,
        sources: scope.sources,
        condition: condition(parser)?,
        dimensions: dimensions(parser)?,
        page: page(parser, ["LIMIT", "OFFSET"])?,
    }))
}
