//! Reads: selects series by matchers and copies their samples.
//!
//! Invariant: the index is locked shared while chunks and labels of one page of series are copied, so none of
//! them can leave meanwhile, and no thread waits for more than a page: neither writers that create series,
//! nor readers queued after them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use chronolith_model::index::select_refs;
use chronolith_model::labels::LabelsKey;
use chronolith_model::query::{ReadEstimate, SampleNeed};
use chronolith_model::{Labels, QueryError, ReadContext, Selector, SeriesRead, TenantId, TimeRange};

use crate::read::source::{HeadChunk, HeadSamples, RecentFiles, SelectedChunks, copy_chunks, newest};
use crate::series::page_runs;
use crate::state::HeadState;
use chronolith_base::sync::RwLockReadGuard;

/// Memory of a selected series without its labels and chunks.
const SERIES_BYTES: usize = size_of::<SeriesRead>() + size_of::<HeadSamples>() + 16;

/// Copy of the chunks of the series of a page.
pub(super) struct PageCopy {
    /// Grouped by series, oldest first.
    pub(super) chunks: Vec<HeadChunk>,
    /// Series ids, each with the end of its chunks.
    pub(super) found: Vec<(u32, u32)>,
}

/// Reads of the head: series with their samples, label names and values.
pub struct HeadReader {
    pub(super) state: Arc<HeadState>,
}

impl HeadReader {
    pub(crate) fn new(state: Arc<HeadState>) -> HeadReader {
        HeadReader { state }
    }

    /// Returns the selected series with chunks in the range, sorted by labels. Each is read at one point in
    /// time during the call; series that are created or leave meanwhile may be included or not.
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

    /// As [`HeadReader::select`], for callers that need only the newest sample of each series in the range.
    ///
    /// # Errors
    /// As [`HeadReader::select`].
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
        let Some(tenant) = self.state.index.tenant(tenant) else { return Ok(Vec::new()) };
        let _ids = self.state.index.ids.use_ids();
        let tables = tenant.tables.read();
        let ids = select_refs(&*tables, selector.matchers)?;
        let removed_before = tenant.removed_count.load(Ordering::Relaxed);
        drop(tables);
        let mut files = RecentFiles::new(&self.state.series.store);
        let mut scratch = LabelsKey::default();
        let mut out = Vec::new();
        for run in page_runs(&ids) {
            ctx.check()?;
            let tables = tenant.tables.read();
            let has_removed = tenant.removed_count.load(Ordering::Relaxed) != removed_before;
            let PageCopy { chunks, found } = self.copy_page(&mut files, run, selector.range, depth);
            let mut memory = ctx.budget.reserve(SelectedChunks::heap_bytes(&chunks))?;
            let (mut labelled, mut start, mut last_row) = (Vec::with_capacity(found.len()), 0, 0);
            for &(id, end) in &found {
                if start < end
                    && let Some(labels) = tables.labels_from(&mut last_row, id, &mut scratch)
                    // The id may have been reused for another series.
                    && (!has_removed || selector.matchers.iter().all(|m| m.matches_labels(&labels)))
                {
                    labelled.push((labels, start, end));
                }
                start = end;
            }
            RwLockReadGuard::unlock_fair(tables);
            let bytes = |one: &(Labels, u32, u32)| one.0.heap_bytes() + SERIES_BYTES;
            memory.grow(labelled.iter().map(bytes).sum::<usize>() as u64)?;
            let disk = self.state.env.disk.clone();
            let selected = SelectedChunks::new(chunks, disk, memory);
            out.extend(labelled.into_iter().map(|(labels, start, end)| {
                let samples = HeadSamples::new(selected.clone(), start..end);
                SeriesRead { labels, samples: Box::new(samples) }
            }));
        }
        ctx.check()?;
        // Merge sort: series mostly arrive sorted per scrape target, and such runs are only merged.
        out.sort_by(|a, b| a.labels.cmp(&b.labels));
        Ok(out)
    }

    /// Copies the chunks of the series of `run`, which share a page, in `range`.
    pub(super) fn copy_page(
        &self,
        files: &mut RecentFiles<'_>,
        run: &[u32],
        range: TimeRange,
        depth: SampleNeed,
    ) -> PageCopy {
        let mut page =
            PageCopy { chunks: Vec::with_capacity(run.len()), found: Vec::with_capacity(run.len()) };
        let chunks = &mut page.chunks;
        let stripe = self.state.series.lock(run[0]);
        for &id in run {
            let Some(record) = stripe.series(id) else { continue };
            match newest(&stripe, id, record, range).filter(|_| depth == SampleNeed::Newest) {
                Some(newest) => chunks.push(newest),
                None => copy_chunks(&stripe, files, id, record, range, chunks),
            }
            page.found.push((id, chunks.len() as u32));
        }
        page
    }

    /// Estimates the number of selected series, and their samples in the range from the average per series.
    /// Cost: postings; no series is read.
    ///
    /// # Errors
    /// As [`HeadReader::select`].
    pub fn estimate(&self, tenant: &TenantId, selector: &Selector<'_>) -> Result<ReadEstimate, QueryError> {
        let Some(tenant) = self.state.index.tenant(tenant) else { return Ok(ReadEstimate::default()) };
        let all_samples = tenant.windows.lock().sample_count(self.state.options.window_ms, selector.range);
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

#[cfg(all(test, not(loom)))]
mod tests;
