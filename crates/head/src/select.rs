//! Reading: series by matchers, with what they hold at that moment.
//!
//! Holds: the tables are locked shared while chunks and labels of a page of series are copied, so none of
//! these can leave meanwhile, and nobody waits for more than a page: neither writers that create series, nor
//! the readers behind them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use chronolith_format::starts::StartRun;
use chronolith_model::index::select_refs;
use chronolith_model::labels::LabelsKey;
use chronolith_model::query::{ReadEstimate, SampleNeed};
use chronolith_model::{Labels, QueryError, ReadContext, Selector, SeriesRead, TenantId, TimeRange};

use crate::head::Head;
use crate::source::{
    HeadChunk, HeadSamples, RecentFiles, SelectedChunks, copy_chunks, copy_histograms, copy_starts, newest,
};
use crate::stripe::{PAGE_SLOTS, stripe_of};
use crate::sync::RwLockReadGuard;

/// A selected series beside its labels and chunks.
const SERIES_BYTES: usize = size_of::<SeriesRead>() + size_of::<HeadSamples>() + 16;

/// A copy of what the series of a page have.
pub(crate) struct PageCopy {
    /// Series by series, oldest first.
    pub(crate) chunks: Vec<HeadChunk>,
    /// Start times of some series, by the first chunk of each.
    pub(crate) starts: Vec<(u32, Arc<[StartRun]>)>,
    /// Ids, and where the chunks of each end.
    pub(crate) found: Vec<(u32, u32)>,
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
        self.select_depth(tenant, selector, ctx, SampleNeed::All)
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
        self.select_depth(tenant, selector, ctx, SampleNeed::Newest)
    }

    fn select_depth(
        &self,
        tenant: &TenantId,
        selector: &Selector<'_>,
        ctx: &ReadContext,
        depth: SampleNeed,
    ) -> Result<Vec<SeriesRead>, QueryError> {
        let Some(tenant) = self.tenant(tenant) else { return Ok(Vec::new()) };
        let _ids = self.ids.use_ids();
        let tables = tenant.tables.read();
        let ids = select_refs(&*tables, selector.matchers)?;
        let removed_before = tenant.removed_count.load(Ordering::Relaxed);
        drop(tables);
        let mut files = RecentFiles::new(&self.series.store);
        let mut scratch = LabelsKey::default();
        let mut out = Vec::new();
        for run in page_runs(&ids) {
            ctx.check()?;
            let tables = tenant.tables.read();
            let has_removed = tenant.removed_count.load(Ordering::Relaxed) != removed_before;
            let PageCopy { chunks, starts, found } = self.copy_page(&mut files, run, selector.range, depth);
            let start_bytes: usize = starts.iter().map(|(_, runs)| size_of_val(&**runs)).sum();
            let mut memory = ctx.budget.reserve(SelectedChunks::heap_bytes(&chunks) + start_bytes as u64)?;
            let (mut labelled, mut start, mut place) = (Vec::with_capacity(found.len()), 0, 0);
            for &(id, end) in &found {
                if start < end
                    && let Some(labels) = tables.labels_from(&mut place, id, &mut scratch)
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

    /// Copies what the series of `run`, which share a page, have in `range`.
    pub(crate) fn copy_page(
        &self,
        files: &mut RecentFiles<'_>,
        run: &[u32],
        range: TimeRange,
        depth: SampleNeed,
    ) -> PageCopy {
        let mut page = PageCopy {
            chunks: Vec::with_capacity(run.len()),
            starts: Vec::new(),
            found: Vec::with_capacity(run.len()),
        };
        let chunks = &mut page.chunks;
        let mut stripe = self.series.stripes[stripe_of(run[0])].lock();
        for &id in run {
            let Some(late) = stripe.hot(id).map(|hot| hot.late) else { continue };
            stripe.late.settle(late);
            let Some(hot) = stripe.hot(id) else { continue };
            let first = chunks.len();
            if stripe.histograms_of(id).is_some() {
                copy_chunks(&stripe, files, hot, range, chunks);
                copy_histograms(&stripe, files, id, range, chunks);
                chunks[first..].sort_by_key(HeadChunk::min_time);
            } else {
                match newest(hot, range).filter(|_| depth == SampleNeed::Newest) {
                    Some(newest) => chunks.push(newest),
                    None => copy_chunks(&stripe, files, hot, range, chunks),
                }
            }
            if let Some(runs) = copy_starts(&stripe, id, &chunks[first..], range) {
                page.starts.push((first as u32, runs));
            }
            page.found.push((id, chunks.len() as u32));
        }
        page
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
}

/// Runs of ascending ids that share a page, and so a stripe.
pub(crate) fn page_runs(ids: &[u32]) -> impl Iterator<Item = &[u32]> {
    let page = |id: u32| id as usize / PAGE_SLOTS;
    ids.chunk_by(move |&a, &b| page(a) == page(b))
}

#[cfg(all(test, not(loom)))]
mod tests;
