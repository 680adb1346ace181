//! Reading: series by matchers, with what they hold at that moment; label names and values.
//!
//! Holds: the tables are locked shared while chunks and labels of a page of series are copied, so none of
//! these can leave meanwhile, and nobody waits for more than a page: neither writers that create series, nor
//! the readers behind them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use chronolith_format::starts::StartRun;
use chronolith_model::index::select_refs;
use chronolith_model::query::ReadEstimate;
use chronolith_model::{
    Labels, LabelsBuilder, QueryError, ReadContext, Selector, SeriesRead, TenantId, TimeRange,
};

use crate::head::Head;
use crate::source::{
    HeadChunk, HeadSamples, RecentFiles, SelectedChunks, copy_chunks, copy_histograms, copy_starts, newest,
    overlaps,
};
use crate::stripe::{PAGE_SLOTS, stripe_of};
use crate::sync::RwLockReadGuard;
use crate::tables::Tables;
use crate::tenant::{EMPTY_NONE, EMPTY_SOME, EMPTY_UNKNOWN, TenantHead};

/// A selected series beside its labels and chunks.
const SERIES_BYTES: usize = size_of::<SeriesRead>() + size_of::<HeadSamples>() + 16;

/// How much of a series is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// All samples of the range.
    All,
    /// The newest of them.
    Newest,
}

impl Head {
    /// The series that fit and have chunks in the range, sorted by labels. Each has what it held at one
    /// moment during the call; series that come or go meanwhile may be among them or not.
    ///
    /// # Errors
    /// [`QueryError`]: canceled, timed out, out of memory budget.
    pub fn select(
        &self,
        tenant: &TenantId,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Vec<SeriesRead>, QueryError> {
        self.select_depth(tenant, selector, ctx, Depth::All)
    }

    /// As [`Head::select`], for readers of nothing but the newest sample of each series in the range.
    ///
    /// # Errors
    /// As [`Head::select`].
    pub fn select_newest(
        &self,
        tenant: &TenantId,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Vec<SeriesRead>, QueryError> {
        self.select_depth(tenant, selector, ctx, Depth::Newest)
    }

    fn select_depth(
        &self,
        tenant: &TenantId,
        selector: &Selector<'_>,
        ctx: &ReadContext,
        depth: Depth,
    ) -> Result<Vec<SeriesRead>, QueryError> {
        let Some(tenant) = self.tenant(tenant) else { return Ok(Vec::new()) };
        let _ids = self.ids.use_ids();
        let tables = tenant.tables.read();
        let ids = select_refs(&*tables, selector.matchers)?;
        let removed_before = tenant.removed_count.load(Ordering::Relaxed);
        drop(tables);
        let mut files = RecentFiles::new(&self.series.store);
        let mut builder = LabelsBuilder::new();
        let mut found: Vec<(u32, u32)> = Vec::new();
        let mut out = Vec::new();
        for run in page_runs(&ids) {
            ctx.check()?;
            found.clear();
            let tables = tenant.tables.read();
            let has_removed = tenant.removed_count.load(Ordering::Relaxed) != removed_before;
            let mut place = 0;
            let mut chunks = Vec::with_capacity(run.len());
            let mut starts: Vec<(u32, Arc<[StartRun]>)> = Vec::new();
            let mut stripe = self.series.stripes[stripe_of(run[0])].lock();
            for &id in run {
                let Some(late) = stripe.hot(id).map(|hot| hot.late) else { continue };
                stripe.late.settle(late);
                let Some(hot) = stripe.hot(id) else { continue };
                let first = chunks.len();
                if stripe.histograms_of(id).is_some() {
                    copy_chunks(&stripe, &mut files, hot, selector.range, &mut chunks);
                    copy_histograms(&stripe, &mut files, id, selector.range, &mut chunks);
                    chunks[first..].sort_by_key(HeadChunk::min_time);
                } else {
                    match newest(hot, selector.range).filter(|_| depth == Depth::Newest) {
                        Some(newest) => chunks.push(newest),
                        None => copy_chunks(&stripe, &mut files, hot, selector.range, &mut chunks),
                    }
                }
                if let Some(runs) = copy_starts(&stripe, id, &chunks[first..], selector.range) {
                    starts.push((first as u32, runs));
                }
                found.push((id, chunks.len() as u32));
            }
            drop(stripe);
            let start_bytes: usize = starts.iter().map(|(_, runs)| size_of_val(&**runs)).sum();
            let mut memory = ctx.budget.reserve(SelectedChunks::heap_bytes(&chunks) + start_bytes as u64)?;
            let (mut labelled, mut start) = (Vec::with_capacity(found.len()), 0);
            for &(id, end) in &found {
                if start < end
                    && let Some(labels) = tables.labels_from(&mut place, id, &mut builder)
                    // An id may have become that of another series.
                    && (!has_removed || selector.matchers.iter().all(|m| m.matches_labels(&labels)))
                {
                    labelled.push((labels, start, end));
                }
                start = end;
            }
            RwLockReadGuard::unlock_fair(tables);
            let bytes = |one: &(Labels, u32, u32)| one.0.heap_bytes() + SERIES_BYTES;
            memory.grow(labelled.iter().map(bytes).sum::<usize>() as u64)?;
            let disk = self.env.disk.clone();
            let selected = Arc::new(SelectedChunks { chunks, disk, _memory: memory });
            let mut starts = starts.into_iter().peekable();
            out.extend(labelled.into_iter().map(|(labels, start, end)| {
                // Some of a series that has gone meanwhile may be in between.
                while starts.next_if(|(first, _)| *first < start).is_some() {}
                let starts = starts.next_if(|(first, _)| *first == start).map(|(_, runs)| runs);
                let samples = HeadSamples { selected: selected.clone(), start, end, starts };
                SeriesRead { labels, samples: Box::new(samples) }
            }));
        }
        ctx.check()?;
        // Stable: series mostly come in order, a scrape target behind the other, and such runs are only merged.
        out.sort_by(|a, b| a.labels.cmp(&b.labels));
        Ok(out)
    }

    /// About how many series fit, and how many samples they have in the range: as many as the average series.
    /// Cost: postings, no series is touched.
    ///
    /// # Errors
    /// As [`Head::select`].
    pub fn estimate(&self, tenant: &TenantId, selector: &Selector<'_>) -> Result<ReadEstimate, QueryError> {
        let Some(tenant) = self.tenant(tenant) else { return Ok(ReadEstimate::default()) };
        let all_samples = tenant.windows.lock().sample_count(self.options.window_ms, selector.range);
        let tables = tenant.tables.read();
        let all_series = tables.live_count() as u64;
        if selector.matchers.is_empty() {
            return Ok(ReadEstimate { series: all_series, samples: all_samples });
        }
        let series = select_refs(&*tables, selector.matchers)?.len() as u64;
        let samples = u128::from(all_samples) * u128::from(series) / u128::from(all_series.max(1));
        Ok(ReadEstimate { series, samples: u64::try_from(samples).unwrap_or(u64::MAX) })
    }

    /// Label names of the series that fit, sorted, each once; at most `limit` (0 = all).
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
        let Some(tenant) = self.tenant(tenant) else { return Ok(Vec::new()) };
        let tables = tenant.tables.read();
        let only = self.fitting(&tenant, &tables, selector, ctx)?;
        Ok(sorted(tables.names(only.as_deref()), limit))
    }

    /// Values of `name` among the series that fit, sorted, each once; at most `limit` (0 = all).
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
        let Some(tenant) = self.tenant(tenant) else { return Ok(Vec::new()) };
        let tables = tenant.tables.read();
        let only = self.fitting(&tenant, &tables, selector, ctx)?;
        Ok(tables.values(name, only.as_deref(), limit).into_iter().map(str::to_owned).collect())
    }

