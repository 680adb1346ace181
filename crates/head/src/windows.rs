//! Samples by window: what each tenant has in the head, counted as batches come in.
//! Holds: a count is exact once appends and drops of the window have returned.

use std::collections::BTreeMap;

use chronolith_base::hash::HashMap;
use chronolith_model::{TenantId, TimeRange};

/// A window of one tenant that has chunks in the head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowStat {
    /// Whose it is.
    pub tenant: TenantId,
    /// The window.
    pub range: TimeRange,
    /// Samples in it; a value that waits to replace another one counts as well.
    pub sample_count: u64,
    /// Server time when its first sample came in.
    pub first_arrival_ms: i64,
}

/// Counts of one batch, window by window; adding to the window of the last sample costs a comparison.
pub(crate) struct WindowTally {
    window_ms: i64,
    start: i64,
    end: i64,
    count: i64,
    others: Vec<(i64, i64)>,
}

impl WindowTally {
    pub(crate) fn new(window_ms: i64) -> WindowTally {
        WindowTally { window_ms, start: 0, end: 0, count: 0, others: Vec::new() }
    }

    /// Counts `count` samples of the window that holds `time`.
    pub(crate) fn add(&mut self, time: i64, count: i64) {
        if time < self.start || time >= self.end {
            self.turn_to(time);
        }
        self.count += count;
    }

    /// As [`WindowTally::add`] for a sample among those of another window, which stays at hand.
    pub(crate) fn add_aside(&mut self, time: i64, count: i64) {
        if self.start <= time && time < self.end {
            self.count += count;
            return;
        }
        let start = TimeRange::window_of(time, self.window_ms).start;
        self.put(start, count);
    }

    #[cold]
    fn turn_to(&mut self, time: i64) {
        self.put_away();
        let window = TimeRange::window_of(time, self.window_ms);
        (self.start, self.end) = (window.start, window.end);
    }

    fn put_away(&mut self) {
        if self.count != 0 {
            self.put(self.start, self.count);
        }
        self.count = 0;
    }

    fn put(&mut self, start: i64, count: i64) {
        match self.others.iter_mut().find(|(other, _)| *other == start) {
            Some((_, sum)) => *sum += count,
            None => self.others.push((start, count)),
        }
    }

    /// Window starts and counts; the tally is empty afterwards.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (i64, i64)> {
        self.put_away();
        self.others.drain(..)
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowCount {
    /// May be negative for a moment, when a drop overtakes the count of an append.
    pub(crate) sample_count: i64,
    pub(crate) first_arrival_ms: i64,
}

/// The windows of one tenant, by start.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    pub(crate) by_start: BTreeMap<i64, WindowCount>,
}

impl Windows {
    /// Takes the counts of a batch that came in at `arrival_ms`.
    pub(crate) fn merge(&mut self, tally: &mut WindowTally, arrival_ms: i64) {
        for (start, count) in tally.drain() {
            let fresh = WindowCount { sample_count: 0, first_arrival_ms: arrival_ms };
            let entry = self.by_start.entry(start).or_insert(fresh);
            entry.sample_count += count;
            entry.first_arrival_ms = entry.first_arrival_ms.min(arrival_ms);
            if entry.sample_count == 0 {
                self.by_start.remove(&start);
            }
        }
    }

    /// About how many samples lie in `range`: windows that are cut by it count by what is inside. The newest one is
    /// taken to end with the range, if that ends within it: there is hardly anything behind the present.
    pub(crate) fn sample_count(&self, window_ms: i64, range: TimeRange) -> u64 {
        let newest = self.by_start.keys().next_back().copied();
        let inside = |(&start, count): (&i64, &WindowCount)| {
            let full_end = start.saturating_add(window_ms);
            let end = full_end.min(range.end);
            let whole_ms = if newest == Some(start) && end > start { end - start } else { window_ms };
            let width_ms = end.saturating_sub(start.max(range.start));
            let part = width_ms.clamp(0, whole_ms) as f64 / whole_ms.max(1) as f64;
            (count.sample_count.max(0) as f64 * part) as u64
        };
        self.by_start.iter().map(inside).fold(0, u64::saturating_add)
    }

    /// Takes counts of a checkpoint, whose windows came in at `arrivals` (by tenant and start) or else at `now_ms`.
    pub(crate) fn merge_known(
        &mut self,
        tally: &mut WindowTally,
        arrivals: &HashMap<(u32, i64), i64>,
        tenant: u32,
        now_ms: i64,
    ) {
        for (start, sample_count) in tally.drain() {
            let first_arrival_ms = arrivals.get(&(tenant, start)).copied().unwrap_or(now_ms);
            let fresh = WindowCount { sample_count: 0, first_arrival_ms };
            let entry = self.by_start.entry(start).or_insert(fresh);
            entry.sample_count += sample_count;
            if entry.sample_count == 0 {
                self.by_start.remove(&start);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window whose series were all taken out again at a start stayed for good: each look cut it to no block, and wrote
    /// a whole checkpoint.
    #[test]
    fn a_window_of_no_samples_is_none_after_a_start() {
        let (mut tally, mut windows) = (WindowTally::new(100), Windows::default());
        tally.add(110, 5);
        tally.add(210, 7);
        tally.add(110, -5);
        windows.merge_known(&mut tally, &HashMap::default(), 0, 1);
        assert_eq!(windows.by_start.keys().copied().collect::<Vec<_>>(), [200]);
    }
}
