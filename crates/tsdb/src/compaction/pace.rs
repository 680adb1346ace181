//! How fast a merge goes: so many bytes a second, read and written, with a pause switch.
//!
//! Holds: over any stretch longer than a second a merge moves no more than the limit, one series aside; a pause or a stop
//! ends it at its next series.
//! Not here: which blocks (`plan`), the merge (`block`).

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chronolith_base::Clock;
use chronolith_block::Pace;

use super::CompactionState;

/// What may be moved at once after a time without work.
const BURST: Duration = Duration::from_millis(250);
/// Longest sleep: a stop is noticed after it.
const SLEEP_MAX: Duration = Duration::from_millis(100);
const SECOND_NS: u64 = 1_000_000_000;

/// For whom blocks are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Nobody waits: it keeps to the limit, and gives way to a pause and to operators.
    Background,
    /// An operator waits: it goes as fast as it can, until the store closes.
    Asked,
}

/// The pace of one merge.
pub(super) struct MergePace<'a> {
    clock: &'a dyn Clock,
    /// 0 = no limit.
    bytes_per_second: u64,
    urgency: Urgency,
    state: &'a CompactionState,
    /// When what has been spent so far is paid for.
    paid_ns: AtomicU64,
}

impl<'a> MergePace<'a> {
    pub(super) fn new(
        clock: &'a dyn Clock,
        bytes_per_second: u64,
        urgency: Urgency,
        state: &'a CompactionState,
    ) -> MergePace<'a> {
        let paid_ns = AtomicU64::new(clock.mono_ns());
        MergePace { clock, bytes_per_second, urgency, state, paid_ns }
    }

    fn is_stopped(&self) -> bool {
        let gives_way =
            || self.state.paused.load(Ordering::Relaxed) || self.state.waiting.load(Ordering::SeqCst) > 0;
        self.state.stop.load(Ordering::Relaxed) || (self.urgency == Urgency::Background && gives_way())
    }
}

impl Pace for MergePace<'_> {
    fn spend(&self, bytes: u64) -> ControlFlow<()> {
        self.state.moved_bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.is_stopped() {
            return ControlFlow::Break(());
        }
        if self.bytes_per_second == 0 || self.urgency == Urgency::Asked {
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
            if self.is_stopped() {
                return ControlFlow::Break(());
            }
            let sleep_ns = left_ns.min(SLEEP_MAX.as_nanos() as u64);
            self.clock.sleep(Duration::from_nanos(sleep_ns));
            self.state.throttled_ns.fetch_add(sleep_ns, Ordering::Relaxed);
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
    fn bytes_take_their_time_and_a_pause_ends_the_wait() {
        let (clock, state) = (ManualClock::new(0), CompactionState::default());
        let pace = MergePace::new(&clock, 1000, Urgency::Background, &state);
        let start_ns = clock.mono_ns();
        for _ in 0..100 {
            assert!(pace.spend(100).is_continue());
        }
        let passed_ms = (clock.mono_ns() - start_ns) / 1_000_000;
        assert!((9_700..=10_000).contains(&passed_ms), "10000 bytes at 1000 a second: {passed_ms} ms");
        state.paused.store(true, Ordering::Relaxed);
        assert!(pace.spend(u64::MAX).is_break());
        assert!((clock.mono_ns() - start_ns) / 1_000_000 <= 10_000, "no wait once it is paused");
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let (clock, state) = (ManualClock::new(0), CompactionState::default());
        let pace = MergePace::new(&clock, 0, Urgency::Background, &state);
        assert!(pace.spend(u64::MAX).is_continue());
        assert_eq!(state.throttled_ns.load(Ordering::Relaxed), 0);
    }
}
