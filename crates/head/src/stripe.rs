//! One sixteenth of the series: hot records in pages, open chunks, late samples, places of sealed chunks, and beside
//! them the native histograms and start times of those that have some.
//!
//! Holds: a chunk never crosses a window; chunks of a series do not overlap; of a time that a chunk and the late
//! samples have, the late one counts (it has replaced the other); runs of 1024 consecutive ids share a stripe, so
//! a batch takes few locks.
//! Not here: locking, the log (`append`), which labels a series has (`tables`).

mod by_time;
mod erase;
mod free;
mod histograms;
mod idle;
mod late;
mod leaf;
mod nodes;
mod order;
mod seal;
mod starts;

use chronolith_base::Disk;
use chronolith_base::hash::HashMap;
use chronolith_format::xor::{SAMPLES_PER_CHUNK, XorState};
use chronolith_model::{DuplicatePolicy, TimeRange};

use by_time::SealedByTime;
use free::{FreeTimes, Gap, SeriesWindow};
use histograms::Histograms;
pub(crate) use histograms::{HistogramBudget, HistogramNode, HistogramParts};
use idle::Stamps;
pub(crate) use late::LateSamples;
pub(crate) use nodes::{SealedNode, SealedNodes};
use order::Decoded;
pub(crate) use starts::START_RUNS_MAX;
use starts::Starts;

use crate::chain::{Chain, Chains};
use crate::memory::MemoryPart;
use crate::sealed::SealedStore;
use crate::windows::WindowTally;

/// How many stripes there are.
pub(crate) const STRIPE_COUNT: usize = 16;
/// Consecutive ids in a page.
pub(crate) const PAGE_SLOTS: usize = 1024;
/// No list, no late samples, no tenant.
pub(crate) const NONE: u32 = u32::MAX;

/// The stripe of a series.
pub(crate) fn stripe_of(id: u32) -> usize {
    (id as usize / PAGE_SLOTS) % STRIPE_COUNT
}

fn place_of(id: u32) -> (usize, usize) {
    (id as usize / PAGE_SLOTS / STRIPE_COUNT, id as usize % PAGE_SLOTS)
}

/// What became of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Applied {
    /// Stored, in order.
    InOrder,
    /// Stored, out of order.
    Late,
    /// It was there with the same value.
    Repeat,
    /// Stored in place of another value.
    Replaced,
    /// Another value is there.
    Conflict,
    /// Nothing yet: it is not later than the last one of its series.
    Behind,
    /// The series has left the head.
    Gone,
}

/// All that appending to a series in order touches.
#[derive(Clone)]
pub(crate) struct Hot {
    /// The open chunk; after sealing, the last sample.
    pub(crate) xor: XorState,
    /// Time of the first sample of the open chunk.
    pub(crate) open_min: i64,
    /// End of the window of the open chunk; before all times while the series has histograms.
    pub(crate) window_end: i64,
    /// Bytes of the open chunk; none between sealing and the next sample.
    pub(crate) open: Chain,
    /// Newest sealed chunk.
    pub(crate) sealed: u32,
    /// Chain of late samples.
    pub(crate) late: u32,
    /// Tenant; [`NONE`] for a series that is not there.
    pub(crate) tenant: u32,
}

const _: () = assert!(size_of::<Hot>() <= 64, "a hot record is one cache line");

impl Hot {
    const EMPTY: Hot = Hot {
        xor: XorState::new(),
        open_min: 0,
        window_end: 0,
        open: Chain::NONE,
        sealed: NONE,
        late: NONE,
        tenant: NONE,
    };

    /// Whether no float of the series is stored here.
    fn has_no_chunk(&self) -> bool {
        self.open.is_none() && self.sealed == NONE && self.late == NONE
    }
}

struct Page {
    slots: [Hot; PAGE_SLOTS],
    live_count: u32,
    stamps: Stamps,
}

