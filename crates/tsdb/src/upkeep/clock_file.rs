//! The clock guard's file, and what operators learn of it.
//!
//! Holds: a change of the guard is tried to be written before blocks are removed by it; a write that fails is
//! tried again every minute. Not here: when a clock is trusted (`clock_guard`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use chronolith_base::Env;
use chronolith_format::block::retention_clock::RetentionClock;

use super::clock_guard::{Change, ClockGuard};
use crate::store::Tsdb;

const FILE: &str = "retention-clock";
/// The trusted time is written this often, the wait more often.
const SAVE_EVERY_MS: i64 = 3_600_000;
const SAVE_WAIT_EVERY_MS: i64 = 600_000;
const RETRY_AFTER_MS: i64 = 60_000;

/// A guard with its file.
#[derive(Default)]
pub(crate) struct GuardedClock {
    guard: ClockGuard,
    path: PathBuf,
    /// Monotonic time of the next write.
    save_at_ms: i64,
}

impl GuardedClock {
    /// The guard as the last process left it. `newest_ms` is the time of the newest sample.
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
                notes.push(format!("{}: {error}; the newest sample tells the time", path.display()));
                None
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                notes.push(format!("{}: {error}; the newest sample tells the time", path.display()));
                None
            }
        };
        let guard = ClockGuard::new(guard_ms, known, newest_ms, env.clock.now_ms(), mono_ms(env));
        if let Some(remaining_ms) = guard.remaining_ms() {
            notes.push(format!(
                "the clock is ahead of the data; expired blocks stay for {} s more (--retention-clock-guard)",
                remaining_ms / 1000
            ));
        }
        GuardedClock { guard, path, save_at_ms: i64::MIN }
    }

    /// The time by which expired blocks are removed.
    pub(crate) fn time_ms(&self) -> i64 {
        self.guard.time_ms()
    }

    /// Writes what a restart has to know.
    pub(crate) fn save(&self, env: &Env) -> io::Result<()> {
        let mut bytes = Vec::new();
        self.guard.state().encode(&mut bytes);
        env.disk.write_atomic(&self.path, &bytes)
    }
}

impl Tsdb {
    /// Takes a look at the clock, once a second.
    pub(super) fn watch_clock(&self, clock: &mut GuardedClock, now_ms: i64) {
        let mono_ms = mono_ms(&self.env);
        let change = clock.guard.observe(now_ms, mono_ms);
        let remaining_ms = clock.guard.remaining_ms();
        match change {
            Change::Nothing => {}
            Change::Jumped { step_ms } => {
                self.counters.clock_jumps.fetch_add(1, Ordering::Relaxed);
                let wait_s = remaining_ms.unwrap_or(0) / 1000;
                tracing::warn!(
                    step_s = step_ms / 1000,
                    wait_s,
                    "the clock has jumped ahead: expired blocks stay until retention-clock-guard is over"
                );
            }
            Change::Returned => tracing::info!("the clock is back: expired blocks are removed by it again"),
            Change::Trusted => {
                tracing::warn!("retention-clock-guard is over: expired blocks are removed by the clock");
            }
        }
        let remaining_s = remaining_ms.map_or(0, |ms| ms.div_euclid(1000).max(1));
        self.counters.clock_wait_s.store(remaining_s.unsigned_abs(), Ordering::Relaxed);
        if change == Change::Nothing && mono_ms < clock.save_at_ms {
            return;
        }
        let pause_ms = match clock.save(&self.env) {
            Ok(()) if remaining_ms.is_some() => SAVE_WAIT_EVERY_MS,
            Ok(()) => SAVE_EVERY_MS,
            Err(error) => {
                self.count_upkeep_error();
                tracing::error!(path = %clock.path.display(), %error, "writing the time of retention failed; trying again");
                RETRY_AFTER_MS
            }
        };
        clock.save_at_ms = mono_ms.saturating_add(pause_ms);
    }
}

fn mono_ms(env: &Env) -> i64 {
    i64::try_from(env.clock.mono_ns() / 1_000_000).unwrap_or(i64::MAX)
}
