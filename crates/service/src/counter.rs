//! Counters and histograms of durations: plain atomics. Cost: counting is one relaxed atomic add, a duration
//! two.

use std::sync::atomic::{AtomicU64, Ordering};

/// Upper bounds of durations, in seconds.
const SECONDS_BOUNDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 10.0, 120.0];

/// A value that only goes up.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to the counter.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Value since the start.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Value as metrics show it; exact below 2^53.
    pub fn as_f64(&self) -> f64 {
        self.get() as f64
    }
}

/// Durations by upper bound.
#[derive(Default)]
pub struct Seconds {
    counts: [AtomicU64; SECONDS_BOUNDS.len() + 1],
    sum_ns: AtomicU64,
}

impl Seconds {
    /// Counts a duration in nanoseconds.
    pub fn observe_ns(&self, ns: u64) {
        let seconds = ns as f64 / 1e9;
        let at = SECONDS_BOUNDS.partition_point(|bound| *bound < seconds);
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// `(bound, count up to it)` for every bound and `+Inf`, and the sum in seconds.
    pub fn cumulative(&self) -> (Vec<(f64, u64)>, f64) {
        let mut total = 0;
        let bounds = SECONDS_BOUNDS.iter().copied().chain([f64::INFINITY]);
        let counted = bounds.zip(&self.counts).map(|(bound, count)| {
            total += count.load(Ordering::Relaxed);
            (bound, total)
        });
        (counted.collect(), self.sum_ns.load(Ordering::Relaxed) as f64 / 1e9)
    }
}
