//! Pause between attempts: after a failure it doubles, up to a limit.

/// Pause after the first failure.
const PAUSE_NS_MIN: u64 = 5_000_000_000;
const PAUSE_NS_MAX: u64 = 300_000_000_000;

/// Time of the next attempt.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Backoff {
    /// Monotonic time from which the next attempt is allowed, ns.
    retry_ns: u64,
    pause_ns: u64,
}

impl Backoff {
    /// Returns true if an attempt is allowed.
    pub(super) fn is_due(&self, mono_ns: u64) -> bool {
        mono_ns >= self.retry_ns
    }

    /// The state after a failed attempt.
    pub(super) fn after_failure(self, mono_ns: u64) -> Backoff {
        let pause_ns = (self.pause_ns * 2).clamp(PAUSE_NS_MIN, PAUSE_NS_MAX);
        Backoff { retry_ns: mono_ns.saturating_add(pause_ns), pause_ns }
    }

    /// Pause before the next attempt, in seconds.
    pub(super) fn pause_s(&self) -> u64 {
        self.pause_ns / 1_000_000_000
    }
}
