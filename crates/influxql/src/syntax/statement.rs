//! Rules of texts of statements, and of the statements that are no others' kind.

use crate::ast::Statement;

use super::access::{grant, revoke, set_password};
use super::erase::delete;
use super::error::ParseError;
use super::parser::Parser;
use super::schema::{alter, create, drop_statement};
use super::select::{TargetRule, select};
use super::show::show;
use super::token::{Kind, Token};

pub(super) fn query(parser: &mut Parser) -> Result<Vec<Statement>, ParseError> {
    let mut statements = Vec::new();
    let mut is_separated = true;
    loop {
        let token = parser.next();
        match token.kind {
            Kind::End => return Ok(statements),
            Kind::Semicolon => is_separated = true,
            _ if !is_separated => return Err(ParseError::unexpected(&token, &[";"])),
            _ => {
                parser.unscan();
                parser.count_term()?;
                statements.push(statement(parser)?);
                is_separated = false;
            }
        }
    }
}

pub(super) fn statement(parser: &mut Parser) -> Result<Statement, ParseError> {
    let token = parser.next();
    match token.kind {
        Kind::Keyword("SELECT") => {
            let select = select(parser, TargetRule::Optional)?;
            Ok(Statement::Select(Box::new(select)))
        }
        Kind::Keyword("DELETE") => delete(parser),
        Kind::Keyword("SHOW") => show(parser),
        Kind::Keyword("CREATE") => create(parser),
        Kind::Keyword("DROP") => drop_statement(parser),
        Kind::Keyword("EXPLAIN") => explain(parser),
        Kind::Keyword("GRANT") => grant(parser),
        Kind::Keyword("REVOKE") => revoke(parser),
        Kind::Keyword("ALTER") => alter(parser),
        Kind::Keyword("SET") => set_password(parser),
        Kind::Keyword("KILL") => kill(parser),
        _ => Err(unknown_statement(&token)),
    }
}

fn explain(parser: &mut Parser) -> Result<Statement, ParseError> {
    let is_analyzed = parser.next_keyword("ANALYZE");
    parser.expect_keyword("SELECT")?;
    let select = Box::new(select(parser, TargetRule::Optional)?);
    Ok(Statement::Explain { select, is_analyzed })
}

fn kill(parser: &mut Parser) -> Result<Statement, ParseError> {
    parser.expect_keyword("QUERY")?;
    let id = parser.unsigned()?;
    let host = if parser.next_keyword("ON") { parser.ident()? } else { String::new() };
    Ok(Statement::KillQuery { id, host })
}

fn unknown_statement(found: &Token) -> ParseError {
    let expected =
        ["SELECT", "DELETE", "SHOW", "CREATE", "DROP", "EXPLAIN", "GRANT", "REVOKE", "ALTER", "SET", "KILL"];
    ParseError::unexpected(found, &expected)
}
