//! Runs continuous queries of all tenants, one after the other, a second after the run before.
//!
//! Invariants: the end of the computed windows is in the catalogue before the next run; windows that late
//! points have touched since are computed again; a query that fails is logged and runs again, one that a stop
//! interrupts runs again after the start. Points of continuous queries start only queries that read their
//! measurement.
//! Not here: which windows are due (`influxql`), times of runs (`rules::engine`), threads (`server`).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::access::Identity;
use crate::activity::active_queries::StartedQuery;
use crate::activity::top_queries::QueryLanguage;
use crate::evaluation::call_context::CallContext;
use crate::evaluation::running::RunningQuery;
use chronolith_influxql::ast::{Measurement, MeasurementName, TargetName};
use chronolith_influxql::execute::continuous::{Continuous, DueWindows};
use chronolith_influxql::execute::{Access, Session, StatementError};
use chronolith_model::change::ChangeWatch as _;
use chronolith_model::databases::{CatalogChange, ContinuousQuery, TenantCatalog};
use chronolith_model::{StoreId, TenantId};
use chronolith_tsdb::Tsdb;

use super::databases::TenantDatabases;

use super::storage::TenantStorage;
use super::{query_error, select_limits};
use crate::influx::watched::{LINKS_MAX, Mark, QueryKey, Watched};
use crate::service::Service;

/// Nanoseconds of a millisecond.
const NS_PER_MS: i64 = 1_000_000;

/// A continuous query of the catalogue.
struct Query<'a> {
    tenant: &'a TenantId,
    own: &'a TenantCatalog,
    database: &'a str,
    stored: &'a ContinuousQuery,
    parsed: Continuous,
}

/// A run that has been taken from the schedule.
pub struct DueQueries(());

/// Gives a run back to the schedule, also after a panic.
struct GiveBack<'a>(&'a Service);

impl Drop for GiveBack<'_> {
    fn drop(&mut self) {
        self.0.rules.engine.finish_queries(now_ns(self.0));
    }
}

impl DueQueries {
    /// Runs the queries that are due on this thread.
    pub fn run(self, service: &Service) {
        let _give_back = GiveBack(service);
        if let Ok(store) = service.lifecycle.store() {
            run(service, store);
        }
    }

    /// Gives the run up, as there is no thread for it. The next one follows.
    pub fn give_up(self, service: &Service) {
        drop(GiveBack(service));
    }
}

/// Takes a run if it is due and there are continuous queries. The caller runs it on a thread of its own.
#[must_use]
pub fn take_due(service: &Service) -> Option<DueQueries> {
    let engine = &service.rules.engine;
    let store = service.lifecycle.store().ok()?;
    if engine.is_stopping() || !service.options.influx.runs_continuous_queries {
        return None;
    }
    let catalog = store.databases().catalog();
    let mut databases = catalog.tenants.values().flat_map(|own| &own.databases);
    let has_queries = databases.any(|database| !database.continuous_queries.is_empty());
    (has_queries && engine.take_queries(now_ns(service))).then_some(DueQueries(()))
}

/// Runs the queries that are due.
pub fn run(service: &Service, store: &Arc<Tsdb>) {
    let catalog = store.databases().catalog();
    service.influx.continuous.retain(|(tenant, database, name)| {
        let database = catalog.of(tenant).and_then(|own| own.database(database));
        database.is_some_and(|database| database.continuous_queries.iter().any(|one| one.name == *name))
    });
    for (tenant, own) in &catalog.tenants {
        let queries = queries_of(service, tenant, own);
        for query in &queries {
            if service.rules.engine.is_stopping() {
                return;
            }
            run_if_due(service, store, query, &queries);
        }
    }
}

