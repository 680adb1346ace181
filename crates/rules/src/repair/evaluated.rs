//! Rounds of a group that were evaluated, as runs of consecutive ones.
//!
//! Invariant: runs ascend and are disjoint; rounds of a run lie one interval apart.

use std::collections::VecDeque;

/// Runs of consecutive rounds that are remembered: more outages than that within the history are forgotten.
const RUNS_MAX: usize = 64;

/// Times of rounds that were evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvaluatedRounds {
    interval_ms: i64,
    /// First and last round of each run.
    runs: VecDeque<(i64, i64)>,
}

impl EvaluatedRounds {
    /// No rounds.
    ///
    /// # Panics
    /// If the interval is not positive.
    #[must_use]
    pub fn new(interval_ms: i64) -> EvaluatedRounds {
        assert!(interval_ms > 0, "an interval is more than 0");
        EvaluatedRounds { interval_ms, runs: VecDeque::new() }
    }

    /// Rounds of an earlier process; runs that are damaged or of another interval are left out.
    #[must_use]
    pub fn from_runs(interval_ms: i64, runs: &[(i64, i64)]) -> EvaluatedRounds {
        let mut rounds = EvaluatedRounds::new(interval_ms);
        for &(first, last) in runs {
            let is_after = rounds.last().is_none_or(|before| before < first);
            if is_after && first <= last && last.checked_sub(first).is_some_and(|len| len % interval_ms == 0)
            {
                rounds.runs.push_back((first, last));
            }
        }
        while rounds.runs.len() > RUNS_MAX {
            rounds.runs.pop_front();
        }
        rounds
    }

    /// First and last round of each run.
    pub fn runs(&self) -> impl Iterator<Item = (i64, i64)> {
        self.runs.iter().copied()
    }

    /// Adds a round. One that is not after the last one begins a new history: the clock went back.
    pub fn push(&mut self, time_ms: i64) {
        match self.runs.back_mut() {
            Some((_, last)) if time_ms == last.saturating_add(self.interval_ms) => *last = time_ms,
            Some((_, last)) if time_ms <= *last => {
                if time_ms < *last {
                    self.runs.clear();
                    self.runs.push_back((time_ms, time_ms));
                }
            }
            _ => {
                self.runs.push_back((time_ms, time_ms));
                if self.runs.len() > RUNS_MAX {
                    self.runs.pop_front();
                }
            }
        }
    }

    /// The last round.
    #[must_use]
    pub fn last(&self) -> Option<i64> {
        self.runs.back().map(|(_, last)| *last)
    }

    /// Returns true if a round was evaluated.
    #[must_use]
    pub fn contains(&self, time_ms: i64) -> bool {
        self.within(time_ms, time_ms).next().is_some()
    }

    /// The last round before a time.
    #[must_use]
    pub fn previous(&self, time_ms: i64) -> Option<i64> {
        let (first, last) = *self.runs.iter().rfind(|(first, _)| *first < time_ms)?;
        if last < time_ms {
            return Some(last);
        }
        Some(first + (time_ms - 1 - first) / self.interval_ms * self.interval_ms)
    }

    /// The first round after a time.
    #[must_use]
    pub fn next(&self, time_ms: i64) -> Option<i64> {
        self.within(time_ms.saturating_add(1), i64::MAX).next()
    }

    /// Rounds from `first_ms` to `last_ms`, ascending.
    pub fn within(&self, first_ms: i64, last_ms: i64) -> impl Iterator<Item = i64> {
        let interval_ms = self.interval_ms;
        self.runs.iter().flat_map(move |&(first, last)| {
            let from = if first_ms <= first {
                first
            } else {
                let skipped = first_ms.saturating_sub(first).saturating_add(interval_ms - 1) / interval_ms;
                first.saturating_add(skipped.saturating_mul(interval_ms))
            };
            let end = last.min(last_ms);
            let count = if from > end { 0 } else { (end - from) / interval_ms + 1 };
            (0..count).map(move |idx| from + idx * interval_ms)
        })
    }
}
