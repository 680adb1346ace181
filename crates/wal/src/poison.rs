//! Guard that poisons the log if its thread panics between a change of memory and the frame of that change.
//!
//! Invariant: while it is armed under the lock of a stripe, the log is poisoned before any other thread gets
//! the lock: no sample is acknowledged as a duplicate of one whose frame never reached the log.

use crate::log::Wal;

/// Poisons the log when a panic drops it. Declare it after the lock guard, so that it is dropped first.
pub struct PoisonOnPanic<'a> {
    wal: &'a Wal,
    during: &'static str,
}

impl<'a> PoisonOnPanic<'a> {
    /// Arms the guard; `during` names the operation in the error.
    #[must_use]
    pub fn new(wal: &'a Wal, during: &'static str) -> PoisonOnPanic<'a> {
        PoisonOnPanic { wal, during }
    }
}

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let during = self.during;
            self.wal.poison(format!(
                "a thread panicked during {during}: memory may have samples that the WAL lacks"
            ));
        }
    }
}
