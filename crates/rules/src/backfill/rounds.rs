//! Times of consecutive rounds of a group, by the time of their samples.
//!
//! Invariant: there is at least one round.

use crate::group::Group;
use crate::schedule::{NS_PER_MS, Schedule};

/// Times of the samples of consecutive rounds, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundTimes {
    first_ms: i64,
    interval_ms: i64,
    count: usize,
}

impl RoundTimes {
    /// Rounds of a group whose samples lie between `start_ms` and `end_ms`, both included; `None` if there is
    /// none.
    #[must_use]
    pub fn of(group: &Group, start_ms: i64, end_ms: i64) -> Option<RoundTimes> {
        let schedule = Schedule::of(group);
        let offset_ns = group.query_offset_ms.saturating_mul(NS_PER_MS);
        let round_ns = |time_ms: i64| time_ms.saturating_mul(NS_PER_MS).saturating_add(offset_ns);
        let sample_ms = |round_ns: i64| round_ns.saturating_sub(offset_ns).div_euclid(NS_PER_MS);
        let first_ms = sample_ms(schedule.first_after(round_ns(start_ms).saturating_sub(1)));
        let last_ns = schedule.last_before(round_ns(end_ms.saturating_add(1)).saturating_sub(1));
        let span_ms = sample_ms(last_ns).checked_sub(first_ms).filter(|span_ms| *span_ms >= 0)?;
        let count = usize::try_from(span_ms / group.interval_ms).ok()?.checked_add(1)?;
        Some(RoundTimes { first_ms, interval_ms: group.interval_ms, count })
    }

    /// `count` rounds from `first_ms` on.
    ///
    /// # Panics
    /// If the interval or the count is not positive.
    #[must_use]
    pub fn new(first_ms: i64, interval_ms: i64, count: usize) -> RoundTimes {
        assert!(interval_ms > 0 && count > 0, "{count} rounds every {interval_ms} ms");
        RoundTimes { first_ms, interval_ms, count }
    }

    /// Number of rounds, 1 or more.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Time of the first round.
    #[must_use]
    pub fn first_ms(&self) -> i64 {
        self.first_ms
    }

    /// Time of the last round.
    #[must_use]
    pub fn last_ms(&self) -> i64 {
        self.time_ms(self.count - 1)
    }

    /// Distance between rounds.
    #[must_use]
    pub fn interval_ms(&self) -> i64 {
        self.interval_ms
    }

    /// Time of the round before the first one.
    #[must_use]
    pub fn previous_ms(&self) -> i64 {
        self.first_ms.saturating_sub(self.interval_ms)
    }

    /// Time of the round after the last one.
    #[must_use]
    pub fn next_ms(&self) -> i64 {
        self.last_ms().saturating_add(self.interval_ms)
    }

    /// All times, ascending.
    pub fn iter(&self) -> impl Iterator<Item = i64> + use<> {
        let rounds = *self;
        (0..rounds.count).map(move |idx| rounds.time_ms(idx))
    }

    /// The rounds that are not before `time_ms`; `None` if there is none.
    #[must_use]
    pub fn since(&self, time_ms: i64) -> Option<RoundTimes> {
        let past_ms = time_ms.saturating_sub(self.first_ms);
        if past_ms <= 0 {
            return Some(*self);
        }
        let skipped =
            usize::try_from(past_ms.saturating_add(self.interval_ms - 1) / self.interval_ms).ok()?;
        let count = self.count.checked_sub(skipped).filter(|count| *count > 0)?;
        Some(RoundTimes { first_ms: self.time_ms(skipped), count, ..*self })
    }

    /// The first rounds, at most `count_max` but one.
    #[must_use]
    pub fn first(&self, count_max: usize) -> RoundTimes {
        RoundTimes { count: self.count.min(count_max.max(1)), ..*self }
    }

    /// The rounds in two halves; `None` for a single one.
    #[must_use]
    pub fn halves(&self) -> Option<(RoundTimes, RoundTimes)> {
        let first = self.first(self.count / 2);
        let second = self.since(first.next_ms())?;
        (self.count > 1).then_some((first, second))
    }

    fn time_ms(&self, idx: usize) -> i64 {
        self.first_ms.saturating_add(self.interval_ms.saturating_mul(idx as i64))
    }
}
