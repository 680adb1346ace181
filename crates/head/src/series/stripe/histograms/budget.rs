//! Memory budget for open and out-of-order histograms of all stripes, with early sealing above it.
//!
//! Invariant: `used_bytes` is the sum of the last reports of all stripes. Above the limit, a stripe that
//! appends a histogram seals its largest series until its own usage is halved; a stripe with little (a
//! quarter of its even share) is exempt. So usage stays below 1.25 x the limit plus one histogram per stripe.
//! Not here: sealed chunks, which are on disk and cost one reference each.

use std::sync::atomic::{AtomicU64, Ordering};

use super::super::layout::STRIPE_COUNT;

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

    /// Counts one more series that was sealed early.
    pub(crate) fn note_sealed_early(&self) {
        self.sealed_early_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds `change`, which wraps, and returns true if the limit is exceeded.
    pub(super) fn is_exceeded_after(&self, change: u64) -> bool {
        self.used_bytes.fetch_add(change, Ordering::Relaxed).wrapping_add(change) > self.bytes_max
    }

    /// Bytes that a stripe may keep above the limit.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.bytes_max / KEPT_PARTS
    }
}
