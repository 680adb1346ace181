//! Rules of CREATE, ALTER and DROP.

use crate::ast::{
    AlterRetentionPolicy, CreateDatabase, CreateRetentionPolicy, CreateSubscription, PolicyOptions,
    Statement, SubscriptionMode,
};

use super::access::create_user;
use super::continuous::create_continuous_query;
use super::erase::drop_series;
use super::error::ParseError;
use super::parser::Parser;
use super::token::Kind;

const REPLICATION_MAX: i64 = i32::MAX as i64;

pub(super) fn create(parser: &mut Parser) -> Result<Statement, ParseError> {
    let token = parser.next();
    match token.kind {
        Kind::Keyword("CONTINUOUS") => {
            parser.expect_keyword("QUERY")?;
            create_continuous_query(parser)
        }
        Kind::Keyword("DATABASE") => create_database(parser),
        Kind::Keyword("USER") => create_user(parser),
        Kind::Keyword("RETENTION") => {
            parser.expect_keyword("POLICY")?;
            create_retention_policy(parser)
        }
        Kind::Keyword("SUBSCRIPTION") => create_subscription(parser),
        _ => {
            let expected = ["CONTINUOUS", "DATABASE", "USER", "RETENTION", "SUBSCRIPTION"];
            Err(ParseError::unexpected(&token, &expected))
        }
    }
}

fn create_database(parser: &mut Parser) -> Result<Statement, ParseError> {
    let name = parser.ident()?;
    if !parser.next_keyword("WITH") {
        return Ok(Statement::CreateDatabase(CreateDatabase { name, policy: None }));
    }
    let words = ["DURATION", "NAME", "REPLICATION", "SHARD"];
    let token = parser.next();
    if !words.iter().any(|word| token.is_keyword(word)) {
        return Err(ParseError::unexpected(&token, &words));
    }
    parser.unscan();
    let mut policy = PolicyOptions::default();
    if parser.next_keyword("DURATION") {
        policy.duration_ns = Some(parser.duration()?);
    }
    if parser.next_keyword("REPLICATION") {
        policy.replication = Some(replication(parser)?);
    }
    if parser.next_keyword("SHARD") {
        parser.expect_keyword("DURATION")?;
        policy.shard_duration_ns = Some(parser.duration()?);
    }
    if parser.next_keyword("NAME") {
        policy.name = Some(parser.ident()?);
    }
    Ok(Statement::CreateDatabase(CreateDatabase { name, policy: Some(policy) }))
}

fn replication(parser: &mut Parser) -> Result<u32, ParseError> {
    let replication = parser.integer_in(1, REPLICATION_MAX)?;
    Ok(u32::try_from(replication).unwrap_or(u32::MAX))
}

/// The duration after SHARD DURATION, which is finite.
fn shard_duration(parser: &mut Parser) -> Result<i64, ParseError> {
    parser.expect_keyword("DURATION")?;
    let token = parser.next();
    if token.is_keyword("INF") {
        return Err(ParseError::at("invalid duration INF for shard duration", token.position));
    }
    parser.unscan();
    parser.duration()
}

fn create_retention_policy(parser: &mut Parser) -> Result<Statement, ParseError> {
    let name = parser.ident()?;
    parser.expect_keyword("ON")?;
    let database = parser.ident()?;
    parser.expect_keyword("DURATION")?;
    let duration_ns = parser.duration()?;
    parser.expect_keyword("REPLICATION")?;
    let replication = replication(parser)?;
    let shard_duration_ns = if parser.next_keyword("SHARD") { shard_duration(parser)? } else { 0 };
    let is_default = parser.next_keyword("DEFAULT");
    let create =
        CreateRetentionPolicy { name, database, duration_ns, replication, shard_duration_ns, is_default };
    Ok(Statement::CreateRetentionPolicy(create))
}

