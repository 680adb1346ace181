//! Reorder buffer with a fixed interval: a ring with the newest `window_len` slots of a series that emits
//! samples in time order once the window has moved past them.
//!
//! Invariants: the timestamp of a sample is rounded up to a multiple of the interval before anything else;
//! the window is half-open, `(newest - window_len * interval, newest]`; emitted samples ascend over the life
//! of the buffer, at most `window_len` samples per add. Nothing is allocated after [`ReorderBuffer::new`],
//! nothing is locked. A series without a rule has no buffer: the owner creates one, exactly as long as the
//! window, for the first sample of a series with a rule.
//! Not here: choice of the rule of a series (`ingest`), chunks for emitted samples (`series::stripe`).

#[cfg(test)]
mod tests;

use chronolith_model::ReorderRule;
use chronolith_model::reorder::Update;
use chronolith_model::time::{TIME_MAX_MS, TIME_MIN_MS};

/// Timestamp of an empty slot, and of the newest sample while there is none; before every valid timestamp.
const EMPTY_MS: i64 = i64::MIN;

const _: () = assert!(EMPTY_MS < TIME_MIN_MS);
// One cache line for everything but the slots.
const _: () = assert!(size_of::<ReorderBuffer>() <= 64);

/// A timestamp and its value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Milliseconds since 1970.
    pub time_ms: i64,
    /// Bit-exact.
    pub value: f64,
}

impl Sample {
    /// Content of an unused item of an output slice.
    pub const EMPTY: Sample = Sample { time_ms: EMPTY_MS, value: 0.0 };
}

/// Result of an accepted sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// The sample is the newest one; this many older samples were emitted, ascending, to the start of the
    /// caller's slice.
    Newest(u32),
    /// The sample is out of order and was stored inside the window: it counts as reordered.
    Late,
    /// The sample overwrote the value at its timestamp. Not counted as reordered.
    Updated,
}

/// Reasons to refuse a sample. Nothing has changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The window has moved past its timestamp.
    #[error("metric too old")]
    TooOld,
    /// The timestamp has a value, perhaps the same one, and the rule does not allow updates.
    #[error("new value for existing timestamp")]
    TimestampTaken,
    /// The timestamp cannot be stored.
    #[error("timestamp out of bounds")]
    OutOfBounds,
}

/// Reorder buffer of one series. Not shared: the caller locks the series.
///
/// A slot is in use if its timestamp lies inside the window. Slots are not cleared when the window moves past
/// them: their old timestamps lie outside of it for good.
#[derive(Debug, Clone)]
pub struct ReorderBuffer {
    slots: Box<[Sample]>,
    newest_ms: i64,
    newest_idx: usize,
    rule: ReorderRule,
}

impl ReorderBuffer {
    /// Returns an empty buffer. Allocates 16 bytes per slot, once.
    #[must_use]
    pub fn new(rule: ReorderRule) -> ReorderBuffer {
        let slots = vec![Sample::EMPTY; rule.window_len()].into_boxed_slice();
        ReorderBuffer { slots, newest_ms: EMPTY_MS, newest_idx: 0, rule }
    }

    /// Adds a sample; samples that leave the window are emitted to the start of `passed`, whose other items
    /// may be overwritten.
    ///
    /// # Errors
    /// [`Refused`] has the reason.
    /// # Panics
    /// If `passed` is too short for the emitted samples; the length of the window is always enough.
    // PERF: in order one comparison, one slot read and written, no division; out of order, one multiplication
    // instead of the division. Per add, with the loop around it (window 120; instructions by callgrind, time
    // as minimum of 15 rounds):
    //     in order: 60 instructions, 1.9 ns; reversed groups of 5: 91, 3.0 ns; groups of 50: 74, 2.5 ns
    //     without `#[inline]`:       69, 2.2 ns;                      98, 3.3 ns;               83, 3.0 ns
    //     one path for one and for several steps, and 16 bytes returned: 4.1 ns in order,
    //     3.3 and 3.2 ns reversed
    //   cargo xtask bench reorder
    //   The ring is as long as the window, with a conditional move at its end: a power of two and a mask
    //   would save that and cost up to twice the memory.
    #[inline]
    pub fn add(&mut self, time_ms: i64, value: f64, passed: &mut [Sample]) -> Result<Added, Refused> {
        if !(TIME_MIN_MS..=TIME_MAX_MS).contains(&time_ms) {
            return Err(Refused::OutOfBounds);
        }
        if time_ms <= self.newest_ms {
            return self.add_ooo(time_ms, value);
        }
        let ahead_ms = time_ms.wrapping_sub(self.newest_ms).cast_unsigned();
        if ahead_ms > self.rule.interval_ms() {
            return self.add_after_gap(time_ms, value, passed);
        }
        let floor_ms = self.newest_ms.wrapping_sub_unsigned(self.rule.span_ms());
        let next_idx = self.newest_idx + 1;
        let idx = if next_idx == self.slots.len() { 0 } else { next_idx };
        let slot = &mut self.slots[idx];
        passed[0] = *slot;
        let passed_count = u32::from(slot.time_ms > floor_ms);
        self.newest_ms = self.newest_ms.wrapping_add_unsigned(self.rule.interval_ms());
        self.newest_idx = idx;
        *slot = Sample { time_ms: self.newest_ms, value };
        Ok(Added::Newest(passed_count))
    }

