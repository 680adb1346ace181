//! Type, help and unit of metrics, by tenant.
//! Holds: at most [`METRICS_PER_TENANT_MAX`] metrics and [`ENTRIES_PER_METRIC_MAX`] different entries each.
//! In memory only: senders repeat their metadata every minute.

use std::collections::BTreeMap;

use chronolith_model::{MetadataEntry, TenantId};
use parking_lot::RwLock;

/// Metrics of one tenant with metadata.
pub(crate) const METRICS_PER_TENANT_MAX: usize = 100_000;
/// Different entries of one metric (targets that disagree about the help text).
pub(crate) const ENTRIES_PER_METRIC_MAX: usize = 8;

/// See the module.
#[derive(Default)]
pub(crate) struct MetadataStore {
    tenants: RwLock<BTreeMap<TenantId, BTreeMap<String, Vec<MetadataEntry>>>>,
}

impl MetadataStore {
    /// Keeps `entries`; the newest of a metric comes first, the oldest makes room.
    pub(crate) fn keep(&self, tenant: &TenantId, entries: &[MetadataEntry]) {
        if entries.is_empty() || self.knows(tenant, entries) {
            return;
        }
        let mut tenants = self.tenants.write();
        let metrics = tenants.entry(tenant.clone()).or_default();
        for entry in entries {
            if metrics.len() >= METRICS_PER_TENANT_MAX && !metrics.contains_key(&entry.metric) {
                continue;
            }
            let known = metrics.entry(entry.metric.clone()).or_default();
            known.retain(|e| e != entry);
            known.insert(0, entry.clone());
            known.truncate(ENTRIES_PER_METRIC_MAX);
        }
    }

    fn knows(&self, tenant: &TenantId, entries: &[MetadataEntry]) -> bool {
        let tenants = self.tenants.read();
        let Some(metrics) = tenants.get(tenant) else { return false };
        entries.iter().all(|e| metrics.get(&e.metric).is_some_and(|known| known.first() == Some(e)))
    }

    /// Of one metric or all, sorted by metric; at most `limit` metrics (0 = all).
    pub(crate) fn list(&self, tenant: &TenantId, metric: Option<&str>, limit: usize) -> Vec<MetadataEntry> {
        let tenants = self.tenants.read();
        let Some(metrics) = tenants.get(tenant) else { return Vec::new() };
        let keep = if limit == 0 { usize::MAX } else { limit };
        match metric {
            Some(name) => metrics.get(name).cloned().unwrap_or_default(),
            None => metrics.values().take(keep).flatten().cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chronolith_model::MetricKind;

    #[test]
    fn entries_of_one_metric_are_bounded_and_newest_first() {
        let store = MetadataStore::default();
        let tenant = TenantId::anonymous();
        let entry = |help: usize| MetadataEntry {
            metric: "m".into(),
            kind: MetricKind::Counter,
            help: help.to_string(),
            unit: String::new(),
        };
        for help in 0..20 {
            store.keep(&tenant, &[entry(help)]);
        }
        let all = store.list(&tenant, Some("m"), 0);
        assert_eq!((all.len(), &*all[0].help), (ENTRIES_PER_METRIC_MAX, "19"));
        assert!(store.list(&TenantId::new("other").unwrap(), None, 0).is_empty());
    }
}
