//! What open and late histograms of all stripes may take, and what is sealed early when they take more.
//!
//! Holds: `used_bytes` is the sum of what each stripe has told last. Above the limit, a stripe that takes a histogram seals
//! its largest tracks until it has half of what it had, unless it has little: so all together stay below five fourths
//! of the limit, and one histogram a stripe.
//! Not here: sealed chunks, which are on the disk and cost a place each.

use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_model::{Histogram, TimeRange};

use super::super::{STRIPE_COUNT, Stripe, StripeWorld};
use super::{Histograms, Track};
use crate::windows::WindowTally;

/// The part of the limit below which a stripe keeps what it has: a fourth of its even share.
const KEPT_PARTS: u64 = 4 * STRIPE_COUNT as u64;

/// Bytes of open and late histograms of a head.
pub(crate) struct HistogramBudget {
    bytes_max: u64,
    used_bytes: AtomicU64,
    sealed_early_count: AtomicU64,
}

impl HistogramBudget {
    /// A budget of `bytes_max`.
    pub(crate) const fn new(bytes_max: u64) -> HistogramBudget {
        HistogramBudget { bytes_max, used_bytes: AtomicU64::new(0), sealed_early_count: AtomicU64::new(0) }
    }

    /// Bytes in use.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Series whose histograms were sealed because the budget was used up.
    pub(crate) fn sealed_early_count(&self) -> u64 {
        self.sealed_early_count.load(Ordering::Relaxed)
    }
}

/// Bytes that a late histogram takes.
pub(super) fn late_bytes_of(histogram: &Histogram) -> usize {
    let bounds = match histogram {
        Histogram::Int(one) => one.custom_values.len(),
        Histogram::Float(one) => one.custom_values.len(),
    };
    histogram.memory_bytes() + bounds * size_of::<f64>() + 32
}

impl Track {
    fn growing_bytes(&self) -> usize {
        self.open_bytes + self.late_bytes
    }
}

impl Histograms {
    /// Counts the open chunk of a series anew.
    pub(super) fn recount(&mut self, id: u32) {
        let Some(track) = self.tracks.get_mut(&id) else { return };
        let bytes = track.open.as_ref().map_or(0, |open| open.heap_bytes());
        let before = std::mem::replace(&mut track.open_bytes, bytes);
        self.open_bytes = self.open_bytes + bytes - before;
    }

    fn growing_bytes(&self) -> u64 {
        (self.open_bytes + self.late_bytes) as u64
    }

    /// Tells the budget what the stripe has; gives what all have together.
    pub(super) fn tell(&mut self, budget: &HistogramBudget) -> u64 {
        let bytes = self.growing_bytes();
        let change = bytes.wrapping_sub(std::mem::replace(&mut self.told_bytes, bytes));
        budget.used_bytes.fetch_add(change, Ordering::Relaxed).wrapping_add(change)
    }

    /// The tracks that grow, largest first.
    fn largest(&self) -> Vec<(usize, u32)> {
        let growing = self.tracks.iter().map(|(&id, track)| (track.growing_bytes(), id));
        let mut out: Vec<(usize, u32)> = growing.filter(|(bytes, _)| *bytes > 0).collect();
        out.sort_unstable_by(|a, b| b.cmp(a));
        out
    }
}

impl Stripe {
    /// Seals histograms of the stripe if all stripes together have too much. Cost: none below the limit; above it, a look
    /// at each track for half of the stripe's bytes.
    pub(super) fn keep_histogram_budget(&mut self, world: &StripeWorld<'_>, windows: &mut WindowTally) {
        let budget = world.histograms;
        if self.histograms.tell(budget) <= budget.bytes_max {
            return;
        }
        let before = self.histograms.growing_bytes();
        if before <= budget.bytes_max / KEPT_PARTS {
            return;
        }
        let all = TimeRange { start: i64::MIN, end: i64::MAX };
        for (_, id) in self.histograms.largest() {
            if self.histograms.growing_bytes() <= before / 2 {
                break;
            }
            self.seal_open_histograms(world, windows, id);
            self.seal_late_histograms(world, windows, id, all);
            budget.sealed_early_count.fetch_add(1, Ordering::Relaxed);
        }
        self.histograms.tell(budget);
    }
}
