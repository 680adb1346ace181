//! Rules of SHOW.

use crate::ast::{
    BinaryOp, Cardinality, CardinalityOf, KeyMatch, Page, ShowSeries, ShowTagValues, Statement,
};

use super::error::ParseError;
use super::parser::Parser;
use super::source::Subqueries;
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

impl Parser {
    pub(super) fn show(&mut self) -> Result<Statement, ParseError> {
        let token = self.next();
        let Kind::Keyword(word) = token.kind else { return Err(ParseError::unexpected(&token, &SHOWN)) };
        match word {
            "CONTINUOUS" => self.expect_keyword("QUERIES").map(|()| Statement::ShowContinuousQueries),
            "DATABASES" => Ok(Statement::ShowDatabases),
            "DIAGNOSTICS" => self.module().map(Statement::ShowDiagnostics),
            "FIELD" => self.show_field(),
            "GRANTS" => {
                self.expect_keyword("FOR")?;
                self.ident().map(Statement::ShowGrants)
            }
            "MEASUREMENT" => self.cardinality_of(CardinalityOf::Measurements),
            "MEASUREMENTS" => self.show_measurements(),
            "QUERIES" => Ok(Statement::ShowQueries),
            "RETENTION" => {
                self.expect_keyword("POLICIES")?;
                self.on_database().map(Statement::ShowRetentionPolicies)
            }
            "SERIES" => self.show_series(),
            "SHARD" => self.expect_keyword("GROUPS").map(|()| Statement::ShowShardGroups),
            "SHARDS" => Ok(Statement::ShowShards),
            "STATS" => self.module().map(Statement::ShowStats),
            "SUBSCRIPTIONS" => Ok(Statement::ShowSubscriptions),
            "TAG" => self.show_tag(),
            "USERS" => Ok(Statement::ShowUsers),
            _ => Err(ParseError::unexpected(&token, &SHOWN)),
        }
    }

    /// The string after FOR, if that is next.
    fn module(&mut self) -> Result<String, ParseError> {
        if self.next_keyword("FOR") { self.text() } else { Ok(String::new()) }
    }

    fn on_database(&mut self) -> Result<String, ParseError> {
        if self.next_keyword("ON") { self.ident() } else { Ok(String::new()) }
    }

    fn page(&mut self, words: [&str; 2]) -> Result<Page, ParseError> {
        let [limit, offset] = words;
        Ok(Page { limit: self.count(limit)?, offset: self.count(offset)? })
    }

    /// ON and FROM.
    fn scope(&mut self) -> Result<ShowSeries, ParseError> {
        let database = self.on_database()?;
        let sources = self.optional_from()?;
        Ok(ShowSeries { database, sources, ..ShowSeries::default() })
    }

    /// ORDER BY, LIMIT and OFFSET.
    fn order_and_page(&mut self, show: &mut ShowSeries) -> Result<(), ParseError> {
        show.sort = self.order_by()?;
        show.page = self.page(["LIMIT", "OFFSET"])?;
        Ok(())
    }

    fn show_series(&mut self) -> Result<Statement, ParseError> {
        let is_exact = self.next_keyword("EXACT");
        if self.next_keyword("CARDINALITY") {
            return self.cardinality(CardinalityOf::Series, is_exact);
        }
        let mut show = self.scope()?;
        show.condition = self.condition()?;
        self.order_and_page(&mut show)?;
        Ok(Statement::ShowSeries(show))
    }

    fn show_measurements(&mut self) -> Result<Statement, ParseError> {
        let mut show = ShowSeries { database: self.on_database()?, ..ShowSeries::default() };
        if self.next_keyword("WITH") {
            self.expect_keyword("MEASUREMENT")?;
            let token = self.next();
            if !matches!(token.kind, Kind::Op(BinaryOp::Eq | BinaryOp::Match)) {
                return Err(ParseError::unexpected(&token, &["=", "=~"]));
            }
            show.sources.push(self.source(Subqueries::Refused)?);
        }
        show.condition = self.condition()?;
        self.order_and_page(&mut show)?;
        Ok(Statement::ShowMeasurements(show))
    }

