//! Statistics of the database and of its tenants, for `/metrics` and status pages.
//!
//! Not here: the metrics (`stats`), memory by part (`memory`), lists of blocks (`block_list`).

use std::collections::BTreeMap;

use chronolith_head::{Cardinality, OverflowMetric, TenantStats};
use chronolith_model::{KIND_LABEL, METRIC_NAME, QueryError, ReadContext, StoreId, TenantId};

use super::stats::{self, StatsSources, TsdbStats};
use crate::block_list::{self, BlockList};
use crate::ingestion_rate::IngestionRates;
use crate::memory::{self, TsdbMemory};
use crate::metric_disk::{self, MetricDiskBytes, MetricFilter};
use crate::tenant_usage::{self, LimitUse, TenantSize};

/// Statistics of the database, see [`crate::Tsdb::statistics`].
pub struct TsdbStatistics<'a> {
    pub(super) sources: StatsSources<'a>,
    pub(super) ingestion_rates: &'a IngestionRates,
}

impl TsdbStatistics<'_> {
    /// Returns counters and sizes. Walks the head: to be called a few times per minute, not per second.
    #[must_use]
    pub fn stats(&self) -> TsdbStats {
        stats::collect(&self.sources)
    }

    /// Returns the memory by part, and the `tenant_count` tenants with most in the head.
    #[must_use]
    pub fn memory(&self, tenant_count: usize) -> TsdbMemory {
        memory::collect(self.sources.storage, self.sources.exemplars, tenant_count)
    }

    /// Returns the `limit` blocks of `tenant` with the latest ends, those that only the bucket has included.
    /// Cost: reads `meta.json` of each listed block that is local alone.
    ///
    /// # Errors
    /// As [`ReadContext::check`]. A bucket that does not answer is named in the list.
    pub fn block_list(
        &self,
        tenant: &TenantId,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<BlockList, QueryError> {
        block_list::of_storage(self.sources.storage, tenant, limit, ctx)
    }

    /// Returns the tenants with data, sorted.
    #[must_use]
    pub fn tenants(&self) -> Vec<TenantId> {
        tenant_usage::tenants(self.sources.storage)
    }

    /// Returns the sizes of all tenants with data. Cost: visits each tenant and store.
    #[must_use]
    pub fn tenant_sizes(&self) -> BTreeMap<TenantId, TenantSize> {
        tenant_usage::sizes(self.sources.storage)
    }

    /// Returns the use of those limits of `tenant` that the storage keeps.
    #[must_use]
    pub fn limit_uses(&self, tenant: &TenantId) -> Vec<LimitUse> {
        tenant_usage::limit_uses(self.sources.storage, self.ingestion_rates, tenant)
    }

    /// Returns the `limit` metrics of `tenant` with most series beyond a limit that are folded.
    #[must_use]
    pub fn overflow_metrics(&self, tenant: &TenantId, limit: usize) -> Vec<OverflowMetric> {
        self.sources.storage.head().statistics().overflow_metrics_of(&tenant.into(), limit)
    }

    /// Returns the head cardinality of `tenant`, `limit` entries per list.
    #[must_use]
    pub fn cardinality(&self, tenant: &TenantId, limit: usize) -> Cardinality {
        let mut all = self.sources.storage.head().statistics().cardinality(&tenant.into(), limit);
        all.values_by_label.retain(|(name, _)| name != KIND_LABEL);
        all.bytes_by_label.retain(|(name, _)| name != KIND_LABEL);
        let is_kind = |pair: &str| pair.strip_prefix(KIND_LABEL).is_some_and(|rest| rest.starts_with('='));
        all.series_by_pair.retain(|(pair, _)| !is_kind(pair));
        all
    }

    /// Returns sizes of `tenant` in the head. Walks its series.
    #[must_use]
    pub fn head_stats_of(&self, tenant: &TenantId) -> TenantStats {
        self.sources.storage.head().statistics().tenant_stats(&tenant.into())
    }

    /// Returns the number of series in the head by store, without stores that have none.
    #[must_use]
    pub fn head_series_by_store(&self) -> Vec<(StoreId, u64)> {
        self.sources.storage.head().statistics().series_by_tenant()
    }

    /// Visits the metric names of the default store of `tenant` in the head with their numbers of series,
    /// ascending, until `visit` returns false.
    ///
    /// # Errors
    /// As [`ReadContext::check`].
    pub fn scan_metrics(
        &self,
        tenant: &TenantId,
        ctx: &ReadContext,
        visit: &mut dyn FnMut(&str, u64) -> bool,
    ) -> Result<(), QueryError> {
        let reader = self.sources.storage.head().reader();
        reader.scan_series_counts(&tenant.into(), METRIC_NAME, ctx, visit)
    }

    /// Returns the bytes of metrics in the local blocks of the default store of `tenant`. Cost: opens each
    /// block; see [`chronolith_block::metric_bytes`].
    ///
    /// # Errors
    /// Errors of blocks that are damaged or cannot be read; as [`ReadContext::check`];
    /// [`QueryError::Memory`].
    pub fn metric_disk_bytes(
        &self,
        tenant: &TenantId,
        filter: MetricFilter<'_>,
        ctx: &ReadContext,
    ) -> Result<MetricDiskBytes, QueryError> {
        metric_disk::read(self.sources.storage.blocks(), &tenant.into(), filter, ctx)
    }
}
