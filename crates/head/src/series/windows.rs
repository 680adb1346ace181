//! Sample counts by window: per tenant, updated as batches arrive.
//!
//! Invariant: a count is exact once appends to and drops of the window have returned.

use std::collections::BTreeMap;

use chronolith_base::hash::HashMap;
use chronolith_model::{StoreId, TimeRange};

/// Window of one tenant that has chunks in the head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowStat {
    /// Tenant of the window.
    pub tenant: StoreId,
    /// Time range of the window.
    pub range: TimeRange,
    /// Samples in the window; those that arrived out of order and have the timestamp of another count as
    /// well.
    pub sample_count: u64,
    /// Server time at which its first sample arrived.
    pub first_arrival_ms: i64,
}

/// Samples of one window in a tally.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WindowSpan {
    /// Start of the window.
    start: i64,
    /// Negative for samples that were removed.
    count: i64,
    /// Timestamps of the oldest and of the newest sample.
    oldest: i64,
    newest: i64,
}

impl WindowSpan {
    fn empty(start: i64) -> WindowSpan {
        WindowSpan { start, count: 0, oldest: i64::MAX, newest: i64::MIN }
    }

    fn merge(&mut self, other: WindowSpan) {
        self.count += other.count;
        self.oldest = self.oldest.min(other.oldest);
        self.newest = self.newest.max(other.newest);
    }
}

/// Counts of one batch by window; adding to the window of the previous sample costs a few comparisons.
pub(crate) struct WindowTally {
    /// Width of the windows in the unit of the tenant.
    width: i64,
    end: i64,
    current: WindowSpan,
    others: Vec<WindowSpan>,
}

impl WindowTally {
    /// Returns an empty tally for windows of `width`, in the unit of the tenant.
    pub(crate) fn new(width: i64) -> WindowTally {
        WindowTally { width, end: 0, current: WindowSpan::empty(0), others: Vec::new() }
    }

    /// Returns the width of the windows.
    pub(crate) fn width(&self) -> i64 {
        self.width
    }

    /// Returns the window of a timestamp.
    pub(crate) fn window_of(&self, time: i64) -> TimeRange {
        TimeRange::window_of(time, self.width)
    }

    /// Counts `count` samples at `time`.
    // PERF: the bounds of the samples so far stand in for the bounds of the window, so a sample between them,
    // as are all but the first of a scrape, costs two comparisons.
    pub(crate) fn add(&mut self, time: i64, count: i64) {
        if time < self.current.oldest || time > self.current.newest {
            self.widen(time);
        }
        self.current.count += count;
    }

    /// Extends the bounds to `time`; makes its window current first if necessary.
    fn widen(&mut self, time: i64) {
        if time < self.current.start || time >= self.end {
            self.set_current(time);
        }
        self.current.oldest = self.current.oldest.min(time);
        self.current.newest = self.current.newest.max(time);
    }

    /// Counts `count` samples of one window, the oldest at `oldest`, the newest at `newest`.
    pub(crate) fn add_chunk(&mut self, oldest: i64, newest: i64, count: i64) {
        self.add(oldest, count);
        self.current.newest = self.current.newest.max(newest);
    }

    /// As [`WindowTally::add`] for a single sample among samples of another window, which stays current.
    pub(crate) fn add_single(&mut self, time: i64, count: i64) {
        if self.current.start <= time && time < self.end {
            return self.add(time, count);
        }
        let start = self.window_of(time).start;
        self.put(WindowSpan { start, count, oldest: time, newest: time });
    }

    #[cold]
    fn set_current(&mut self, time: i64) {
        let window = self.window_of(time);
        self.replace_current(window.start);
        self.end = window.end;
    }

    /// Moves the current window to the others and makes the one at `start` current.
    fn replace_current(&mut self, start: i64) {
        let done = std::mem::replace(&mut self.current, WindowSpan::empty(start));
        if done.count != 0 {
            self.put(done);
        }
    }

    fn put(&mut self, span: WindowSpan) {
        match self.others.iter_mut().find(|other| other.start == span.start) {
            Some(other) => other.merge(span),
            None => self.others.push(span),
        }
    }

    /// Adds the counts of `other`, which is empty afterwards.
    pub(crate) fn merge(&mut self, other: &mut WindowTally) {
        other.drain().for_each(|span| self.put(span));
    }

    /// Removes all windows; returns the sum of their counts.
    #[cfg(test)]
    pub(crate) fn take_count(&mut self) -> i64 {
        self.drain().map(|span| span.count).sum()
    }

    /// Removes and returns the windows with samples.
    fn drain(&mut self) -> impl Iterator<Item = WindowSpan> {
        self.replace_current(self.current.start);
        self.others.drain(..)
    }
}

/// Samples of one window of a tenant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowCount {
    /// May be negative for a moment, when a drop overtakes the count of an append.
    sample_count: i64,
    first_arrival_ms: i64,
    /// Timestamps of the oldest and of the newest sample that arrived. A deletion, or a series that departed
    /// alone, does not narrow them.
    oldest: i64,
    newest: i64,
}

