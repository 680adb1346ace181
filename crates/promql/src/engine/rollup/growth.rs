//! `rate`, `increase` and `delta` of windows that slide over a series.
//!
//! Holds: the growth within a window is extended to its ends: fully where the series seems to go on beyond the end,
//! else by half an average distance; a counter never to before it was zero. Operations come in upstream's order, since
//! the last bits show it. What depends on times alone is computed
//! again only when a window lies otherwise over its samples than the one before it: with regular samples and steps
//! that is twice a series.

use super::Window;
use super::event::Inside;
use super::rate::{EXTRAPOLATION_FACTOR, Extrapolation};
use crate::engine::series::ABSENT;

/// How samples lie in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lie {
    /// From the start of the window to the first sample.
    before_ms: i64,
    /// From the first to the last sample.
    covered_ms: i64,
    /// From the last sample to the end of the window.
    after_ms: i64,
    sample_count: usize,
}

/// What follows from that.
#[derive(Debug, Clone, Copy)]
struct Scale {
    covered: f64,
    /// By how many seconds the growth is extended to either side.
    before: f64,
    after: f64,
    width: f64,
    /// What growth is multiplied with, unless the counter was zero within `before`.
    factor: f64,
}

/// See the module.
pub(super) struct Growth<'s> {
    series: &'s [f64],
    resets: Inside<'s>,
    kind: Extrapolation,
    last: Option<(Lie, Scale)>,
}

impl<'s> Growth<'s> {
    /// `resets` are the indices of samples of `series` that are lower than the one before.
    pub(super) fn new(series: &'s [f64], resets: &'s [usize], kind: Extrapolation) -> Growth<'s> {
        Growth { series, resets: Inside::new(resets), kind, last: None }
    }

    /// Of the next window.
    pub(super) fn of(&mut self, window: &Window<'_>) -> f64 {
        let (&[first_time, .., last_time], &[first, .., last]) = (window.times, window.values) else {
            return ABSENT;
        };
        let lie = Lie {
            before_ms: first_time - window.start_ms,
            covered_ms: last_time - first_time,
            after_ms: window.end_ms - last_time,
            sample_count: window.times.len(),
        };
        let scale = match self.last {
            Some((of, scale)) if of == lie => scale,
            _ => {
                let scale = Scale::new(lie, self.kind);
                self.last = Some((lie, scale));
                scale
            }
        };
        let mut growth = last - first;
        for &at in self.resets.of(window) {
            growth += self.series[at - 1];
        }
        // A counter that stands at twice its growth was zero longer ago than any gap is wide: the samples cover at
        // least one distance, and gaps are filled up to 1.1 distances. That spares most windows a division.
        let may_reach_zero =
            self.kind != Extrapolation::Gauge && growth > 0.0 && first >= 0.0 && first < 2.0 * growth;
        if may_reach_zero {
            let since_zero = scale.covered * (first / growth);
            if since_zero < scale.before {
                return growth * scale.factor_after(since_zero, self.kind);
            }
        }
        growth * scale.factor
    }
}

impl Scale {
    fn new(lie: Lie, kind: Extrapolation) -> Scale {
        let seconds = |ms: i64| ms as f64 / 1000.0;
        let covered = seconds(lie.covered_ms);
        let distance = covered / (lie.sample_count - 1) as f64;
        let limit = distance * EXTRAPOLATION_FACTOR;
        let extend = |gap_ms: i64| {
            let gap = seconds(gap_ms);
            if gap >= limit { distance / 2.0 } else { gap }
        };
        let (before, after) = (extend(lie.before_ms), extend(lie.after_ms));
        let width = seconds(lie.before_ms + lie.covered_ms + lie.after_ms);
        let scale = Scale { covered, before, after, width, factor: 0.0 };
        Scale { factor: scale.factor_after(before, kind), ..scale }
    }

    /// What growth is multiplied with if it is extended by `before` seconds into the past.
    fn factor_after(&self, before: f64, kind: Extrapolation) -> f64 {
        let factor = (self.covered + before + self.after) / self.covered;
        if kind == Extrapolation::CounterPerSecond { factor / self.width } else { factor }
    }
}

#[cfg(test)]
mod tests;
