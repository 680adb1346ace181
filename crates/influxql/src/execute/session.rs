//! State of one request with statements, and the stores that it may read.
//!
//! Invariants: a database that does not exist and one that is read only have InfluxDB's errors.
//! Not here: statements (`execute`).

use std::sync::Arc;

use chronolith_model::databases::{Database, TenantCatalog, User};
use chronolith_model::{QueryError, Queryable, ReadContext};

use crate::result::SinkClosed;
use crate::storage::Storage;

/// Privileges of the client.
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
    /// Default retention policy; empty for the default policy of the database.
    pub policy: &'a str,
    /// Privileges of the client that sends the statement.
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
    /// The client has left, or has all the rows that it may get.
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
