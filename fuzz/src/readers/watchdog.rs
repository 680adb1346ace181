//! Watchdog for an input that a reader does not finish.
//!
//! Invariants: the input under test is stored before it is read. Not here: slow inputs that end (`session`).

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chronolith_base::{Env, thread};
use rustix::time::ClockId;

/// Seconds of CPU time after which a reader does not end.
const ENDLESS_S: u64 = 20;
/// Exit code for an input that does not end.
const EXIT_CODE: i32 = 3;

/// Input that is being read.
#[derive(Default)]
struct Current {
    input: Vec<u8>,
    /// CPU time of the process, which has no other work.
    start_ns: u64,
    is_running: bool,
}

/// Handle of the thread that watches.
pub(super) struct Watchdog {
    current: Arc<Mutex<Current>>,
}

impl Watchdog {
    /// Starts the thread; an input that does not end is saved to `path`.
    pub(super) fn start(env: Env, path: PathBuf) -> std::io::Result<Watchdog> {
        let current = Arc::new(Mutex::new(Current::default()));
        let watched = Arc::clone(&current);
        thread::spawn("watchdog", move || {
            loop {
                std::thread::sleep(Duration::from_secs(1));
                let current = watched.lock().unwrap_or_else(PoisonError::into_inner);
                let age_ns = cpu_time_ns(ClockId::ProcessCPUTime).saturating_sub(current.start_ns);
                if current.is_running && age_ns > ENDLESS_S * 1_000_000_000 {
                    let saved = env.disk.write_atomic(&path, &current.input);
                    println!("FINDING: no end after {ENDLESS_S} s: {} ({saved:?})", path.display());
                    std::process::exit(EXIT_CODE);
                }
            }
        })?;
        Ok(Watchdog { current })
    }

    /// Notes the input that is read next. Returns the CPU time of this thread.
    pub(super) fn begin(&self, input: &[u8]) -> u64 {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.input.clear();
        current.input.extend_from_slice(input);
        current.start_ns = cpu_time_ns(ClockId::ProcessCPUTime);
        current.is_running = true;
        cpu_time_ns(ClockId::ThreadCPUTime)
    }

    /// Notes that the input was read. Returns the CPU time of this thread.
    pub(super) fn end(&self) -> u64 {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).is_running = false;
        cpu_time_ns(ClockId::ThreadCPUTime)
    }
}

/// CPU time: other processes do not make an input slow.
fn cpu_time_ns(clock: ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}
