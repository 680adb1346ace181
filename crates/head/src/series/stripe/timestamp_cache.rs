//! Negative cache of timestamps: per series and window, one bit per scrape interval. A set bit proves that
//! the timestamp is unused, so most out-of-order samples need no lookup. A clear bit means unknown.
//!
//! Invariants: if a bit is set, neither a chunk nor the out-of-order buffer has the timestamp, and none will
//! get it without [`TimestampCache::take`]: bits are set only for timestamps before the last sample of the
//! series. Entries are in a hash table of bounded size, where they may evict others, and deletions clear it:
//! a missing entry costs a lookup, never a wrong decision.
//! Not here: values, lookups of unknown timestamps (`out_of_order`).

use chronolith_model::TimeRange;

use super::AppendContext;

/// Bits per entry: a window of two hours with a scrape interval of ten seconds, and some more.
const STEP_COUNT: u32 = 64 * WORD_COUNT as u32;
const WORD_COUNT: usize = 12;
/// Entries of the first table; it doubles from there.
const ENTRY_COUNT_MIN: usize = 64;
/// 4 MiB per stripe.
const ENTRY_COUNT_MAX: usize = 1 << 15;
/// Slots of the table in which an entry may be.
const PROBE_COUNT: usize = 4;
/// Pending gaps up to the next lookup.
const GAP_COUNT_MAX: usize = 1024;
/// Series id of an empty slot.
const ID_NONE: u32 = u32::MAX;

/// A window of a series.
#[derive(Debug, Clone, Copy)]
pub(super) struct SeriesWindow {
    pub(super) id: u32,
    pub(super) range: TimeRange,
}

impl SeriesWindow {
    /// Returns the window of `time`.
    pub(super) fn of(cx: &AppendContext<'_>, id: u32, time: i64) -> SeriesWindow {
        SeriesWindow { id, range: TimeRange::window_of(time, cx.window_ms) }
    }
}

/// Gap between two in-order samples of a series.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gap {
    /// One of the at most two windows of its ends.
    pub(super) window: SeriesWindow,
    /// Usual scrape interval of the series.
    pub(super) step_ms: i64,
    pub(super) after: i64,
    pub(super) before: i64,
}

/// Result of a lookup of a timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// No sample has the timestamp.
    Unused,
    /// No chunk has it; the out-of-order buffer may.
    NotInChunks,
    Unknown,
}

/// Offsets are from the start of the window, in milliseconds.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
struct Entry {
    window_start: i64,
    id: u32,
    step_ms: u32,
    /// Offset of the first bit.
    base_ms: u32,
    /// All chunk samples from here to `grid_to_ms` are at timestamps of the grid.
    grid_from_ms: u32,
    /// Not after the last sample of the chunk that was recorded.
    grid_to_ms: u32,
    unused: [u64; WORD_COUNT],
}

const _: () = assert!(size_of::<Entry>() == 128, "an entry is two cache lines side by side");

impl Entry {
    const NONE: Entry = Entry {
        window_start: 0,
        id: ID_NONE,
        step_ms: 1,
        base_ms: 0,
        grid_from_ms: u32::MAX,
        grid_to_ms: 0,
        unused: [0; WORD_COUNT],
    };

    /// Returns an entry without set bits whose grid has `step_ms` and contains `on_grid_ms`; it starts at the
    /// start of the window if its bits cover the whole window, else at `on_grid_ms`.
    fn new(window: SeriesWindow, step_ms: u32, on_grid_ms: u32) -> Entry {
        let first_ms = on_grid_ms % step_ms;
        let reach_ms = u64::from(step_ms) * u64::from(STEP_COUNT);
        let window_ms = window.range.end.abs_diff(window.range.start);
        let base_ms = if u64::from(first_ms) + reach_ms >= window_ms { first_ms } else { on_grid_ms };
        Entry { window_start: window.range.start, id: window.id, step_ms, base_ms, ..Entry::NONE }
    }

    fn is_of(&self, window: SeriesWindow) -> bool {
        self.id == window.id && self.window_start == window.range.start
    }

    /// Returns the bit of an offset; an error for an offset between bits, `None` for one out of range.
    fn step(&self, offset_ms: u32) -> Option<Result<u32, u32>> {
        let distance_ms = offset_ms.checked_sub(self.base_ms)?;
        let (step, rest) = (distance_ms / self.step_ms, distance_ms % self.step_ms);
        (step < STEP_COUNT).then_some(if rest == 0 { Ok(step) } else { Err(step) })
    }

    fn known(&self, offset_ms: u32) -> Known {
        match self.step(offset_ms) {
            Some(Ok(step)) if self.unused[step as usize / 64] >> (step % 64) & 1 == 1 => Known::Unused,
            Some(Err(_)) if (self.grid_from_ms..=self.grid_to_ms).contains(&offset_ms) => Known::NotInChunks,
            _ => Known::Unknown,
        }
    }

