//! One of sixteen stripes of series: series records in pages, open chunks, the out-of-order log, reorder
//! buffers, references to sealed chunks; start timestamps of open chunks in side storage for the series
//! that have some.
//!
//! Invariants: a chunk lies within one window; in-order chunks of a series do not overlap; no sample of a
//! series is newer than the last one in its series record, but for those in its reorder buffer; runs of
//! 1024 consecutive ids share a stripe, so a batch takes few locks.
//! Not here: the series record (`record`), appends (`append`), sealing and deletion (`seal`), locking, the
//! WAL (`write`), labels of series (`index`).

use chronolith_base::Disk;
use chronolith_base::hash::HashMap;
use chronolith_format::chunk::starts::StartRun;
use chronolith_format::chunk::xor::EncodedChunk;
use chronolith_model::{Columns, DuplicatePolicy, QueryError, TimeRange};

use super::decoded::{DecodedChunk, UNLIMITED};
use super::histograms::{HistogramBudget, OpenHistograms};
use super::idle::ActivityBits;
use super::layout::{NONE, PAGE_SLOTS, STRIPE_COUNT, slot_of};
use super::ooo_log::OooLog;
use super::record::{Scratch, SeriesState};
use super::reorder_buffers::ReorderBuffers;
use super::starts::OpenStarts;
use crate::memory_part::MemoryPart;
use crate::series::chunk_buffer::{BufferCopy, ChunkBuffers};
use crate::series::sealed::SealedStore;
use crate::series::sealed_chunks::{SealedChunk, SealedChunks};
use crate::series::windows::WindowTally;

pub(super) struct Page {
    slots: [SeriesState; PAGE_SLOTS],
    live_count: u32,
    activity: ActivityBits,
}

impl Page {
    /// Returns the record of a slot if that has a series of `tenant`; records that a sample was offered to
    /// it.
    pub(super) fn offered(&mut self, slot: usize, tenant: u32) -> Option<&mut SeriesState> {
        let series = &mut self.slots[slot];
        if series.tenant != tenant {
            return None;
        }
        self.activity.touch(slot);
        Some(series)
    }
}

impl Page {
    /// Returns a page without series.
    // PERF: inlined into `Stripe::create`, its stack frame of a whole page is probed for each series: 57 ns.
    #[cold]
    #[inline(never)]
    fn empty() -> Box<Page> {
        Box::new(Page {
            slots: [const { SeriesState::EMPTY }; PAGE_SLOTS],
            live_count: 0,
            activity: ActivityBits::default(),
        })
    }
}

/// Series of one stripe, guarded by one lock.
pub(crate) struct Stripe {
    /// Eight bytes per 1024 ids, up to the highest page in use.
    pub(super) pages: Vec<Option<Box<Page>>>,
    /// Pages in use.
    page_count: usize,
    pub(super) chunk_buffers: ChunkBuffers,
    sealed_chunks: SealedChunks,
    pub(super) ooo: OooLog,
    pub(super) reorder_buffers: ReorderBuffers,
    pub(super) histograms: OpenHistograms,
    pub(super) starts: OpenStarts,
    pub(super) decoded: DecodedChunk,
    /// Number of running appends per series that continue after they released the lock.
    pinned: HashMap<u32, u32>,
    /// Out-of-order samples that were sealed.
    ooo_sealed_count: u64,
    pub(super) scratch: Scratch,
}

/// Parameters of changes to a stripe, and the samples counted by window so far.
pub(crate) struct AppendContext<'a> {
    store: &'a SealedStore,
    disk: &'a dyn Disk,
    histograms: &'a HistogramBudget,
    /// Width of the narrowest windows of any tenant; the widths of all tenants are multiples of it.
    narrowest_width: i64,
    /// Applies to a second value at a timestamp.
    pub(crate) duplicates: DuplicatePolicy,
    /// Chunks that may still be decoded to compare out-of-order samples with stored ones; many chunks that
    /// are only visited count as one.
    pub(crate) lookups_left: u32,
    /// Changes of the sample count, to be added to the windows of the tenant.
    pub(crate) windows: WindowTally,
}

