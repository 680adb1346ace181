//! Execution of statements: privileges, defaults, then the statement itself.
//!
//! Invariants: error texts are those of InfluxDB 1.8; a statement that fails has changed nothing, deletions
//! over several stores aside.
//! Not here: responses (`server`), the plan of SELECT (`lower`).

mod cardinality;
mod catalog;
mod condition;
pub mod continuous;
mod delete;
mod explain;
mod into;
mod metadata;
mod schema;
mod select;
mod status;
mod typed_schema;

use std::sync::Arc;

use chronolith_model::databases::{Database, TenantCatalog, User};
use chronolith_model::{QueryError, Queryable, ReadContext};

use crate::ast::Statement;
use crate::result::{ResultSink, SinkClosed};
use crate::storage::Storage;

/// Who sends statements.
#[derive(Debug, Clone, Copy)]
pub enum Access<'a> {
    /// Authentication is off.
    Anyone,
    /// There is no administrator yet: only creating one is allowed.
    BeforeFirstAdmin,
    /// A user.
    User(&'a User),
}

/// State of one request with statements.
pub struct Session<'a> {
    /// Databases.
    pub storage: &'a dyn Storage,
    /// Default database; empty for none.
    pub database: &'a str,
    /// Default retention policy; empty for that of the database.
    pub policy: &'a str,
    /// Who asks.
    pub access: Access<'a>,
    /// Time of the request.
    pub now_ns: i64,
    /// Limits of SELECT.
    pub limits: SelectLimits,
    /// Deadline, memory and cancellation.
    pub ctx: &'a ReadContext,
}

/// Limits of SELECT; 0 = none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SelectLimits {
    /// Series that are read.
    pub series_max: u64,
    /// Points that are read.
    pub points_max: u64,
    /// Windows.
    pub buckets_max: u64,
}

/// Reason why a statement ended without its result.
#[derive(Debug)]
pub enum StatementError {
    /// The text for the client.
    Text(String),
    /// The user may not do that: the whole request is refused.
    Forbidden(String),
    /// A read failed or was ended.
    Query(QueryError),
    /// Nobody wants the result.
    Closed,
}

impl StatementError {
    pub(crate) fn text(text: impl ToString) -> StatementError {
        StatementError::Text(text.to_string())
    }
}

impl From<QueryError> for StatementError {
    fn from(error: QueryError) -> StatementError {
        StatementError::Query(error)
    }
}

impl From<crate::SemanticError> for StatementError {
    fn from(error: crate::SemanticError) -> StatementError {
        StatementError::text(error)
    }
}

impl From<SinkClosed> for StatementError {
    fn from(_: SinkClosed) -> StatementError {
        StatementError::Closed
    }
}

/// A retention policy that a statement reads.
pub(crate) struct PolicySource {
    pub(crate) source: Arc<dyn Queryable>,
}

