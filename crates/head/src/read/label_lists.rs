//! Label names and label values of a tenant, as lists and as scans.
//!
//! Invariants: without matchers they come from the name and value lists of the index, for every range that
//! overlaps the samples of the head, as in Prometheus; no series is read. With matchers, series without
//! samples in the range are excluded. The index is locked for a page of series or a slice of values at a
//! time.
//! Not here: series with their labels (`select`).

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use chronolith_model::index::select_refs;
use chronolith_model::query::LabelValueScan;
use chronolith_model::{QueryError, ReadContext, Selector, StoreId, TimeRange};

use crate::index::tables::{IdSet, TenantIndex};
use crate::index::tenant::{EMPTY_NONE, EMPTY_SOME, EMPTY_UNKNOWN, TenantHead};
use crate::read::label_search::scan_live_values;
use crate::read::select::HeadReader;
use crate::series::page_runs;
use chronolith_base::sync::RwLockReadGuard;

/// Values whose postings are read under one lock.
const SLICE_COUNT: usize = 256;
/// Postings of values are read if there are fewer values than one in this many series.
const VALUES_PART: usize = 4;

impl HeadReader {
    /// Visits the values of a label in ascending order until `visit` returns false. Cost: a search and the
    /// values visited, none of which is copied; the first call for a label sorts its values. `visit` is
    /// called with the index locked.
    ///
    /// # Errors
    /// As [`HeadReader::select`].
    pub fn scan_label_values(
        &self,
        store: &StoreId,
        scan: &LabelValueScan<'_>,
        ctx: &ReadContext,
        visit: &mut dyn FnMut(&str) -> bool,
    ) -> Result<(), QueryError> {
        ctx.check()?;
        let id = store;
        let Some(store) = self.state.index.tenant(id) else { return Ok(()) };
        if !self.has_samples_in(&store, scan.range) {
            return Ok(());
        }
        if !self.has_no_empty_series(&store) {
            let selector = Selector { matchers: &[], range: scan.range };
            let values = self.label_values(id, scan.name, &selector, 0, ctx)?;
            return scan.visit_listed(&values, &ctx.budget, visit);
        }
        scan_live_values(&store, scan, ctx, &mut |value, _| visit(value))
    }

    /// Visits the values of a label with their numbers of series, ascending, until `visit` returns false.
    /// Cost: as [`HeadReader::scan_label_values`]. Series without samples are counted until they leave.
    ///
    /// # Errors
    /// As [`ReadContext::check`].
    pub fn scan_series_counts(
        &self,
        store: &StoreId,
        name: &str,
        ctx: &ReadContext,
        visit: &mut dyn FnMut(&str, u64) -> bool,
    ) -> Result<(), QueryError> {
        ctx.check()?;
        let Some(store) = self.state.index.tenant(store) else { return Ok(()) };
        let scan = LabelValueScan { name, prefix: "", range: TimeRange::ALL };
        scan_live_values(&store, &scan, ctx, visit)
    }

    /// Returns the label names of the selected series, sorted and distinct; at most `limit` (0 = all). Cost:
    /// the names; with matchers, the series.
    ///
    /// # Errors
    /// As [`HeadReader::select`].
    pub fn label_names(
        &self,
        store: &StoreId,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        ctx.check()?;
        let Some(store) = self.state.index.tenant(store) else { return Ok(Vec::new()) };
        let limit = if limit == 0 { usize::MAX } else { limit };
        if !self.has_samples_in(&store, selector.range) {
            return Ok(Vec::new());
        }
        if selector.matchers.is_empty() && self.has_no_empty_series(&store) {
            let tables = store.tables.read();
            let mut names: Vec<&str> = tables.names().collect();
            names.sort_unstable();
            return Ok(names.into_iter().take(limit).map(str::to_owned).collect());
        }
        let _ids = self.state.index.ids.use_ids();
        let ids = matching(&store, selector)?;
        let mut names = BTreeSet::new();
        self.for_each_page(&store, &ids, selector.range, ctx, |tables, ids| {
            tables.collect_names(ids, &mut names);
        })?;
        Ok(names.into_iter().take(limit).collect())
    }

    /// Returns true if a series of the tenant has the label, or had it since the index was last rebuilt.
    pub fn has_label_name(&self, store: &StoreId, name: &str) -> bool {
        let store = self.state.index.tenant(store);
        store.is_some_and(|store| !store.tables.read().pairs_of_name(name).is_empty())
    }

