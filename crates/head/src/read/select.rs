//! Reads: selects series by matchers and copies their samples.
//!
//! Invariant: the index is locked shared while chunks and labels of one page of series are copied, so none of
//! them can leave meanwhile, and no thread waits for more than a page: neither writers that create series,
//! nor readers queued after them. Several threads may copy pages.
//! Not here: the sort by labels (`label_order`), copies of chunks (`copy`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use chronolith_base::Reservation;
use chronolith_model::index::select_refs;
use chronolith_model::labels::LabelsKey;
use chronolith_model::query::{Projection, ReadEstimate, SampleNeed};
use chronolith_model::{Labels, QueryError, ReadContext, Selector, SeriesRead, StoreId, TimeRange};

use crate::index::tables::{Groups, TenantIndex};
use crate::index::tenant::TenantHead;
use crate::read::copy::{CopiedChunks, RecentFiles};
use crate::read::label_order::{LABEL_BYTES, PairRows, order_by_labels};
use crate::read::samples::{HeadSamples, SelectedChunks};
use crate::series::page_runs;
use crate::state::HeadState;
use chronolith_base::sync::RwLockReadGuard;

/// Memory of a selected series without its labels and chunks.
const SERIES_BYTES: usize =
    size_of::<SeriesRead>() + size_of::<HeadSamples>() + size_of::<LabelledSeries>() + 16;
/// Series per thread that copies pages: copying them takes ten times as long as starting a thread.
const SERIES_PER_HELPER: usize = 2048;

/// Copy of the chunks of the series of a page.
pub(super) struct PageCopy {
    /// Grouped by series, oldest first.
    pub(super) copied: CopiedChunks,
    /// Series ids, each with the end of its chunks.
    pub(super) found: Vec<(u32, u32)>,
}

/// Reads of the head: series with their samples, label names and values.
pub struct HeadReader {
    pub(super) state: Arc<HeadState>,
}

/// A selection and what its pages have in common.
struct Selection<'a> {
    reader: &'a HeadReader,
    tenant: &'a TenantHead,
    selector: &'a Selector<'a>,
    ctx: &'a ReadContext,
    samples: SampleNeed,
    /// Labels that are needed; `None`: all.
    projection: Option<&'a Projection>,
    /// Series that had left when the ids were found.
    removed_before: u64,
}

/// A series of a page.
struct LabelledSeries {
    labels: Labels,
    /// Chunks of the series in the page.
    start: u32,
    end: u32,
}

/// The selected series of a page.
struct SelectedPage {
    chunks: Arc<SelectedChunks>,
    series: Vec<LabelledSeries>,
    rows: PairRows,
    /// Generation of the index to which the pairs belong.
    generation: u32,
    /// Memory of `rows` and of their sort.
    _memory: Reservation,
}

