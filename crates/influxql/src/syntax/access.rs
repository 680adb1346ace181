//! Rules of users and grants.

use crate::ast::{CreateUser, Grant, Privilege, Statement};

use super::error::ParseError;
use super::parser::Parser;
use super::token::Kind;
use crate::ast::BinaryOp;

/// Change by GRANT or REVOKE.
enum Change {
    OnDatabase(Grant),
    Admin(String),
}

pub(super) fn create_user(parser: &mut Parser) -> Result<Statement, ParseError> {
    let name = parser.ident()?;
    parser.expect_keywords(&["WITH", "PASSWORD"])?;
    let password = parser.text()?;
    let is_admin = parser.next_keyword("WITH");
    if is_admin {
        parser.expect_keywords(&["ALL", "PRIVILEGES"])?;
    }
    Ok(Statement::CreateUser(CreateUser { name, password, is_admin }))
}

pub(super) fn set_password(parser: &mut Parser) -> Result<Statement, ParseError> {
    parser.expect_keywords(&["PASSWORD", "FOR"])?;
    let user = parser.ident()?;
    parser.expect(Kind::Op(BinaryOp::Eq), "=")?;
    Ok(Statement::SetPassword { user, password: parser.text()? })
}

pub(super) fn grant(parser: &mut Parser) -> Result<Statement, ParseError> {
    Ok(match change(parser, "TO")? {
        Change::OnDatabase(grant) => Statement::Grant(grant),
        Change::Admin(user) => Statement::GrantAdmin(user),
    })
}

pub(super) fn revoke(parser: &mut Parser) -> Result<Statement, ParseError> {
    Ok(match change(parser, "FROM")? {
        Change::OnDatabase(grant) => Statement::Revoke(grant),
        Change::Admin(user) => Statement::RevokeAdmin(user),
    })
}

/// A privilege, `ON` and a database, and a user after `direction`; without a database ALL means an
/// administrator.
fn change(parser: &mut Parser, direction: &str) -> Result<Change, ParseError> {
    let privilege = privilege(parser)?;
    let token = parser.next();
    if token.is_keyword("ON") {
        let database = parser.ident()?;
        parser.expect_keyword(direction)?;
        let user = parser.ident()?;
        return Ok(Change::OnDatabase(Grant { privilege, database, user }));
    }
    if privilege != Privilege::All {
        return Err(ParseError::unexpected(&token, &["ON"]));
    }
    if token.is_keyword(direction) {
        return parser.ident().map(Change::Admin);
    }
    Err(ParseError::unexpected(&token, &["ON", direction]))
}

fn privilege(parser: &mut Parser) -> Result<Privilege, ParseError> {
    let token = parser.next();
    match token.kind {
        Kind::Keyword("READ") => Ok(Privilege::Read),
        Kind::Keyword("WRITE") => Ok(Privilege::Write),
        Kind::Keyword("ALL") => {
            parser.next_keyword("PRIVILEGES");
            Ok(Privilege::All)
        }
        _ => Err(ParseError::unexpected(&token, &["READ", "WRITE", "ALL [PRIVILEGES]"])),
    }
}
