//! Counters of rules that belong to no single group.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use crate::counter::{Counter, Seconds};

/// Counters of all groups together, and the outcome of the last reload of rule files.
#[derive(Default)]
pub struct RuleCounters {
    /// Durations of rounds.
    pub rounds: Seconds,
    /// Durations of the evaluation of rules.
    pub evaluations: Seconds,
    /// Expressions that were evaluated together with others of their batch.
    pub shared_evaluations: Counter,
    /// Expressions that were evaluated again by themselves: a limit, an error of a read or a kill ended them
    /// while they were evaluated together with others.
    pub repeated_evaluations: Counter,
    /// States that could not be stored.
    pub state_write_failures: Counter,
    /// States that were stored without the series of recording rules: the group has too many.
    pub states_without_series: Counter,
    /// Files of states that could not be read.
    pub damaged_states: Counter,
    /// Samples that the store refused.
    pub rejected_samples: Counter,
    /// Rounds that ended early: a stop of the server, or a panic.
    pub broken_rounds: Counter,
    is_reload_failed: AtomicBool,
    /// Wall clock in ms since 1970; 0 before the first reading.
    reloaded_ms: AtomicI64,
}

impl RuleCounters {
    /// Records the reading of all rule files at `now_ms`.
    pub(crate) fn note_reload(&self, is_ok: bool, now_ms: i64) {
        self.is_reload_failed.store(!is_ok, Ordering::Relaxed);
        if is_ok {
            self.reloaded_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// Returns true unless the last reading of rule files failed.
    #[must_use]
    pub fn is_reload_ok(&self) -> bool {
        !self.is_reload_failed.load(Ordering::Relaxed)
    }

    /// Wall clock at the last reading of rule files that succeeded, ms since 1970; 0 before the first.
    #[must_use]
    pub fn reloaded_ms(&self) -> i64 {
        self.reloaded_ms.load(Ordering::Relaxed)
    }
}