/// State of a thread that copies pages.
struct PageWorker<'a> {
    selection: &'a Selection<'a>,
    files: RecentFiles<'a>,
    groups: Option<Groups<'a>>,
    scratch: LabelsKey,
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
        store: &StoreId,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Vec<SeriesRead>, QueryError> {
        self.select_labels(store, selector, SampleNeed::All, None, ctx)
    }

    /// As [`HeadReader::select`], for callers that need only the newest sample of each series in the range.
    ///
    /// # Errors
    /// As [`HeadReader::select`].
    pub fn select_newest(
        &self,
        store: &StoreId,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Vec<SeriesRead>, QueryError> {
        self.select_labels(store, selector, SampleNeed::Newest, None, ctx)
    }

    /// As [`HeadReader::select`] or [`HeadReader::select_newest`], with the labels of `projection` alone.
    /// Series are in the order of all their labels.
    ///
    /// # Errors
    /// As [`HeadReader::select`].
    pub fn select_labels(
        &self,
        store: &StoreId,
        selector: &Selector<'_>,
        samples: SampleNeed,
        projection: Option<&Projection>,
        ctx: &ReadContext,
    ) -> Result<Vec<SeriesRead>, QueryError> {
        let Some(store) = self.state.index.tenant(store) else { return Ok(Vec::new()) };
        let store = &*store;
        let _ids = self.state.index.ids.use_ids();
        let tables = store.tables.read();
        let ids = select_refs(&*tables, selector.matchers)?;
        let removed_before = store.removed_count.load(Ordering::Relaxed);
        drop(tables);
        let selection =
            Selection { reader: self, tenant: store, selector, ctx, samples, projection, removed_before };
        let pages = selection.copy_pages(&ids)?;
        ctx.check()?;
        if let Some(order) = selection.order(&pages) {
            return Ok(self.in_order(pages, &order));
        }
        // The index was rebuilt meanwhile.
        let selection = Selection { projection: None, ..selection };
        let pages = if projection.is_some() { selection.copy_pages(&ids)? } else { pages };
        let mut series = self.in_order(pages, &[]);
        series.sort_by(|a, b| a.labels.cmp(&b.labels));
        if let Some(projection) = projection {
            series.iter_mut().for_each(|one| one.labels = one.labels.filtered(|name| projection.uses(name)));
        }
        Ok(series)
    }

    /// Copies the chunks of the series of `run`, which share a page, in `range`.
    pub(super) fn copy_page(
        &self,
        files: &mut RecentFiles<'_>,
        run: &[u32],
        range: TimeRange,
        depth: SampleNeed,
    ) -> PageCopy {
        let mut copied = CopiedChunks::with_capacity(run.len());
        let mut found = Vec::with_capacity(run.len());
        let stripe = self.state.series.lock(run[0]);
        for &id in run {
            let Some(record) = stripe.series(id) else { continue };
            if depth != SampleNeed::Newest || !copied.push_newest(&stripe, id, record, range) {
                copied.push_chunks(&stripe, files, id, record, range);
            }
            found.push((id, copied.chunks().len() as u32));
        }
        copied.finish(&stripe);
        PageCopy { copied, found }
    }

    /// Returns the series of `pages` in this order, or in their own if that is empty.
    fn in_order(&self, pages: Vec<SelectedPage>, order: &[u32]) -> Vec<SeriesRead> {
        let count = pages.iter().map(|page| page.series.len()).sum();
        let mut series = Vec::with_capacity(count);
        for page in pages {
            let chunks = page.chunks;
            series.extend(page.series.into_iter().map(|one| Some((one, chunks.clone()))));
        }
        let read = |(one, chunks): (LabelledSeries, Arc<SelectedChunks>)| SeriesRead {
            labels: one.labels,
            samples: Box::new(HeadSamples::new(chunks, one.start..one.end)),
        };
        if order.is_empty() {
            return series.into_iter().flatten().map(read).collect();
        }
        order.iter().filter_map(|&idx| series[idx as usize].take()).map(read).collect()
    }

    /// Estimates the number of selected series, and their samples in the range from the average per series.
    /// Cost: postings; no series is read.
    ///
    /// # Errors
    /// As [`HeadReader::select`].
    pub fn estimate(&self, store: &StoreId, selector: &Selector<'_>) -> Result<ReadEstimate, QueryError> {
        let Some(store) = self.state.index.tenant(store) else { return Ok(ReadEstimate::default()) };
        let all_samples =
            store.windows.lock().sample_count(self.state.series.window_width(store.unit), selector.range);
        let tables = store.tables.read();
        let all_series = tables.live_count() as u64;
        if selector.matchers.is_empty() {
            return Ok(ReadEstimate { series: all_series, samples: all_samples });
        }
        let series = select_refs(&*tables, selector.matchers)?.len() as u64;
        let samples = u128::from(all_samples) * u128::from(series) / u128::from(all_series.max(1));
        Ok(ReadEstimate { series, samples: u64::try_from(samples).unwrap_or(u64::MAX) })
    }
}