impl Session<'_> {
    /// Runs a statement and gives its rows to `sink`.
    ///
    /// # Errors
    /// [`StatementError`]; rows may have been given before.
    pub fn execute(&self, statement: &Statement, sink: &mut dyn ResultSink) -> Result<(), StatementError> {
        use Statement as S;
        let mut statement = statement.clone();
        let catalog = self.storage.catalog();
        let default_policy = |database: &str| {
            let found = catalog.database(database).map(|database| database.default_policy.clone());
            match self.policy.is_empty() || database != self.database {
                true => found.unwrap_or_default(),
                false => self.policy.to_owned(),
            }
        };
        statement.fill_defaults(self.database, &default_policy);
        match &statement {
            S::ShowMeasurements(_)
            | S::ShowSeries(_)
            | S::ShowTagKeys(_)
            | S::ShowTagValues(_)
            | S::ShowFieldKeys(_) => self.show_schema(&statement, sink),
            S::Select(select) => self.select(select, sink),
            S::Explain { select, is_analyzed } => self.explain(select, *is_analyzed, sink),
            S::ShowCardinality(cardinality) => self.show_cardinality(cardinality, sink),
            S::Delete { sources, condition } => self.delete(sources, condition.as_ref()),
            S::DropSeries { sources, condition } => self.drop_series(sources, condition.as_ref()),
            S::DropMeasurement(name) => self.drop_measurement(name),
            S::ShowQueries
            | S::KillQuery { .. }
            | S::ShowStats(_)
            | S::ShowDiagnostics(_)
            | S::ShowShards
            | S::ShowShardGroups => self.status(&statement, sink),
            statement => self.execute_on_catalog(&catalog, statement, sink),
        }
    }

    /// Returns a database for reading: its name must be given and exist.
    pub(crate) fn database_sources(&self, name: &str) -> Result<Vec<PolicySource>, StatementError> {
        if name.is_empty() {
            return Err(StatementError::text("database name required"));
        }
        let catalog = self.storage.catalog();
        if let Some(database) = catalog.database(name) {
            return Ok(self.policy_sources(database));
        }
        match self.storage.read_only() {
            Some((own, source)) if own == name => Ok(vec![PolicySource { source }]),
            _ => Err(StatementError::Text(format!("database not found: {name}"))),
        }
    }

    /// Returns the store of a retention policy for reading.
    pub(crate) fn policy_source(
        &self,
        database: &str,
        policy: &str,
    ) -> Result<Arc<dyn Queryable>, StatementError> {
        if database.is_empty() {
            return Err(StatementError::text("database name required"));
        }
        let catalog = self.storage.catalog();
        if let Some(found) = catalog.database(database) {
            let found = found.policy(policy);
            let missing = || StatementError::Text(format!("retention policy not found: {policy}"));
            return Ok(self.storage.source(&found.ok_or_else(missing)?.store));
        }
        match self.storage.read_only() {
            Some((own, source)) if own == database => Ok(source),
            _ => Err(StatementError::Text(format!("database not found: {database}"))),
        }
    }

    fn policy_sources(&self, database: &Database) -> Vec<PolicySource> {
        let source = |store| PolicySource { source: self.storage.source(store) };
        database.policies.iter().map(|policy| source(&policy.store)).collect()
    }

    /// Returns a database that can be changed.
    pub(crate) fn writable<'c>(
        &self,
        catalog: &'c TenantCatalog,
        name: &str,
    ) -> Result<&'c Database, StatementError> {
        if name.is_empty() {
            return Err(StatementError::text("database name required"));
        }
        if let Some(database) = catalog.database(name) {
            return Ok(database);
        }
        match self.storage.read_only() {
            Some((own, _)) if own == name => {
                Err(StatementError::Text(format!("database {name:?} is read only")))
            }
            _ => Err(StatementError::Text(format!("database not found: {name}"))),
        }
    }
}

/// Checks that the caller may run all statements of a request; `database` is the default one.
///
/// # Errors
/// The text for the client.
pub fn authorize(access: Access<'_>, statements: &[Statement], database: &str) -> Result<(), String> {
    let user = match access {
        Access::Anyone => return Ok(()),
        Access::BeforeFirstAdmin => {
            let creates_admin = matches!(statements, [Statement::CreateUser(create)] if create.is_admin);
            let why = "create admin user first or disable authentication";
            return if creates_admin { Ok(()) } else { Err(why.to_owned()) };
        }
        Access::User(user) => user,
    };
    for statement in statements.iter().filter(|_| !user.is_admin) {
        for needed in statement.required_privileges() {
            if needed.is_admin {
                let name = &user.name;
                return Err(format!(
                    "{name} not authorized to execute statement '{statement}', requires admin privilege"
                ));
            }
            let own = if needed.database.is_empty() { database } else { &needed.database };
            if !has_privilege(user, needed.privilege, own) {
                let (name, privilege) = (&user.name, needed.privilege.text());
                return Err(format!(
                    "{name} not authorized to execute statement '{statement}', requires {privilege} on {own}"
                ));
            }
        }
    }
    Ok(())
}

fn has_privilege(user: &User, needed: crate::ast::Privilege, database: &str) -> bool {
    use chronolith_model::databases::Privilege as Stored;
    match needed {
        crate::ast::Privilege::None => true,
        crate::ast::Privilege::Read => user.may(Stored::Read, database),
        crate::ast::Privilege::Write => user.may(Stored::Write, database),
        crate::ast::Privilege::All => user.may(Stored::All, database),
    }
}
