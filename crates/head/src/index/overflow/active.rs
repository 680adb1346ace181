//! Sum and count of the gauges whose last sample is recent: sums by the window of time in which it lies.
//!
//! Invariant: the sum of an empty window is exactly 0, so rounding errors of additions and subtractions end
//! with the window.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Width of a window.
pub(super) const WINDOW_MS: i64 = 30_000;
/// Age up to which a last sample counts, as the lookback of instant queries; the whole window counts in which
/// the last such sample may lie.
const ACTIVE_MS: i64 = 5 * 60 * 1000;

/// Returns the windows whose gauges are active at `time`.
pub(super) fn windows_at(time: i64) -> RangeInclusive<i64> {
    (time - ACTIVE_MS).div_euclid(WINDOW_MS)..=time.div_euclid(WINDOW_MS)
}

/// Gauges whose last samples lie in one window.
#[derive(Debug, Default, Clone, Copy)]
struct Window {
    sum: f64,
    count: u32,
    nan_count: u32,
    /// Count of +Inf and -Inf.
    infinite_counts: [u32; 2],
}

/// Sums of the last samples by window.
#[derive(Debug, Default)]
pub(super) struct ActiveSums(BTreeMap<i64, Window>);

impl ActiveSums {
    /// Adds the last sample of a gauge.
    pub(super) fn add(&mut self, time: i64, value: f64) {
        let window = self.0.entry(time.div_euclid(WINDOW_MS)).or_default();
        window.count += 1;
        match value {
            _ if value.is_nan() => window.nan_count += 1,
            _ if value.is_infinite() => window.infinite_counts[usize::from(value < 0.0)] += 1,
            _ => window.sum += value,
        }
    }

    /// Removes a last sample that was added; returns true if its window has no other.
    pub(super) fn remove(&mut self, time: i64, value: f64) -> bool {
        let key = time.div_euclid(WINDOW_MS);
        let Some(window) = self.0.get_mut(&key) else { return true };
        window.count -= 1;
        if window.count == 0 {
            self.0.remove(&key);
            return true;
        }
        match value {
            _ if value.is_nan() => window.nan_count -= 1,
            _ if value.is_infinite() => window.infinite_counts[usize::from(value < 0.0)] -= 1,
            _ => window.sum -= value,
        }
        false
    }

    /// Returns sum and count of the gauges that are active at `time`.
    pub(super) fn at(&self, time: i64) -> (f64, u64) {
        let mut all = Window::default();
        let mut count = 0;
        for (_, window) in self.0.range(windows_at(time)) {
            count += u64::from(window.count);
            all.sum += window.sum;
            all.nan_count += window.nan_count;
            all.infinite_counts[0] += window.infinite_counts[0];
            all.infinite_counts[1] += window.infinite_counts[1];
        }
        let sum = match (all.nan_count, all.infinite_counts) {
            (0, [0, 0]) => all.sum,
            (0, [_, 0]) => f64::INFINITY,
            (0, [0, _]) => f64::NEG_INFINITY,
            _ => f64::NAN,
        };
        (sum, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_counts_for_five_minutes_and_special_values_leave_no_trace() {
        let mut sums = ActiveSums::default();
        sums.add(1_000, 5.0);
        sums.add(2_000, 0.1);
        assert_eq!(sums.at(2_000), (5.1, 2));
        sums.remove(1_000, 5.0);
        sums.add(335_000, f64::INFINITY);
        assert_eq!(sums.at(335_000), (f64::INFINITY, 1), "the other gauge has no sample for five minutes");
        sums.add(335_500, f64::NEG_INFINITY);
        assert!(sums.at(336_000).0.is_nan());
        sums.remove(335_500, f64::NEG_INFINITY);
        sums.remove(335_000, f64::INFINITY);
        sums.remove(2_000, 0.1);
        assert_eq!(sums.at(336_000), (0.0, 0));
        assert!(sums.0.is_empty(), "windows without gauges take no memory");
    }
}
