//! Rules of SELECT and its clauses.

use crate::ast::{BinaryOp, Dimension, Expr, Field, Fill, FillNumber, OrderBy, Select, SortField};
use crate::time::zone_exists;

use super::error::ParseError;
use super::parser::Parser;
use super::source::Subqueries;
use super::token::Kind;

/// INTO of a SELECT.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetRule {
    Optional,
    /// Of continuous queries.
    Required,
}

const ONLY_TIME: &str = "only ORDER BY time supported at this time";

impl Parser {
    /// Everything after SELECT.
    pub(super) fn select(&mut self, rule: TargetRule) -> Result<Select, ParseError> {
        let fields = self.fields()?;
        let target = self.target(rule)?;
        self.expect_keyword("FROM")?;
        let sources = self.sources(Subqueries::Allowed)?;
        let mut select = Select::new(fields, sources);
        select.target = target;
        select.condition = self.condition()?;
        select.dimensions = self.dimensions()?;
        select.fill = self.fill()?;
        select.sort = self.order_by()?;
        select.limit = self.count("LIMIT")?;
        select.offset = self.count("OFFSET")?;
        select.series_limit = self.count("SLIMIT")?;
        select.series_offset = self.count("SOFFSET")?;
        select.zone = self.zone()?;
        Ok(select)
    }

    fn fields(&mut self) -> Result<Vec<Field>, ParseError> {
        let mut fields = Vec::new();
        loop {
            fields.push(self.field()?);
            if self.next_if(|token| token.is(Kind::Comma)).is_none() {
                return Ok(fields);
            }
        }
    }

    fn field(&mut self) -> Result<Field, ParseError> {
        let expr = match self.regex()? {
            Some(regex) => Expr::Regex(regex),
            None => {
                let position = self.next().position;
                self.unscan();
                let expr = self.expr()?;
                if let Some(op) = condition_operator(&expr) {
                    let message = format!("invalid operator {op} in SELECT clause");
                    let place = format!("at line 1, char {}", position.column + 1);
                    let hint = "operator is intended for WHERE clause";
                    return Err(ParseError::plain(format!("{message} {place}; {hint}")));
                }
                expr
            }
        };
        let alias = if self.next_keyword("AS") { Some(self.ident()?) } else { None };
        if self.scan().kind != Kind::Space {
            self.unscan();
        }
        Ok(Field { expr, alias })
    }

    pub(super) fn condition(&mut self) -> Result<Option<Expr>, ParseError> {
        if self.next_keyword("WHERE") { self.expr().map(Some) } else { Ok(None) }
    }

    pub(super) fn dimensions(&mut self) -> Result<Vec<Dimension>, ParseError> {
        let mut dimensions = Vec::new();
        if !self.next_keyword("GROUP") {
            return Ok(dimensions);
        }
        self.expect_keyword("BY")?;
        loop {
            // Spaces end the list after a regex, and nowhere else.
            let expr = match self.regex()? {
                Some(regex) => Expr::Regex(regex),
                None => {
                    let expr = self.expr()?;
                    if self.scan().kind != Kind::Space {
                        self.unscan();
                    }
                    expr
                }
            };
            dimensions.push(Dimension { expr });
            if !self.scan().is(Kind::Comma) {
                self.unscan();
                return Ok(dimensions);
            }
        }
    }

    fn fill(&mut self) -> Result<Fill, ParseError> {
        let Some(args) = self.clause_call("fill")? else { return Ok(Fill::Null) };
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
    fn clause_call(&mut self, name: &str) -> Result<Option<Vec<Expr>>, ParseError> {
        if self.next_if(|token| token.is_ident(name)).is_none() {
            return Ok(None);
        }
        self.unscan();
        match self.expr()? {
            Expr::Call(call) => Ok(Some(call.args)),
            _ => Err(ParseError::plain(format!("{name} must be a function call"))),
        }
    }

    fn zone(&mut self) -> Result<Option<String>, ParseError> {
        let Some(args) = self.clause_call("tz")? else { return Ok(None) };
        match args.as_slice() {
            [Expr::Text(zone)] if zone.is_empty() => Ok(Some("UTC".to_owned())),
            [Expr::Text(zone)] if zone_exists(zone) => Ok(Some(zone.clone())),
            [Expr::Text(zone)] => Err(ParseError::plain(format!("unable to find time zone {zone}"))),
            [_] => Err(ParseError::plain("expected string argument in tz()")),
            _ => Err(ParseError::plain("tz requires exactly one argument")),
        }
    }

    pub(super) fn order_by(&mut self) -> Result<Vec<SortField>, ParseError> {
        if !self.next_keyword("ORDER") {
            return Ok(Vec::new());
        }
        self.expect_keyword("BY")?;
        let token = self.next();
        let first = match token.kind {
            Kind::Ident if token.literal == "time" => {
                SortField { name: Some(token.literal), order: self.order() }
            }
            Kind::Ident => return Err(ParseError::plain(ONLY_TIME)),
            Kind::Keyword("ASC") => SortField { name: None, order: OrderBy::Ascending },
            Kind::Keyword("DESC") => SortField { name: None, order: OrderBy::Descending },
            _ => return Err(ParseError::unexpected(&token, &["identifier", "ASC", "DESC"])),
        };
        let mut count = 1;
        while self.next_if(|token| token.is(Kind::Comma)).is_some() {
            self.ident()?;
            self.order();
            count += 1;
        }
        if count > 1 { Err(ParseError::plain(ONLY_TIME)) } else { Ok(vec![first]) }
    }

    fn order(&mut self) -> OrderBy {
        if self.next_keyword("DESC") {
            return OrderBy::Descending;
        }
        self.next_keyword("ASC");
        OrderBy::Ascending
    }

    /// The number after `word`, if that is next; 0 without it.
    pub(super) fn count(&mut self, word: &str) -> Result<u64, ParseError> {
        if !self.next_keyword(word) {
            return Ok(0);
        }
        let token = self.expect(Kind::Integer, "integer")?;
        Ok(token.literal.parse::<i64>().unwrap_or(i64::MAX).unsigned_abs())
    }
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
