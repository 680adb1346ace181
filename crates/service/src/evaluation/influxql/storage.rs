//! Databases and samples of one tenant, as statements of InfluxQL use them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::write::destination::Destination;
use crate::write::{TargetStore, WriteTarget};
use chronolith_cluster::gateway::{Gateway, GatewayDeletion, GatewayError, RecordStore};
use chronolith_cluster::options::{Role, Roles};
use chronolith_cluster::partition_states::partition_states;
use chronolith_influxql::storage::{RunningQuery, Statistics, Storage};
use chronolith_model::databases::{CatalogChange, CatalogError, TenantCatalog};
use chronolith_model::{
    Deletion, QueryError, Queryable, ReadContext, Reject, StoreId, TenantId, TimeRange, TimeUnit, WriteBatch,
};
use chronolith_tsdb::{Tsdb, Writer};

use super::databases::TenantDatabases;
use crate::evaluation::call_context::CallContext;
use crate::influx::password;
use crate::service::Service;

/// Refusal of a deletion whose series have to be found one by one.
const PARTIAL_VIEW: &str = "the condition selects series one by one, and this server does not see all of them; \
                            send the statement to a server with the roles gateway and query, or use conditions \
                            that are joined by AND";

/// Returns true if a process with these roles sees the series of all partitions.
fn sees_all_series(roles: &Roles, gateway: &Gateway) -> bool {
    let is_only_partition = || {
        let map = gateway.partition_map();
        map.is_some_and(|snapshot| partition_states(&snapshot.map).len() == 1)
    };
    roles.has(Role::Query) || (roles.has(Role::Owner) && is_only_partition())
}

/// The databases of one tenant.
pub struct TenantStorage<'a> {
    /// The service.
    pub service: &'a Service,
    /// Databases at the start of the request.
    pub databases: TenantDatabases,
    /// Owner of the databases.
    pub tenant: &'a TenantId,
    /// The statements come from continuous queries.
    pub is_continuous: bool,
    /// Call of the statements, whose limits hold for what they select; `None` if they select nothing.
    pub call: Option<&'a CallContext>,
    /// Series that statements have deleted, counted once per block.
    pub deleted_series: AtomicU64,
}

impl TenantStorage<'_> {
    /// The store, for changes. The text of the error is for the client.
    fn store(&self) -> Result<&Arc<Tsdb>, String> {
        match self.databases.store() {
            Some(store) => Ok(store),
            None => self.service.lifecycle.store().map_err(|refusal| refusal.to_string()),
        }
    }

    /// Deletes samples in all partitions and in the bucket.
    fn delete_in_cluster(&self, gateway: &Gateway, deletions: &[Deletion]) -> Result<(), String> {
        let catalog = self.catalog();
        let mut requests = Vec::with_capacity(deletions.len());
        for Deletion { store, selectors, range } in deletions {
            let policies = catalog.databases.iter().flat_map(|database| &database.policies);
            let id = policies.filter(|policy| policy.store == *store).find_map(|policy| policy.bucket_id);
            let id = id.ok_or_else(|| GatewayError::LocalStore.to_string())?;
            requests.push(GatewayDeletion {
                tenant: self.tenant,
                store: RecordStore::Database(id),
                selectors,
                range: *range,
                request_id: &"influxql",
            });
        }
        let timeout_ms = self.service.options.influx.query_timeout_ms(self.service.options.query.timeout_ms);
        let now_ns = self.service.env.clock.mono_ns();
        let deadline_ns = now_ns.saturating_add(timeout_ms.saturating_mul(1_000_000));
        let deleted =
            gateway.deletions().delete_all(&requests, deadline_ns).map_err(|error| error.to_string())?;
        self.deleted_series.fetch_add(deleted.series_count, Ordering::Relaxed);
        Ok(())
    }

    fn limited(&self, source: Arc<dyn Queryable>) -> Arc<dyn Queryable> {
        match self.call {
            Some(call) => call.limited(source, TimeUnit::Nano),
            None => source,
        }
    }
}

