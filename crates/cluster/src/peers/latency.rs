//! Times of the first bytes of recent answers of a partition, from which follows when another owner is asked.

use std::time::Duration;

use parking_lot::Mutex;

/// Answers that are remembered.
const TIMES_MAX: usize = 128;
/// Answers that have to be known before their times say anything.
const TIMES_MIN: usize = 16;
/// Part of the answers that are slower than the limit: one of this number.
const SLOW_DIVISOR: usize = 100;
/// Wait before another owner is asked: shortest, and while too few answers are known.
const HEDGE_AFTER_MIN: Duration = Duration::from_millis(10);
const HEDGE_AFTER_UNKNOWN: Duration = Duration::from_millis(500);

/// Times of recent answers.
#[derive(Default)]
pub(super) struct FirstByteTimes(Mutex<Ring>);

#[derive(Default)]
struct Ring {
    times_ns: Vec<u64>,
    next_idx: usize,
}

impl FirstByteTimes {
    pub(super) fn record(&self, time_ns: u64) {
        let mut ring = self.0.lock();
        let idx = ring.next_idx;
        match ring.times_ns.get_mut(idx) {
            Some(oldest) => *oldest = time_ns,
            None => ring.times_ns.push(time_ns),
        }
        ring.next_idx = (idx + 1) % TIMES_MAX;
    }

    /// Returns the p99 of recent answers, within limits.
    pub(super) fn hedge_after(&self) -> Duration {
        let mut times_ns = self.0.lock().times_ns.clone();
        if times_ns.len() < TIMES_MIN {
            return HEDGE_AFTER_UNKNOWN;
        }
        times_ns.sort_unstable();
        let slow_count = times_ns.len().div_ceil(SLOW_DIVISOR);
        let p99_ns = times_ns.iter().rev().nth(slow_count).copied().unwrap_or_default();
        Duration::from_nanos(p99_ns).max(HEDGE_AFTER_MIN)
    }
}
