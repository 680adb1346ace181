//! Contract of statements with the server: catalogue, stores, writes and deletions of one tenant.
//!
//! Not here: privileges (`execute`), its implementation (`server`).

use std::sync::Arc;

use chronolith_model::databases::{CatalogChange, CatalogError, TenantCatalog};
use chronolith_model::{Deletion, QueryError, Queryable, ReadContext, StoreId, TimeRange, WriteBatch};

/// Databases and samples of one tenant.
pub trait Storage: Send + Sync {
    /// Returns the current catalogue.
    fn catalog(&self) -> Arc<TenantCatalog>;

    /// Changes the catalogue; durable when it returns.
    ///
    /// # Errors
    /// [`CatalogError`]: nothing changed.
    fn change(&self, change: &CatalogChange) -> Result<(), CatalogError>;

    /// Returns the typed source of a store, with times in nanoseconds.
    fn source(&self, store: &StoreId) -> Arc<dyn Queryable>;

    /// Returns the name and the source of the database with the series of other protocols, if there is one.
    /// It is read only.
    fn read_only(&self) -> Option<(String, Arc<dyn Queryable>)>;

    /// Returns the typed source of a store for a deletion, which has to find all series.
    ///
    /// # Errors
    /// The text for the client, if the process does not see all series of the store.
    fn source_of_all(&self, store: &StoreId) -> Result<Arc<dyn Queryable>, String> {
        Ok(self.source(store))
    }

    /// Deletes samples; durable when it returns.
    ///
    /// # Errors
    /// The text for the client; part of the samples may be deleted.
    fn delete(&self, deletions: &[Deletion]) -> Result<(), String>;

    /// Writes points; durable when it returns.
    ///
    /// # Errors
    /// The text for the client, also if some points are refused.
    fn write(&self, store: &StoreId, batch: &mut WriteBatch) -> Result<(), String>;

    /// Returns the hash of a password.
    fn hash_password(&self, password: &str) -> String;

    /// Returns the running queries.
    fn queries(&self) -> Vec<RunningQuery>;

    /// Ends a running query; false if there is none of this number.
    fn kill(&self, id: u64) -> bool;

    /// Returns the ranges of time in which a store may have samples.
    ///
    /// # Errors
    /// [`QueryError`] if its blocks cannot be listed.
    fn sample_ranges(&self, store: &StoreId, ctx: &ReadContext) -> Result<Vec<TimeRange>, QueryError>;

    /// Monotonic time.
    fn mono_ns(&self) -> u64;

    /// Returns facts about the process: module, then names with values.
    fn diagnostics(&self) -> Vec<(String, Vec<(String, String)>)>;

    /// Returns counters: module, tags, then names with values.
    fn statistics(&self) -> Vec<Statistics>;
}

/// Counters of one module.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    /// Name of the module.
    pub module: String,
    /// Tags that name the counted thing, for example a database.
    pub tags: Vec<(String, String)>,
    /// Names and values.
    pub values: Vec<(String, f64)>,
}

/// A query that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningQuery {
    /// Number of the query.
    pub id: u64,
    /// Text of the query.
    pub text: String,
    /// Default database of its client.
    pub database: String,
    /// Time since its start.
    pub duration_ns: u64,
    /// Set once it was killed.
    pub is_killed: bool,
}