    /// Reads the word with the bit of an offset.
    fn touch(&self, offset_ms: u32) -> u64 {
        let step = offset_ms.saturating_sub(self.base_ms) / self.step_ms;
        self.unused.get(step as usize / 64).copied().unwrap_or(0)
    }

    fn take(&mut self, offset_ms: u32) {
        if let Some(Ok(step)) = self.step(offset_ms) {
            self.unused[step as usize / 64] &= !(1 << (step % 64));
        }
    }

    /// Sets all bits between two offsets, both exclusive.
    fn set_between(&mut self, after_ms: i64, before_ms: i64) {
        let (base_ms, step_ms) = (i64::from(self.base_ms), i64::from(self.step_ms));
        let first = ((after_ms - base_ms).div_euclid(step_ms) + 1).max(0);
        let end = (before_ms - 1 - base_ms).div_euclid(step_ms) + 1;
        let end = end.min(i64::from(STEP_COUNT));
        for (word, first_of_word) in self.unused.iter_mut().zip((0..).step_by(64)) {
            let (from, to) = ((first - first_of_word).clamp(0, 64), (end - first_of_word).clamp(0, 64));
            if from < to {
                *word |= (u64::MAX >> (64 - (to - from))) << from;
            }
        }
    }
}

/// Returns the greatest common divisor of all distances; `None` for a single timestamp.
fn step_of(times: &[i64]) -> Option<u32> {
    let mut step_ms = 0;
    for (&before, &time) in times.iter().zip(times.get(1..)?) {
        let distance_ms = u32::try_from(time.checked_sub(before)?).ok()?;
        if distance_ms != step_ms {
            step_ms = common_divisor(distance_ms, step_ms);
        }
    }
    Some(step_ms).filter(|step_ms| *step_ms > 0)
}

fn common_divisor(mut a: u32, mut b: u32) -> u32 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Hash table of entries, with open addressing over [`PROBE_COUNT`] slots.
#[derive(Default)]
pub(super) struct TimestampCache {
    /// Empty, or a power of two.
    entries: Box<[Entry]>,
    used_count: usize,
    /// Pending: not in the entries yet.
    gaps: Vec<Gap>,
}

impl TimestampCache {
    /// Looks up `time`, which lies in the window and before the last sample of the series.
    pub(super) fn known(&mut self, window: SeriesWindow, time: i64) -> Known {
        self.settle();
        let Some(at) = self.find(window) else { return Known::Unknown };
        offset_of(window, time).map_or(Known::Unknown, |offset_ms| self.entries[at].known(offset_ms))
    }

    /// Reads the cache line that [`TimestampCache::known`] will read.
    pub(super) fn touch(&self, window: SeriesWindow, time: i64) -> u64 {
        let Some(at) = self.find(window) else { return 0 };
        offset_of(window, time).map_or(0, |offset_ms| self.entries[at].touch(offset_ms))
    }

    /// Clears the bit of `time`, which an out-of-order sample uses from here on.
    pub(super) fn take(&mut self, window: SeriesWindow, time: i64) {
        self.settle();
        if let (Some(at), Some(offset_ms)) = (self.find(window), offset_of(window, time)) {
            self.entries[at].take(offset_ms);
        }
    }

    /// Records a gap between in-order samples, of which at least one end lies in the window.
    // PERF: gaps are moved to the entries in one batch, at the next lookup: cache misses overlap there, while
    // each of them would stall an append of in-order samples.
    //   cargo run --release -p chronolith-head --example late_speed -- 4000 1440 10 withheld 60000
    pub(super) fn note_gap(&mut self, gap: Gap) {
        if self.gaps.len() >= GAP_COUNT_MAX {
            self.settle();
        }
        self.gaps.push(gap);
    }

    fn settle(&mut self) {
        if !self.gaps.is_empty() {
            self.settle_gaps();
        }
    }

    #[cold]
    fn settle_gaps(&mut self) {
        let mut gaps = std::mem::take(&mut self.gaps);
        let touched = gaps.iter().map(|gap| self.touch(gap.window, gap.after)).fold(0, u64::wrapping_add);
        std::hint::black_box(touched);
        gaps.drain(..).for_each(|gap| self.settle_gap(gap));
        self.gaps = gaps;
    }

    fn settle_gap(&mut self, gap: Gap) {
        let Gap { window, after, before, .. } = gap;
        let on_grid = if window.range.contains(after) { after } else { before };
        let Some(on_grid_ms) = offset_of(window, on_grid) else { return };
        let Some(step_ms) = u32::try_from(gap.step_ms).ok().filter(|step_ms| *step_ms > 0) else { return };
        let start = window.range.start;
        let (first, end) = (after.max(start.saturating_sub(1)), before.min(window.range.end));
        let is_fit = |entry: &Entry| {
            let reaches_ms = u64::from(entry.base_ms) + u64::from(entry.step_ms) * u64::from(STEP_COUNT);
            entry.step_ms <= step_ms && end.abs_diff(start) <= reaches_ms
        };
        let entry = self.entry(window, is_fit, || Entry::new(window, step_ms, on_grid_ms));
        entry.set_between(first - start, end - start);
    }

