//! Rules of users and grants.

use crate::ast::{CreateUser, Grant, Privilege, Statement};

use super::error::ParseError;
use super::parser::Parser;
use super::token::Kind;
use crate::ast::BinaryOp;

/// What GRANT or REVOKE changes.
enum Change {
    OnDatabase(Grant),
    Admin(String),
}

impl Parser {
    pub(super) fn create_user(&mut self) -> Result<Statement, ParseError> {
        let name = self.ident()?;
        self.expect_keywords(&["WITH", "PASSWORD"])?;
        let password = self.text()?;
        let is_admin = self.next_keyword("WITH");
        if is_admin {
            self.expect_keywords(&["ALL", "PRIVILEGES"])?;
        }
        Ok(Statement::CreateUser(CreateUser { name, password, is_admin }))
    }

    /// SET PASSWORD.
    pub(super) fn set_password(&mut self) -> Result<Statement, ParseError> {
        self.expect_keywords(&["PASSWORD", "FOR"])?;
        let user = self.ident()?;
        self.expect(Kind::Op(BinaryOp::Eq), "=")?;
        Ok(Statement::SetPassword { user, password: self.text()? })
    }

    pub(super) fn grant(&mut self) -> Result<Statement, ParseError> {
        Ok(match self.change("TO")? {
            Change::OnDatabase(grant) => Statement::Grant(grant),
            Change::Admin(user) => Statement::GrantAdmin(user),
        })
    }

    pub(super) fn revoke(&mut self) -> Result<Statement, ParseError> {
        Ok(match self.change("FROM")? {
            Change::OnDatabase(grant) => Statement::Revoke(grant),
            Change::Admin(user) => Statement::RevokeAdmin(user),
        })
    }

    /// A privilege, `ON` and a database, and a user after `direction`; without a database ALL means an
    /// administrator.
    fn change(&mut self, direction: &str) -> Result<Change, ParseError> {
        let privilege = self.privilege()?;
        let token = self.next();
        if token.is_keyword("ON") {
            let database = self.ident()?;
            self.expect_keyword(direction)?;
            let user = self.ident()?;
            return Ok(Change::OnDatabase(Grant { privilege, database, user }));
        }
        if privilege != Privilege::All {
            return Err(ParseError::unexpected(&token, &["ON"]));
        }
        if token.is_keyword(direction) {
            return self.ident().map(Change::Admin);
        }
        Err(ParseError::unexpected(&token, &["ON", direction]))
    }

    fn privilege(&mut self) -> Result<Privilege, ParseError> {
        let token = self.next();
        match token.kind {
            Kind::Keyword("READ") => Ok(Privilege::Read),
            Kind::Keyword("WRITE") => Ok(Privilege::Write),
            Kind::Keyword("ALL") => {
                self.next_keyword("PRIVILEGES");
                Ok(Privilege::All)
            }
            _ => Err(ParseError::unexpected(&token, &["READ", "WRITE", "ALL [PRIVILEGES]"])),
        }
    }
}
