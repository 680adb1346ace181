//! The service as a whole: options, permits, threads, the store's life cycle, and the state of queries and
//! writes. Every protocol, and the server's own work, calls it.
//!
//! Invariants: the store has the limits and rules of the latest reload, also if it is opened after it.
//! Not here: protocols, sockets, pages (`server`), queries (`evaluation`), writes (`write`).

use std::sync::{Arc, OnceLock};

use chronolith_base::Env;
use chronolith_cluster::gateway::Gateway;
use chronolith_model::rollup::RollupRules;
use chronolith_model::{TenantId, TenantLimits};
use chronolith_tsdb::{BucketSources, LimitUse, LimitsTable, SourcePart, Tsdb, fanout};
use parking_lot::RwLock;

use crate::access::control::AccessControl;
use crate::admission::Admission;
use crate::admission::threads::QueryThreads;
use crate::audit::AuditLog;
use crate::carbon::CarbonContext;
use crate::carbon::rules::PathRules;
use crate::influx::InfluxContext;
use crate::lifecycle::Lifecycle;
use crate::options::ServiceOptions;
use crate::query::context::QueryContext;
use crate::rules::RuleContext;
use crate::write::Writes;

/// State that all calls share.
pub struct Service {
    /// Clock, disk and random numbers.
    pub env: Env,
    /// Settings since the start.
    pub options: ServiceOptions,
    /// The store, once it is open.
    pub lifecycle: Lifecycle,
    /// Principals.
    pub access: AccessControl,
    /// The audit log.
    pub audit: AuditLog,
    /// Permits and memory.
    pub admission: Admission,
    /// Threads of queries and of other requests that take long.
    pub threads: QueryThreads,
    /// State of queries.
    pub queries: QueryContext,
    /// State of writes.
    pub writes: Writes,
    /// Inputs and rules of carbon.
    pub carbon: CarbonContext,
    /// State of InfluxQL.
    pub influx: InfluxContext,
    /// State of rules.
    pub rules: RuleContext,
    /// Wall clock at the start.
    pub started_ms: i64,
    /// Blocks in the bucket, on a server that reads them.
    pub bucket: OnceLock<Arc<BucketSources>>,
    /// Limits of the latest reload.
    limits: RwLock<LimitsTable>,
}

