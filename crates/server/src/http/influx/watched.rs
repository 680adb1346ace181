//! Changes of the sources of continuous queries between their runs.
//!
//! Invariants: what has changed since a run is known until the next run that succeeds.

use std::collections::HashMap;

use chronolith_model::TenantId;
use parking_lot::Mutex;

/// Sources of one query as of its last run.
#[derive(Debug, Clone, Default)]
pub(super) struct Watched {
    /// Stores with their generations.
    pub(super) stores: Vec<(TenantId, u64)>,
    /// Start of the windows to compute again whatever has changed, in nanoseconds.
    pub(super) again_from_ns: Option<i64>,
}

/// Tenant, database and name of a query.
pub(super) type QueryKey = (TenantId, String, String);

/// State of all queries between runs.
#[derive(Default)]
pub(crate) struct ContinuousQueries(Mutex<HashMap<QueryKey, Watched>>);

impl ContinuousQueries {
    /// Returns the state as of the last run; empty before the first one.
    pub(super) fn of(&self, key: &QueryKey) -> Watched {
        self.0.lock().get(key).cloned().unwrap_or_default()
    }

    pub(super) fn put(&self, key: QueryKey, watched: Watched) {
        self.0.lock().insert(key, watched);
    }

    /// Forgets queries that `exists` does not know.
    pub(super) fn retain(&self, exists: impl Fn(&QueryKey) -> bool) {
        self.0.lock().retain(|key, _| exists(key));
    }
}