/// The continuous queries of a tenant. One that cannot be parsed is logged.
fn queries_of<'a>(service: &Service, tenant: &'a TenantId, own: &'a TenantCatalog) -> Vec<Query<'a>> {
    let now_ns = now_ns(service);
    let mut queries = Vec::new();
    for database in &own.databases {
        for stored in &database.continuous_queries {
            match Continuous::parse(&stored.text, now_ns) {
                Ok(parsed) => {
                    queries.push(Query { tenant, own, database: &database.name, stored, parsed });
                }
                Err(error) => failed(service, tenant, &database.name, &stored.name, &error),
            }
        }
    }
    queries
}

fn run_if_due(service: &Service, store: &Arc<Tsdb>, query: &Query<'_>, all: &[Query<'_>]) {
    let now_ns = now_ns(service);
    let before = service.influx.continuous.of(&query.key());
    let sent = before.stores.iter().map(|(of, since)| store.sent_since(of, since));
    let sent_ns = sent.min().filter(|ms| *ms != i64::MAX).map(|ms| ms.saturating_mul(1_000_000));
    // Before the run: points written meanwhile belong to the next one.
    let stores = query.sources().into_iter().map(|(of, _)| (of.clone(), store.generation(&of)));
    let watched = Watched { stores: stores.collect(), mark: None };
    let last_run_ns = query.stored.last_run_ns;
    let is_due_without_mark = query.parsed.due(now_ns, last_run_ns, sent_ns).is_some();
    let changed_ns = [sent_ns, before.mark.map(|mark| mark.from_ns)].into_iter().flatten().min();
    let Some(windows) = query.parsed.due(now_ns, last_run_ns, changed_ns) else {
        service.influx.continuous.put(query.key(), watched);
        return;
    };
    let written = match compute(service, store, query, windows, now_ns) {
        Ok(Some(written)) => written,
        // The query stays due.
        Ok(None) => return,
        Err(_) if service.rules.engine.is_stopping() => return,
        Err(error) => return failed(service, query.tenant, query.database, &query.stored.name, &error),
    };
    service.influx.continuous.put(query.key(), watched);
    let links = if is_due_without_mark { 0 } else { before.mark.map_or(0, |mark| mark.links) };
    if written > 0 && links < LINKS_MAX {
        let mark = Mark { from_ns: windows.start_ns, links: links + 1 };
        for other in all.iter().filter(|other| other.key() != query.key() && query.is_read_by(other)) {
            service.influx.continuous.mark(&other.key(), mark);
        }
    }
}

impl Query<'_> {
    fn key(&self) -> QueryKey {
        (self.tenant.clone(), self.database.to_owned(), self.stored.name.clone())
    }

    fn store_of(&self, database: &str, policy: &str) -> Option<StoreId> {
        let database = if database.is_empty() { self.parsed.database() } else { database };
        let policy = self.own.database(database).and_then(|found| found.policy(policy))?;
        Some(policy.store.clone())
    }

    /// Stores that the query reads, and what it reads of them.
    fn sources(&self) -> Vec<(StoreId, MeasurementName)> {
        let mut all = Vec::new();
        let mut add = |measurement: &Measurement| {
            let store = self.store_of(&measurement.database, &measurement.policy);
            all.extend(store.map(|store| (store, measurement.name.clone())));
        };
        self.parsed.select().sources.iter().for_each(|source| source.for_each_measurement(&mut add));
        all
    }

    /// Returns true if another query reads a measurement that this one writes.
    fn is_read_by(&self, other: &Query<'_>) -> bool {
        let Some(target) = self.parsed.select().target.as_ref() else { return false };
        let store = self.store_of(&target.database, &target.policy);
        let written: Vec<MeasurementName> = match &target.name {
            TargetName::Name(name) => vec![MeasurementName::Name(name.clone())],
            TargetName::SameAsSource => self.sources().into_iter().map(|(_, name)| name).collect(),
        };
        other.sources().iter().any(|(of, read)| {
            Some(of) == store.as_ref() && written.iter().any(|written| may_be_same(written, read))
        })
    }
}