    /// Series that fit matchers and range; `None` when all do.
    fn fitting(
        &self,
        tenant: &TenantHead,
        tables: &Tables,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Option<Vec<u32>>, QueryError> {
        ctx.check()?;
        let covers = self.range_covers(tenant, selector.range) && self.has_no_empty_series(tenant, tables);
        if covers && selector.matchers.is_empty() {
            return Ok(None);
        }
        let mut ids = select_refs(tables, selector.matchers)?;
        if covers {
            return Ok(Some(ids));
        }
        let mut kept = Vec::with_capacity(ids.len());
        for run in page_runs(&ids) {
            ctx.check()?;
            let stripe = self.series.stripes[stripe_of(run[0])].lock();
            let fits = |id: u32| {
                let floats = stripe.hot(id).is_some_and(|hot| overlaps(&stripe, hot, selector.range));
                floats || stripe.has_histograms_in(id, selector.range)
            };
            kept.extend(run.iter().copied().filter(|&id| fits(id)));
        }
        ids = kept;
        Ok(Some(ids))
    }

    /// Whether every series has samples. After a look that finds it so, the next ones are spared.
    fn has_no_empty_series(&self, tenant: &TenantHead, tables: &Tables) -> bool {
        match tenant.empty_series.load(Ordering::Relaxed) {
            EMPTY_NONE => return true,
            EMPTY_SOME => return false,
            _ => {}
        }
        let ids = tables.live_ids();
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

    /// Whether all windows of the tenant lie in `range`.
    fn range_covers(&self, tenant: &TenantHead, range: TimeRange) -> bool {
        let windows = tenant.windows.lock();
        let inside =
            |start: &i64| range.start <= *start && start.saturating_add(self.options.window_ms) <= range.end;
        windows.by_start.keys().all(inside)
    }
}

/// Runs of ascending ids that share a page, and so a stripe.
pub(crate) fn page_runs(ids: &[u32]) -> impl Iterator<Item = &[u32]> {
    let page = |id: u32| id as usize / PAGE_SLOTS;
    ids.chunk_by(move |&a, &b| page(a) == page(b))
}

fn sorted(mut found: Vec<&str>, limit: usize) -> Vec<String> {
    found.sort_unstable();
    if limit > 0 {
        found.truncate(limit);
    }
    found.into_iter().map(str::to_owned).collect()
}

#[cfg(all(test, not(loom)))]
mod tests;
