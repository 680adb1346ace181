//! Pace of a compaction: a token bucket over the bytes that it reads and writes, and the signals that end it.
//!
//! Invariants: over more than a second a compaction moves no more than the limit, one series aside; a pause,
//! a waiting operator or the shutdown ends it at its next series.
//! Not here: which blocks (`plan`), the merge of their series (`block`).

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chronolith_base::Clock;
use chronolith_block::Pace;

use super::super::control::Control;
use super::super::counters::CompactionCounters;
use super::super::job_kind::JobKind;

/// Capacity of the bucket: bytes of this much time may be moved at once after a time without work.
const BURST: Duration = Duration::from_millis(250);
/// Longest sleep between two checks of the signals.
const SLEEP_MAX: Duration = Duration::from_millis(100);
const SECOND_NS: u64 = 1_000_000_000;

/// Origin of a rewrite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Maintenance: keeps to the rate limit, and ends for a pause or a waiting operator.
    Background,
    /// Maintenance on a thread of its own: as `Background`, but no operator waits for it.
    Detached,
    /// An operator waits for it: runs without a rate limit, until the shutdown.
    Requested,
}

/// Token bucket in bytes per second, checked between series.
pub(crate) struct RewritePace<'a> {
    clock: &'a dyn Clock,
    /// 0 = no limit.
    bytes_per_second: u64,
    urgency: Urgency,
    control: &'a Control,
    counters: &'a CompactionCounters,
    /// Monotonic time until which the bytes moved so far are paid for.
    paid_ns: AtomicU64,
}

impl<'a> RewritePace<'a> {
    pub(crate) fn new(
        clock: &'a dyn Clock,
        bytes_per_second: u64,
        urgency: Urgency,
        control: &'a Control,
        counters: &'a CompactionCounters,
    ) -> RewritePace<'a> {
        let paid_ns = AtomicU64::new(clock.mono_ns());
        RewritePace { clock, bytes_per_second, urgency, control, counters, paid_ns }
    }

    fn is_ended(&self) -> bool {
        let is_paused = || self.control.is_paused(JobKind::Compaction as usize);
        let is_interrupted = match self.urgency {
            Urgency::Background => is_paused() || self.control.is_operator_waiting(),
            Urgency::Detached => is_paused(),
            Urgency::Requested => false,
        };
        self.control.is_stopped() || is_interrupted
    }
}

impl Pace for RewritePace<'_> {
    fn spend(&self, bytes: u64) -> ControlFlow<()> {
        self.counters.step_moved_bytes.add(bytes);
        if self.is_ended() {
            return ControlFlow::Break(());
        }
        if self.bytes_per_second == 0 || self.urgency == Urgency::Requested {
            return ControlFlow::Continue(());
        }
        let burst_ns = BURST.as_nanos() as u64;
        let now_ns = self.clock.mono_ns();
        let price_ns = u128::from(bytes) * u128::from(SECOND_NS) / u128::from(self.bytes_per_second);
        let price_ns = u64::try_from(price_ns).unwrap_or(u64::MAX);
        let from_ns = self.paid_ns.load(Ordering::Relaxed).max(now_ns.saturating_sub(burst_ns));
        let paid_ns = from_ns.saturating_add(price_ns);
        self.paid_ns.store(paid_ns, Ordering::Relaxed);
        let mut left_ns = paid_ns.saturating_sub(now_ns);
        while left_ns > 0 {
            if self.is_ended() {
                return ControlFlow::Break(());
            }
            let sleep_ns = left_ns.min(SLEEP_MAX.as_nanos() as u64);
            self.clock.sleep(Duration::from_nanos(sleep_ns));
            self.counters.throttled_ns.add(sleep_ns);
            left_ns -= sleep_ns;
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use chronolith_base::ManualClock;

    use super::*;

    #[test]
    fn bytes_are_moved_at_the_rate_and_a_pause_ends_the_wait() {
        let clock = ManualClock::new(0);
        let (control, counters) = (Control::default(), CompactionCounters::default());
        let pace = RewritePace::new(&clock, 1000, Urgency::Background, &control, &counters);
        let start_ns = clock.mono_ns();
        for _ in 0..100 {
            assert!(pace.spend(100).is_continue());
        }
        let passed_ms = (clock.mono_ns() - start_ns) / 1_000_000;
        assert!((9_700..=10_000).contains(&passed_ms), "10000 bytes at 1000 a second: {passed_ms} ms");
        control.set_paused(JobKind::Compaction as usize, true);
        assert!(pace.spend(u64::MAX).is_break());
        assert!((clock.mono_ns() - start_ns) / 1_000_000 <= 10_000, "no wait once it is paused");
    }

    #[test]
    fn without_a_limit_no_byte_waits() {
        let clock = ManualClock::new(0);
        let (control, counters) = (Control::default(), CompactionCounters::default());
        let pace = RewritePace::new(&clock, 0, Urgency::Background, &control, &counters);
        assert!(pace.spend(u64::MAX).is_continue());
        assert_eq!(counters.throttled_ns.get(), 0);
    }
}
