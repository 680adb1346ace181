//! Which times of a series are free: a bit a step of its grid, a window at a time, so that most late samples need
//! no look at others.
//!
//! Holds: where a bit is set, neither a chunk nor a waiting late sample has the time, nor will one get it without
//! [`FreeTimes::take`]: bits are set for times before the last sample of the series only. Where none is set
//! nothing is known. Entries are in a table of bounded size where they may push others out, and deletions clear
//! it: what is not known costs a look, never a wrong answer.
//! Not here: values, finding out what is not known (`order`).

use chronolith_model::TimeRange;

use super::StripeWorld;

/// Steps of an entry: a window of two hours in steps of ten seconds, and some more.
const STEP_COUNT: u32 = 64 * WORD_COUNT as u32;
const WORD_COUNT: usize = 12;
/// Entries of the first table; it doubles from there.
const ENTRY_COUNT_MIN: usize = 64;
/// 4 MiB a stripe.
const ENTRY_COUNT_MAX: usize = 1 << 15;
/// Places of the table where an entry may be.
const PROBE_COUNT: usize = 4;
/// Gaps that wait until somebody asks.
const GAP_COUNT_MAX: usize = 1024;
/// Series of no entry.
const ID_NONE: u32 = u32::MAX;

/// A window of a series.
#[derive(Debug, Clone, Copy)]
pub(super) struct SeriesWindow {
    pub(super) id: u32,
    pub(super) range: TimeRange,
}

impl SeriesWindow {
    /// The window of `time`.
    pub(super) fn of(world: &StripeWorld<'_>, id: u32, time: i64) -> SeriesWindow {
        SeriesWindow { id, range: TimeRange::window_of(time, world.window_ms) }
    }
}

/// What in-order samples of a series left out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gap {
    /// One of the at most two windows of its ends.
    pub(super) window: SeriesWindow,
    /// What the series usually does.
    pub(super) step_ms: i64,
    pub(super) after: i64,
    pub(super) before: i64,
}

/// What is known of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// Nothing has it.
    Free,
    /// No chunk has it.
    NoChunk,
    /// Nothing is known.
    Nothing,
}

/// Offsets are from the start of the window, in milliseconds.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
struct Entry {
    window_start: i64,
    id: u32,
    step_ms: u32,
    /// Offset of the first step.
    base_ms: u32,
    /// All samples that chunks have from here to `grid_to_ms` lie on steps.
    grid_from_ms: u32,
    /// Not after the last sample of the chunk that was looked at.
    grid_to_ms: u32,
    free: [u64; WORD_COUNT],
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
        free: [0; WORD_COUNT],
    };

    /// An entry without bits whose grid has `step_ms` and goes through `on_grid_ms`; from the start of the window
    /// where its steps reach to the end of it, else from `on_grid_ms` on.
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

    /// The step at an offset; an error for an offset that lies between steps, `None` for one that no step reaches.
    fn step(&self, offset_ms: u32) -> Option<Result<u32, u32>> {
        let distance_ms = offset_ms.checked_sub(self.base_ms)?;
        let (step, rest) = (distance_ms / self.step_ms, distance_ms % self.step_ms);
        (step < STEP_COUNT).then_some(if rest == 0 { Ok(step) } else { Err(step) })
    }

    fn known(&self, offset_ms: u32) -> Known {
        match self.step(offset_ms) {
            Some(Ok(step)) if self.free[step as usize / 64] >> (step % 64) & 1 == 1 => Known::Free,
            Some(Err(_)) if (self.grid_from_ms..=self.grid_to_ms).contains(&offset_ms) => Known::NoChunk,
            _ => Known::Nothing,
        }
    }

    /// The word that tells of an offset.
    fn touch(&self, offset_ms: u32) -> u64 {
        let step = offset_ms.saturating_sub(self.base_ms) / self.step_ms;
        self.free.get(step as usize / 64).copied().unwrap_or(0)
    }

    fn take(&mut self, offset_ms: u32) {
        if let Some(Ok(step)) = self.step(offset_ms) {
            self.free[step as usize / 64] &= !(1 << (step % 64));
        }
    }

    /// Sets the bits of all steps between two offsets, both exclusive.
    fn set_between(&mut self, after_ms: i64, before_ms: i64) {
        let (base_ms, step_ms) = (i64::from(self.base_ms), i64::from(self.step_ms));
        let first = ((after_ms - base_ms).div_euclid(step_ms) + 1).max(0);
        let end = (before_ms - 1 - base_ms).div_euclid(step_ms) + 1;
        let end = end.min(i64::from(STEP_COUNT));
        for (word, first_of_word) in self.free.iter_mut().zip((0..).step_by(64)) {
            let (from, to) = ((first - first_of_word).clamp(0, 64), (end - first_of_word).clamp(0, 64));
            if from < to {
                *word |= (u64::MAX >> (64 - (to - from))) << from;
            }
        }
    }
}