    /// Returns the values of `name` among the selected series, sorted and distinct; at most `limit` (0 =
    /// all). Cost: the values; with matchers, the series.
    ///
    /// # Errors
    /// As [`HeadReader::select`].
    pub fn label_values(
        &self,
        store: &StoreId,
        name: &str,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        ctx.check()?;
        let Some(store) = self.state.index.tenant(store) else { return Ok(Vec::new()) };
        let limit = if limit == 0 { usize::MAX } else { limit };
        if !self.has_samples_in(&store, selector.range) {
            return Ok(Vec::new());
        }
        if selector.matchers.is_empty() && self.has_no_empty_series(&store) {
            return Ok(store.tables.read().values(name, limit));
        }
        let _ids = self.state.index.ids.use_ids();
        let ids = matching(&store, selector)?;
        if let Some(mut values) = self.values_by_postings(&store, name, &ids, selector.range, ctx)? {
            values.truncate(limit);
            return Ok(values);
        }
        let mut values = BTreeSet::new();
        self.for_each_page(&store, &ids, selector.range, ctx, |tables, ids| {
            tables.collect_values(name, ids, &mut values);
        })?;
        Ok(values.into_iter().take(limit).collect())
    }

    /// Returns the values of `name` among the series `ids` if there are few values and every series has
    /// samples in the range; `None` if not, or if the index was rebuilt meanwhile.
    fn values_by_postings(
        &self,
        tenant: &TenantHead,
        name: &str,
        ids: &[u32],
        range: TimeRange,
        ctx: &ReadContext,
    ) -> Result<Option<Vec<String>>, QueryError> {
        if !self.all_have_samples_in(tenant, range) {
            return Ok(None);
        }
        let tables = tenant.tables.read();
        let (generation, pairs) = (tables.generation(), tables.pairs_of_name(name));
        RwLockReadGuard::unlock_fair(tables);
        if ids.len() / VALUES_PART < pairs.len() {
            return Ok(None);
        }
        let ids = IdSet::new(ids);
        let mut values = Vec::new();
        for slice in pairs.chunks(SLICE_COUNT) {
            ctx.check()?;
            let tables = tenant.tables.read();
            if tables.generation() != generation {
                return Ok(None);
            }
            tables.values_of_series(slice, &ids, &mut values);
            RwLockReadGuard::unlock_fair(tables);
        }
        Ok(Some(values))
    }

    /// Calls `visit` with the `ids` that have samples in the range, page by page.
    fn for_each_page(
        &self,
        tenant: &TenantHead,
        ids: &[u32],
        range: TimeRange,
        ctx: &ReadContext,
        mut visit: impl FnMut(&TenantIndex, &[u32]),
    ) -> Result<(), QueryError> {
        let is_any = self.all_have_samples_in(tenant, range);
        let mut kept = Vec::new();
        for run in page_runs(ids) {
            ctx.check()?;
            kept.clear();
            kept.extend_from_slice(run);
            let tables = tenant.tables.read();
            if !is_any {
                let stripe = self.state.series.lock(run[0]);
                kept.retain(|&id| stripe.overlaps(id, range));
            }
            visit(&tables, &kept);
            RwLockReadGuard::unlock_fair(tables);
        }
        Ok(())
    }

    /// Returns true if every series has samples in `range`.
    fn all_have_samples_in(&self, tenant: &TenantHead, range: TimeRange) -> bool {
        self.range_covers(tenant, range) && self.has_no_empty_series(tenant)
    }

    /// Returns true if every series has samples. The result is cached until a deletion empties a series.
    pub(super) fn has_no_empty_series(&self, tenant: &TenantHead) -> bool {
        match tenant.empty_series.load(Ordering::Relaxed) {
            EMPTY_NONE => return true,
            EMPTY_SOME => return false,
            _ => {}
        }
        let _ids = self.state.index.ids.use_ids();
        let ids = tenant.series_ids();
        let all = page_runs(&ids).all(|run| {
            let stripe = self.state.series.lock(run[0]);
            run.iter().all(|&id| stripe.series(id).is_none() || !stripe.is_empty(id))
        });
        let seen = if all { EMPTY_NONE } else { EMPTY_SOME };
        // A concurrent deletion has newer information.
        let noted =
            tenant.empty_series.compare_exchange(EMPTY_UNKNOWN, seen, Ordering::Relaxed, Ordering::Relaxed);
        all && noted != Err(EMPTY_SOME)
    }

    /// Returns true if the samples of the tenant begin before the end of `range` and end after its start.
    pub(super) fn has_samples_in(&self, tenant: &TenantHead, range: TimeRange) -> bool {
        tenant.windows.lock().overlaps(range)
    }

    /// Returns true if all windows of the tenant lie in `range`.
    fn range_covers(&self, tenant: &TenantHead, range: TimeRange) -> bool {
        let windows = tenant.windows.lock();
        let width = self.state.series.window_width(tenant.unit);
        windows
            .iter()
            .all(|(start, _)| range.start <= start && TimeRange::window_of(start, width).end <= range.end)
    }
}

/// Returns the ids of the series that the matchers select, with or without samples.
fn matching(tenant: &TenantHead, selector: &Selector<'_>) -> Result<Vec<u32>, QueryError> {
    select_refs(&*tenant.tables.read(), selector.matchers)
}
