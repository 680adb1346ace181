//! Guard against a clock that jumps ahead: the time by which expired blocks are removed.
//!
//! Holds: a pure state machine over observations of the clock, one a second. That time is the clock's, or an
//! earlier one: after the clock gained more than [`STEP_MS`] on the monotonic one it goes on from where the
//! clock stood, until `guard_ms` have passed or the clock is back. What is gained counts as a leaky bucket
//! that loses an hour a day, so that many small steps are a step, and a clock that is a little fast is none.
//! A start has no monotonic time of before: it trusts a clock up to [`START_MS_MAX`] past the time that was
//! trusted last, or past the newest sample if nobody knows.
//! Not here: the file that a restart reads (`clock_file`), removing blocks (`upkeep`).

use chronolith_format::block::retention_clock::RetentionClock;

/// A clock that gains more than this is not trusted.
const STEP_MS: i64 = 3_600_000;
/// What is gained is forgotten at this part of the rate of time: an hour a day.
const FORGET_PART: i64 = 24;
/// An observation counts for this much time at most: where the process did not run, nobody watched the clock.
const ELAPSED_MS_MAX: i64 = 600_000;
/// A start may come so long after the time that was trusted last.
const START_MS_MAX: i64 = 24 * 3_600_000;

/// The clock has jumped: removal goes by another time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    trusted_ms: i64,
    waited_ms: i64,
}

/// What an observation has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Nothing,
    /// The clock has jumped by so much.
    Jumped {
        step_ms: i64,
    },
    /// The clock is where it should be again.
    Returned,
    /// The clock is trusted, as removal has waited.
    Trusted,
}

/// See the module.
#[derive(Default)]
pub(crate) struct ClockGuard {
    /// How long removal waits after a jump; 0 = it follows the clock.
    guard_ms: i64,
    /// Clock and monotonic time of the last observation.
    last: (i64, i64),
    gained_ms: i64,
    held: Option<Held>,
}

impl ClockGuard {
    /// A guard at the start of a process. `known` is what the file says, `newest_ms` the time of the newest sample.
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

    /// Takes a look at both clocks.
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

    /// The time by which expired blocks are removed.
    pub(crate) fn time_ms(&self) -> i64 {
        self.held.map_or(self.last.0, |held| held.trusted_ms.min(self.last.0))
    }

    /// How much longer removal waits; `None` if it does not.
    pub(crate) fn remaining_ms(&self) -> Option<i64> {
        self.held.map(|held| self.guard_ms.saturating_sub(held.waited_ms).max(0))
    }

    /// What a restart has to know.
    pub(crate) fn state(&self) -> RetentionClock {
        let waited_ms = self.held.map(|held| held.waited_ms.unsigned_abs());
        let trusted_ms = self.held.map_or(self.last.0, |held| held.trusted_ms);
        RetentionClock { trusted_ms, waited_ms }
    }
}

#[cfg(test)]
mod tests;
