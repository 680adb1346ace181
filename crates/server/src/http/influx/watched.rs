//! Changes of the sources of continuous queries between their runs.

use std::collections::HashMap;

use chronolith_model::TenantId;
use parking_lot::Mutex;

/// Stores of one query with their generations at its last run.
pub(super) type Watched = Vec<(TenantId, u64)>;
/// Tenant, database and name of a query.
pub(super) type QueryKey = (TenantId, String, String);

/// State of all queries between runs.
#[derive(Default)]
pub(crate) struct ContinuousQueries(Mutex<HashMap<QueryKey, Watched>>);

impl ContinuousQueries {
    /// Takes what is known of a query since its last run; empty before the first one.
    pub(super) fn take(&self, key: &QueryKey) -> Watched {
        self.0.lock().remove(key).unwrap_or_default()
    }

    pub(super) fn put(&self, key: QueryKey, watched: Watched) {
        self.0.lock().insert(key, watched);
    }
}
