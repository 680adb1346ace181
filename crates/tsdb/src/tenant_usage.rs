//! Sizes of tenants, and their use of limits, for status pages.
//!
//! Invariant: the stores of databases and of Graphite clients count for the tenant whose they are.
//! Not here: limits of requests (`server`).

use std::collections::BTreeMap;

use chronolith_base::hash::HashMap;
use chronolith_model::{OverflowPolicy, StoreId, TenantId, TenantLimits};

use crate::ingestion_rate::IngestionRates;
use crate::metadata::METRICS_PER_TENANT_MAX;
use crate::storage::Storage;

/// Sizes of one tenant in the head.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantSize {
    /// Series of all its stores.
    pub series_count: u64,
    /// Memory of all its stores; as [`chronolith_head::TenantMemory::bytes`].
    pub memory_bytes: u64,
}

/// Use of one limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitUse {
    /// Name of the limited quantity.
    pub name: String,
    /// Setting of the limit; `None` if it is fixed.
    pub setting: Option<&'static str>,
    /// Use at this moment.
    pub used: u64,
    /// The limit; `None` for none.
    pub limit: Option<u64>,
}

/// Returns the tenants with data, sorted.
pub(crate) fn tenants(storage: &Storage) -> Vec<TenantId> {
    let mut stores = storage.head().statistics().tenants();
    let with_blocks = storage.blocks().all().into_iter().filter(|(_, blocks)| blocks.totals().count > 0);
    stores.extend(with_blocks.map(|(tenant, _)| tenant));
    let mut all: Vec<TenantId> = stores.iter().filter_map(StoreId::tenant).cloned().collect();
    all.extend(storage.databases().catalog().tenants.keys().cloned());
    all.sort();
    all.dedup();
    all
}

/// Returns the sizes of all tenants with data. Cost: visits each tenant and store.
pub(crate) fn sizes(storage: &Storage) -> BTreeMap<TenantId, TenantSize> {
    let mut sizes: BTreeMap<TenantId, TenantSize> = BTreeMap::new();
    for tenant in tenants(storage) {
        sizes.entry(tenant).or_default();
    }
    let catalog = storage.databases().catalog();
    let mut owners: HashMap<&StoreId, &TenantId> = HashMap::default();
    for (owner, databases) in &catalog.tenants {
        owners.extend(databases.policies().map(|policy| (&policy.store, owner)));
    }
    for one in storage.head().statistics().memory_by_tenant(usize::MAX) {
        let owner = one.tenant.tenant().or_else(|| owners.get(&one.tenant).copied());
        // The samples of a dropped store are removed in the background.
        let Some(owner) = owner else { continue };
        let size = sizes.entry(owner.clone()).or_default();
        size.series_count += one.series_count;
        size.memory_bytes += one.bytes;
    }
    sizes
}

/// Returns the use of those limits of `tenant` that the storage keeps.
pub(crate) fn limit_uses(storage: &Storage, rates: &IngestionRates, tenant: &TenantId) -> Vec<LimitUse> {
    let default_store = StoreId::from(tenant);
    let limits = storage.limits_of(&default_store);
    let head = storage.head().statistics();
    let mut uses =
        vec![series_use("series".to_owned(), head.series_count_of(&default_store), limits.series_max)];
    uses.extend(largest_uses(storage, &default_store, &limits));
    uses.extend(overflow_uses(storage, &default_store, &limits));
    let catalog = storage.databases().catalog();
    if let Some(of_tenant) = catalog.of(tenant) {
        if let Some(graphite) = &of_tenant.graphite {
            let max = storage.limits_of(&graphite.store).series_max;
            uses.push(series_use("graphite_series".to_owned(), head.series_count_of(&graphite.store), max));
        }
        // Each policy has the limit for itself: the fullest one says how near the tenant is.
        let of_databases = of_tenant.databases.iter().flat_map(|database| &database.policies);
        let of_policies = of_databases.map(|policy| &policy.store);
        let fullest = of_policies.map(|store| (head.series_count_of(store), store)).max();
        if let Some((series_count, store)) = fullest {
            let limits = storage.limits_of(store);
            let (setting, max) = match limits.databases.series_max {
                0 => ("series-limit", limits.series_max),
                max => ("influx.max-series-per-database", max.min(limits.series_max)),
            };
            let one = series_use("database_series".to_owned(), series_count, max);
            uses.push(LimitUse { setting: Some(setting), ..one });
        }
    }
    let now_ns = storage.env().clock.mono_ns();
    for (name, setting, burst) in [
        ("ingestion_burst", "ingestion-burst", rates.burst_use(&default_store, &limits, now_ns)),
        (
            "ingestion_bytes_burst",
            "ingestion-bytes-burst",
            rates.bytes_burst_use(&default_store, &limits, now_ns),
        ),
    ] {
        uses.extend(burst.map(|burst| LimitUse {
            name: name.to_owned(),
            setting: Some(setting),
            used: burst.used,
            limit: Some(burst.limit),
        }));
    }
    uses.push(LimitUse {
        name: "events".to_owned(),
        setting: Some("graphite.max-events"),
        used: storage.graphite().event_count_of(tenant),
        limit: Some(limits.annotations.event_count_max as u64),
    });
    uses.push(LimitUse {
        name: "metadata".to_owned(),
        setting: None,
        used: storage.metadata().metric_count(&default_store),
        limit: Some(METRICS_PER_TENANT_MAX as u64),
    });
    uses
}

/// Returns the use of the limits that hold per metric and per label, if they are set.
fn largest_uses(storage: &Storage, store: &StoreId, limits: &TenantLimits) -> Vec<LimitUse> {
    let maxima = [limits.ingestion.metric_series_max, limits.ingestion.label_values_max];
    if maxima == [0, 0] {
        return Vec::new();
    }
    let largest = storage.head().statistics().largest_uses_of(store);
    let used = [
        ("metric_series", "series-per-metric-limit", largest.metric_series),
        ("label_values", "values-per-label-limit", largest.label_values),
    ];
    let set = used.into_iter().zip(maxima).filter(|(_, max)| *max > 0);
    let uses = set.map(|((name, setting, used), max)| LimitUse {
        name: name.to_owned(),
        setting: Some(setting),
        used,
        limit: Some(max as u64),
    });
    uses.collect()
}

/// Returns the use of the table of folded series, and of the memory of their native histograms, if the tenant
/// folds or has folded.
pub(super) fn overflow_uses(storage: &Storage, store: &StoreId, limits: &TenantLimits) -> Vec<LimitUse> {
    let used = storage.head().statistics().overflow_of(store);
    if limits.ingestion.overflow == OverflowPolicy::Reject && used.series_count == 0 {
        return Vec::new();
    }
    let one = |name: &str, setting, used, limit: usize| LimitUse {
        name: name.to_owned(),
        setting: Some(setting),
        used,
        limit: Some(limit as u64),
    };
    let ingestion = &limits.ingestion;
    vec![
        one("overflow_series", "overflow-series-limit", used.series_count, ingestion.overflow_series_max),
        one(
            "overflow_histogram_bytes",
            "overflow-histogram-memory",
            used.histogram_bytes,
            ingestion.overflow_histogram_bytes_max,
        ),
    ]
}

fn series_use(name: String, used: u64, limit: usize) -> LimitUse {
    LimitUse { name, setting: Some("series-limit"), used, limit: Some(limit as u64) }
}