impl Service {
    /// A service without a store.
    #[must_use]
    pub fn new(env: Env, options: ServiceOptions) -> Service {
        Service {
            lifecycle: Lifecycle::new(options.is_read_only, &options.cluster.roles),
            access: AccessControl::new(options.access.clone(), options.multitenancy, &env.rng),
            audit: AuditLog::new(options.audit.clone()),
            admission: Admission::new(&options, &env.clock),
            threads: QueryThreads::default(),
            queries: QueryContext::new(&options),
            writes: Writes::new(env.clock.clone(), options.tenant_metrics_max),
            influx: InfluxContext::new(&env.rng),
            rules: RuleContext::new(&env, &options),
            started_ms: env.clock.now_ms(),
            bucket: OnceLock::new(),
            carbon: CarbonContext::new(&options.write.carbon.listeners),
            limits: RwLock::new(options.tsdb.limits.clone()),
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
        let limits = self.limits.read();
        store.settings().set_limits(store_limits(self, &limits));
        store.settings().set_rollup_rules(self.rollup_rules());
        let local = SourcePart { name: "local store".to_owned(), sources: store.clone(), is_required: true };
        let parts = std::iter::once(local).chain(others).collect();
        self.lifecycle.set_store(store, fanout(parts));
        self.rules.engine.wake();
    }

    /// Sets the bucket whose blocks are read.
    ///
    /// # Panics
    /// If there is one already.
    pub fn set_bucket(&self, sources: Arc<BucketSources>) {
        assert!(self.bucket.set(sources).is_ok(), "the bucket is opened once");
    }

    /// Replaces the limits of all tenants.
    pub fn set_limits(&self, limits: LimitsTable) {
        let mut current = self.limits.write();
        if let Some(store) = self.lifecycle.opened() {
            store.settings().set_limits(store_limits(self, &limits));
        }
        if let Some(gateway) = self.lifecycle.roles.gateway() {
            gateway.set_limits(limits.clone());
        }
        self.admission.weights.set(&limits);
        *current = limits;
    }

    /// Reads the files of Graphite's rules; on failure the rules in use stay.
    ///
    /// # Errors
    /// The text for the operator.
    pub fn read_rules(&self) -> Result<(), String> {
        let files = &self.options.write.carbon.rules;
        if files.is_empty() {
            return Ok(());
        }
        let rules = PathRules::read(&*self.env.disk, files, self.env.rng.next_u64())?;
        // Held as in `set_store`: a store that is opened meanwhile gets these rules or asks for them.
        let _limits = self.limits.write();
        self.carbon.set_rules(rules);
        if let Some(store) = self.lifecycle.opened() {
            store.settings().set_rollup_rules(self.rollup_rules());
        }
        Ok(())
    }

    /// Rules of roll-ups; `None` without a file of schemas.
    fn rollup_rules(&self) -> Option<Arc<dyn RollupRules>> {
        let rules = self.carbon.rules();
        let has_schemas = !rules.schemas().rules().is_empty();
        has_schemas.then_some(rules as Arc<dyn RollupRules>)
    }

    /// Limits of a tenant, as of the latest reload.
    pub fn limits_of(&self, tenant: &TenantId) -> TenantLimits {
        match self.lifecycle.opened() {
            Some(store) => store.settings().limits_of(&tenant.into()),
            None => self.limits.read().of(tenant).clone(),
        }
    }

    /// Limits of tenants without limits of their own, as of the latest reload.
    pub fn default_limits(&self) -> TenantLimits {
        self.limits.read().default.clone()
    }
}

/// Sets the number of partitions that accept writes, on an owner: it divides limits of series among the
/// partitions of a tenant.
pub fn set_accepting_partitions(service: &Service, count: usize) {
    // Held as in `Service::set_store`.
    let limits = service.limits.read();
    if service.lifecycle.roles.replace_accepting_count(count) == count {
        return;
    }
    if let Some(store) = service.lifecycle.opened() {
        store.settings().set_limits(store_limits(service, &limits));
    }
}

/// Limits of the store; on an owner the limits of its partition.
fn store_limits(service: &Service, limits: &LimitsTable) -> LimitsTable {
    match service.lifecycle.roles.accepting_count() {
        0 => limits.clone(),
        count => {
            let options = service.options.cluster.gateway;
            limits.clone().map(|of_tenant| options.partition_limits(of_tenant, count))
        }
    }
}

/// Takes the gateway into use, with the limits of the latest reload.
///
/// # Panics
/// If there is one already.
pub fn set_gateway(service: &Service, gateway: Arc<Gateway>) {
    // Held as in `Service::set_store`.
    let limits = service.limits.read();
    gateway.set_limits(limits.clone());
    service.lifecycle.roles.set_gateway(gateway);
}

/// Returns the use of the limits of the storage, then of the limits of queries.
#[must_use]
pub fn limit_uses(service: &Service, tenant: &TenantId) -> Vec<LimitUse> {
    let store = service.lifecycle.opened();
    let mut uses = store.map(|store| store.statistics().limit_uses(tenant)).unwrap_or_default();
    let queries = service.limits_of(tenant).queries;
    let permits = service.admission.query.share_of(tenant, queries.concurrency_max).permit_count;
    let writes = &service.admission.write;
    let memory = service.admission.query_memory.use_of(tenant, queries.memory_bytes_max);
    uses.push(LimitUse {
        name: "queries".to_owned(),
        setting: Some("query.tenant-concurrency"),
        used: service.queries.active.list(Some(tenant)).len() as u64,
        limit: Some(permits as u64),
    });
    uses.push(LimitUse {
        name: "query_memory".to_owned(),
        setting: Some("query.tenant-memory"),
        used: memory.used_bytes,
        limit: memory.limit_bytes,
    });
    uses.push(LimitUse {
        name: "writes".to_owned(),
        setting: Some("weight"),
        used: writes.queue.running_of(tenant) as u64,
        limit: Some(writes.share_of(tenant, 0).permit_count as u64),
    });
    let apply = &service.admission.write_apply;
    if let Some(limit_bytes) = apply.uncommitted_limit_of(tenant) {
        uses.push(LimitUse {
            name: "wal_queue".to_owned(),
            setting: Some("weight"),
            used: apply.queue.uncommitted_bytes_of(tenant),
            limit: Some(limit_bytes),
        });
    }
    uses
}