impl Storage for TenantStorage<'_> {
    fn catalog(&self) -> Arc<TenantCatalog> {
        self.databases.catalog()
    }

    fn change(&self, change: &CatalogChange) -> Result<(), CatalogError> {
        self.databases.change(self.service, change)
    }

    fn source(&self, store: &StoreId) -> Arc<dyn Queryable> {
        self.limited(self.databases.typed(store))
    }

    fn read_only(&self) -> Option<(String, Arc<dyn Queryable>)> {
        let name = self.service.options.influx.prometheus_database.clone()?;
        Some((name, self.limited(self.databases.as_measurements())))
    }

    fn source_of_all(&self, store: &StoreId) -> Result<Arc<dyn Queryable>, String> {
        match self.service.lifecycle.roles.gateway() {
            Some(gateway) if !sees_all_series(self.service.lifecycle.roles.roles(), gateway) => {
                Err(PARTIAL_VIEW.to_owned())
            }
            _ => Ok(self.source(store)),
        }
    }

    fn delete(&self, deletions: &[Deletion]) -> Result<(), String> {
        if let Some(gateway) = self.service.lifecycle.roles.gateway() {
            return self.delete_in_cluster(gateway, deletions);
        }
        let deleted = self.store()?.admin().delete_all(deletions).map_err(|error| error.to_string())?;
        self.deleted_series.fetch_add(deleted.series_count, Ordering::Relaxed);
        Ok(())
    }

    fn write(&self, store: &StoreId, batch: &mut WriteBatch) -> Result<(), String> {
        let writer = if self.is_continuous { Writer::ContinuousQuery } else { Writer::Client };
        let tsdb = self.store()?;
        let target = WriteTarget {
            identity: self.databases.identity(),
            store: TargetStore::Policy { store, id: None },
            writer,
        };
        let destination = Destination::Store(tsdb.clone());
        let mut writing = self.service.writes.begin(&destination, target);
        writing.apply_batch(batch).map_err(|failure| failure.to_string())?;
        let outcome = writing.wait(|_| {}).map_err(|failure| failure.to_string())?.outcome;
        match outcome.first_rejects().next() {
            None => Ok(()),
            Some((Reject::TooOld, ..)) => Err(format!(
                "partial write: points beyond retention policy dropped={}",
                outcome.rejected_count()
            )),
            Some((kind, ..)) => {
                Err(format!("partial write: {} dropped={}", outcome.message(*kind), outcome.rejected_count()))
            }
        }
    }

    fn hash_password(&self, text: &str) -> String {
        password::hash(text, &self.service.env.rng)
    }

    fn queries(&self) -> Vec<RunningQuery> {
        self.service.influx.queries.list(self.tenant, self.service.env.clock.mono_ns())
    }

    fn kill(&self, id: u64) -> bool {
        self.service.influx.queries.kill(self.tenant, id)
    }

    fn sample_ranges(&self, store: &StoreId, ctx: &ReadContext) -> Result<Vec<TimeRange>, QueryError> {
        self.databases.sample_ranges(store, ctx)
    }

    fn mono_ns(&self) -> u64 {
        self.service.env.clock.mono_ns()
    }

    fn diagnostics(&self) -> Vec<(String, Vec<(String, String)>)> {
        let text = |name: &str, value: String| (name.to_owned(), value);
        let started_ms = self.service.started_ms;
        let uptime_s = (self.service.env.clock.now_ms() - started_ms).max(0) / 1000;
        vec![
            (
                "build".to_owned(),
                vec![
                    text("Branch", "chronolith".to_owned()),
                    text("Build Time", String::new()),
                    text("Commit", String::new()),
                    text("Version", self.service.options.influx.version.clone()),
                ],
            ),
            (
                "system".to_owned(),
                vec![
                    text("PID", std::process::id().to_string()),
                    text("currentTime", chronolith_base::utc::rfc3339_ms(self.service.env.clock.now_ms())),
                    text("started", chronolith_base::utc::rfc3339_ms(started_ms)),
                    text("uptime", format!("{uptime_s}s")),
                ],
            ),
        ]
    }

    fn statistics(&self) -> Vec<Statistics> {
        let catalog = self.catalog();
        catalog
            .databases
            .iter()
            .map(|database| {
                // A read-only server has no estimate.
                let series_of =
                    |store: &StoreId| self.store().map_or(0, |tsdb| tsdb.reader().series_count(store));
                let series = database.policies.iter().map(|policy| series_of(&policy.store));
                Statistics {
                    module: "database".to_owned(),
                    tags: vec![("database".to_owned(), database.name.clone())],
                    values: vec![("numSeries".to_owned(), series.sum::<u64>() as f64)],
                }
            })
            .collect()
    }
}
