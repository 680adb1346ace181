//! Memory budget for open and out-of-order histograms of all stripes, with early sealing above it.
//!
//! Invariant: `used_bytes` is the sum of the last reports of all stripes. Above the limit, a stripe that
//! appends a histogram seals its largest series until its own usage is halved; a stripe with little (a
//! quarter of its even share) is exempt. So usage stays below 1.25 x the limit plus one histogram per stripe.
//! Not here: sealed chunks, which are on disk and cost one reference each.

use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_model::{Histogram, TimeRange};

use super::super::{AppendContext, STRIPE_COUNT, Stripe};
use super::{HistogramSeries, Histograms};

/// Divisor of the limit below which a stripe is exempt: a quarter of its even share.
const KEPT_PARTS: u64 = 4 * STRIPE_COUNT as u64;

/// Bytes of open and out-of-order histograms of a head.
pub(crate) struct HistogramBudget {
    bytes_max: u64,
    used_bytes: AtomicU64,
    sealed_early_count: AtomicU64,
}

impl HistogramBudget {
    /// Returns a budget of `bytes_max`.
    pub(crate) const fn new(bytes_max: u64) -> HistogramBudget {
        HistogramBudget { bytes_max, used_bytes: AtomicU64::new(0), sealed_early_count: AtomicU64::new(0) }
    }

    /// Returns the bytes in use.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Number of series whose histograms were sealed because the budget was used up.
    pub(crate) fn sealed_early_count(&self) -> u64 {
        self.sealed_early_count.load(Ordering::Relaxed)
    }
}

/// Returns the bytes of a buffered out-of-order histogram.
pub(super) fn ooo_bytes_of(histogram: &Histogram) -> usize {
    let bounds = match histogram {
        Histogram::Int(one) => one.custom_values.len(),
        Histogram::Float(one) => one.custom_values.len(),
    };
    histogram.memory_bytes() + bounds * size_of::<f64>() + 32
}

impl HistogramSeries {
    fn growing_bytes(&self) -> usize {
        self.open_bytes + self.ooo_bytes
    }
}

impl Histograms {
    /// Recounts the bytes of the open chunk of a series.
    pub(super) fn recount(&mut self, id: u32) {
        let Some(histograms) = self.by_series.get_mut(&id) else { return };
        let bytes = histograms.open.as_ref().map_or(0, |open| open.heap_bytes());
        let before = std::mem::replace(&mut histograms.open_bytes, bytes);
        self.open_bytes = self.open_bytes + bytes - before;
    }

    fn growing_bytes(&self) -> u64 {
        (self.open_bytes + self.ooo_bytes) as u64
    }

    /// Reports the usage of the stripe to the budget; returns the usage of all stripes.
    pub(super) fn report(&mut self, budget: &HistogramBudget) -> u64 {
        let bytes = self.growing_bytes();
        let change = bytes.wrapping_sub(std::mem::replace(&mut self.reported_bytes, bytes));
        budget.used_bytes.fetch_add(change, Ordering::Relaxed).wrapping_add(change)
    }

    /// Returns the series with bytes to free, largest first.
    fn largest(&self) -> Vec<(usize, u32)> {
        let growing = self.by_series.iter().map(|(&id, histograms)| (histograms.growing_bytes(), id));
        let mut out: Vec<(usize, u32)> = growing.filter(|(bytes, _)| *bytes > 0).collect();
        out.sort_unstable_by(|a, b| b.cmp(a));
        out
    }
}

impl Stripe {
    /// Seals histograms of the stripe if all stripes together exceed the budget. Cost: none below the limit;
    /// above it, a scan of all series with histograms per half of the bytes of the stripe.
    pub(super) fn keep_histogram_budget(&mut self, cx: &mut AppendContext<'_>) {
        let budget = cx.histograms;
        if self.histograms.report(budget) <= budget.bytes_max {
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
            self.seal_open_histograms(cx, id);
            self.merge_out_of_order_histograms(cx, id, all);
            budget.sealed_early_count.fetch_add(1, Ordering::Relaxed);
        }
        self.histograms.report(budget);
    }
}
