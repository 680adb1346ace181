//! Rules of SELECT and its clauses, FROM and INTO included.

use crate::ast::{
    BinaryOp, Dimension, Expr, Field, Fill, FillNumber, Measurement, MeasurementName, OrderBy, Select,
    SortField, Source, Target, TargetName,
};
use crate::time::zone_exists;

use super::error::ParseError;
use super::expression::expr;
use super::parser::Parser;
use super::token::Kind;

/// INTO of a SELECT.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetRule {
    Optional,
    /// INTO is required, as in continuous queries.
    Required,
}

const ONLY_TIME: &str = "only ORDER BY time supported at this time";

/// Everything after SELECT.
pub(super) fn select(parser: &mut Parser, rule: TargetRule) -> Result<Select, ParseError> {
    let fields = fields(parser)?;
    let target = target(parser, rule)?;
    parser.expect_keyword("FROM")?;
    let sources = sources(parser, Subqueries::Allowed)?;
    let mut select = Select::new(fields, sources);
    select.target = target;
    select.condition = condition(parser)?;
    select.dimensions = dimensions(parser)?;
    select.fill = fill(parser)?;
    select.sort = order_by(parser)?;
    select.limit = count(parser, "LIMIT")?;
    select.offset = count(parser, "OFFSET")?;
    select.series_limit = count(parser, "SLIMIT")?;
    select.series_offset = count(parser, "SOFFSET")?;
    select.zone = zone(parser)?;
    Ok(select)
}

fn fields(parser: &mut Parser) -> Result<Vec<Field>, ParseError> {
    let mut fields = Vec::new();
    loop {
        fields.push(field(parser)?);
        if parser.next_if(|token| token.is(Kind::Comma)).is_none() {
            return Ok(fields);
        }
    }
}

fn field(parser: &mut Parser) -> Result<Field, ParseError> {
    let expr = match parser.regex()? {
        Some(regex) => Expr::Regex(regex),
        None => {
            let position = parser.next().position;
            parser.unscan();
            let expr = expr(parser)?;
            if let Some(op) = condition_operator(&expr) {
                let message = format!("invalid operator {op} in SELECT clause");
                let hint = "operator is intended for WHERE clause";
                return Err(ParseError::plain(format!("{message} {position}; {hint}")));
            }
            expr
        }
    };
    let alias = if parser.next_keyword("AS") { Some(parser.ident()?) } else { None };
    if parser.scan().kind != Kind::Space {
        parser.unscan();
    }
    Ok(Field { expr, alias })
}

pub(super) fn condition(parser: &mut Parser) -> Result<Option<Expr>, ParseError> {
    if parser.next_keyword("WHERE") { expr(parser).map(Some) } else { Ok(None) }
}

pub(super) fn dimensions(parser: &mut Parser) -> Result<Vec<Dimension>, ParseError> {
    let mut dimensions = Vec::new();
    if !parser.next_keyword("GROUP") {
        return Ok(dimensions);
    }
    parser.expect_keyword("BY")?;
    loop {
        // Spaces end the list after a regex, and nowhere else.
        let expr = match parser.regex()? {
            Some(regex) => Expr::Regex(regex),
            None => {
                let expr = expr(parser)?;
                if parser.scan().kind != Kind::Space {
                    parser.unscan();
                }
                expr
            }
        };
        dimensions.push(Dimension { expr });
        if !parser.scan().is(Kind::Comma) {
            parser.unscan();
            return Ok(dimensions);
        }
    }
}

fn fill(parser: &mut Parser) -> Result<Fill, ParseError> {
    let Some(args) = clause_call(parser, "fill")? else { return Ok(Fill::Null) };
    let [arg] = args.as_slice() else {
        let message = "fill requires an argument, e.g.: 0, null, none, previous, linear";
        return Err(ParseError::plain(message));
    };
    match (arg, arg.to_string().as_str()) {
        (_, "null") => Ok(Fill::Null),
        (_, "none") => Ok(Fill::None),
        (_, "previous") => Ok(Fill::Previous),
        (_, "linear") => Ok(Fill::Linear),
        (Expr::Integer(number), _) => Ok(Fill::Number(FillNumber::Integer(*number))),
        (Expr::Number(number), _) => Ok(Fill::Number(FillNumber::Float(*number))),
        _ => Err(ParseError::plain("expected number argument in fill()")),
    }
}

/// Arguments of a clause in the form of a call, if it is next.
fn clause_call(parser: &mut Parser, name: &str) -> Result<Option<Vec<Expr>>, ParseError> {
    if parser.next_if(|token| token.is_ident(name)).is_none() {
        return Ok(None);
    }
    parser.unscan();
    match expr(parser)? {
        Expr::Call(call) => Ok(Some(call.args)),
        _ => Err(ParseError::plain(format!("{name} must be a function call"))),
    }
}

fn zone(parser: &mut Parser) -> Result<Option<String>, ParseError> {
    let Some(args) = clause_call(parser, "tz")? else { return Ok(None) };
    match args.as_slice() {
        [Expr::Text(zone)] if zone.is_empty() => Ok(Some("UTC".to_owned())),
        [Expr::Text(zone)] if zone_exists(zone) => Ok(Some(zone.clone())),
        [Expr::Text(zone)] => Err(ParseError::plain(format!("unable to find time zone {zone}"))),
        [_] => Err(ParseError::plain("expected string argument in tz()")),
        _ => Err(ParseError::plain("tz requires exactly one argument")),
    }
}

