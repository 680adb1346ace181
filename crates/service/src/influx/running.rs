//! Running requests with statements: SHOW QUERIES and KILL QUERY.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chronolith_influxql::storage::RunningQuery;
use chronolith_model::TenantId;
use parking_lot::Mutex;

/// Bytes of a text that are kept.
const TEXT_BYTES_MAX: usize = 4096;

/// Running requests of all tenants.
#[derive(Default)]
pub struct RunningQueries(Mutex<State>);

#[derive(Default)]
struct State {
    last_id: u64,
    entries: BTreeMap<u64, Entry>,
}

struct Entry {
    tenant: TenantId,
    text: String,
    database: String,
    started_ns: u64,
    is_killed: bool,
    canceled: Arc<AtomicBool>,
}

/// A tenant has as many requests as it may have at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("max-concurrent-queries limit exceeded({count}, {count_max})")]
pub struct TooManyQueries {
    count: usize,
    count_max: usize,
}

/// A request in the list, until it is dropped.
pub struct RunningGuard<'a> {
    queries: &'a RunningQueries,
    id: u64,
}

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        self.queries.0.lock().entries.remove(&self.id);
    }
}

impl RunningQueries {
    /// Adds a request, which ends when `canceled` is set, unless the tenant has `count_max` (0 = no limit).
    pub fn enter(
        &self,
        tenant: &TenantId,
        text: &str,
        database: &str,
        started_ns: u64,
        canceled: Arc<AtomicBool>,
        count_max: usize,
    ) -> Result<RunningGuard<'_>, TooManyQueries> {
        let mut state = self.0.lock();
        let count = state.entries.values().filter(|entry| entry.tenant == *tenant).count();
        if count_max > 0 && count >= count_max {
            return Err(TooManyQueries { count, count_max });
        }
        state.last_id += 1;
        let id = state.last_id;
        let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
        let entry = Entry {
            tenant: tenant.clone(),
            text: text[..end.unwrap_or(0)].to_owned(),
            database: database.to_owned(),
            started_ns,
            is_killed: false,
            canceled,
        };
        state.entries.insert(id, entry);
        Ok(RunningGuard { queries: self, id })
    }

    /// Lists the requests of a tenant by number.
    pub fn list(&self, tenant: &TenantId, now_ns: u64) -> Vec<RunningQuery> {
        let state = self.0.lock();
        let own = state.entries.iter().filter(|(_, entry)| entry.tenant == *tenant);
        own.map(|(id, entry)| RunningQuery {
            id: *id,
            text: entry.text.clone(),
            database: entry.database.clone(),
            duration_ns: now_ns.saturating_sub(entry.started_ns),
            is_killed: entry.is_killed,
        })
        .collect()
    }

    /// Ends a request of a tenant; false if there is none of this number.
    pub fn kill(&self, tenant: &TenantId, id: u64) -> bool {
        let mut state = self.0.lock();
        let Some(entry) = state.entries.get_mut(&id).filter(|entry| entry.tenant == *tenant) else {
            return false;
        };
        entry.is_killed = true;
        entry.canceled.store(true, Ordering::Relaxed);
        true
    }
}
