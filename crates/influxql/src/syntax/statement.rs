//! Rules of texts of statements, and of the statements that are no others' kind.

use crate::ast::Statement;

use super::error::ParseError;
use super::parser::Parser;
use super::select::TargetRule;
use super::token::{Kind, Token};

impl Parser {
    pub(super) fn query(&mut self) -> Result<Vec<Statement>, ParseError> {
        let mut statements = Vec::new();
        let mut is_separated = true;
        loop {
            let token = self.next();
            match token.kind {
                Kind::End => return Ok(statements),
                Kind::Semicolon => is_separated = true,
                _ if !is_separated => return Err(ParseError::unexpected(&token, &[";"])),
                _ => {
                    self.unscan();
                    self.count_term()?;
                    statements.push(self.statement()?);
                    is_separated = false;
                }
            }
        }
    }

    pub(super) fn statement(&mut self) -> Result<Statement, ParseError> {
        let token = self.next();
        match token.kind {
            Kind::Keyword("SELECT") => {
                let select = self.select(TargetRule::Optional)?;
                Ok(Statement::Select(Box::new(select)))
            }
            Kind::Keyword("DELETE") => self.delete(),
            Kind::Keyword("SHOW") => self.show(),
            Kind::Keyword("CREATE") => self.create(),
            Kind::Keyword("DROP") => self.drop_statement(),
            Kind::Keyword("EXPLAIN") => self.explain(),
            Kind::Keyword("GRANT") => self.grant(),
            Kind::Keyword("REVOKE") => self.revoke(),
            Kind::Keyword("ALTER") => self.alter(),
            Kind::Keyword("SET") => self.set_password(),
            Kind::Keyword("KILL") => self.kill(),
            _ => Err(unknown_statement(&token)),
        }
    }

    fn explain(&mut self) -> Result<Statement, ParseError> {
        let is_analyzed = self.next_keyword("ANALYZE");
        self.expect_keyword("SELECT")?;
        let select = Box::new(self.select(TargetRule::Optional)?);
        Ok(Statement::Explain { select, is_analyzed })
    }

    fn delete(&mut self) -> Result<Statement, ParseError> {
        self.expect_from_or_where()?;
        let sources = self.sources_of_database()?;
        let condition = self.condition()?;
        Ok(Statement::Delete { sources, condition })
    }

    pub(super) fn drop_series(&mut self) -> Result<Statement, ParseError> {
        self.expect_from_or_where()?;
        let sources = self.sources_of_database()?;
        let condition = self.condition()?;
        Ok(Statement::DropSeries { sources, condition })
    }

    fn expect_from_or_where(&mut self) -> Result<(), ParseError> {
        let token = self.next();
        if token.is_keyword("FROM") || token.is_keyword("WHERE") {
            self.unscan();
            return Ok(());
        }
        Err(ParseError::unexpected(&token, &["FROM", "WHERE"]))
    }

    fn kill(&mut self) -> Result<Statement, ParseError> {
        self.expect_keyword("QUERY")?;
        let id = self.unsigned()?;
        let host = if self.next_keyword("ON") { self.ident()? } else { String::new() };
        Ok(Statement::KillQuery { id, host })
    }
}

fn unknown_statement(found: &Token) -> ParseError {
    let expected =
        ["SELECT", "DELETE", "SHOW", "CREATE", "DROP", "EXPLAIN", "GRANT", "REVOKE", "ALTER", "SET", "KILL"];
    ParseError::unexpected(found, &expected)
}