pub(super) fn order_by(parser: &mut Parser) -> Result<Vec<SortField>, ParseError> {
    if !parser.next_keyword("ORDER") {
        return Ok(Vec::new());
    }
    parser.expect_keyword("BY")?;
    let token = parser.next();
    let first = match token.kind {
        Kind::Ident if token.literal == "time" => {
            SortField { name: Some(token.literal), order: order(parser) }
        }
        Kind::Ident => return Err(ParseError::plain(ONLY_TIME)),
        Kind::Keyword("ASC") => SortField { name: None, order: OrderBy::Ascending },
        Kind::Keyword("DESC") => SortField { name: None, order: OrderBy::Descending },
        _ => return Err(ParseError::unexpected(&token, &["identifier", "ASC", "DESC"])),
    };
    let mut count = 1;
    while parser.next_if(|token| token.is(Kind::Comma)).is_some() {
        parser.ident()?;
        order(parser);
        count += 1;
    }
    if count > 1 { Err(ParseError::plain(ONLY_TIME)) } else { Ok(vec![first]) }
}

fn order(parser: &mut Parser) -> OrderBy {
    if parser.next_keyword("DESC") {
        return OrderBy::Descending;
    }
    parser.next_keyword("ASC");
    OrderBy::Ascending
}

/// The number after `word`, if that is next; 0 without it.
pub(super) fn count(parser: &mut Parser, word: &str) -> Result<u64, ParseError> {
    if !parser.next_keyword(word) {
        return Ok(0);
    }
    let token = parser.expect(Kind::Integer, "integer")?;
    Ok(token.literal.parse::<i64>().unwrap_or(i64::MAX).unsigned_abs())
}

/// Returns the text of an operator that SELECT cannot have: comparisons, AND, OR.
fn condition_operator(expr: &Expr) -> Option<&'static str> {
    let is_condition = |op: &BinaryOp| op.is_comparison() || op.is_logical();
    match expr {
        Expr::Chain(chain) => {
            let outer = chain.rest.iter().rev().map(|(op, _)| *op).find(is_condition).map(BinaryOp::text);
            outer
                .or_else(|| condition_operator(&chain.first))
                .or_else(|| chain.rest.iter().find_map(|(_, operand)| condition_operator(operand)))
        }
        Expr::Paren(inner) => condition_operator(inner),
        Expr::Call(call) => call.args.iter().find_map(condition_operator),
        _ => None,
    }
}

/// Returns true if a list of sources may have subqueries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Subqueries {
    Allowed,
    Refused,
}

pub(super) fn sources(parser: &mut Parser, subqueries: Subqueries) -> Result<Vec<Source>, ParseError> {
    let mut sources = Vec::new();
    loop {
        parser.count_term()?;
        sources.push(source(parser, subqueries)?);
        if parser.next_if(|token| token.is(Kind::Comma)).is_none() {
            return Ok(sources);
        }
    }
}

/// FROM and its sources without subqueries, if it is next.
pub(super) fn optional_from(parser: &mut Parser) -> Result<Vec<Source>, ParseError> {
    if parser.next_keyword("FROM") { sources(parser, Subqueries::Refused) } else { Ok(Vec::new()) }
}

pub(super) fn source(parser: &mut Parser, subqueries: Subqueries) -> Result<Source, ParseError> {
    if let Some(regex) = parser.regex()? {
        return Ok(measurement(Vec::new(), MeasurementName::Regex(regex)));
    }
    if subqueries == Subqueries::Allowed && parser.next_if(|token| token.is(Kind::LeftParen)).is_some() {
        parser.expect_keyword("SELECT")?;
        let select = parser.nested(|parser| select(parser, TargetRule::Optional))?;
        parser.expect(Kind::RightParen, ")")?;
        return Ok(Source::Select(Box::new(select)));
    }
    let mut segments = parser.segments()?;
    if segments.len() < 3
        && let Some(regex) = parser.regex()?
    {
        return Ok(measurement(segments, MeasurementName::Regex(regex)));
    }
    let name = segments.pop().unwrap_or_default();
    Ok(measurement(segments, MeasurementName::Name(name)))
}

pub(super) fn target(parser: &mut Parser, rule: TargetRule) -> Result<Option<Target>, ParseError> {
    let token = parser.next();
    if !token.is_keyword("INTO") {
        if rule == TargetRule::Required {
            return Err(ParseError::unexpected(&token, &["INTO"]));
        }
        parser.unscan();
        return Ok(None);
    }
    let mut segments = parser.segments()?;
    if segments.len() < 3 && parser.peek_char() == ':' {
        parser.expect(Kind::Colon, ":")?;
        parser.expect_keyword("MEASUREMENT")?;
        segments.push(String::new());
    }
    let name = segments.pop().unwrap_or_default();
    let name = if name.is_empty() { TargetName::SameAsSource } else { TargetName::Name(name) };
    let [database, policy] = database_and_policy(segments);
    Ok(Some(Target { database, policy, name }))
}

/// Measurement after the segments of its retention policy and database.
fn measurement(segments: Vec<String>, name: MeasurementName) -> Source {
    let [database, policy] = database_and_policy(segments);
    Source::Measurement(Measurement { database, policy, name })
}

/// Segments before a name: the last one is the retention policy.
fn database_and_policy(mut segments: Vec<String>) -> [String; 2] {
    let policy = segments.pop().unwrap_or_default();
    [segments.pop().unwrap_or_default(), policy]
}
