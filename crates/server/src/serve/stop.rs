//! A flag that background threads sleep on. Invariant: a stop wakes every sleeper at once and stays set.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

#[derive(Default)]
pub(crate) struct Stop {
    /// Set with `stopped`, for those who do not sleep on it.
    flag: AtomicBool,
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Asks all waiting threads to end.
    pub(crate) fn stop(&self) {
        self.flag.store(true, Ordering::Release);
        *self.stopped.lock() = true;
        self.changed.notify_all();
    }

    /// Flag that is true once stopped.
    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.flag
    }

    /// Sleeps for `duration` or until the stop; true once stopped.
    pub(crate) fn wait(&self, duration: Duration) -> bool {
        let mut stopped = self.stopped.lock();
        if !*stopped {
            self.changed.wait_for(&mut stopped, duration);
        }
        *stopped
    }
}