impl<'a> AppendContext<'a> {
    /// Returns a context with unlimited lookups and without counts; `duplicates` applies to a second value at
    /// a timestamp. Windows are `width` wide, in the unit of the tenant.
    pub(crate) fn new(
        store: &'a SealedStore,
        disk: &'a dyn Disk,
        histograms: &'a HistogramBudget,
        width: i64,
        duplicates: DuplicatePolicy,
    ) -> AppendContext<'a> {
        let windows = WindowTally::new(width);
        let narrowest_width = width;
        AppendContext {
            store,
            disk,
            histograms,
            narrowest_width,
            duplicates,
            lookups_left: UNLIMITED,
            windows,
        }
    }

    /// Sets the width of the narrowest windows of any tenant.
    pub(crate) fn with_narrowest_width(self, narrowest_width: i64) -> Self {
        AppendContext { narrowest_width, ..self }
    }

    /// Goes on with samples of a tenant with windows of `width`; the samples so far have been counted.
    pub(crate) fn set_width(&mut self, width: i64) {
        self.windows = WindowTally::new(width);
    }

    pub(crate) fn store(&self) -> &'a SealedStore {
        self.store
    }

    #[cfg(test)]
    pub(crate) fn disk(&self) -> &'a dyn Disk {
        self.disk
    }

    /// Returns the budget of all stripes for open and out-of-order histograms.
    pub(super) fn histograms(&self) -> &'a HistogramBudget {
        self.histograms
    }

    /// Returns the window of a timestamp.
    pub(crate) fn window_of(&self, time: i64) -> TimeRange {
        self.windows.window_of(time)
    }

    /// Returns a range around a timestamp that lies in one window, whatever the unit of its tenant is.
    pub(super) fn window_of_any_tenant(&self, time: i64) -> TimeRange {
        TimeRange::window_of(time, self.narrowest_width)
    }

    /// Appends all samples of a sealed chunk to `out`; appends nothing if it cannot be read.
    ///
    /// # Errors
    /// As [`SealedStore::decode`].
    pub(crate) fn decode(&self, node: &SealedChunk, out: &mut Columns) -> Result<(), QueryError> {
        self.store.decode(self.disk, node, TimeRange::ALL, out)
    }

    /// Returns a copy of a sealed chunk.
    ///
    /// # Errors
    /// As [`SealedStore::copy`].
    pub(super) fn copy_sealed(&self, node: &SealedChunk) -> Result<EncodedChunk, QueryError> {
        self.store.copy(self.disk, node)
    }

    /// Limits the chunks that may be decoded to compare out-of-order samples with stored ones.
    pub(crate) fn with_lookups(self, lookups_left: u32) -> Self {
        AppendContext { lookups_left, ..self }
    }
}

impl Stripe {
    pub(crate) fn new() -> Stripe {
        Stripe {
            pages: Vec::new(),
            page_count: 0,
            chunk_buffers: ChunkBuffers::new(),
            sealed_chunks: SealedChunks::new(),
            ooo: OooLog::default(),
            reorder_buffers: ReorderBuffers::default(),
            histograms: OpenHistograms::default(),
            starts: OpenStarts::default(),
            decoded: DecodedChunk::default(),
            pinned: HashMap::default(),
            ooo_sealed_count: 0,
            scratch: Scratch::default(),
        }
    }

    /// Creates the series `id` of `tenant`, without samples.
    pub(crate) fn create(&mut self, id: u32, tenant: u32) {
        let (page, slot) = slot_of(id);
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        let page_count = &mut self.page_count;
        let page = self.pages[page].get_or_insert_with(|| {
            *page_count += 1;
            Page::empty()
        });
        assert_eq!(page.slots[slot].tenant, NONE, "an id has one series");
        page.slots[slot].tenant = tenant;
        page.live_count += 1;
        page.activity.touch(slot);
    }