impl WindowCount {
    /// Returns the number of samples; `None` while a drop has overtaken the count of an append.
    pub(crate) fn sample_count(&self) -> Option<u64> {
        u64::try_from(self.sample_count).ok()
    }

    /// Returns the server time at which the first sample arrived.
    pub(crate) fn first_arrival_ms(&self) -> i64 {
        self.first_arrival_ms
    }

    fn new(first_arrival_ms: i64) -> WindowCount {
        WindowCount { sample_count: 0, first_arrival_ms, oldest: i64::MAX, newest: i64::MIN }
    }

    fn merge(&mut self, span: WindowSpan) {
        self.sample_count += span.count;
        self.oldest = self.oldest.min(span.oldest);
        self.newest = self.newest.max(span.newest);
    }
}

/// Windows of one tenant, by start.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    by_start: BTreeMap<i64, WindowCount>,
}

impl Windows {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// Returns the start of each window and its counts, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, &WindowCount)> {
        self.by_start.iter().map(|(&start, count)| (start, count))
    }

    /// Returns true if a window may have samples in `range`.
    pub(crate) fn overlaps(&self, range: TimeRange) -> bool {
        self.by_start.values().any(|window| range.overlaps_inclusive(window.oldest, window.newest))
    }

    /// Adds the counts of a batch that arrived at `arrival_ms`.
    pub(crate) fn merge(&mut self, tally: &mut WindowTally, arrival_ms: i64) {
        for span in tally.drain() {
            let entry = self.by_start.entry(span.start).or_insert(WindowCount::new(arrival_ms));
            entry.merge(span);
            entry.first_arrival_ms = entry.first_arrival_ms.min(arrival_ms);
            if entry.sample_count == 0 {
                self.by_start.remove(&span.start);
            }
        }
    }

    /// Returns the timestamps of the oldest and of the newest sample.
    pub(crate) fn bounds(&self) -> Option<(i64, i64)> {
        let oldest = self.by_start.values().next()?.oldest;
        let newest = self.by_start.values().next_back()?.newest;
        Some((oldest, newest))
    }

    /// Estimates the samples in `range`: a window that lies partly in it counts in proportion. The newest
    /// window is assumed to end with the range if the range ends within it: there are hardly any samples in
    /// the future.
    pub(crate) fn sample_count(&self, width: i64, range: TimeRange) -> u64 {
        let newest = self.by_start.keys().next_back().copied();
        let inside = |(&start, count): (&i64, &WindowCount)| {
            let full_end = TimeRange::window_of(start, width).end;
            let end = full_end.min(range.end);
            let whole = if newest == Some(start) && end > start { end - start } else { full_end - start };
            let inside = end.saturating_sub(start.max(range.start));
            let part = inside.clamp(0, whole) as f64 / whole.max(1) as f64;
            (count.sample_count.max(0) as f64 * part) as u64
        };
        self.by_start.iter().map(inside).fold(0, u64::saturating_add)
    }

    /// Adds the counts of a checkpoint, whose windows arrived at `arrivals` (by tenant and start) or else at
    /// `now_ms`.
    pub(crate) fn merge_known(
        &mut self,
        tally: &mut WindowTally,
        arrivals: &HashMap<(u32, i64), i64>,
        tenant: u32,
        now_ms: i64,
    ) {
        for span in tally.drain() {
            let first_arrival_ms = arrivals.get(&(tenant, span.start)).copied().unwrap_or(now_ms);
            let entry = self.by_start.entry(span.start).or_insert(WindowCount::new(first_arrival_ms));
            entry.merge(span);
            if entry.sample_count == 0 {
                self.by_start.remove(&span.start);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a window whose series were all removed again during startup was never dropped: each
    /// maintenance pass flushed it to no block and wrote a whole checkpoint.
    #[test]
    fn a_window_without_samples_is_dropped_at_startup() {
        let (mut tally, mut windows) = (WindowTally::new(100), Windows::default());
        tally.add(110, 5);
        tally.add(210, 7);
        tally.add(110, -5);
        windows.merge_known(&mut tally, &HashMap::default(), 0, 1);
        assert_eq!(windows.by_start.keys().copied().collect::<Vec<_>>(), [200]);
    }

    /// Regression: the bounds were bounds of the window, so the newest sample seemed to be up to two hours in
    /// the future.
    #[test]
    fn bounds_are_timestamps_of_samples() {
        let (mut tally, mut windows) = (WindowTally::new(100), Windows::default());
        tally.add(150, 1);
        tally.add(130, 1);
        tally.add_chunk(310, 370, 5);
        tally.add_single(140, 1);
        windows.merge(&mut tally, 1);
        assert_eq!(windows.bounds(), Some((130, 370)));
        tally.add_chunk(310, 370, -5);
        windows.merge(&mut tally, 1);
        assert_eq!(windows.bounds(), Some((130, 150)));
        tally.add(120, -3);
        windows.merge(&mut tally, 1);
        assert_eq!(windows.bounds(), None);
    }
}
