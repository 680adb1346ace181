//! Registry of running queries: text, tenant, start time and memory of each, and its cancellation token, for
//! `status/active_queries` and its `kill`.
//!
//! Invariants: a query is listed from the moment it has a permit until its response is encoded or it has
//! failed.
//! Not here: the endpoints that list and kill (`server`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use chronolith_base::MemoryBudget;
use chronolith_model::{ReadContext, TenantId};
use chronolith_promql::engine::trace::Trace;
use parking_lot::Mutex;

use super::top_queries::QueryLanguage;

/// Bytes of a query's text in the list.
pub const ACTIVE_TEXT_BYTES_MAX: usize = 4 << 10;

/// One running query.
pub struct ActiveQuery {
    /// Number that `kill` takes.
    pub id: u64,
    /// Tenant that asked.
    pub tenant: TenantId,
    /// Language of the text.
    pub language: QueryLanguage,
    /// The beginning of its text.
    pub text: String,
    /// First time, last time, step (0 = one time).
    pub times_ms: (i64, i64, i64),
    /// Monotonic clock at its start.
    pub started_mono_ns: u64,
    /// Memory that it has reserved.
    pub budget: MemoryBudget,
    /// Trace of the plan: times and counts per operator.
    pub trace: Arc<Trace>,
    canceled: Arc<AtomicBool>,
    killed: AtomicBool,
}

/// A query that gets its place in the list.
pub struct StartedQuery<'a> {
    /// Tenant that asks.
    pub tenant: &'a TenantId,
    /// Language of the text.
    pub language: QueryLanguage,
    /// Text as sent; secrets are left out.
    pub text: &'a str,
    /// First time, last time, step (0 = one time).
    pub times_ms: (i64, i64, i64),
    /// Deadline, memory budget and cancellation of the query.
    pub ctx: &'a ReadContext,
    /// Trace of the plan, updated while the query runs.
    pub trace: Arc<Trace>,
}

/// The running queries, by id.
#[derive(Default)]
pub struct ActiveQueries {
    next_id: AtomicU64,
    killed_count: AtomicU64,
    by_id: Mutex<BTreeMap<u64, Arc<ActiveQuery>>>,
}

/// Keeps a query in the list.
pub struct ActiveEntry<'a> {
    list: &'a ActiveQueries,
    query: Arc<ActiveQuery>,
}

impl ActiveQueries {
    /// Lists a query that starts at `mono_ns` of the monotonic clock, until the entry is dropped.
    pub fn enter(&self, started: StartedQuery<'_>, mono_ns: u64) -> ActiveEntry<'_> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed) + 1;
        let query = Arc::new(ActiveQuery {
            id,
            tenant: started.tenant.clone(),
            language: started.language,
            text: started.text.chars().take(ACTIVE_TEXT_BYTES_MAX / 4).collect(),
            times_ms: started.times_ms,
            started_mono_ns: mono_ns,
            budget: started.ctx.budget.clone(),
            trace: started.trace,
            canceled: started.ctx.cancel_flag(),
            killed: AtomicBool::new(false),
        });
        self.by_id.lock().insert(id, query.clone());
        ActiveEntry { list: self, query }
    }

    /// Running queries of `tenant`, or of all tenants if it is `None`, oldest first.
    pub fn list(&self, tenant: Option<&TenantId>) -> Vec<Arc<ActiveQuery>> {
        let fits = |query: &&Arc<ActiveQuery>| tenant.is_none_or(|tenant| query.tenant == *tenant);
        self.by_id.lock().values().filter(fits).cloned().collect()
    }

    /// Asks a query (of `tenant`, if one is named) to stop; false if it is not there.
    pub fn kill(&self, id: u64, tenant: Option<&TenantId>) -> bool {
        let found = self.by_id.lock().get(&id).cloned();
        let Some(query) = found.filter(|query| tenant.is_none_or(|tenant| query.tenant == *tenant)) else {
            return false;
        };
        query.killed.store(true, Ordering::Release);
        query.canceled.store(true, Ordering::Release);
        self.killed_count.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Kills since the start.
    pub fn killed_count(&self) -> u64 {
        self.killed_count.load(Ordering::Relaxed)
    }
}

impl ActiveEntry<'_> {
    /// Returns its id if it was killed.
    pub fn killed_id(&self) -> Option<u64> {
        self.query.killed.load(Ordering::Acquire).then_some(self.query.id)
    }
}

impl Drop for ActiveEntry<'_> {
    fn drop(&mut self) {
        self.list.by_id.lock().remove(&self.query.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chronolith_base::ManualClock;

    #[test]
    fn a_tenant_sees_and_kills_its_own_queries_only() {
        let ctx = ReadContext::unlimited(Arc::new(ManualClock::new(0)));
        let queries = ActiveQueries::default();
        let (mine, other) = (TenantId::anonymous(), TenantId::new("other").expect("valid"));
        let started = StartedQuery {
            tenant: &mine,
            language: QueryLanguage::PromQl,
            text: "up",
            times_ms: (0, 0, 0),
            ctx: &ctx,
            trace: Arc::default(),
        };
        let entry = queries.enter(started, 0);
        let id = queries.list(Some(&mine))[0].id;
        assert!(queries.list(Some(&other)).is_empty() && !queries.kill(id, Some(&other)));
        assert!(ctx.check().is_ok() && entry.killed_id().is_none());
        assert!(queries.kill(id, Some(&mine)));
        assert!(ctx.check().is_err() && entry.killed_id() == Some(id));
        drop(entry);
        assert!(queries.list(None).is_empty() && !queries.kill(id, None));
        assert_eq!(queries.killed_count(), 1);
    }
}