pub(super) fn alter(parser: &mut Parser) -> Result<Statement, ParseError> {
    parser.expect_keywords(&["RETENTION", "POLICY"])?;
    let name = if parser.next_keyword("DEFAULT") { "default".to_owned() } else { parser.ident()? };
    parser.expect_keyword("ON")?;
    let database = parser.ident()?;
    let mut alter =
        AlterRetentionPolicy { name, database, options: PolicyOptions::default(), is_default: false };
    let words = ["DURATION", "REPLICATION", "SHARD", "DEFAULT"];
    let mut seen: Vec<&str> = Vec::new();
    loop {
        let token = parser.next();
        let Some(word) = words.into_iter().find(|word| token.is_keyword(word)) else {
            if seen.is_empty() {
                return Err(ParseError::unexpected(&token, &words));
            }
            parser.unscan();
            return Ok(Statement::AlterRetentionPolicy(alter));
        };
        if seen.contains(&word) {
            let message = format!("found duplicate {word} option");
            return Err(ParseError::at(message, token.position));
        }
        seen.push(word);
        match word {
            "DURATION" => alter.options.duration_ns = Some(parser.duration()?),
            "REPLICATION" => alter.options.replication = Some(replication(parser)?),
            "SHARD" => alter.options.shard_duration_ns = Some(shard_duration(parser)?),
            _ => alter.is_default = true,
        }
    }
}

fn create_subscription(parser: &mut Parser) -> Result<Statement, ParseError> {
    let name = parser.ident()?;
    let [database, policy] = on_database_and_policy(parser)?;
    parser.expect_keyword("DESTINATIONS")?;
    let token = parser.next();
    let mode = match token.kind {
        Kind::Keyword("ALL") => SubscriptionMode::All,
        Kind::Keyword("ANY") => SubscriptionMode::Any,
        _ => return Err(ParseError::unexpected(&token, &["ALL", "ANY"])),
    };
    let mut destinations = vec![parser.text()?];
    while parser.next_if(|token| token.is(Kind::Comma)).is_some() {
        parser.count_term()?;
        destinations.push(parser.text()?);
    }
    Ok(Statement::CreateSubscription(CreateSubscription { name, database, policy, mode, destinations }))
}

/// `ON db.rp`, without spaces around the point.
fn on_database_and_policy(parser: &mut Parser) -> Result<[String; 2], ParseError> {
    parser.expect_keyword("ON")?;
    let database = parser.ident()?;
    let token = parser.scan();
    if !token.is(Kind::Dot) {
        return Err(ParseError::unexpected(&token, &["."]));
    }
    Ok([database, parser.ident()?])
}

pub(super) fn drop_statement(parser: &mut Parser) -> Result<Statement, ParseError> {
    let token = parser.next();
    let Kind::Keyword(word) = token.kind else { return Err(ParseError::unexpected(&token, &DROPPED)) };
    match word {
        "CONTINUOUS" => {
            parser.expect_keyword("QUERY")?;
            let [name, database] = name_on_database(parser)?;
            Ok(Statement::DropContinuousQuery { name, database })
        }
        "DATABASE" => parser.ident().map(Statement::DropDatabase),
        "MEASUREMENT" => parser.ident().map(Statement::DropMeasurement),
        "RETENTION" => {
            parser.expect_keyword("POLICY")?;
            let [name, database] = name_on_database(parser)?;
            Ok(Statement::DropRetentionPolicy { name, database })
        }
        "SERIES" => drop_series(parser),
        "SHARD" => parser.unsigned().map(Statement::DropShard),
        "SUBSCRIPTION" => {
            let name = parser.ident()?;
            let [database, policy] = on_database_and_policy(parser)?;
            Ok(Statement::DropSubscription { name, database, policy })
        }
        "USER" => parser.ident().map(Statement::DropUser),
        _ => Err(ParseError::unexpected(&token, &DROPPED)),
    }
}

fn name_on_database(parser: &mut Parser) -> Result<[String; 2], ParseError> {
    let name = parser.ident()?;
    parser.expect_keyword("ON")?;
    Ok([name, parser.ident()?])
}

const DROPPED: [&str; 8] =
    ["CONTINUOUS", "DATABASE", "MEASUREMENT", "RETENTION", "SERIES", "SHARD", "SUBSCRIPTION", "USER"];