    fn show_field(&mut self) -> Result<Statement, ParseError> {
        let token = self.next();
        match token.kind {
            Kind::Keyword("KEY") => self.cardinality_of(CardinalityOf::FieldKeys),
            Kind::Keyword("KEYS") => {
                let mut show = self.scope()?;
                self.order_and_page(&mut show)?;
                Ok(Statement::ShowFieldKeys(show))
            }
            _ => Err(ParseError::unexpected(&token, &["KEY", "KEYS"])),
        }
    }

    fn show_tag(&mut self) -> Result<Statement, ParseError> {
        let token = self.next();
        match token.kind {
            Kind::Keyword("KEY") => self.cardinality_of(CardinalityOf::TagKeys),
            Kind::Keyword("KEYS") => {
                let mut show = self.scope()?;
                show.condition = self.condition()?;
                self.order_and_page(&mut show)?;
                show.series_page = self.page(["SLIMIT", "SOFFSET"])?;
                Ok(Statement::ShowTagKeys(show))
            }
            Kind::Keyword("VALUES") => self.show_tag_values(),
            _ => Err(ParseError::unexpected(&token, &["KEY", "KEYS", "VALUES"])),
        }
    }

    fn show_tag_values(&mut self) -> Result<Statement, ParseError> {
        let token = self.next();
        self.unscan();
        if token.is_keyword("EXACT") || token.is_keyword("CARDINALITY") {
            // The keys come after FROM: `cardinality` reads them.
            return self.cardinality_of(CardinalityOf::TagValues(KeyMatch::In(Vec::new())));
        }
        let mut clauses = self.scope()?;
        let keys = self.with_key()?;
        clauses.condition = self.condition()?;
        self.order_and_page(&mut clauses)?;
        Ok(Statement::ShowTagValues(ShowTagValues { clauses, keys }))
    }

    fn with_key(&mut self) -> Result<KeyMatch, ParseError> {
        self.expect_keywords(&["WITH", "KEY"])?;
        let token = self.next();
        match token.kind {
            Kind::Keyword("IN") => {
                self.expect(Kind::LeftParen, "(")?;
                let keys = self.idents()?;
                self.expect(Kind::RightParen, ")")?;
                Ok(KeyMatch::In(keys))
            }
            Kind::Op(BinaryOp::Eq) => self.ident().map(KeyMatch::Equal),
            Kind::Op(BinaryOp::NotEq) => self.ident().map(KeyMatch::NotEqual),
            Kind::Op(op @ (BinaryOp::Match | BinaryOp::NotMatch)) => {
                let Some(regex) = self.regex()? else {
                    return Err(ParseError::unexpected(&self.next(), &["regex"]));
                };
                let is_match = op == BinaryOp::Match;
                Ok(if is_match { KeyMatch::Matches(regex) } else { KeyMatch::NotMatches(regex) })
            }
            _ => Err(ParseError::unexpected(&token, &["IN", "=", "=~"])),
        }
    }

    /// `[EXACT] CARDINALITY` and its clauses.
    fn cardinality_of(&mut self, of: CardinalityOf) -> Result<Statement, ParseError> {
        let token = self.next();
        match token.kind {
            Kind::Keyword("EXACT") => {
                self.expect_keyword("CARDINALITY")?;
                self.cardinality(of, true)
            }
            Kind::Keyword("CARDINALITY") => self.cardinality(of, false),
            _ => Err(ParseError::unexpected(&token, &["EXACT", "CARDINALITY"])),
        }
    }

    fn cardinality(&mut self, of: CardinalityOf, is_exact: bool) -> Result<Statement, ParseError> {
        let scope = self.scope()?;
        let of = match of {
            CardinalityOf::TagValues(_) => CardinalityOf::TagValues(self.with_key()?),
            of => of,
        };
        Ok(Statement::ShowCardinality(Cardinality {
            of,
            is_exact,
            database: scope.database,
            sources: scope.sources,
            condition: self.condition()?,
            dimensions: self.dimensions()?,
            page: self.page(["LIMIT", "OFFSET"])?,
        }))
    }
}
