//! The service as a whole: options, permits, threads, the store's life cycle, and the state of queries and
//! writes. Every protocol, and the server's own work, calls it.
//!
//! Invariants: limits of a reload reach the store, whichever comes first.
//! Not here: protocols, sockets, pages (`server`); how a query runs (`evaluation`) and a write (`write`).

use std::sync::Arc;

use chronolith_base::Env;
use chronolith_model::rollup::RollupRules;
use chronolith_model::{TenantId, TenantLimits};
use chronolith_tsdb::{LimitsTable, SourcePart, Tsdb, fanout};
use parking_lot::RwLock;

use crate::admission::Admission;
use crate::admission::threads::QueryThreads;
use crate::lifecycle::Lifecycle;
use crate::metrics::query::QueryMetrics;
use crate::options::ServiceOptions;
use crate::query::context::QueryContext;
use crate::write::Writes;

/// State that all calls share.
pub struct Service {
    /// Clock, disk and random numbers.
    pub env: Env,
    /// Settings since the start.
    pub options: ServiceOptions,
    /// The store, once it is open.
    pub lifecycle: Lifecycle,
    /// Permits and memory.
    pub admission: Admission,
    /// Threads of queries and of other requests that take long.
    pub threads: QueryThreads,
    /// State of queries.
    pub queries: QueryContext,
    /// Counters of queries.
    pub query_metrics: QueryMetrics,
    /// State of writes.
    pub writes: Writes,
    settings: RwLock<StoreSettings>,
}

/// Settings that a reload replaces in the store.
struct StoreSettings {
    limits: LimitsTable,
    rollup_rules: Option<Arc<dyn RollupRules>>,
}

impl Service {
    /// A service without a store.
    #[must_use]
    pub fn new(env: Env, options: ServiceOptions) -> Service {
        Service {
            lifecycle: Lifecycle::default(),
            admission: Admission::new(&options, &env.clock),
            threads: QueryThreads::default(),
            queries: QueryContext::new(&options),
            query_metrics: QueryMetrics::default(),
            writes: Writes::new(env.clock.clone(), options.tenant_metrics_max),
            settings: RwLock::new(StoreSettings { limits: options.tsdb.limits.clone(), rollup_rules: None }),
            options,
            env,
        }
    }

    /// Takes the store into use, with the settings of the latest reload. Queries read it and `others`.
    ///
    /// # Panics
    /// If there is one already.
    pub fn set_store(&self, store: Arc<Tsdb>, others: Vec<SourcePart>) {
        // The lock is held over both steps so that a reload comes before or after them, not between.
        let settings = self.settings.read();
        store.set_limits(settings.limits.clone());
        store.set_rollup_rules(settings.rollup_rules.clone());
        let local = SourcePart { name: "local store".to_owned(), sources: store.clone(), is_required: true };
        let parts = std::iter::once(local).chain(others).collect();
        self.lifecycle.set_store(store, fanout(parts));
    }

    /// Replaces the limits of all tenants.
    pub fn set_limits(&self, limits: LimitsTable) {
        let mut settings = self.settings.write();
        if let Some(store) = self.lifecycle.opened() {
            store.set_limits(limits.clone());
        }
        settings.limits = limits;
    }

    /// Replaces the rules of roll-ups; `None` = there are none.
    pub fn set_rollup_rules(&self, rules: Option<Arc<dyn RollupRules>>) {
        let mut settings = self.settings.write();
        if let Some(store) = self.lifecycle.opened() {
            store.set_rollup_rules(rules.clone());
        }
        settings.rollup_rules = rules;
    }

    /// Limits of a tenant, as of the latest reload.
    pub fn limits_of(&self, tenant: &TenantId) -> TenantLimits {
        match self.lifecycle.opened() {
            Some(store) => store.limits_of(tenant),
            None => self.settings.read().limits.of(tenant).clone(),
        }
    }

    /// Limits of tenants without limits of their own, as of the latest reload.
    pub fn default_limits(&self) -> TenantLimits {
        self.settings.read().limits.default.clone()
    }
}
