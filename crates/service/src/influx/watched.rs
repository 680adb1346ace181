//! Changes of the sources of continuous queries between their runs.
//!
//! Points that clients write are found by the generations of stores. Points that continuous queries write
//! are not among them: a query whose own run has touched the source of another one marks it. Of a chain of
//! such runs at most [`LINKS_MAX`] follow one another, so that queries that read each other's results end.
//! Invariants: what has changed since a run is known until the next run that succeeds.

use std::collections::HashMap;

use chronolith_model::change::Generation;
use chronolith_model::{StoreId, TenantId};
use parking_lot::Mutex;

/// Sources of one query as of its last run.
#[derive(Debug, Clone, Default)]
pub struct Watched {
    /// Stores with their generations.
    pub stores: Vec<(StoreId, Generation)>,
    /// Results of another query among its sources.
    pub mark: Option<Mark>,
}

/// Runs of a chain of queries, each of which reads the results of the one before, after the first one.
pub const LINKS_MAX: usize = 4;

/// Results of a continuous query that another one reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Start of the earliest window that was written, in nanoseconds.
    pub from_ns: i64,
    /// Runs since the one for points of clients.
    pub links: usize,
}

impl Mark {
    /// Joins two marks: the earlier time, and the shorter chain.
    fn join(self, other: Mark) -> Mark {
        Mark { from_ns: self.from_ns.min(other.from_ns), links: self.links.min(other.links) }
    }
}

/// Tenant, database and name of a query.
pub type QueryKey = (TenantId, String, String);

/// State of all queries between runs.
#[derive(Default)]
pub struct ContinuousQueries(Mutex<HashMap<QueryKey, Watched>>);

impl ContinuousQueries {
    /// Returns the state as of the last run; empty before the first one.
    pub fn of(&self, key: &QueryKey) -> Watched {
        self.0.lock().get(key).cloned().unwrap_or_default()
    }

    /// Replaces the state of a query.
    pub fn put(&self, key: QueryKey, watched: Watched) {
        self.0.lock().insert(key, watched);
    }

    /// Marks a query whose source another query has written to. One that has not run yet reads it anyway.
    pub fn mark(&self, key: &QueryKey, mark: Mark) {
        if let Some(watched) = self.0.lock().get_mut(key) {
            watched.mark = Some(watched.mark.map_or(mark, |known| known.join(mark)));
        }
    }

    /// Forgets queries that `exists` does not know.
    pub fn retain(&self, exists: impl Fn(&QueryKey) -> bool) {
        self.0.lock().retain(|key, _| exists(key));
    }
}