impl Selection<'_> {
    /// Copies the series `ids` page by page, by as many threads as the number of series is worth.
    fn copy_pages(&self, ids: &[u32]) -> Result<Vec<SelectedPage>, QueryError> {
        let runs: Vec<&[u32]> = page_runs(ids).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            let mut worker = PageWorker::new(self);
            let mut pages = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(run) = runs.get(at) else { return Ok(pages) };
                self.ctx.check()?;
                pages.push((at, worker.copy(run)?));
            }
        };
        let parts = self.ctx.run_in_parallel(ids.len() / SERIES_PER_HELPER, work);
        let parts: Vec<Vec<(usize, SelectedPage)>> = parts.into_iter().collect::<Result<_, QueryError>>()?;
        let mut pages: Vec<(usize, SelectedPage)> = parts.into_iter().flatten().collect();
        pages.sort_unstable_by_key(|(at, _)| *at);
        Ok(pages.into_iter().map(|(_, page)| page).collect())
    }

    /// Returns the indices of the series of `pages` by labels; `None` if the index was rebuilt.
    fn order(&self, pages: &[SelectedPage]) -> Option<Vec<u32>> {
        let Some(first) = pages.first() else { return Some(Vec::new()) };
        let is_same = pages.iter().all(|page| page.generation == first.generation);
        let rows = pages.iter().map(|page| &page.rows);
        is_same.then(|| order_by_labels(&self.tenant.tables, first.generation, rows))?
    }
}

impl<'a> PageWorker<'a> {
    fn new(selection: &'a Selection<'a>) -> PageWorker<'a> {
        PageWorker {
            selection,
            files: RecentFiles::new(&selection.reader.state.series.store),
            groups: selection.projection.map(Groups::new),
            scratch: LabelsKey::default(),
        }
    }

    /// Copies the series of `run`, which share a page.
    fn copy(&mut self, run: &[u32]) -> Result<SelectedPage, QueryError> {
        let Selection { reader, tenant, selector, ctx, samples, removed_before, .. } = *self.selection;
        let tables = tenant.tables.read();
        let has_removed = tenant.removed_count.load(Ordering::Relaxed) != removed_before;
        let in_use = tenant.texts.keep();
        let PageCopy { copied, found } = reader.copy_page(&mut self.files, run, selector.range, samples);
        let texts = tenant.texts.snapshot();
        drop(in_use);
        let mut memory = ctx.budget.reserve(copied.heap_bytes())?;
        if let Some(groups) = &mut self.groups {
            groups.begin_page(&tables);
        }
        let mut series = Vec::with_capacity(found.len());
        let mut rows = PairRows::default();
        let mut start = 0;
        let mut last_row = 0;
        for &(id, end) in &found {
            if start < end
                && let Some(row) = tables.row_from(&mut last_row, id)
                // The id may have been reused for another series.
                && (!has_removed || self.is_selected(&tables, row))
            {
                let labels = self.labels_of(&tables, row);
                series.push(LabelledSeries { labels, start, end });
                rows.push(tables.pairs_of_row(row));
            }
            start = end;
        }
        let generation = tables.generation();
        RwLockReadGuard::unlock_fair(tables);
        let bytes = |one: &LabelledSeries| one.labels.heap_bytes() + SERIES_BYTES;
        memory.grow(series.iter().map(bytes).sum::<usize>() as u64)?;
        let _memory = ctx.budget.reserve((rows.label_count() * LABEL_BYTES) as u64)?;
        let chunks = SelectedChunks::new(copied, texts, reader.state.env.disk.clone(), memory);
        Ok(SelectedPage { chunks, series, rows, generation, _memory })
    }

    fn is_selected(&mut self, tables: &TenantIndex, row: usize) -> bool {
        let labels = tables.labels_of_row(row, &mut self.scratch);
        self.selection.selector.matchers.iter().all(|matcher| matcher.matches_labels(&labels))
    }

    fn labels_of(&mut self, tables: &TenantIndex, row: usize) -> Labels {
        match &mut self.groups {
            None => tables.labels_of_row(row, &mut self.scratch),
            Some(groups) => {
                let group = groups.group_of(tables, row);
                groups.labels(group).clone()
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
