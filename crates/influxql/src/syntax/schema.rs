//! Rules of CREATE, ALTER and DROP.

use crate::ast::{
    AlterRetentionPolicy, CreateDatabase, CreateRetentionPolicy, CreateSubscription, PolicyOptions,
    Statement, SubscriptionMode,
};

use super::error::ParseError;
use super::parser::Parser;
use super::token::Kind;

const REPLICATION_MAX: i64 = i32::MAX as i64;

impl Parser {
    pub(super) fn create(&mut self) -> Result<Statement, ParseError> {
        let token = self.next();
        match token.kind {
            Kind::Keyword("CONTINUOUS") => {
                self.expect_keyword("QUERY")?;
                self.create_continuous_query()
            }
            Kind::Keyword("DATABASE") => self.create_database(),
            Kind::Keyword("USER") => self.create_user(),
            Kind::Keyword("RETENTION") => {
                self.expect_keyword("POLICY")?;
                self.create_retention_policy()
            }
            Kind::Keyword("SUBSCRIPTION") => self.create_subscription(),
            _ => {
                let expected = ["CONTINUOUS", "DATABASE", "USER", "RETENTION", "SUBSCRIPTION"];
                Err(ParseError::unexpected(&token, &expected))
            }
        }
    }

    fn create_database(&mut self) -> Result<Statement, ParseError> {
        let name = self.ident()?;
        if !self.next_keyword("WITH") {
            return Ok(Statement::CreateDatabase(CreateDatabase { name, policy: None }));
        }
        let words = ["DURATION", "NAME", "REPLICATION", "SHARD"];
        let token = self.next();
        if !words.iter().any(|word| token.is_keyword(word)) {
            return Err(ParseError::unexpected(&token, &words));
        }
        self.unscan();
        let mut policy = PolicyOptions::default();
        if self.next_keyword("DURATION") {
            policy.duration_ns = Some(self.duration()?);
        }
        if self.next_keyword("REPLICATION") {
            policy.replication = Some(self.replication()?);
        }
        if self.next_keyword("SHARD") {
            self.expect_keyword("DURATION")?;
            policy.shard_duration_ns = Some(self.duration()?);
        }
        if self.next_keyword("NAME") {
            policy.name = Some(self.ident()?);
        }
        Ok(Statement::CreateDatabase(CreateDatabase { name, policy: Some(policy) }))
    }

    fn replication(&mut self) -> Result<u32, ParseError> {
        let replication = self.integer_in(1, REPLICATION_MAX)?;
        Ok(u32::try_from(replication).unwrap_or(u32::MAX))
    }

    /// The duration after SHARD DURATION, which is finite.
    fn shard_duration(&mut self) -> Result<i64, ParseError> {
        self.expect_keyword("DURATION")?;
        let token = self.next();
        if token.is_keyword("INF") {
            return Err(ParseError::at("invalid duration INF for shard duration", token.position));
        }
        self.unscan();
        self.duration()
    }

    fn create_retention_policy(&mut self) -> Result<Statement, ParseError> {
        let name = self.ident()?;
        self.expect_keyword("ON")?;
        let database = self.ident()?;
        self.expect_keyword("DURATION")?;
        let duration_ns = self.duration()?;
        self.expect_keyword("REPLICATION")?;
        let replication = self.replication()?;
        let shard_duration_ns = if self.next_keyword("SHARD") { self.shard_duration()? } else { 0 };
        let is_default = self.next_keyword("DEFAULT");
        let create =
            CreateRetentionPolicy { name, database, duration_ns, replication, shard_duration_ns, is_default };
        Ok(Statement::CreateRetentionPolicy(create))
    }

