//! Exponential backoff: the pause between attempts doubles after each failure, up to a limit.
//!
//! Not here: retries of one request within its deadline (`bucket::store`).

/// Bounds of a pause, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct PauseBounds {
    /// Pause after the first failure.
    pub min_ns: u64,
    /// Pause after many failures.
    pub max_ns: u64,
}

/// Time of the next attempt.
#[derive(Debug, Clone, Copy, Default)]
pub struct Backoff {
    retry_ns: u64,
    pause_ns: u64,
}

impl Backoff {
    /// Returns true if an attempt is allowed.
    #[must_use]
    pub fn is_due(&self, mono_ns: u64) -> bool {
        mono_ns >= self.retry_ns
    }

    /// The state after a failed attempt.
    #[must_use]
    pub fn after_failure(self, mono_ns: u64, bounds: PauseBounds) -> Backoff {
        let pause_ns = self.pause_ns.saturating_mul(2).clamp(bounds.min_ns, bounds.max_ns);
        Backoff { retry_ns: mono_ns.saturating_add(pause_ns), pause_ns }
    }

    /// Monotonic time from which the next attempt is allowed, ns.
    #[must_use]
    pub fn retry_ns(&self) -> u64 {
        self.retry_ns
    }

    /// Pause before the next attempt, in seconds.
    #[must_use]
    pub fn pause_s(&self) -> u64 {
        self.pause_ns / 1_000_000_000
    }
}