/// Returns true if two names of measurements may be of the same one.
fn may_be_same(a: &MeasurementName, b: &MeasurementName) -> bool {
    match (a, b) {
        (MeasurementName::Name(a), MeasurementName::Name(b)) => a == b,
        (MeasurementName::Name(name), MeasurementName::Regex(regex))
        | (MeasurementName::Regex(regex), MeasurementName::Name(name)) => {
            regex.compile().is_ok_and(|regex| regex.is_match(name))
        }
        (MeasurementName::Regex(_), MeasurementName::Regex(_)) => true,
    }
}

/// Computes windows, and makes their end durable; returns the number of points that were written, and `None`
/// if no permit is free.
fn compute(
    service: &Service,
    store: &Arc<Tsdb>,
    query: &Query<'_>,
    windows: DueWindows,
    now_ns: i64,
) -> Result<Option<u64>, String> {
    let class = &service.admission.continuous;
    let timeout_ms = service.options.query.timeout_ms;
    let Some(admitted) = service.try_admit(class, &Identity::internal(query.tenant), timeout_ms) else {
        return Ok(None);
    };
    let _listed = service.rules.engine.interrupts.enter(admitted.ctx().cancel_flag());
    service.influx.continuous_runs.add(1);
    let written = evaluate(service, store, query, windows, now_ns, admitted.ctx())?;
    if query.stored.last_run_ns.is_none_or(|last_ns| last_ns < windows.end_ns) {
        let change = CatalogChange::SetLastRun {
            database: query.database.to_owned(),
            name: query.stored.name.clone(),
            last_run_ns: windows.end_ns,
        };
        store.databases().change(query.tenant, &change).map_err(|error| error.to_string())?;
    }
    Ok(Some(written))
}

/// Runs a query as a request with statements runs: listed, killable, counted, within the same limits.
fn evaluate(
    service: &Service,
    store: &Arc<Tsdb>,
    query: &Query<'_>,
    windows: DueWindows,
    now_ns: i64,
    ctx: &CallContext,
) -> Result<u64, String> {
    let text = query.parsed.select().to_string();
    let listed = RunningQuery::begin(
        service,
        StartedQuery {
            tenant: query.tenant,
            language: QueryLanguage::InfluxQl,
            text: &text,
            times_ms: (windows.start_ns / NS_PER_MS, windows.end_ns / NS_PER_MS, 0),
            ctx,
            trace: Arc::default(),
        },
    );
    let running = service.influx.queries.enter(
        query.tenant,
        &text,
        query.database,
        listed.started_ns(),
        ctx.cancel_flag(),
        0,
    );
    let _running = running.map_err(|refused| refused.to_string())?;
    let databases = TenantDatabases::of_store(store.clone(), Identity::internal(query.tenant));
    let storage = TenantStorage {
        service,
        databases,
        tenant: query.tenant,
        is_continuous: true,
        call: Some(ctx),
        deleted_series: AtomicU64::new(0),
    };
    let session = Session {
        storage: &storage,
        database: query.database,
        policy: "",
        access: Access::Anyone,
        now_ns,
        limits: select_limits(&service.options.influx),
        ctx,
    };
    let written = match session.run_continuous(&query.parsed, windows) {
        Ok(written) => Ok(written),
        Err(StatementError::Closed) => Ok(0),
        Err(StatementError::Text(error) | StatementError::Forbidden(error)) => Err(error),
        Err(StatementError::Query(error)) => Err(query_error(&error)),
    };
    service.queries.metrics.influxql.observe_ns(listed.duration_ns());
    listed.record(0, written.is_err());
    written
}

fn failed(service: &Service, tenant: &TenantId, database: &str, name: &str, error: &str) {
    service.influx.continuous_failures.add(1);
    tracing::error!(%tenant, database, name, error, "continuous query failed, retrying in 1 s");
}

/// Wall clock in nanoseconds.
fn now_ns(service: &Service) -> i64 {
    service.env.clock.now_ms().saturating_mul(NS_PER_MS)
}
