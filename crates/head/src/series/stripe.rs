//! One of sixteen stripes of series: hot records in pages, open chunks, out-of-order samples and references
//! to sealed chunks; native histograms and start times in side storage for the series that have some.
//!
//! Invariants: a chunk lies within one window; chunks of a series do not overlap; if a chunk and the
//! out-of-order buffer have the same timestamp, the buffered sample wins (it has replaced the other); runs of
//! 1024 consecutive ids share a stripe, so a batch takes few locks.
//! Not here: locking, the WAL (`write`), labels of series (`index`).

mod by_time;
mod erase;
mod histograms;
mod idle;
mod merge_range;
mod ooo_buffer;
mod ooo_samples;
mod out_of_order;
mod seal;
mod sealed_chunks;
mod starts;
mod timestamp_cache;

use chronolith_base::Disk;
use chronolith_base::hash::HashMap;
use chronolith_format::chunk::xor::{SAMPLES_PER_CHUNK, XorState};
use chronolith_model::{DuplicatePolicy, TimeRange};

use by_time::SealedByTime;
use histograms::Histograms;
pub(crate) use histograms::{HistogramBudget, HistogramParts, SealedHistogramChunk};
use idle::ActivityBits;
pub(crate) use ooo_buffer::OooBuffers;
pub(crate) use ooo_samples::{OooSample, SampleValue};
use out_of_order::Decoded;
pub(crate) use sealed_chunks::{SealedChunk, SealedChunks};
pub(crate) use starts::START_RUNS_MAX;
use starts::Starts;
use timestamp_cache::{Gap, SeriesWindow, TimestampCache};

use crate::memory_part::MemoryPart;
use crate::series::chunk_buffer::{ChunkBuffer, ChunkBuffers};
use crate::series::decide::AppendOutcome;
use crate::series::sealed::SealedStore;
use crate::series::windows::WindowTally;

/// Number of stripes; each has its own lock.
pub(crate) const STRIPE_COUNT: usize = 16;
/// Consecutive ids per page.
pub(crate) const PAGE_SLOTS: usize = 1024;
/// No list, no out-of-order buffer, no tenant.
pub(crate) const NONE: u32 = u32::MAX;

/// Returns the stripe of a series.
pub(crate) fn stripe_of(id: u32) -> usize {
    (id as usize / PAGE_SLOTS) % STRIPE_COUNT
}

fn slot_of(id: u32) -> (usize, usize) {
    (id as usize / PAGE_SLOTS / STRIPE_COUNT, id as usize % PAGE_SLOTS)
}

/// Hot record of a series: all that an in-order append touches, in one cache line.
#[derive(Clone)]
pub(crate) struct SeriesState {
    /// The open chunk; after sealing, the last sample.
    pub(crate) xor: XorState,
    /// Timestamp of the first sample of the open chunk.
    pub(crate) open_min: i64,
    /// End of the window of the open chunk; the lowest timestamp while the series has histograms.
    pub(crate) window_end: i64,
    /// Bytes of the open chunk; none between sealing and the next sample.
    pub(crate) open: ChunkBuffer,
    /// Slot of the newest sealed chunk.
    pub(crate) sealed: u32,
    /// Out-of-order buffer.
    pub(crate) ooo: u32,
    /// Index of the tenant; [`NONE`] for a free slot.
    pub(crate) tenant: u32,
}

const _: () = assert!(size_of::<SeriesState>() <= 64, "a hot record is one cache line");

impl SeriesState {
    const EMPTY: SeriesState = SeriesState {
        xor: XorState::new(),
        open_min: 0,
        window_end: 0,
        open: ChunkBuffer::NONE,
        sealed: NONE,
        ooo: NONE,
        tenant: NONE,
    };

    /// Returns true if no float of the series is stored here.
    fn has_no_chunk(&self) -> bool {
        self.open.is_none() && self.sealed == NONE && self.ooo == NONE
    }
}

