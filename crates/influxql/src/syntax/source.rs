//! Rules of FROM and INTO.

use crate::ast::{Measurement, MeasurementName, Source, Target, TargetName};

use super::error::ParseError;
use super::parser::Parser;
use super::select::TargetRule;
use super::token::{Kind, Position};

/// Returns true if a list of sources may have subqueries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Subqueries {
    Allowed,
    Refused,
}

impl Parser {
    pub(super) fn sources(&mut self, subqueries: Subqueries) -> Result<Vec<Source>, ParseError> {
        let mut sources = Vec::new();
        loop {
            self.count_term()?;
            sources.push(self.source(subqueries)?);
            if self.next_if(|token| token.is(Kind::Comma)).is_none() {
                return Ok(sources);
            }
        }
    }

    /// FROM and its sources without subqueries, if it is next.
    pub(super) fn optional_from(&mut self) -> Result<Vec<Source>, ParseError> {
        if self.next_keyword("FROM") { self.sources(Subqueries::Refused) } else { Ok(Vec::new()) }
    }

    pub(super) fn source(&mut self, subqueries: Subqueries) -> Result<Source, ParseError> {
        if let Some(regex) = self.regex()? {
            return Ok(measurement(Vec::new(), MeasurementName::Regex(regex)));
        }
        if subqueries == Subqueries::Allowed && self.next_if(|token| token.is(Kind::LeftParen)).is_some() {
            self.expect_keyword("SELECT")?;
            let select = self.nested(|parser| parser.select(TargetRule::Optional))?;
            self.expect(Kind::RightParen, ")")?;
            return Ok(Source::Select(Box::new(select)));
        }
        let mut segments = self.segments()?;
        if segments.len() < 3
            && let Some(regex) = self.regex()?
        {
            return Ok(measurement(segments, MeasurementName::Regex(regex)));
        }
        let name = segments.pop().unwrap_or_default();
        Ok(measurement(segments, MeasurementName::Name(name)))
    }

    pub(super) fn target(&mut self, rule: TargetRule) -> Result<Option<Target>, ParseError> {
        let token = self.next();
        if !token.is_keyword("INTO") {
            if rule == TargetRule::Required {
                return Err(ParseError::unexpected(&token, &["INTO"]));
            }
            self.unscan();
            return Ok(None);
        }
        let mut segments = self.segments()?;
        if segments.len() < 3 && self.peek_char() == ':' {
            self.expect(Kind::Colon, ":")?;
            self.expect_keyword("MEASUREMENT")?;
            segments.push(String::new());
        }
        let name = segments.pop().unwrap_or_default();
        let name = if name.is_empty() { TargetName::SameAsSource } else { TargetName::Name(name) };
        let [database, policy] = database_and_policy(segments);
        Ok(Some(Target { database, policy, name }))
    }

    /// Sources of DELETE and DROP SERIES, which always mean the whole default database.
    pub(super) fn sources_of_database(&mut self) -> Result<Vec<Source>, ParseError> {
        let sources = self.optional_from()?;
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