    pub(super) fn alter(&mut self) -> Result<Statement, ParseError> {
        self.expect_keywords(&["RETENTION", "POLICY"])?;
        let name = if self.next_keyword("DEFAULT") { "default".to_owned() } else { self.ident()? };
        self.expect_keyword("ON")?;
        let database = self.ident()?;
        let mut alter =
            AlterRetentionPolicy { name, database, options: PolicyOptions::default(), is_default: false };
        let words = ["DURATION", "REPLICATION", "SHARD", "DEFAULT"];
        let mut seen: Vec<&str> = Vec::new();
        loop {
            let token = self.next();
            let Some(word) = words.into_iter().find(|word| token.is_keyword(word)) else {
                if seen.is_empty() {
                    return Err(ParseError::unexpected(&token, &words));
                }
                self.unscan();
                return Ok(Statement::AlterRetentionPolicy(alter));
            };
            if seen.contains(&word) {
                let message = format!("found duplicate {word} option");
                return Err(ParseError::at(message, token.position));
            }
            seen.push(word);
            match word {
                "DURATION" => alter.options.duration_ns = Some(self.duration()?),
                "REPLICATION" => alter.options.replication = Some(self.replication()?),
                "SHARD" => alter.options.shard_duration_ns = Some(self.shard_duration()?),
                _ => alter.is_default = true,
            }
        }
    }

    fn create_subscription(&mut self) -> Result<Statement, ParseError> {
        let name = self.ident()?;
        let [database, policy] = self.on_database_and_policy()?;
        self.expect_keyword("DESTINATIONS")?;
        let token = self.next();
        let mode = match token.kind {
            Kind::Keyword("ALL") => SubscriptionMode::All,
            Kind::Keyword("ANY") => SubscriptionMode::Any,
            _ => return Err(ParseError::unexpected(&token, &["ALL", "ANY"])),
        };
        let mut destinations = vec![self.text()?];
        while self.next_if(|token| token.is(Kind::Comma)).is_some() {
            self.count_term()?;
            destinations.push(self.text()?);
        }
        Ok(Statement::CreateSubscription(CreateSubscription { name, database, policy, mode, destinations }))
    }

    /// `ON db.rp`, without spaces around the point.
    fn on_database_and_policy(&mut self) -> Result<[String; 2], ParseError> {
        self.expect_keyword("ON")?;
        let database = self.ident()?;
        let token = self.scan();
        if !token.is(Kind::Dot) {
            return Err(ParseError::unexpected(&token, &["."]));
        }
        Ok([database, self.ident()?])
    }

    pub(super) fn drop_statement(&mut self) -> Result<Statement, ParseError> {
        let token = self.next();
        let Kind::Keyword(word) = token.kind else { return Err(ParseError::unexpected(&token, &DROPPED)) };
        match word {
            "CONTINUOUS" => {
                self.expect_keyword("QUERY")?;
                let [name, database] = self.name_on_database()?;
                Ok(Statement::DropContinuousQuery { name, database })
            }
            "DATABASE" => self.ident().map(Statement::DropDatabase),
            "MEASUREMENT" => self.ident().map(Statement::DropMeasurement),
            "RETENTION" => {
                self.expect_keyword("POLICY")?;
                let [name, database] = self.name_on_database()?;
                Ok(Statement::DropRetentionPolicy { name, database })
            }
            "SERIES" => self.drop_series(),
            "SHARD" => self.unsigned().map(Statement::DropShard),
            "SUBSCRIPTION" => {
                let name = self.ident()?;
                let [database, policy] = self.on_database_and_policy()?;
                Ok(Statement::DropSubscription { name, database, policy })
            }
            "USER" => self.ident().map(Statement::DropUser),
            _ => Err(ParseError::unexpected(&token, &DROPPED)),
        }
    }

    fn name_on_database(&mut self) -> Result<[String; 2], ParseError> {
        let name = self.ident()?;
        self.expect_keyword("ON")?;
        Ok([name, self.ident()?])
    }
}

const DROPPED: [&str; 8] =
    ["CONTINUOUS", "DATABASE", "MEASUREMENT", "RETENTION", "SERIES", "SHARD", "SUBSCRIPTION", "USER"];
