//! Type, help and unit of metrics, by tenant.
//! Holds: at most [`METRICS_PER_TENANT_MAX`] metrics, [`ENTRIES_PER_METRIC_MAX`] different entries each and
//! [`TEXT_BYTES_PER_TENANT_MAX`] of text; what is beyond is not kept, and an entry with more than
//! [`TEXT_BYTES_PER_ENTRY_MAX`] of it neither.
//! In memory only: senders repeat their metadata every minute, those of remote write 2.0 with every sample.

use std::collections::BTreeMap;

use chronolith_model::{MetadataEntry, TenantId};
use parking_lot::RwLock;

/// Metrics of one tenant with metadata.
pub(crate) const METRICS_PER_TENANT_MAX: usize = 100_000;
/// Different entries of one metric (targets that disagree about the help text).
pub(crate) const ENTRIES_PER_METRIC_MAX: usize = 8;

/// Name, help and unit of one entry: no metric needs as much.
pub(crate) const TEXT_BYTES_PER_ENTRY_MAX: usize = 16 << 10;
/// Text of all entries of a tenant.
pub(crate) const TEXT_BYTES_PER_TENANT_MAX: usize = 64 << 20;

/// See the module.
#[derive(Default)]
pub(crate) struct MetadataStore {
    tenants: RwLock<BTreeMap<TenantId, TenantMetadata>>,
}

#[derive(Default)]
struct TenantMetadata {
    /// The newest entry of a metric comes first.
    metrics: BTreeMap<String, Vec<MetadataEntry>>,
    text_bytes: usize,
}

fn text_bytes(entry: &MetadataEntry) -> usize {
    entry.metric.len() + entry.help.len() + entry.unit.len()
}

impl TenantMetadata {
    /// Keeps `entry`; the oldest of its metric makes room.
    fn keep(&mut self, entry: &MetadataEntry) {
        let more = text_bytes(entry);
        let full = self.metrics.len() >= METRICS_PER_TENANT_MAX && !self.metrics.contains_key(&entry.metric);
        if full || more > TEXT_BYTES_PER_ENTRY_MAX || self.text_bytes + more > TEXT_BYTES_PER_TENANT_MAX {
            return;
        }
        let known = self.metrics.entry(entry.metric.clone()).or_default();
        let before = known.iter().map(text_bytes).sum::<usize>();
        known.retain(|e| e != entry);
        known.insert(0, entry.clone());
        known.truncate(ENTRIES_PER_METRIC_MAX);
        self.text_bytes = self.text_bytes - before + known.iter().map(text_bytes).sum::<usize>();
    }
}

impl MetadataStore {
    /// Keeps `entries`; the newest of a metric comes first, the oldest makes room.
    pub(crate) fn keep(&self, tenant: &TenantId, entries: &[MetadataEntry]) {
        if entries.is_empty() || self.knows(tenant, entries) {
            return;
        }
        let mut tenants = self.tenants.write();
        let kept = tenants.entry(tenant.clone()).or_default();
        entries.iter().for_each(|entry| kept.keep(entry));
    }

    /// About how many bytes on the heap, and metrics.
    pub(crate) fn heap_bytes(&self) -> (u64, u64) {
        let tenants = self.tenants.read();
        let one = |tenant: &TenantMetadata| {
            let entry_bytes = size_of::<(String, Vec<MetadataEntry>)>() + size_of::<MetadataEntry>();
            (tenant.text_bytes + tenant.metrics.len() * entry_bytes) as u64
        };
        let count = tenants.values().map(|tenant| tenant.metrics.len() as u64).sum();
        (tenants.values().map(one).sum(), count)
    }

    fn knows(&self, tenant: &TenantId, entries: &[MetadataEntry]) -> bool {
        let tenants = self.tenants.read();
        let Some(TenantMetadata { metrics, .. }) = tenants.get(tenant) else { return false };
        entries.iter().all(|e| metrics.get(&e.metric).is_some_and(|known| known.first() == Some(e)))
    }

    /// Of one metric or all, sorted by metric; at most `limit` metrics (0 = all).
    pub(crate) fn list(&self, tenant: &TenantId, metric: Option<&str>, limit: usize) -> Vec<MetadataEntry> {
        let tenants = self.tenants.read();
        let Some(TenantMetadata { metrics, .. }) = tenants.get(tenant) else { return Vec::new() };
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

    #[test]
    fn text_is_bounded() {
        let mut kept = TenantMetadata::default();
        let entry = |metric: usize, bytes: usize| MetadataEntry {
            metric: format!("{metric:08}"),
            kind: MetricKind::Gauge,
            help: "x".repeat(bytes),
            unit: String::new(),
        };
        kept.keep(&entry(0, TEXT_BYTES_PER_ENTRY_MAX));
        assert!(kept.metrics.is_empty(), "a help text of that size helps nobody");
        let large = TEXT_BYTES_PER_ENTRY_MAX - 8;
        (0..5000).for_each(|metric| kept.keep(&entry(metric, large)));
        assert_eq!(kept.metrics.len(), TEXT_BYTES_PER_TENANT_MAX / TEXT_BYTES_PER_ENTRY_MAX);
        assert_eq!(kept.text_bytes, TEXT_BYTES_PER_TENANT_MAX);
        // Entries that make room give their bytes back.
        let mut kept = TenantMetadata::default();
        (0..20).for_each(|bytes| kept.keep(&entry(1, bytes)));
        let all = kept.metrics.values().flatten().map(text_bytes).sum::<usize>();
        assert_eq!((kept.text_bytes, kept.metrics["00000001"].len()), (all, ENTRIES_PER_METRIC_MAX));
    }
}