    /// Removes a series that has no chunk.
    pub(crate) fn remove(&mut self, id: u32) {
        let (page_idx, slot) = slot_of(id);
        let Some(Some(page)) = self.pages.get_mut(page_idx) else { return };
        let is_empty = page.slots[slot].has_no_chunk()
            && self.histograms.get(id).is_none()
            && !self.reorder_buffers.has(id);
        assert!(is_empty, "chunks are removed before their series");
        page.slots[slot] = SeriesState::EMPTY;
        page.live_count -= 1;
        self.starts.take(id);
        // The id may be given to another series.
        self.decoded.clear();
        if page.live_count == 0 {
            self.pages[page_idx] = None;
            self.page_count -= 1;
            while self.pages.last().is_some_and(Option::is_none) {
                self.pages.pop();
            }
        }
    }

    /// Returns the highest id of a series of this stripe, whose index is `stripe`.
    pub(crate) fn last_id(&self, stripe: usize) -> Option<u32> {
        let page = self.pages.iter().rposition(Option::is_some)?;
        let slot = self.pages[page].as_ref()?.slots.iter().rposition(|series| series.tenant != NONE)?;
        Some(((page * STRIPE_COUNT + stripe) * PAGE_SLOTS + slot) as u32)
    }

    /// Returns true if page `page` of this stripe has a series.
    pub(crate) fn has_page(&self, page: usize) -> bool {
        self.pages.get(page).is_some_and(Option::is_some)
    }

    /// Returns the series record of a live series.
    pub(crate) fn series(&self, id: u32) -> Option<&SeriesState> {
        let (page, slot) = slot_of(id);
        let series = self.pages.get(page)?.as_ref()?.slots.get(slot)?;
        (series.tenant != NONE).then_some(series)
    }

    /// Returns true if the stripe has a series of `tenant` under this id.
    pub(crate) fn is_of_tenant(&self, id: u32, tenant: u32) -> bool {
        self.series(id).is_some_and(|series| series.tenant == tenant)
    }

    pub(crate) fn series_mut(&mut self, id: u32) -> Option<&mut SeriesState> {
        let (page, slot) = slot_of(id);
        let series = self.pages.get_mut(page)?.as_mut()?.slots.get_mut(slot)?;
        (series.tenant != NONE).then_some(series)
    }

    /// Calls `change` with the record of a live series, and with what a change of its open chunk of words
    /// needs.
    pub(crate) fn with_open_words<R>(
        &mut self,
        id: u32,
        change: impl FnOnce(&mut SeriesState, &mut ChunkBuffers, &mut Scratch) -> R,
    ) -> Option<R> {
        let (page, slot) = slot_of(id);
        let series = self.pages.get_mut(page)?.as_mut()?.slots.get_mut(slot)?;
        (series.tenant != NONE).then(|| change(series, &mut self.chunk_buffers, &mut self.scratch))
    }

    /// Returns the sealed chunks of a series, the newest first.
    pub(crate) fn sealed_of(&self, series: &SeriesState) -> impl Iterator<Item = &SealedChunk> {
        self.sealed_chunks.list(series.sealed)
    }

    /// Adds a sealed chunk to a series.
    pub(crate) fn link_sealed(&mut self, id: u32, node: SealedChunk) {
        let (page, slot) = slot_of(id);
        let Some(Some(page)) = self.pages.get_mut(page) else { return };
        let series = &mut page.slots[slot];
        if series.tenant != NONE {
            series.sealed = self.sealed_chunks.push(node, series.sealed);
        }
    }