/// See the module.
pub(crate) struct Stripe {
    /// Eight bytes for 1024 ids up to the highest page that is there.
    pages: Vec<Option<Box<Page>>>,
    /// Pages that are there.
    page_count: usize,
    pub(crate) chains: Chains,
    pub(crate) nodes: SealedNodes,
    pub(crate) late: LateSamples,
    histograms: Histograms,
    starts: Starts,
    free: FreeTimes,
    decoded: Decoded,
    by_time: SealedByTime,
    /// Series whose late samples are to be sealed by whoever holds the stripe.
    due: Vec<u32>,
    /// Appends that are within each of these series, though they do not hold the stripe.
    pinned: HashMap<u32, u32>,
    /// Samples that were encoded to bring late ones into their chunks.
    pub(crate) merged_count: u64,
    /// Whether a series has left since the last one was made.
    has_removed: bool,
    /// A copy of the open chunk at hand.
    chunk: Vec<u8>,
}

/// What appending needs besides the stripe.
pub(crate) struct StripeWorld<'a> {
    pub(crate) store: &'a SealedStore,
    pub(crate) disk: &'a dyn Disk,
    pub(crate) histograms: &'a HistogramBudget,
    pub(crate) window_ms: i64,
    /// What becomes of a second value for a time.
    pub(crate) duplicates: DuplicatePolicy,
}

/// Whether a sample comes so much later than usual that some between it and the last may have been left out.
fn is_gap(state: &XorState, time: i64) -> bool {
    let step = state.step_ms();
    step > 0 && time.wrapping_sub(state.time()) > step + step / 2
}

/// Whether a sample comes so much sooner than the last one that some may have been left out before that: the second of two
/// equal gaps, and one behind the first sample of a chunk, are seen by what comes behind them only.
fn ends_gap(state: &XorState, time: i64) -> bool {
    let distance = time.wrapping_sub(state.time());
    state.step_ms() > distance.saturating_add(distance / 2)
}

impl Stripe {
    pub(crate) fn new() -> Stripe {
        Stripe {
            pages: Vec::new(),
            page_count: 0,
            chains: Chains::new(),
            nodes: SealedNodes::new(),
            late: LateSamples::new(),
            histograms: Histograms::default(),
            starts: Starts::default(),
            free: FreeTimes::default(),
            decoded: Decoded::default(),
            by_time: SealedByTime::default(),
            due: Vec::new(),
            pinned: HashMap::default(),
            merged_count: 0,
            has_removed: false,
            chunk: Vec::new(),
        }
    }

    /// Makes the series `id` of `tenant`, without samples.
    pub(crate) fn create(&mut self, id: u32, tenant: u32) {
        let (page, slot) = place_of(id);
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        let page_count = &mut self.page_count;
        let page = self.pages[page].get_or_insert_with(|| {
            *page_count += 1;
            Box::new(Page {
                slots: [const { Hot::EMPTY }; PAGE_SLOTS],
                live_count: 0,
                stamps: Stamps::default(),
            })
        });
        assert_eq!(page.slots[slot].tenant, NONE, "an id has one series");
        if std::mem::take(&mut self.has_removed) {
            // Its id may have been another series'.
            self.free.clear();
        }
        page.slots[slot].tenant = tenant;
        page.live_count += 1;
        page.stamps.touch(slot);
    }

