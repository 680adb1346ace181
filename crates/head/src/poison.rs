//! A guard that poisons the log when its thread panics between a change of memory and the frame of that change.
//!
//! Holds: while it is armed under the lock of a stripe, the log is poisoned before anyone else gets the lock:
//! nobody is told that a sample is a repeat, and so stored, whose first copy never reached the log.

use crate::wal::Wal;

/// See the module. Declared behind the lock guard, so that it is dropped before.
pub(crate) struct PoisonOnPanic<'a> {
    wal: &'a Wal,
    during: &'static str,
}

impl<'a> PoisonOnPanic<'a> {
    /// A guard for the time of `during`.
    pub(crate) fn new(wal: &'a Wal, during: &'static str) -> PoisonOnPanic<'a> {
        PoisonOnPanic { wal, during }
    }
}

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let during = self.during;
            self.wal.poison(format!("a thread panicked during {during}: memory may hold what the log lacks"));
        }
    }
}
