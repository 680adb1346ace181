//! Large windows of the past that receive no more samples: a backfill has gone past them.
//!
//! Invariants: only windows that ended longer ago than the flush delay qualify, so windows of live data keep
//! waiting for out-of-order samples. At most one entry per large window of the head.
//! Not here: when other windows are due (`plan`).

use chronolith_base::hash::HashMap;
use chronolith_head::WindowStat;
use chronolith_model::{StoreId, TimeRange};

use super::plan::end_ms;

/// Samples from which on a window is large: 4 MiB of chunk records in memory and more than 50 MiB of log and
/// sealed files.
const LARGE_SAMPLE_COUNT: u64 = 16 << 20;
/// Time without a new sample after which a window is at rest: writers of a backfill are not this far apart,
/// and flushing competes with them for the cores.
const REST_MS: i64 = 120_000;

/// Samples of a large window.
#[derive(Clone, Copy)]
struct Seen {
    sample_count: u64,
    /// Time at which the window first had `sample_count` samples.
    since_ms: i64,
}

/// Large windows, as the last search found them.
#[derive(Default)]
pub(super) struct RestingWindows {
    seen: HashMap<(StoreId, TimeRange), Seen>,
    /// Large windows that the current search has found.
    met: HashMap<(StoreId, TimeRange), Seen>,
}

impl RestingWindows {
    /// Returns true if `window` ended more than `delay_ms` ago, is large, and has received no sample for a
    /// while. Windows whose first sample came more than `delay_ms` ago are due without that.
    pub(super) fn is_resting(&mut self, window: &WindowStat, now_ms: i64, delay_ms: i64) -> bool {
        let is_past = end_ms(window, window.range).saturating_add(delay_ms) <= now_ms;
        let is_due = window.first_arrival_ms.saturating_add(delay_ms) <= now_ms;
        if !is_past || is_due || window.sample_count < LARGE_SAMPLE_COUNT {
            return false;
        }
        let key = (window.tenant.clone(), window.range);
        let before = self.seen.get(&key).filter(|seen| seen.sample_count == window.sample_count);
        // After a clock was set back the rest begins again.
        let before = before.filter(|seen| seen.since_ms <= now_ms);
        let seen = before.copied().unwrap_or(Seen { sample_count: window.sample_count, since_ms: now_ms });
        self.met.insert(key, seen);
        now_ms.saturating_sub(seen.since_ms) >= REST_MS
    }

    /// Ends a search: windows that it did not meet are forgotten.
    pub(super) fn end_search(&mut self) {
        self.seen = std::mem::take(&mut self.met);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END_MS: i64 = 7_200_000;
    const DELAY_MS: i64 = 3_600_000;
    const NOW_MS: i64 = END_MS + DELAY_MS;

    fn window(sample_count: u64) -> WindowStat {
        WindowStat {
            tenant: StoreId::anonymous(),
            range: TimeRange { start: 0, end: END_MS },
            sample_count,
            first_arrival_ms: NOW_MS,
        }
    }

    /// Searches at each of `searches`: seconds after [`NOW_MS`], samples. Returns what the last one found.
    fn at_rest(searches: &[(i64, u64)]) -> bool {
        let mut windows = RestingWindows::default();
        let mut found = false;
        for &(seconds, sample_count) in searches {
            found = windows.is_resting(&window(sample_count), NOW_MS + seconds * 1000, DELAY_MS);
            windows.end_search();
        }
        found
    }

    #[test]
    fn a_large_window_rests_once_no_sample_comes_for_a_while() {
        let large = LARGE_SAMPLE_COUNT;
        assert!(at_rest(&[(0, large), (60, large), (120, large)]));
        assert!(!at_rest(&[(0, large), (60, large)]), "not long enough");
        assert!(!at_rest(&[(0, large), (60, large), (120, large + 1)]), "a sample came");
        assert!(!at_rest(&[(0, large), (120, large + 1), (180, large + 1)]), "the rest begins again");
        assert!(!at_rest(&[(0, large - 1), (1000, large - 1)]), "a small one waits for its delay");
        assert!(!at_rest(&[(200, large), (50, large), (60, large)]), "the clock was set back");
    }

    #[test]
    fn a_window_that_is_due_anyway_is_left_to_the_plan() {
        let mut windows = RestingWindows::default();
        let due = WindowStat { first_arrival_ms: NOW_MS - DELAY_MS, ..window(LARGE_SAMPLE_COUNT) };
        assert!(!windows.is_resting(&due, NOW_MS, DELAY_MS));
        windows.end_search();
        assert!(windows.seen.is_empty());
    }

    #[test]
    fn a_window_that_ended_lately_waits_for_late_samples() {
        assert!(!at_rest(&[(-500, LARGE_SAMPLE_COUNT), (-1, LARGE_SAMPLE_COUNT)]));
    }

    #[test]
    fn windows_that_are_gone_are_forgotten() {
        let mut windows = RestingWindows::default();
        windows.is_resting(&window(LARGE_SAMPLE_COUNT), NOW_MS, DELAY_MS);
        windows.end_search();
        assert_eq!(windows.seen.len(), 1);
        windows.end_search();
        assert!(windows.seen.is_empty() && windows.met.is_empty());
    }
}
