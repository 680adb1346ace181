//! Clock guard: the time by which blocks expire does not follow a clock that jumps ahead.
//!
//! Invariants: a pure state machine over observations of the clock, one per second. The trusted time is the
//! clock's or an earlier one: after the clock has gained more than [`STEP_MS`] on the monotonic clock, it
//! advances from the time before the jump, until `guard_ms` have passed or the clock is back. The gain is a
//! leaky bucket that loses an hour per day: many small jumps count as one, and a slightly fast clock does
//! not. A start cannot compare with the monotonic clock of the last process: it trusts a clock up to
//! [`START_MS_MAX`] after the last trusted time, or after the newest sample if that is unknown.
//! Not here: the file for restarts (`clock_file`), removal of blocks (`retention`).

use chronolith_format::block::retention_clock::RetentionClock;

/// A clock that gains more than this is not trusted.
const STEP_MS: i64 = 3_600_000;
/// The gain decays by one part in this many of the elapsed time: an hour per day.
const FORGET_PART: i64 = 24;
/// Longest time between two observations that counts as elapsed: the clock is not observed while the process
/// is suspended.
const ELAPSED_MS_MAX: i64 = 600_000;
/// Longest time between the last trusted time and a start that trusts the clock.
const START_MS_MAX: i64 = 24 * 3_600_000;

/// State after a jump of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    trusted_ms: i64,
    waited_ms: i64,
}

/// Effect of an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Nothing,
    /// The clock has jumped ahead.
    Jumped {
        step_ms: i64,
    },
    /// The clock is back at the trusted time.
    Returned,
    /// The guard time has passed, and the clock is trusted.
    Trusted,
}

/// Trusted time of retention, and the jump that it waits for.
#[derive(Default)]
pub(crate) struct ClockGuard {
    /// Time that retention waits after a jump; 0 = it follows the clock.
    guard_ms: i64,
    /// Clock and monotonic time of the last observation.
    last: (i64, i64),
    gained_ms: i64,
    held: Option<Held>,
}

impl ClockGuard {
    /// A guard at the start of a process. `known` is the state in the file, `newest_ms` the time of the
    /// newest sample.
    pub(crate) fn new(
        guard_ms: i64,
        known: Option<RetentionClock>,
        newest_ms: Option<i64>,
        now_ms: i64,
        mono_ms: i64,
    ) -> ClockGuard {
        let trusted_ms = known.map(|known| known.trusted_ms).or(newest_ms).unwrap_or(now_ms);
        let waited_ms = known.and_then(|known| known.waited_ms);
        let is_past = now_ms.saturating_sub(trusted_ms) > START_MS_MAX;
        let held = (guard_ms > 0 && (is_past || waited_ms.is_some())).then(|| Held {
            trusted_ms,
            waited_ms: waited_ms.map_or(0, |ms| i64::try_from(ms).unwrap_or(0)),
        });
        ClockGuard { guard_ms, last: (now_ms, mono_ms), gained_ms: 0, held }
    }

    /// Compares both clocks with the last observation.
    pub(crate) fn observe(&mut self, now_ms: i64, mono_ms: i64) -> Change {
        let (last_ms, last_mono_ms) = std::mem::replace(&mut self.last, (now_ms, mono_ms));
        if self.guard_ms <= 0 {
            return Change::Nothing;
        }
        let elapsed_ms = mono_ms.saturating_sub(last_mono_ms).clamp(0, ELAPSED_MS_MAX);
        let gained_ms = now_ms.saturating_sub(last_ms).saturating_sub(elapsed_ms).max(0);
        self.gained_ms = self.gained_ms.saturating_sub(elapsed_ms / FORGET_PART).max(0);
        self.gained_ms = self.gained_ms.saturating_add(gained_ms);
        let has_jumped = self.gained_ms > STEP_MS;
        let step_ms = if has_jumped { std::mem::take(&mut self.gained_ms) } else { 0 };
        let Some(held) = &mut self.held else {
            if !has_jumped {
                return Change::Nothing;
            }
            self.held = Some(Held { trusted_ms: now_ms.saturating_sub(step_ms), waited_ms: 0 });
            return Change::Jumped { step_ms };
        };
        held.trusted_ms = held.trusted_ms.saturating_add(elapsed_ms);
        held.waited_ms = held.waited_ms.saturating_add(elapsed_ms);
        let ahead_ms = now_ms.saturating_sub(held.trusted_ms);
        if ahead_ms <= STEP_MS {
            self.held = None;
            self.gained_ms = ahead_ms.max(0);
            return Change::Returned;
        }
        if has_jumped {
            held.waited_ms = 0;
            return Change::Jumped { step_ms: ahead_ms };
        }
        if held.waited_ms >= self.guard_ms {
            self.held = None;
            return Change::Trusted;
        }
        Change::Nothing
    }

    /// Returns the time by which blocks expire.
    pub(crate) fn time_ms(&self) -> i64 {
        self.held.map_or(self.last.0, |held| held.trusted_ms.min(self.last.0))
    }

    /// Returns the remaining time that retention waits; `None` if it follows the clock.
    pub(crate) fn remaining_ms(&self) -> Option<i64> {
        self.held.map(|held| self.guard_ms.saturating_sub(held.waited_ms).max(0))
    }

    /// Returns the state for the next start.
    pub(crate) fn state(&self) -> RetentionClock {
        let waited_ms = self.held.map(|held| held.waited_ms.unsigned_abs());
        let trusted_ms = self.held.map_or(self.last.0, |held| held.trusted_ms);
        RetentionClock { trusted_ms, waited_ms }
    }
}

#[cfg(test)]
mod tests;
