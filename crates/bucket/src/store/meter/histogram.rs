//! Latency histogram with fixed bounds.

use std::sync::atomic::{AtomicU64, Ordering};

/// Upper bounds of the buckets in milliseconds; one more bucket has no bound.
pub const LATENCY_BOUNDS_MS: [u64; 14] =
    [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000];

#[derive(Debug, Default)]
pub(super) struct Histogram {
    counts: [AtomicU64; LATENCY_BOUNDS_MS.len() + 1],
    sum_ns: AtomicU64,
}

impl Histogram {
    pub(super) fn record(&self, latency_ns: u64) {
        let idx = LATENCY_BOUNDS_MS.partition_point(|bound_ms| bound_ms * 1_000_000 < latency_ns);
        self.counts[idx].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(latency_ns, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> HistogramSnapshot {
        let counts = self.counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        HistogramSnapshot { counts, sum_ns: self.sum_ns.load(Ordering::Relaxed) }
    }
}

/// Counts per bucket of [`LATENCY_BOUNDS_MS`], not cumulative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// Counts; the last bucket has no upper bound.
    pub counts: [u64; LATENCY_BOUNDS_MS.len() + 1],
    /// Sum of all latencies in nanoseconds.
    pub sum_ns: u64,
}
