//! Label names and label values of a tenant.
//!
//! Holds: without matchers they come from the tables of names and values, for every range that meets the
//! samples of the head, as in Prometheus; no series is looked at. With matchers, series without samples in
//! the range are left out. The lock of the tables is held for a page of series or a slice of values at a
//! time.
//! Not here: series with their labels (`select`).

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use chronolith_model::index::select_refs;
use chronolith_model::{QueryError, ReadContext, Selector, TenantId, TimeRange};

use crate::head::Head;
use crate::select::page_runs;
use crate::source::overlaps;
use crate::stripe::stripe_of;
use crate::sync::RwLockReadGuard;
use crate::tables::{IdSet, Tables};
use crate::tenant::{EMPTY_NONE, EMPTY_SOME, EMPTY_UNKNOWN, TenantHead};

/// Values whose postings are read under one lock.
const SLICE_COUNT: usize = 256;
/// Postings of values are read if there are fewer values than one in this many series.
const VALUES_PART: usize = 4;

impl Head {
    /// Label names of the series that match, sorted, each once; at most `limit` (0 = all). Cost: the names;
    /// with matchers, the series.
    ///
    /// # Errors
    /// As [`Head::select`].
    pub fn label_names(
        &self,
        tenant: &TenantId,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        ctx.check()?;
        let Some(tenant) = self.tenant(tenant) else { return Ok(Vec::new()) };
        let limit = if limit == 0 { usize::MAX } else { limit };
        if !self.has_samples_in(&tenant, selector.range) {
            return Ok(Vec::new());
        }
        if selector.matchers.is_empty() && self.has_no_empty_series(&tenant) {
            let tables = tenant.tables.read();
            let mut names: Vec<&str> = tables.names().collect();
            names.sort_unstable();
            return Ok(names.into_iter().take(limit).map(str::to_owned).collect());
        }
        let _ids = self.ids.use_ids();
        let ids = matching(&tenant, selector)?;
        let mut names = BTreeSet::new();
        self.for_each_page(&tenant, &ids, selector.range, ctx, |tables, ids| {
            tables.collect_names(ids, &mut names);
        })?;
        Ok(names.into_iter().take(limit).collect())
    }

    /// Values of `name` among the series that match, sorted, each once; at most `limit` (0 = all). Cost: the
    /// values; with matchers, the series.
    ///
    /// # Errors
    /// As [`Head::select`].
    pub fn label_values(
        &self,
        tenant: &TenantId,
        name: &str,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        ctx.check()?;
        let Some(tenant) = self.tenant(tenant) else { return Ok(Vec::new()) };
        let limit = if limit == 0 { usize::MAX } else { limit };
        if !self.has_samples_in(&tenant, selector.range) {
            return Ok(Vec::new());
        }
        if selector.matchers.is_empty() && self.has_no_empty_series(&tenant) {
            return Ok(tenant.tables.read().values(name, limit));
        }
        let _ids = self.ids.use_ids();
        let ids = matching(&tenant, selector)?;
        if let Some(mut values) = self.values_by_postings(&tenant, name, &ids, selector.range, ctx)? {
            values.truncate(limit);
            return Ok(values);
        }
        let mut values = BTreeSet::new();
        self.for_each_page(&tenant, &ids, selector.range, ctx, |tables, ids| {
            tables.collect_values(name, ids, &mut values);
        })?;
        Ok(values.into_iter().take(limit).collect())
    }

    /// Values of `name` among the series `ids`, if there are few values and all series count; `None` if there
    /// are not, or if the tables were built anew meanwhile.
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

    /// Calls `visit` with those of `ids` that have samples in the range, page by page.
    fn for_each_page(
        &self,
        tenant: &TenantHead,
        ids: &[u32],
        range: TimeRange,
        ctx: &ReadContext,
        mut visit: impl FnMut(&Tables, &[u32]),
    ) -> Result<(), QueryError> {
        let is_any = self.all_have_samples_in(tenant, range);
        let mut kept = Vec::new();
        for run in page_runs(ids) {
            ctx.check()?;
            kept.clear();
            kept.extend_from_slice(run);
            let tables = tenant.tables.read();
            if !is_any {
                let stripe = self.series.stripes[stripe_of(run[0])].lock();
                kept.retain(|&id| {
                    let floats = stripe.hot(id).is_some_and(|hot| overlaps(&stripe, hot, range));
                    floats || stripe.has_histograms_in(id, range)
                });
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

    /// Returns true if every series has samples. After a look that finds it so, the next ones are spared.
    fn has_no_empty_series(&self, tenant: &TenantHead) -> bool {
        match tenant.empty_series.load(Ordering::Relaxed) {
            EMPTY_NONE => return true,
            EMPTY_SOME => return false,
            _ => {}
        }
        let _ids = self.ids.use_ids();
        let ids = tenant.series_ids();
        let all = page_runs(&ids).all(|run| {
            let stripe = self.series.stripes[stripe_of(run[0])].lock();
            run.iter().all(|&id| stripe.hot(id).is_none() || !stripe.is_empty(id))
        });
        let seen = if all { EMPTY_NONE } else { EMPTY_SOME };
        // A deletion that came meanwhile knows better.
        let noted =
            tenant.empty_series.compare_exchange(EMPTY_UNKNOWN, seen, Ordering::Relaxed, Ordering::Relaxed);
        all && noted != Err(EMPTY_SOME)
    }

    /// Returns true if the samples of the tenant begin before the end of `range` and end after its start.
    fn has_samples_in(&self, tenant: &TenantHead, range: TimeRange) -> bool {
        let windows = tenant.windows.lock();
        windows.by_start.values().any(|window| range.overlaps_inclusive(window.oldest_ms, window.newest_ms))
    }

    /// Returns true if all windows of the tenant lie in `range`.
    fn range_covers(&self, tenant: &TenantHead, range: TimeRange) -> bool {
        let windows = tenant.windows.lock();
        let inside =
            |start: &i64| range.start <= *start && start.saturating_add(self.options.window_ms) <= range.end;
        windows.by_start.keys().all(inside)
    }
}

/// Ids of the series that match, whatever samples they have.
fn matching(tenant: &TenantHead, selector: &Selector<'_>) -> Result<Vec<u32>, QueryError> {
    select_refs(&*tenant.tables.read(), selector.matchers)
}