struct Page {
    slots: [SeriesState; PAGE_SLOTS],
    live_count: u32,
    activity: ActivityBits,
}

/// Series of one stripe, guarded by one lock.
pub(crate) struct Stripe {
    /// Eight bytes per 1024 ids, up to the highest page in use.
    pages: Vec<Option<Box<Page>>>,
    /// Pages in use.
    page_count: usize,
    pub(crate) chunk_buffers: ChunkBuffers,
    pub(crate) sealed_chunks: SealedChunks,
    pub(crate) ooo: OooBuffers,
    histograms: Histograms,
    starts: Starts,
    timestamps: TimestampCache,
    decoded: Decoded,
    by_time: SealedByTime,
    /// Series whose out-of-order buffer is full; the current holder of the lock merges them.
    full_buffers: Vec<u32>,
    /// Number of running appends per series that continue after they released the lock.
    pinned: HashMap<u32, u32>,
    /// Samples that were encoded to merge out-of-order ones into chunks.
    pub(crate) merged_count: u64,
    /// Set if a series was removed since the last one was created.
    has_removed: bool,
    /// Scratch copy of an open chunk.
    chunk: Vec<u8>,
}

/// Parameters of changes to a stripe, and the samples counted by window so far.
pub(crate) struct AppendContext<'a> {
    pub(crate) store: &'a SealedStore,
    pub(crate) disk: &'a dyn Disk,
    pub(crate) histograms: &'a HistogramBudget,
    pub(crate) window_ms: i64,
    /// Applies to a second value at a timestamp.
    pub(crate) duplicates: DuplicatePolicy,
    /// Changes of the sample count, to be added to the windows of the tenant.
    pub(crate) windows: WindowTally,
}

/// Returns true if `time` is more than 1.5 steps after the last sample: timestamps in between may be unused.
fn is_gap(state: &XorState, time: i64) -> bool {
    let step = state.step_ms();
    step > 0 && time.wrapping_sub(state.time()) > step + step / 2
}

/// Returns true if the last step was more than 1.5 times as long as the one to `time`: the last step may have
/// been a gap. This finds the second of two equal gaps, and a gap after the first sample of a chunk, one
/// sample late.
fn ends_gap(state: &XorState, time: i64) -> bool {
    let distance = time.wrapping_sub(state.time());
    state.step_ms() > distance.saturating_add(distance / 2)
}