    /// Removes the sealed chunks for which `is_gone` returns true from a series.
    pub(super) fn remove_sealed(&mut self, id: u32, is_gone: impl FnMut(&SealedChunk) -> bool) {
        let (page, slot) = slot_of(id);
        let Some(Some(page)) = self.pages.get_mut(page) else { return };
        let series = &mut page.slots[slot];
        series.sealed = self.sealed_chunks.remove(series.sealed, is_gone);
    }

    /// Returns true if the series, which exists, has no samples here.
    pub(crate) fn is_empty(&self, id: u32) -> bool {
        self.series(id).is_none_or(SeriesState::has_no_chunk)
            && self.histograms.get(id).is_none()
            && !self.reorder_buffers.has(id)
    }

    /// Returns true if a series has samples in the out-of-order log or in a reorder buffer.
    pub(crate) fn has_out_of_order(&self, id: u32, series: &SeriesState) -> bool {
        series.has_out_of_order() || self.reorder_buffers.has(id)
    }

    /// Returns true if a series has samples in a reorder buffer.
    pub(crate) fn has_buffered(&self, id: u32) -> bool {
        self.reorder_buffers.has(id)
    }

    /// Returns true if any series has samples in a reorder buffer.
    #[inline]
    pub(crate) fn has_reorder_buffers(&self) -> bool {
        !self.reorder_buffers.is_empty()
    }

    /// Returns true if a series has a sample, in a chunk or in the log, that may lie in `range`.
    pub(crate) fn overlaps(&self, id: u32, range: TimeRange) -> bool {
        let Some(series) = self.series(id) else { return false };
        self.open_times(id).is_some_and(|(first, last)| range.overlaps_inclusive(first, last))
            || self.ooo.times(series.ooo).any(|time| range.contains(time))
            || self.reorder_buffers.samples(id).any(|one| range.contains(one.time()))
            || self.sealed_of(series).any(|node| range.overlaps_inclusive(node.min_time(), node.max_time()))
    }

    /// Returns the timestamps of the first and the last sample of the open chunk of a series, of any kind.
    pub(super) fn open_times(&self, id: u32) -> Option<(i64, i64)> {
        self.open_chunk(id).map(|open| (open.min_time(), open.max_time()))
    }

    /// Returns the timestamp of the newest sample of a series.
    pub(crate) fn newest_time(&self, id: u32) -> Option<i64> {
        let in_chunks = self.series(id).filter(|series| series.has_sample()).map(SeriesState::newest_time);
        in_chunks.max(self.reorder_buffers.newest_time(id))
    }

    pub(super) fn touch(&mut self, id: u32) {
        let (page, slot) = slot_of(id);
        if let Some(Some(page)) = self.pages.get_mut(page) {
            page.activity.touch(slot);
        }
    }

    /// Returns true if any open chunk of the stripe has start timestamps.
    pub(crate) fn has_open_starts(&self) -> bool {
        !self.starts.is_empty()
    }

    /// Copies open chunks of words, each to its part of `out`.
    pub(crate) fn copy_buffers(&self, copies: &[BufferCopy], out: &mut [u8]) {
        self.chunk_buffers.copy_many(copies, out);
    }

    /// Returns the start timestamps of the open chunk of a series; empty if it has none.
    pub(crate) fn open_starts(&self, id: u32) -> &[StartRun] {
        self.starts.of(id)
    }

    /// Sets the start timestamps of the open chunk of a series, which is restored already.
    pub(crate) fn restore_open_starts(&mut self, id: u32, runs: &[StartRun]) {
        self.starts.restore(id, runs);
    }

    /// Keeps the series in the stripe until [`Stripe::unpin`], with or without samples: an append that
    /// releases the lock has more samples for it.
    pub(crate) fn pin(&mut self, id: u32) {
        *self.pinned.entry(id).or_insert(0) += 1;
    }