    /// Removes a series that has no chunk.
    pub(crate) fn remove(&mut self, id: u32) {
        let (page_idx, slot) = place_of(id);
        let Some(Some(page)) = self.pages.get_mut(page_idx) else { return };
        let is_empty = page.slots[slot].has_no_chunk() && self.histograms.get(id).is_none();
        assert!(is_empty, "chunks are removed before their series");
        page.slots[slot] = Hot::EMPTY;
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

    /// The highest id of a series of this stripe, which is number `stripe`.
    pub(crate) fn last_id(&self, stripe: usize) -> Option<u32> {
        let page = self.pages.iter().rposition(Option::is_some)?;
        let slot = self.pages[page].as_ref()?.slots.iter().rposition(|hot| hot.tenant != NONE)?;
        Some(((page * STRIPE_COUNT + stripe) * PAGE_SLOTS + slot) as u32)
    }

    /// Returns true if page `page` of this stripe has a series.
    pub(crate) fn has_page(&self, page: usize) -> bool {
        self.pages.get(page).is_some_and(Option::is_some)
    }

    /// The hot record of a live series.
    pub(crate) fn hot(&self, id: u32) -> Option<&Hot> {
        let (page, slot) = place_of(id);
        let hot = self.pages.get(page)?.as_ref()?.slots.get(slot)?;
        (hot.tenant != NONE).then_some(hot)
    }

    pub(crate) fn hot_mut(&mut self, id: u32) -> Option<&mut Hot> {
        let (page, slot) = place_of(id);
        let hot = self.pages.get_mut(page)?.as_mut()?.slots.get_mut(slot)?;
        (hot.tenant != NONE).then_some(hot)
    }

    /// Appends the bytes of the open chunk to `out`; none if there is no open chunk.
    pub(crate) fn copy_open(&self, hot: &Hot, out: &mut Vec<u8>) {
        self.chains.copy(hot.open, &hot.xor, out);
    }

    /// Stores one sample of series `id`, and seals late samples if that makes them too many.
    pub(crate) fn append(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        time: i64,
        value_bits: u64,
    ) -> Applied {
        let applied = self.append_unsealed(world, windows, id, time, value_bits);
        if !self.due.is_empty() {
            self.seal_due(world, windows);
        }
        applied
    }

    /// As [`Stripe::append`]; what is to be sealed is left to the caller (see [`Stripe::take_due`]).
    pub(crate) fn append_unsealed(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        time: i64,
        value_bits: u64,
    ) -> Applied {
        match self.append_ahead(world, windows, id, time, value_bits) {
            Applied::Behind => self.append_late(world, windows, id, time, value_bits),
            applied => applied,
        }
    }

    /// As [`Stripe::append`] for a sample that is later than the last one of its series; others are left to
    /// [`Stripe::append_late`].
    pub(crate) fn append_ahead(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        time: i64,
        value_bits: u64,
    ) -> Applied {
        let (page, slot) = place_of(id);
        let Some(Some(page)) = self.pages.get_mut(page) else { return Applied::Gone };
        page.stamps.touch(slot);
        let hot = &mut page.slots[slot];
        if hot.open.is_none() || time <= hot.xor.time() || time >= hot.window_end {
            return self.append_otherwise(world, windows, id, time, value_bits);
        }
        if is_gap(&hot.xor, time) {
            let range = TimeRange { start: hot.window_end - world.window_ms, end: hot.window_end };
            let (step_ms, after) = (hot.xor.step_ms(), hot.xor.time());
            self.free.note_gap(Gap { window: SeriesWindow { id, range }, step_ms, after, before: time });
        } else if ends_gap(&hot.xor, time) {
            let range = TimeRange { start: hot.window_end - world.window_ms, end: hot.window_end };
            let (step_ms, before) = (time - hot.xor.time(), hot.xor.time());
            let after = before - hot.xor.step_ms();
            // What waits may have come for the gap already.
            if self.late.is_before(hot.late, after) {
                self.free.note_gap(Gap { window: SeriesWindow { id, range }, step_ms, after, before });
            }
        }
        hot.open = self.chains.append(hot.open, &mut hot.xor, time, f64::from_bits(value_bits));
        windows.add(time, 1);
        if usize::from(hot.xor.count()) >= SAMPLES_PER_CHUNK {
            self.seal_open(world, windows, id);
        }
        Applied::InOrder
    }

    /// First sample of a series, chunk or window.
    fn append_otherwise(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        time: i64,
        value_bits: u64,
    ) -> Applied {
        if self.histograms.get(id).is_some() {
            return self.append_beside(world, windows, id, time, value_bits);
        }
        self.append_apart(world, windows, id, time, value_bits)
    }

    /// As [`Stripe::append_otherwise`], past the histograms of the series.
    fn append_apart(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        time: i64,
        value_bits: u64,
    ) -> Applied {
        let Some(hot) = self.hot(id) else { return Applied::Gone };
        let (count, last) = (hot.xor.count(), hot.xor.time());
        if count > 0 && time <= last {
            // A sender repeats a whole batch: all that is to be known is at hand, unless another sample has replaced the
            // last one, or the caller holds such a one back.
            let is_first_kept = world.duplicates == DuplicatePolicy::KeepFirst && hot.late == NONE;
            let is_repeat = is_first_kept && time == last && value_bits == hot.xor.value_bits();
            return if is_repeat { Applied::Repeat } else { Applied::Behind };
        }
        if is_gap(&hot.xor, time) {
            let step_ms = hot.xor.step_ms();
            let (old, new) = (SeriesWindow::of(world, id, last), SeriesWindow::of(world, id, time));
            self.free.note_gap(Gap { window: new, step_ms, after: last, before: time });
            if old.range != new.range {
                self.free.note_gap(Gap { window: old, step_ms, after: last, before: time });
            }
        }
        self.seal_open(world, windows, id);
        let mut state = XorState::new();
        let open = self.chains.start(&mut state, time, f64::from_bits(value_bits));
        let Some(hot) = self.hot_mut(id) else { return Applied::Gone };
        hot.xor = state;
        hot.open = open;
        hot.open_min = time;
        hot.window_end = TimeRange::window_of(time, world.window_ms).end;
        windows.add(time, 1);
        Applied::InOrder
    }

    /// Keeps the series in the stripe, samples or not, until [`Stripe::unpin`]: an append that lets others
    /// have the stripe has more samples for them.
    pub(crate) fn pin(&mut self, id: u32) {
        *self.pinned.entry(id).or_insert(0) += 1;
    }

    /// Ends one [`Stripe::pin`].
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

    /// Series that are there.
    pub(crate) fn series_count(&self) -> u64 {
        self.pages.iter().flatten().map(|page| u64::from(page.live_count)).sum()
    }

    /// Chunks: open, late, sealed. The late samples of a series count as one.
    pub(crate) fn chunk_count(&self) -> u64 {
        self.chains.count() + self.late.count() + self.nodes.count() + self.histograms.chunk_count()
    }

    /// As [`Stripe::chunk_count`], of one series.
    pub(crate) fn chunk_count_of(&self, id: u32) -> u64 {
        let floats = self.hot(id).map_or(0, |hot| {
            let sealed = self.nodes.list(hot.sealed).count();
            sealed + usize::from(!hot.open.is_none()) + usize::from(hot.late != NONE)
        });
        (floats + self.histograms.get(id).map_or(0, |track| track.chunk_count())) as u64
    }

    /// Hot records, open chunks, late samples, sealed places, histograms, start times.
    pub(crate) fn memory(&self) -> [MemoryPart; 6] {
        let pages = self.page_count * size_of::<Page>();
        let hot = (pages + self.pages.capacity() * size_of::<Option<Box<Page>>>()) as u64;
        let late = self.late.heap_bytes() + self.free.heap_bytes() as u64;
        let sealed = self.nodes.heap_bytes() + self.by_time.heap_bytes();
        [
            MemoryPart::new("hot_records", hot, self.series_count()),
            MemoryPart::new("open_chunks", self.chains.heap_bytes(), self.chains.count()),
            MemoryPart::new("late_buffers", late, self.late.count()),
            MemoryPart::new("sealed_places", sealed, self.nodes.count()),
            self.histograms.memory(),
            self.starts.memory(),
        ]
    }

    /// Ids of the live series of page `page` of stripe `stripe`; `None` behind the last page.
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