impl Stripe {
    pub(crate) fn new() -> Stripe {
        Stripe {
            pages: Vec::new(),
            page_count: 0,
            chunk_buffers: ChunkBuffers::new(),
            sealed_chunks: SealedChunks::new(),
            ooo: OooBuffers::new(),
            histograms: Histograms::default(),
            starts: Starts::default(),
            timestamps: TimestampCache::default(),
            decoded: Decoded::default(),
            by_time: SealedByTime::default(),
            full_buffers: Vec::new(),
            pinned: HashMap::default(),
            merged_count: 0,
            has_removed: false,
            chunk: Vec::new(),
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
            Box::new(Page {
                slots: [const { SeriesState::EMPTY }; PAGE_SLOTS],
                live_count: 0,
                activity: ActivityBits::default(),
            })
        });
        assert_eq!(page.slots[slot].tenant, NONE, "an id has one series");
        if std::mem::take(&mut self.has_removed) {
            // The id may have belonged to another series.
            self.timestamps.clear();
        }
        page.slots[slot].tenant = tenant;
        page.live_count += 1;
        page.activity.touch(slot);
    }

    /// Removes a series that has no chunk.
    pub(crate) fn remove(&mut self, id: u32) {
        let (page_idx, slot) = slot_of(id);
        let Some(Some(page)) = self.pages.get_mut(page_idx) else { return };
        let is_empty = page.slots[slot].has_no_chunk() && self.histograms.get(id).is_none();
        assert!(is_empty, "chunks are removed before their series");
        page.slots[slot] = SeriesState::EMPTY;
        page.live_count -= 1;
        self.by_time.forget(id);
        self.starts.remove(id);
        self.has_removed = true;
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

    /// Returns the hot record of a live series.
    pub(crate) fn series(&self, id: u32) -> Option<&SeriesState> {
        let (page, slot) = slot_of(id);
        let series = self.pages.get(page)?.as_ref()?.slots.get(slot)?;
        (series.tenant != NONE).then_some(series)
    }

    pub(crate) fn series_mut(&mut self, id: u32) -> Option<&mut SeriesState> {
        let (page, slot) = slot_of(id);
        let series = self.pages.get_mut(page)?.as_mut()?.slots.get_mut(slot)?;
        (series.tenant != NONE).then_some(series)
    }

    /// Appends the bytes of the open chunk to `out`; none if there is no open chunk.
    pub(crate) fn copy_open(&self, series: &SeriesState, out: &mut Vec<u8>) {
        self.chunk_buffers.copy(series.open, &series.xor, out);
    }

    /// Appends one sample to series `id`, and merges its out-of-order buffer into chunks if that is full.
    pub(crate) fn append(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        time: i64,
        value_bits: u64,
    ) -> AppendOutcome {
        let outcome = self.append_unmerged(cx, id, time, value_bits);
        if !self.full_buffers.is_empty() {
            self.merge_full_buffers(cx);
        }
        outcome
    }

    /// As [`Stripe::append`], but leaves full buffers to the caller (see [`Stripe::take_full_buffers`]).
    pub(crate) fn append_unmerged(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        time: i64,
        value_bits: u64,
    ) -> AppendOutcome {
        match self.append_in_order(cx, id, time, value_bits) {
            AppendOutcome::NotNewest => self.append_out_of_order(cx, id, time, value_bits),
            outcome => outcome,
        }
    }

    /// As [`Stripe::append`] for a sample that is newer than the newest one of its series; returns
    /// [`AppendOutcome::NotNewest`] for others, which need [`Stripe::append_out_of_order`].
    pub(crate) fn append_in_order(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        time: i64,
        value_bits: u64,
    ) -> AppendOutcome {
        let (page, slot) = slot_of(id);
        let Some(Some(page)) = self.pages.get_mut(page) else { return AppendOutcome::SeriesGone };
        page.activity.touch(slot);
        let series = &mut page.slots[slot];
        if series.open.is_none() || time <= series.xor.time() || time >= series.window_end {
            return self.append_to_new_chunk(cx, id, time, value_bits);
        }
        if is_gap(&series.xor, time) {
            let range = TimeRange { start: series.window_end - cx.window_ms, end: series.window_end };
            let (step_ms, after) = (series.xor.step_ms(), series.xor.time());
            self.timestamps.note_gap(Gap {
                window: SeriesWindow { id, range },
                step_ms,
                after,
                before: time,
            });
        } else if ends_gap(&series.xor, time) {
            let range = TimeRange { start: series.window_end - cx.window_ms, end: series.window_end };
            let (step_ms, before) = (time - series.xor.time(), series.xor.time());
            let after = before - series.xor.step_ms();
            // Buffered samples may lie in the gap already.
            if self.ooo.is_before(series.ooo, after) {
                self.timestamps.note_gap(Gap { window: SeriesWindow { id, range }, step_ms, after, before });
            }
        }
        series.open =
            self.chunk_buffers.append(series.open, &mut series.xor, time, f64::from_bits(value_bits));
        cx.windows.add(time, 1);
        if usize::from(series.xor.count()) >= SAMPLES_PER_CHUNK {
            self.seal_open(cx, id);
        }
        AppendOutcome::InOrder
    }

    /// Appends the first sample of a series, chunk or window.
    fn append_to_new_chunk(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        time: i64,
        value_bits: u64,
    ) -> AppendOutcome {
        if self.histograms.get(id).is_some() {
            return self.append_float_among_histograms(cx, id, time, value_bits);
        }
        self.append_float_to_new_chunk(cx, id, time, value_bits)
    }

    /// As [`Stripe::append_to_new_chunk`], without a look at the histograms of the series.
    fn append_float_to_new_chunk(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        time: i64,
        value_bits: u64,
    ) -> AppendOutcome {
        let Some(series) = self.series(id) else { return AppendOutcome::SeriesGone };
        let (count, last) = (series.xor.count(), series.xor.time());
        if count > 0 && time <= last {
            // Senders retry whole batches, so a duplicate of the newest sample is common and is found here,
            // unless its value may have been overwritten: by an out-of-order sample, or by one that the
            // caller has not applied yet.
            let is_first_kept = cx.duplicates == DuplicatePolicy::KeepFirst && series.ooo == NONE;
            let is_repeat = is_first_kept && time == last && value_bits == series.xor.value_bits();
            return if is_repeat { AppendOutcome::Duplicate } else { AppendOutcome::NotNewest };
        }
        if is_gap(&series.xor, time) {
            let step_ms = series.xor.step_ms();
            let (old, new) = (SeriesWindow::of(cx, id, last), SeriesWindow::of(cx, id, time));
            self.timestamps.note_gap(Gap { window: new, step_ms, after: last, before: time });
            if old.range != new.range {
                self.timestamps.note_gap(Gap { window: old, step_ms, after: last, before: time });
            }
        }
        self.seal_open(cx, id);
        let mut state = XorState::new();
        let open = self.chunk_buffers.start(&mut state, time, f64::from_bits(value_bits));
        let Some(series) = self.series_mut(id) else { return AppendOutcome::SeriesGone };
        series.xor = state;
        series.open = open;
        series.open_min = time;
        series.window_end = TimeRange::window_of(time, cx.window_ms).end;
        cx.windows.add(time, 1);
        AppendOutcome::InOrder
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

    /// Number of live series.
    pub(crate) fn series_count(&self) -> u64 {
        self.pages.iter().flatten().map(|page| u64::from(page.live_count)).sum()
    }

    /// Number of chunks: open, out-of-order, sealed. The out-of-order samples of a series count as one.
    pub(crate) fn chunk_count(&self) -> u64 {
        self.chunk_buffers.count()
            + self.ooo.count()
            + self.sealed_chunks.count()
            + self.histograms.chunk_count()
    }

    /// As [`Stripe::chunk_count`], of one series.
    pub(crate) fn chunk_count_of(&self, id: u32) -> u64 {
        let floats = self.series(id).map_or(0, |series| {
            let sealed = self.sealed_chunks.list(series.sealed).count();
            sealed + usize::from(!series.open.is_none()) + usize::from(series.ooo != NONE)
        });
        (floats + self.histograms.get(id).map_or(0, |histograms| histograms.chunk_count())) as u64
    }

    /// Memory of hot records, open chunks, out-of-order samples, references to sealed chunks, histograms,
    /// start times.
    pub(crate) fn memory(&self) -> [MemoryPart; 6] {
        let pages = self.page_count * size_of::<Page>();
        let records = (pages + self.pages.capacity() * size_of::<Option<Box<Page>>>()) as u64;
        let ooo = self.ooo.heap_bytes() + self.timestamps.heap_bytes() as u64;
        let sealed = self.sealed_chunks.heap_bytes() + self.by_time.heap_bytes();
        [
            MemoryPart::new("hot_records", records, self.series_count()),
            MemoryPart::new("open_chunks", self.chunk_buffers.heap_bytes(), self.chunk_buffers.count()),
            MemoryPart::new("ooo_buffers", ooo, self.ooo.count()),
            MemoryPart::new("sealed_places", sealed, self.sealed_chunks.count()),
            self.histograms.memory(),
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
}

#[cfg(test)]
mod tests;
