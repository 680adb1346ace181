//! Selection for `count` and `group`: reads only the grouping labels, and only timestamps and staleness of
//! samples.
//!
//! Invariants: as in `select`, each series is read at one point in time during the call, and no lock is held
//! for more than a page of series. Labels are built only for groups and for the first series of each; series
//! are not sorted.
//! Not here: the order of the result (`model::query`).

use std::sync::Arc;

use chronolith_base::Reservation;
use chronolith_model::index::select_refs;
use chronolith_model::query::{PresenceHints, SERIES_PER_BATCH_MAX, SampleNeed, VecBatches};
use chronolith_model::sample::is_stale;
use chronolith_model::{
    Columns, Labels, QueryError, ReadContext, SampleSource, Selector, SeriesBatches, SeriesRead, StoreId,
    TimeRange,
};

use crate::index::tables::{Groups, LeastRows};
use crate::index::tenant::TenantHead;
use crate::read::copy::RecentFiles;
use crate::read::label_order::counting_sort;
use crate::read::samples::{HeadSamples, SelectedChunks};
use crate::read::select::HeadReader;
use crate::read::select::PageCopy;
use crate::read::source::HeadChunk;
use crate::series::page_runs;
use chronolith_base::sync::RwLockReadGuard;

/// A selected series.
#[derive(Clone, Copy)]
struct Entry {
    group: u32,
    /// Index of the page that has its chunks, and their range in it.
    page: u32,
    start: u32,
    end: u32,
}

/// Memory of an entry, of its copy in order, and of the sort.
const ENTRY_BYTES: usize = 2 * size_of::<Entry>() + 8;

/// State of the selection.
struct Selection<'a> {
    groups: Groups<'a>,
    hints: &'a PresenceHints<'a>,
    range: TimeRange,
    entries: Vec<Entry>,
    pages: Vec<Arc<SelectedChunks>>,
    columns: Columns,
}

impl HeadReader {
    /// As [`HeadReader::select`], for the reads that [`PresenceHints`] describes.
    ///
    /// # Errors
    /// As [`HeadReader::select`].
    pub fn select_presence(
        &self,
        store: &StoreId,
        selector: &Selector<'_>,
        hints: &PresenceHints<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        let Some(store) = self.state.index.tenant(store) else {
            return Ok(Box::new(VecBatches::new(Vec::new())));
        };
        let _ids = self.state.index.ids.use_ids();
        let ids = select_refs(&*store.tables.read(), selector.matchers)?;
        let mut memory = ctx.budget.reserve((ids.len() * ENTRY_BYTES) as u64)?;
        let mut selection = Selection {
            groups: Groups::new(hints.projection),
            hints,
            range: selector.range,
            entries: Vec::with_capacity(ids.len()),
            pages: Vec::new(),
            columns: Columns::default(),
        };
        let mut files = RecentFiles::new(&self.state.series.store);
        for run in page_runs(&ids) {
            ctx.check()?;
            let PageCopy { copied, found } = self.copy_page(&mut files, run, selector.range, hints.samples);
            let reserved = ctx.budget.reserve(copied.heap_bytes())?;
            let disk = self.state.env.disk.clone();
            selection.pages.push(SelectedChunks::new(copied, None, disk, reserved));
            selection.add_page(&store, &found)?;
        }
        ctx.check()?;
        let batches = selection.finish();
        memory.grow(batches.labels.iter().map(|labels| labels.heap_bytes() as u64).sum())?;
        Ok(Box::new(PresenceBatches { _memory: Some(memory), ..batches }))
    }
}

impl Selection<'_> {
    /// Adds the series of the last page, given by id and end of their chunks.
    fn add_page(&mut self, tenant: &TenantHead, found: &[(u32, u32)]) -> Result<(), QueryError> {
        let page = self.pages.len() - 1;
        let orders_groups = self.hints.samples == SampleNeed::Newest && !self.hints.projection.is_empty();
        let mut absent = Vec::new();
        if orders_groups {
            let mut start = 0;
            for &(_, end) in found {
                absent.push(!self.is_present(page, start, end)?);
                start = end;
            }
        }
        let tables = tenant.tables.read();
        self.groups.begin_page(&tables);
        let (mut least, mut last_row, mut start) = (LeastRows::default(), 0, 0);
        for (idx, &(id, end)) in found.iter().enumerate() {
            if start < end
                && let Some(row) = tables.row_from(&mut last_row, id)
            {
                let group = self.groups.group_of(&tables, row);
                if orders_groups && !absent[idx] {
                    least.note(&tables, group, row);
                }
                self.entries.push(Entry { group, page: page as u32, start, end });
            }
            start = end;
        }
        self.groups.note_least(&tables, least);
        RwLockReadGuard::unlock_fair(tables);
        Ok(())
    }

    /// Returns true if a series has a newest sample that is not a staleness marker.
    fn is_present(&mut self, page: usize, start: u32, end: u32) -> Result<bool, QueryError> {
        let selected = &self.pages[page];
        match selected.chunks(&(start..end)) {
            [] => Ok(false),
            [HeadChunk::Newest { value, .. }] => Ok(!is_stale(*value)),
            _ => {
                let samples = HeadSamples::new(selected.clone(), start..end);
                self.columns.clear();
                samples.read(self.range, &mut self.columns)?;
                Ok(self.columns.values.last().is_some_and(|&value| !is_stale(value)))
            }
        }
    }

    fn finish(mut self) -> PresenceBatches {
        let (labels, order) = self.groups.finish();
        if labels.len() > 1 {
            let mut ranks = vec![0; order.len()];
            for (rank, &group) in order.iter().enumerate() {
                ranks[group as usize] = rank as u32;
            }
            let arrival: Vec<u32> = (0..self.entries.len() as u32).collect();
            let mut sorted = vec![0; arrival.len()];
            let rank = |entry: u32| ranks[self.entries[entry as usize].group as usize];
            counting_sort(&arrival, rank, order.len(), &mut sorted);
            self.entries = sorted.into_iter().map(|entry| self.entries[entry as usize]).collect();
        }
        PresenceBatches { labels, pages: self.pages, entries: self.entries.into_iter(), _memory: None }
    }
}

/// Selected series, built on demand.
struct PresenceBatches {
    /// Labels of each group.
    labels: Vec<Labels>,
    pages: Vec<Arc<SelectedChunks>>,
    entries: std::vec::IntoIter<Entry>,
    _memory: Option<Reservation>,
}

impl SeriesBatches for PresenceBatches {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        for Entry { group, page, start, end } in self.entries.by_ref().take(SERIES_PER_BATCH_MAX) {
            let selected = self.pages[page as usize].clone();
            let samples = Box::new(HeadSamples::new(selected, start..end));
            out.push(SeriesRead { labels: self.labels[group as usize].clone(), samples });
        }
        Ok(self.entries.len() > 0)
    }
}