    /// Returns the rule of the buffer.
    #[must_use]
    pub fn rule(&self) -> &ReorderRule {
        &self.rule
    }

    /// Returns the timestamp of the newest sample, rounded up; `None` if the buffer has no samples.
    #[must_use]
    pub fn newest_ms(&self) -> Option<i64> {
        (!self.is_empty()).then_some(self.newest_ms)
    }

    /// Returns true if the buffer has no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.newest_ms == EMPTY_MS
    }

    /// Returns the buffered samples, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Sample> {
        let (newer, older) = self.slots.split_at(self.newest_idx + 1);
        let floor_ms = self.floor_ms();
        older.iter().chain(newer).copied().filter(move |slot| slot.time_ms > floor_ms)
    }

    /// Moves the buffered samples, ascending, to the start of `passed` and returns their number; the buffer
    /// is empty then.
    ///
    /// # Panics
    /// If `passed` is shorter than the window.
    pub fn flush(&mut self, passed: &mut [Sample]) -> u32 {
        let passed_count = pass(&self.slots, self.newest_idx + 1, self.slots.len(), self.floor_ms(), passed);
        self.reset();
        passed_count
    }

    /// Drops the buffered samples.
    pub fn reset(&mut self) {
        self.slots.fill(Sample::EMPTY);
        self.newest_ms = EMPTY_MS;
    }

    /// Returns the latest timestamp that is too old.
    fn floor_ms(&self) -> i64 {
        self.newest_ms.saturating_sub_unsigned(self.rule.span_ms())
    }

    /// Adds a sample that moves the window by several slots, or the first one.
    #[inline(never)]
    fn add_after_gap(&mut self, time_ms: i64, value: f64, passed: &mut [Sample]) -> Result<Added, Refused> {
        let ahead_ms = time_ms.wrapping_sub(self.newest_ms).cast_unsigned();
        if ahead_ms > self.rule.span_ms() {
            return Ok(self.jump(time_ms, value, passed));
        }
        let step_count = self.rule.whole_intervals(ahead_ms - 1) + 1;
        let passed_count = pass(&self.slots, self.newest_idx + 1, step_count, self.floor_ms(), passed);
        let mut idx = self.newest_idx + step_count;
        if idx >= self.slots.len() {
            idx -= self.slots.len();
        }
        self.newest_ms += self.rule.intervals_ms(step_count);
        self.newest_idx = idx;
        self.slots[idx] = Sample { time_ms: self.newest_ms, value };
        Ok(Added::Newest(passed_count))
    }

    fn add_ooo(&mut self, time_ms: i64, value: f64) -> Result<Added, Refused> {
        let back_ms = self.newest_ms.wrapping_sub(time_ms).cast_unsigned();
        if back_ms >= self.rule.span_ms() {
            return Err(Refused::TooOld);
        }
        let back_count = self.rule.whole_intervals(back_ms);
        let time_ms = self.newest_ms - self.rule.intervals_ms(back_count);
        let mut idx = self.newest_idx.wrapping_sub(back_count);
        if back_count > self.newest_idx {
            idx = idx.wrapping_add(self.slots.len());
        }
        let slot = &mut self.slots[idx];
        if slot.time_ms == time_ms {
            return overwrite(slot, value, self.rule.update());
        }
        *slot = Sample { time_ms, value };
        Ok(Added::Late)
    }

    /// Adds the first sample, or one so far ahead that all others are emitted.
    #[cold]
    fn jump(&mut self, time_ms: i64, value: f64, passed: &mut [Sample]) -> Added {
        let passed_count = pass(&self.slots, self.newest_idx + 1, self.slots.len(), self.floor_ms(), passed);
        self.newest_ms = self.rule.round_up(time_ms);
        self.slots[self.newest_idx] = Sample { time_ms: self.newest_ms, value };
        Added::Newest(passed_count)
    }
}

#[cold]
fn overwrite(slot: &mut Sample, value: f64, update: Update) -> Result<Added, Refused> {
    match update {
        Update::Allow => {
            slot.value = value;
            Ok(Added::Updated)
        }
        Update::Disallow => Err(Refused::TimestampTaken),
    }
}

/// Copies the samples above `floor_ms` of `step_count` slots from `start` on, wrapping around, to the start
/// of `passed`.
fn pass(slots: &[Sample], start: usize, step_count: usize, floor_ms: i64, passed: &mut [Sample]) -> u32 {
    let until_end = slots.len() - start;
    let around = &slots[..step_count.saturating_sub(until_end)];
    let first = &slots[start..start + step_count.min(until_end)];
    let first_count = pass_run(first, floor_ms, passed);
    let around_count = pass_run(around, floor_ms, &mut passed[first_count..]);
    (first_count + around_count) as u32
}

fn pass_run(slots: &[Sample], floor_ms: i64, passed: &mut [Sample]) -> usize {
    let mut count = 0;
    for slot in slots {
        // Written whether in use or not: a branch would depend on which samples are missing, and would not be
        // predicted.
        passed[count] = *slot;
        count += usize::from(slot.time_ms > floor_ms);
    }
    count
}