    /// Reverts one [`Stripe::pin`].
    pub(crate) fn unpin(&mut self, id: u32) {
        if let Some(count) = self.pinned.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                self.pinned.remove(&id);
            }
        }
    }

    pub(crate) fn is_pinned(&self, id: u32) -> bool {
        !self.pinned.is_empty() && self.pinned.contains_key(&id)
    }

    /// Counts out-of-order samples that are sealed.
    pub(super) fn count_ooo_sealed(&mut self, count: usize) {
        self.ooo_sealed_count += count as u64;
    }

    /// Number of out-of-order samples that were sealed.
    pub(crate) fn ooo_sealed_count(&self) -> u64 {
        self.ooo_sealed_count
    }

    /// Number of live series.
    pub(crate) fn series_count(&self) -> u64 {
        self.pages.iter().flatten().map(|page| u64::from(page.live_count)).sum()
    }

    /// Number of chunks: open, out-of-order, sealed. The out-of-order samples of a series count as one.
    pub(crate) fn chunk_count(&self) -> u64 {
        self.chunk_buffers.count()
            + self.ooo.list_count()
            + self.sealed_chunks.count()
            + self.histograms.count()
    }

    /// As [`Stripe::chunk_count`], of one series.
    pub(crate) fn chunk_count_of(&self, id: u32) -> u64 {
        let Some(series) = self.series(id) else { return 0 };
        let other_count = u64::from(self.open_chunk(id).is_some()) + u64::from(!series.ooo.is_empty());
        self.sealed_of(series).count() as u64 + other_count
    }

    /// Memory of series states, open chunks, out-of-order samples, reorder buffers, references to sealed
    /// chunks, histograms, start times.
    pub(crate) fn memory(&self) -> [MemoryPart; 7] {
        let pages = self.page_count * size_of::<Page>();
        let records = (pages + self.pages.capacity() * size_of::<Option<Box<Page>>>()) as u64;
        [
            MemoryPart::new("hot_records", records, self.series_count()),
            MemoryPart::new("open_chunks", self.chunk_buffers.heap_bytes(), self.chunk_buffers.count()),
            MemoryPart::new("ooo_buffers", self.ooo.heap_bytes(), self.ooo.list_count()),
            self.reorder_buffers.memory(),
            MemoryPart::new("sealed_chunk_refs", self.sealed_chunks.heap_bytes(), self.sealed_chunks.count()),
            self.histograms.memory(self.ooo.histogram_bytes()),
            self.starts.memory(),
        ]
    }

    /// Appends the ids of the live series of page `page` of stripe `stripe` to `out`; `None` after the last
    /// page.
    pub(crate) fn page_ids(&self, stripe: usize, page: usize, out: &mut Vec<u32>) -> Option<()> {
        let slots = self.pages.get(page)?;
        let base = (page * STRIPE_COUNT + stripe) * PAGE_SLOTS;
        let live = slots.iter().flat_map(|p| p.slots.iter().enumerate()).filter(|(_, h)| h.tenant != NONE);
        out.extend(live.map(|(slot, _)| (base + slot) as u32));
        Some(())
    }

    /// Returns true if no sample was offered to the series in this generation and the one before.
    pub(crate) fn is_idle(&self, id: u32) -> bool {
        let (page_idx, slot) = slot_of(id);
        let Some(Some(page)) = self.pages.get(page_idx) else { return false };
        page.slots[slot].tenant != NONE && page.activity.is_idle(slot)
    }

    /// Calls `visit` with tenant and slot of each idle series of page `page_idx` and ends the generation of
    /// the page; `None` after the last page.
    pub(crate) fn age_page(&mut self, page_idx: usize, mut visit: impl FnMut(u32, usize)) -> Option<()> {
        if let Some(page) = self.pages.get_mut(page_idx)? {
            for (slot, series) in page.slots.iter().enumerate() {
                if page.activity.is_idle(slot) && series.tenant != NONE {
                    visit(series.tenant, slot);
                }
            }
            page.activity.end_generation();
        }
        Some(())
    }
}