/// The largest step of which all distances are multiples; `None` if there is but one time.
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

/// See the module.
#[derive(Default)]
pub(super) struct FreeTimes {
    /// Empty, or a power of two.
    entries: Box<[Entry]>,
    used_count: usize,
    /// Not in the entries yet.
    gaps: Vec<Gap>,
}

impl FreeTimes {
    /// What is known of `time`, which lies in the window and before the last sample of the series.
    pub(super) fn known(&mut self, window: SeriesWindow, time: i64) -> Known {
        self.settle();
        let Some(at) = self.find(window) else { return Known::Nothing };
        offset_of(window, time).map_or(Known::Nothing, |offset_ms| self.entries[at].known(offset_ms))
    }

    /// Reads what [`FreeTimes::known`] will read.
    pub(super) fn touch(&self, window: SeriesWindow, time: i64) -> u64 {
        let Some(at) = self.find(window) else { return 0 };
        offset_of(window, time).map_or(0, |offset_ms| self.entries[at].touch(offset_ms))
    }

    /// A late sample of `time` waits from here on.
    pub(super) fn take(&mut self, window: SeriesWindow, time: i64) {
        self.settle();
        if let (Some(at), Some(offset_ms)) = (self.find(window), offset_of(window, time)) {
            self.entries[at].take(offset_ms);
        }
    }

    /// Notes what in-order samples have left out, of which at least one end lies in the window.
    // PERF: gaps go into the entries one behind the other, when somebody asks: misses of the cache overlap there, while
    // each of them stalls an append of in-order samples.
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

    /// Notes the times that a chunk of the window has. `waiting` gives late samples of the series: those of these times are
    /// not free.
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

    /// Late samples of the window, on its grid or not, have become part of its chunks.
    pub(super) fn note_merge(&mut self, window: SeriesWindow) {
        if let Some(at) = self.find(window) {
            let entry = &mut self.entries[at];
            (entry.grid_from_ms, entry.grid_to_ms) = (Entry::NONE.grid_from_ms, Entry::NONE.grid_to_ms);
        }
    }

    /// Forgets everything and gives the memory back: times may be filled again that were behind the last sample.
    pub(super) fn clear(&mut self) {
        *self = FreeTimes::default();
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.entries) + size_of::<Gap>() * self.gaps.capacity()
    }

    fn find(&self, window: SeriesWindow) -> Option<usize> {
        self.places(window.id, window.range.start).find(|&at| self.entries[at].is_of(window))
    }

    /// The entry of a window, made anew if it is not there or not fit.
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

    /// Puts an entry that is not there, maybe in the place of another.
    fn put(&mut self, entry: Entry) -> usize {
        let (id, start) = (entry.id, entry.window_start);
        let at = self.places(id, start).find(|&at| self.entries[at].id == ID_NONE);
        let at = at.or_else(|| self.places(id, start).next()).expect("a table that has grown has places");
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

    /// Where the entry of a window may be.
    fn places(&self, id: u32, window_start: i64) -> impl Iterator<Item = usize> + use<> {
        let mask = self.entries.len().wrapping_sub(1);
        let key = window_start.cast_unsigned().rotate_left(32) ^ u64::from(id);
        let hash = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        let probe_count = if self.entries.is_empty() { 0 } else { PROBE_COUNT };
        (0..probe_count).map(move |probe| hash.wrapping_add(probe) & mask)
    }
}

/// Offset of a time in the window.
fn offset_of(window: SeriesWindow, time: i64) -> Option<u32> {
    if !window.range.contains(time) {
        return None;
    }
    u32::try_from(time.checked_sub(window.range.start)?).ok()
}

#[cfg(test)]
mod tests;
