//! Clock of retention with its file, log lines and metrics.
//!
//! Invariants: a change of the guard is written before blocks expire by it, if the disk allows; a failed
//! write is retried every minute. Not here: the decision which clock is trusted (`clock_guard`).

use std::io;
use std::path::{Path, PathBuf};

use chronolith_base::Env;
use chronolith_format::block::retention_clock::RetentionClock;

use super::super::counters::RetentionCounters;
use super::clock_guard::{Change, ClockGuard};

const FILE: &str = "retention-clock";
/// Time between two writes of the trusted time, and of the remaining wait.
const SAVE_EVERY_MS: i64 = 3_600_000;
const SAVE_WAIT_EVERY_MS: i64 = 600_000;
const RETRY_AFTER_MS: i64 = 60_000;

/// Clock guard that survives restarts.
#[derive(Default)]
pub(crate) struct GuardedClock {
    guard: ClockGuard,
    path: PathBuf,
    /// Monotonic time of the next write.
    save_at_ms: i64,
}

impl GuardedClock {
    /// Reads the state of the last process. `newest_ms` is the time of the newest sample, which replaces a
    /// missing or damaged file; notes name the damage.
    pub(crate) fn open(
        env: &Env,
        data_dir: &Path,
        guard_ms: i64,
        newest_ms: Option<i64>,
        notes: &mut Vec<String>,
    ) -> GuardedClock {
        let path = data_dir.join(FILE);
        let known = match env.disk.read(&path).map(|bytes| RetentionClock::decode(&bytes)) {
            Ok(Ok(known)) => Some(known),
            Ok(Err(error)) => {
                notes.push(format!(
                    "{}: {error}; retention starts from the time of the newest sample",
                    path.display()
                ));
                None
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                notes.push(format!(
                    "{}: {error}; retention starts from the time of the newest sample",
                    path.display()
                ));
                None
            }
        };
        let guard = ClockGuard::new(guard_ms, known, newest_ms, env.clock.now_ms(), mono_ms(env));
        if let Some(remaining_ms) = guard.remaining_ms() {
            notes.push(format!(
                "the clock is ahead of the data; expired blocks are kept for {} s more (--retention-clock-guard)",
                remaining_ms / 1000
            ));
        }
        GuardedClock { guard, path, save_at_ms: i64::MIN }
    }

    /// Returns the time by which blocks expire.
    pub(crate) fn time_ms(&self) -> i64 {
        self.guard.time_ms()
    }

    /// Writes the state for the next start.
    ///
    /// # Errors
    /// As the disk reports; the next start uses an earlier state.
    pub(crate) fn save(&self, env: &Env) -> io::Result<()> {
        let mut bytes = Vec::new();
        self.guard.state().encode(&mut bytes);
        env.disk.write_atomic(&self.path, &bytes)
    }

    /// Compares the wall clock with the monotonic one, and saves the state if that is due.
    ///
    /// # Errors
    /// As [`GuardedClock::save`]; the write is retried later.
    pub(super) fn observe(&mut self, env: &Env, now_ms: i64, counters: &RetentionCounters) -> io::Result<()> {
        let mono_ms = mono_ms(env);
        let change = self.guard.observe(now_ms, mono_ms);
        let remaining_ms = self.guard.remaining_ms();
        match change {
            Change::Nothing => {}
            Change::Jumped { step_ms } => {
                counters.clock_jumps.increment();
                let wait_s = remaining_ms.unwrap_or(0) / 1000;
                tracing::warn!(
                    step_s = step_ms / 1000,
                    wait_s,
                    "system clock jumped ahead: retention keeps expired blocks until retention-clock-guard is over"
                );
            }
            Change::Returned => tracing::info!("system clock is back, retention follows it again"),
            Change::Trusted => {
                tracing::warn!("retention-clock-guard is over, retention follows the system clock again");
            }
        }
        let remaining_s = remaining_ms.map_or(0, |ms| ms.div_euclid(1000).max(1));
        counters.clock_wait_seconds.set(remaining_s.unsigned_abs());
        if change == Change::Nothing && mono_ms < self.save_at_ms {
            return Ok(());
        }
        let saved = self.save(env);
        let pause_ms = match &saved {
            Ok(()) if remaining_ms.is_some() => SAVE_WAIT_EVERY_MS,
            Ok(()) => SAVE_EVERY_MS,
            Err(_) => RETRY_AFTER_MS,
        };
        self.save_at_ms = mono_ms.saturating_add(pause_ms);
        saved.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.path.display())))
    }
}

fn mono_ms(env: &Env) -> i64 {
    i64::try_from(env.clock.mono_ns() / 1_000_000).unwrap_or(i64::MAX)
}