    /// Records the timestamps of a chunk of the window. `waiting` are those of buffered out-of-order samples
    /// of the series, which are not unused.
    pub(super) fn note_chunk(
        &mut self,
        window: SeriesWindow,
        times: &[i64],
        waiting: impl Iterator<Item = i64>,
    ) {
        self.settle();
        let (Some(&first), Some(&last), Some(step_ms)) = (times.first(), times.last(), step_of(times)) else {
            return;
        };
        let (Some(first_ms), Some(last_ms)) = (offset_of(window, first), offset_of(window, last)) else {
            return;
        };
        let fresh = Entry::new(window, step_ms, first_ms);
        if fresh.step(last_ms).is_none_or(|step| step.is_err()) {
            return;
        }
        let is_fit = |entry: &Entry| {
            let reaches = entry.step(first_ms).is_some() && entry.step(last_ms).is_some();
            reaches
                && step_ms.is_multiple_of(entry.step_ms)
                && entry.step(first_ms).is_some_and(|step| step.is_ok())
        };
        let entry = self.entry(window, is_fit, || fresh);
        for (&after, &before) in times.iter().zip(&times[1..]) {
            if before - after > i64::from(entry.step_ms) {
                entry.set_between(after - window.range.start, before - window.range.start);
            }
        }
        (entry.grid_from_ms, entry.grid_to_ms) = (first_ms, last_ms);
        for offset_ms in waiting.filter_map(|time| offset_of(window, time)) {
            entry.take(offset_ms);
        }
    }

    /// Records that out-of-order samples of the window, on its grid or not, were merged into its chunks.
    pub(super) fn note_merge(&mut self, window: SeriesWindow) {
        if let Some(at) = self.find(window) {
            let entry = &mut self.entries[at];
            (entry.grid_from_ms, entry.grid_to_ms) = (Entry::NONE.grid_from_ms, Entry::NONE.grid_to_ms);
        }
    }

    /// Clears the cache and frees its memory: timestamps may be used again that were before the last sample.
    pub(super) fn clear(&mut self) {
        *self = TimestampCache::default();
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.entries) + size_of::<Gap>() * self.gaps.capacity()
    }

    fn find(&self, window: SeriesWindow) -> Option<usize> {
        self.slots(window.id, window.range.start).find(|&at| self.entries[at].is_of(window))
    }

    /// Returns the entry of a window; `fresh` makes it again if it is missing or not fit.
    fn entry(
        &mut self,
        window: SeriesWindow,
        is_fit: impl FnOnce(&Entry) -> bool,
        fresh: impl FnOnce() -> Entry,
    ) -> &mut Entry {
        if let Some(at) = self.find(window) {
            if !is_fit(&self.entries[at]) {
                self.entries[at] = fresh();
            }
            return &mut self.entries[at];
        }
        if 2 * self.used_count >= self.entries.len() && self.entries.len() < ENTRY_COUNT_MAX {
            self.grow();
        }
        let at = self.put(fresh());
        &mut self.entries[at]
    }

    /// Inserts a missing entry, possibly in place of another.
    fn put(&mut self, entry: Entry) -> usize {
        let (id, start) = (entry.id, entry.window_start);
        let at = self.slots(id, start).find(|&at| self.entries[at].id == ID_NONE);
        let at = at.or_else(|| self.slots(id, start).next()).expect("a table that has grown has slots");
        self.used_count += usize::from(self.entries[at].id == ID_NONE);
        self.entries[at] = entry;
        at
    }

    #[cold]
    fn grow(&mut self) {
        let entry_count = (2 * self.entries.len()).max(ENTRY_COUNT_MIN);
        let fresh = vec![Entry::NONE; entry_count].into_boxed_slice();
        let old = std::mem::replace(&mut self.entries, fresh);
        self.used_count = 0;
        for entry in old.into_iter().filter(|entry| entry.id != ID_NONE) {
            self.put(entry);
        }
    }

    /// Returns the slots in which the entry of a window may be.
    fn slots(&self, id: u32, window_start: i64) -> impl Iterator<Item = usize> + use<> {
        let mask = self.entries.len().wrapping_sub(1);
        let key = window_start.cast_unsigned().rotate_left(32) ^ u64::from(id);
        let hash = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        let probe_count = if self.entries.is_empty() { 0 } else { PROBE_COUNT };
        (0..probe_count).map(move |probe| hash.wrapping_add(probe) & mask)
    }
}

/// Returns the offset of a timestamp in the window.
fn offset_of(window: SeriesWindow, time: i64) -> Option<u32> {
    if !window.range.contains(time) {
        return None;
    }
    u32::try_from(time.checked_sub(window.range.start)?).ok()
}

#[cfg(test)]
mod tests;
