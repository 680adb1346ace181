//! Reads of the database: sources of queries, and the series, metadata and exemplars of tenants.
//!
//! Not here: evaluation (`promql`), merging of head and blocks (`query`), sizes and counters (`statistics`).

use std::sync::Arc;

use chronolith_format::record::RecordStore;
use chronolith_format::select::{SelectCall, SelectQuestion, SelectView};
use chronolith_model::query::NoSeries;
use chronolith_model::{
    Exemplar, Labels, Matcher, MetadataEntry, QueryError, Queryable, ReadContext, Selector, StoreId,
    TenantId, TimeRange,
};

use crate::exemplars::ExemplarStorage;
use crate::query::TenantQueryable;
use crate::query::answer::StoredRecords;
use crate::query::measurements::as_measurements;
use crate::query::metrics::as_metrics;
use crate::query::typed::TypedQueryable;
use crate::query::unit::in_milliseconds;
use crate::query::view::tenant_view;
use crate::storage::Storage;

/// Reads of the database, see [`crate::Tsdb::reader`].
pub struct TsdbReader<'a> {
    pub(super) storage: &'a Arc<Storage>,
    pub(super) exemplars: &'a ExemplarStorage,
}

impl TsdbReader<'_> {
    /// Returns head and blocks of `tenant` as one source, and its databases as PromQL sees them; empty for a
    /// tenant without data.
    #[must_use]
    pub fn queryable(&self, tenant: &TenantId) -> Arc<dyn Queryable> {
        tenant_view(self.storage, tenant)
    }

    /// Returns head and blocks of one store as one source, without the other stores of its tenant.
    #[must_use]
    pub fn store_queryable(&self, store: &StoreId) -> Arc<dyn Queryable> {
        Arc::new(TenantQueryable::new(self.storage, store))
    }

    /// Returns head and blocks of `store` as one source for languages with types: series with all their
    /// labels, reserved ones included, and samples of the type of their series.
    #[must_use]
    pub fn typed_queryable(&self, store: &StoreId) -> Arc<dyn Queryable> {
        Arc::new(TypedQueryable::new(TenantQueryable::new(self.storage, store)))
    }

    /// Returns the source that answers a call of another node; empty for a store that this node has not.
    /// Views of one store have no blocks of the bucket, which the caller reads itself.
    #[must_use]
    pub fn source_of(&self, call: &SelectCall) -> Arc<dyn Queryable> {
        let Some(store) = self.store_of(call) else { return Arc::new(NoSeries) };
        match call.view {
            SelectView::Tenant => self.queryable(&call.tenant),
            SelectView::Store => Arc::new(TenantQueryable::without_bucket(self.storage, &store)),
            SelectView::Typed => {
                let source = TenantQueryable::without_bucket(self.storage, &store);
                Arc::new(TypedQueryable::new(source))
            }
        }
    }

    /// Store of a call; `None` if this node has not.
    fn store_of(&self, call: &SelectCall) -> Option<StoreId> {
        match call.store {
            RecordStore::Default => Some(StoreId::from(&call.tenant)),
            RecordStore::Database(id) | RecordStore::Graphite(id) => {
                let catalog = self.storage.databases().catalog();
                let mut policies = catalog.policies().filter(|(owner, _)| **owner == call.tenant);
                let found = policies.find(|(_, policy)| policy.bucket_id == Some(id));
                found.map(|(_, policy)| policy.store.clone())
            }
        }
    }

    /// Returns the records that a call of another node asks for; none if it asks for series.
    ///
    /// # Errors
    /// As [`TsdbReader::sample_ranges`].
    pub fn records_of(&self, call: &SelectCall, ctx: &ReadContext) -> Result<StoredRecords, QueryError> {
        Ok(match &call.question {
            SelectQuestion::Read(_) => StoredRecords::Ranges(Vec::new()),
            SelectQuestion::Metadata { metric, limit } => {
                let limit = usize::try_from(*limit).unwrap_or(usize::MAX);
                StoredRecords::Metadata(self.metadata(&call.tenant, metric.as_deref(), limit))
            }
            SelectQuestion::Exemplars { selectors, range } => {
                StoredRecords::Exemplars(self.exemplars(&call.tenant, selectors, *range))
            }
            SelectQuestion::Ranges => {
                let ranges = self.store_of(call).map(|store| self.sample_ranges(&store, ctx));
                StoredRecords::Ranges(ranges.transpose()?.unwrap_or_default())
            }
        })
    }

    /// Returns the series of `tenant`'s default store as fields named `value` of measurements named as the
    /// metrics, with times in nanoseconds.
    #[must_use]
    pub fn as_measurements(&self, tenant: &TenantId) -> Arc<dyn Queryable> {
        as_measurements(Arc::new(TenantQueryable::new(self.storage, &tenant.into())))
    }

    /// Returns the fields named `value` of the store of a retention policy as metrics named as their
    /// measurements, with times in milliseconds.
    #[must_use]
    pub fn as_metrics(&self, store: &StoreId) -> Arc<dyn Queryable> {
        as_metrics(in_milliseconds(Arc::new(TenantQueryable::new(self.storage, store))))
    }

    /// Returns ranges of time, in the unit of the tenant, in which it may have samples.
    ///
    /// # Errors
    /// As a query that reads the list of blocks of the bucket.
    pub fn sample_ranges(&self, store: &StoreId, ctx: &ReadContext) -> Result<Vec<TimeRange>, QueryError> {
        let windows = self.storage.head().windows().list_of(store);
        let mut ranges: Vec<TimeRange> = windows.iter().map(|window| window.range).collect();
        if let Some(blocks) = self.storage.blocks().tenant(store) {
            ranges.extend(blocks.list().iter().map(|block| block.range()));
        }
        if let Some(source) = self.storage.bucket_blocks(store) {
            let blocks = source.blocks_in(TimeRange::ALL, ctx)?;
            ranges.extend(blocks.iter().map(|block| block.range()));
        }
        Ok(ranges)
    }

    /// Returns the part of `range`, in the unit of the tenant, from the first window on in which `store` may
    /// have samples; `None` if there is none.
    #[must_use]
    pub fn times(&self, store: &StoreId, range: TimeRange) -> Option<TimeRange> {
        let windows = self.storage.head().windows().list_of(store);
        let head = windows.iter().map(|window| window.range).filter(|window| window.overlaps(range));
        let blocks = self.storage.blocks().tenant(store);
        let blocks = blocks.and_then(|blocks| blocks.first_start_in(range));
        let first = head.map(|window| window.start).chain(blocks).min()?;
        Some(TimeRange::new(first.max(range.start), range.end))
    }

    /// Returns an estimate of the series of `store`: those in the head or in the block with most of them.
    #[must_use]
    pub fn series_count(&self, store: &StoreId) -> u64 {
        let ctx = ReadContext::unlimited(self.storage.env().clock.clone());
        let all = Selector { matchers: &[], range: TimeRange::ALL };
        let estimate = TenantQueryable::new(self.storage, store).estimate(&all, &ctx);
        estimate.ok().flatten().map_or(0, |estimate| estimate.series)
    }

    /// Returns the metadata of one metric or all, sorted by metric; at most `limit` metrics (0 = all).
    #[must_use]
    pub fn metadata(&self, tenant: &TenantId, metric: Option<&str>, limit: usize) -> Vec<MetadataEntry> {
        self.storage.metadata().list(&tenant.into(), metric, limit)
    }

    /// Returns the exemplars of series that match any of `selectors`, by series labels, times ascending.
    #[must_use]
    pub fn exemplars(
        &self,
        tenant: &TenantId,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
    ) -> Vec<(Labels, Vec<Exemplar>)> {
        self.exemplars.select(&tenant.into(), selectors, range)
    }
}
