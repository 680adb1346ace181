//! Runs continuous queries of all tenants, once per second.
//!
//! Invariants: the end of the computed windows is in the catalogue before the next run; a query that fails is
//! logged and retried with its next window.
//! Not here: which windows are due (`influxql`).

use std::sync::Arc;

use chronolith_influxql::ast::Source;
use chronolith_influxql::execute::continuous::Continuous;
use chronolith_influxql::execute::{Access, SelectLimits, Session, StatementError};
use chronolith_model::change::ChangeWatch as _;
use chronolith_model::databases::{CatalogChange, ContinuousQuery, TenantCatalog};
use chronolith_model::{ReadContext, TenantId};
use chronolith_tsdb::Tsdb;

use super::storage::TenantStorage;
use super::watched::Watched;
use crate::app::App;

/// Runs the queries that are due.
pub(crate) fn run(app: &App, store: &Arc<Tsdb>) {
    if !app.options.influx.runs_continuous_queries {
        return;
    }
    let catalog = store.databases();
    for (tenant, own) in &catalog.tenants {
        for database in &own.databases {
            for query in &database.continuous_queries {
                run_one(app, store, tenant, own, &database.name, query);
            }
        }
    }
}

fn run_one(
    app: &App,
    store: &Arc<Tsdb>,
    tenant: &TenantId,
    own: &TenantCatalog,
    database: &str,
    query: &ContinuousQuery,
) {
    let now_ns = app.env.clock.now_ms().saturating_mul(1_000_000);
    let name = query.name.as_str();
    let parsed = match Continuous::parse(&query.text, now_ns) {
        Ok(parsed) => parsed,
        Err(error) => {
            app.metrics.background.continuous_failures.add(1);
            tracing::error!(%tenant, database, name, error, "continuous query cannot run");
            return;
        }
    };
    let key = (tenant.clone(), database.to_owned(), query.name.clone());
    let before = app.influx.continuous.take(&key);
    let changed_ms = before.iter().map(|(of, since)| store.changed_since(of, *since).written_from_ms).min();
    let changed_ns = changed_ms.filter(|ms| *ms != i64::MAX).map(|ms| ms.saturating_mul(1_000_000));
    let watched: Watched =
        sources(own, &parsed).into_iter().map(|of| (of.clone(), store.generation(&of))).collect();
    app.influx.continuous.put(key, watched);
    let Some(windows) = parsed.due(now_ns, query.last_run_ns, changed_ns) else { return };
    let memory = app.admission.query_memory.of(tenant, 0);
    let budget = memory.budget.child("continuous query", app.options.query.memory_bytes_max);
    let deadline_ns =
        app.env.clock.mono_ns().saturating_add(app.options.query.timeout_ms.saturating_mul(1_000_000));
    let ctx = ReadContext::new(app.env.clock.clone(), deadline_ns, budget);
    let storage = TenantStorage { app, store: store.clone(), tenant: tenant.clone() };
    let session = Session {
        storage: &storage,
        database,
        policy: "",
        access: Access::Anyone,
        now_ns,
        limits: SelectLimits::default(),
        ctx: &ctx,
    };
    let result = session.run_continuous(&parsed, windows);
    app.metrics.background.continuous_runs.add(1);
    match result {
        Ok(()) | Err(StatementError::Closed) => {}
        Err(StatementError::Text(error) | StatementError::Forbidden(error)) => {
            failed(app, tenant, database, name, &error);
            return;
        }
        Err(StatementError::Query(error)) => {
            failed(app, tenant, database, name, &error.to_string());
            return;
        }
    }
    if query.last_run_ns.is_none_or(|last_ns| last_ns < windows.end_ns) {
        let change = CatalogChange::SetLastRun {
            database: database.to_owned(),
            name: name.to_owned(),
            last_run_ns: windows.end_ns,
        };
        if let Err(error) = store.change_databases(tenant, &change) {
            failed(app, tenant, database, name, &error.to_string());
        }
    }
}

fn failed(app: &App, tenant: &TenantId, database: &str, name: &str, error: &str) {
    app.metrics.background.continuous_failures.add(1);
    tracing::error!(%tenant, database, name, error, "continuous query failed, retrying with its next window");
}

/// Returns the stores that a query reads.
fn sources(own: &TenantCatalog, query: &Continuous) -> Vec<TenantId> {
    let mut stores = Vec::new();
    let mut add = |measurement: &chronolith_influxql::ast::Measurement| {
        let database = match measurement.database.as_str() {
            "" => query.database(),
            named => named,
        };
        let policy = own.database(database).and_then(|found| found.policy(&measurement.policy));
        stores.extend(policy.map(|policy| policy.store.clone()));
    };
    let sources: &[Source] = &query.select().sources;
    sources.iter().for_each(|source| source.for_each_measurement(&mut add));
    stores.sort();
    stores.dedup();
    stores
}
