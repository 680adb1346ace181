//! Runs continuous queries of all tenants, once per second.
//!
//! Invariants: the end of the computed windows is in the catalogue before the next run; windows that late
//! points have touched since are computed again; a query that fails is logged and runs again.
//! Not here: which windows are due (`influxql`).

use std::sync::Arc;

use chronolith_influxql::ast::Source;
use chronolith_influxql::execute::continuous::{Continuous, DueWindows};
use chronolith_influxql::execute::{Access, SelectLimits, Session, StatementError};
use chronolith_model::change::ChangeWatch as _;
use chronolith_model::databases::{CatalogChange, ContinuousQuery, TenantCatalog};
use chronolith_model::{ReadContext, TenantId};
use chronolith_tsdb::Tsdb;

use super::databases::TenantDatabases;
use super::storage::TenantStorage;
use super::watched::Watched;
use crate::app::App;

/// A continuous query of the catalogue.
struct Query<'a> {
    tenant: &'a TenantId,
    own: &'a TenantCatalog,
    database: &'a str,
    stored: &'a ContinuousQuery,
}

/// Runs the queries that are due.
pub(crate) fn run(app: &App, store: &Arc<Tsdb>) {
    if !app.options.influx.runs_continuous_queries {
        return;
    }
    let catalog = store.databases();
    app.influx.continuous.retain(|(tenant, database, name)| {
        let database = catalog.of(tenant).and_then(|own| own.database(database));
        database.is_some_and(|database| database.continuous_queries.iter().any(|one| one.name == *name))
    });
    for (tenant, own) in &catalog.tenants {
        for database in &own.databases {
            for stored in &database.continuous_queries {
                run_if_due(app, store, &Query { tenant, own, database: &database.name, stored });
            }
        }
    }
}

fn run_if_due(app: &App, store: &Arc<Tsdb>, query: &Query<'_>) {
    let now_ns = app.env.clock.now_ms().saturating_mul(1_000_000);
    let parsed = match Continuous::parse(&query.stored.text, now_ns) {
        Ok(parsed) => parsed,
        Err(error) => return failed(app, query, &error),
    };
    let key = (query.tenant.clone(), query.database.to_owned(), query.stored.name.clone());
    let before = app.influx.continuous.of(&key);
    let changed = before.stores.iter().map(|(of, since)| store.changed_since(of, *since).written_from_ms);
    let changed_ns = changed.min().filter(|ms| *ms != i64::MAX).map(|ms| ms.saturating_mul(1_000_000));
    let mut watched = Watched::default();
    let sources = sources(query.own, &parsed);
    watched.stores = sources.into_iter().map(|of| (of.clone(), store.generation(&of))).collect();
    let last_run_ns = query.stored.last_run_ns;
    let is_for_data = parsed.due(now_ns, last_run_ns, changed_ns).is_some();
    let changed_ns = [changed_ns, before.again_from_ns].into_iter().flatten().min();
    let Some(windows) = parsed.due(now_ns, last_run_ns, changed_ns) else {
        app.influx.continuous.put(key, watched);
        return;
    };
    if let Err(error) = compute(app, store, query, &parsed, windows, now_ns) {
        return failed(app, query, &error);
    }
    // A query that writes to a store that it reads must not run again for its own points. Out-of-order points
    // that came while it ran are in the windows that are computed once more.
    let target = target(query.own, &parsed);
    if let Some(own) = watched.stores.iter_mut().find(|(of, _)| Some(of) == target.as_ref()) {
        own.1 = store.generation(&own.0);
        watched.again_from_ns = is_for_data.then_some(windows.start_ns);
    }
    app.influx.continuous.put(key, watched);
}

/// Computes windows, and makes their end durable.
fn compute(
    app: &App,
    store: &Arc<Tsdb>,
    query: &Query<'_>,
    parsed: &Continuous,
    windows: DueWindows,
    now_ns: i64,
) -> Result<(), String> {
    let memory = app.admission.query_memory.of(query.tenant, 0);
    let budget = memory.budget.child("continuous query", app.options.query.memory_bytes_max);
    let deadline_ns =
        app.env.clock.mono_ns().saturating_add(app.options.query.timeout_ms.saturating_mul(1_000_000));
    let ctx = ReadContext::new(app.env.clock.clone(), deadline_ns, budget);
    let databases = TenantDatabases::Local { store: store.clone(), tenant: query.tenant.clone() };
    let storage = TenantStorage { app, databases, tenant: query.tenant };
    let session = Session {
        storage: &storage,
        database: query.database,
        policy: "",
        access: Access::Anyone,
        now_ns,
        limits: SelectLimits::default(),
        ctx: &ctx,
    };
    let result = session.run_continuous(parsed, windows);
    app.metrics.background.continuous_runs.add(1);
    match result {
        Ok(()) | Err(StatementError::Closed) => {}
        Err(StatementError::Text(error) | StatementError::Forbidden(error)) => return Err(error),
        Err(StatementError::Query(error)) => return Err(error.to_string()),
    }
    if query.stored.last_run_ns.is_none_or(|last_ns| last_ns < windows.end_ns) {
        let change = CatalogChange::SetLastRun {
            database: query.database.to_owned(),
            name: query.stored.name.clone(),
            last_run_ns: windows.end_ns,
        };
        store.change_databases(query.tenant, &change).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn failed(app: &App, query: &Query<'_>, error: &str) {
    app.metrics.background.continuous_failures.add(1);
    let name = query.stored.name.as_str();
    let Query { tenant, database, .. } = query;
    tracing::error!(%tenant, database, name, error, "continuous query failed, retrying in 1 s");
}

/// Returns the store that a query writes to.
fn target(own: &TenantCatalog, query: &Continuous) -> Option<TenantId> {
    let target = query.select().target.as_ref()?;
    store_of(own, query, &target.database, &target.policy)
}

fn store_of(own: &TenantCatalog, query: &Continuous, database: &str, policy: &str) -> Option<TenantId> {
    let database = if database.is_empty() { query.database() } else { database };
    let policy = own.database(database).and_then(|found| found.policy(policy))?;
    Some(policy.store.clone())
}

/// Returns the stores that a query reads.
fn sources(own: &TenantCatalog, query: &Continuous) -> Vec<TenantId> {
    let mut stores = Vec::new();
    let mut add = |measurement: &chronolith_influxql::ast::Measurement| {
        stores.extend(store_of(own, query, &measurement.database, &measurement.policy));
    };
    let sources: &[Source] = &query.select().sources;
    sources.iter().for_each(|source| source.for_each_measurement(&mut add));
    stores.sort();
    stores.dedup();
    stores
}
