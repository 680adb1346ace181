//! Bytes in flight: records that were queued and not acknowledged yet, within a limit.
//!
//! Invariant: the sum never exceeds the limit; a permit gives its bytes back when it is dropped.
//! Not here: buffers of Kafka's client, which counts its own.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::error::LogError;

/// Semaphore over bytes.
pub(crate) struct InFlight {
    bytes_max: u64,
    used_bytes: Mutex<u64>,
    freed: Condvar,
}

/// Bytes of one record; given back when it is dropped.
pub(crate) struct InFlightPermit {
    of: Arc<InFlight>,
    bytes: u64,
}

impl InFlight {
    /// Returns a semaphore without permits in use.
    pub(crate) fn new(bytes_max: u64) -> Arc<InFlight> {
        Arc::new(InFlight { bytes_max, used_bytes: Mutex::new(0), freed: Condvar::new() })
    }

    /// Takes `bytes`, waiting at most `within` for room.
    ///
    /// # Errors
    /// [`LogError::Full`]; nothing is taken.
    pub(crate) fn take(
        self: &Arc<InFlight>,
        bytes: u64,
        within: Duration,
    ) -> Result<InFlightPermit, LogError> {
        let mut used = self.used_bytes.lock();
        let is_full = |used: &mut u64| used.saturating_add(bytes) > self.bytes_max;
        self.freed.wait_while_for(&mut used, is_full, within);
        if is_full(&mut used) {
            return Err(LogError::Full {
                what: "the queue of appends",
                used_bytes: *used,
                bytes_max: self.bytes_max,
                record_bytes: bytes,
            });
        }
        *used += bytes;
        Ok(InFlightPermit { of: self.clone(), bytes })
    }

    /// Returns the bytes in use.
    pub(crate) fn used_bytes(&self) -> u64 {
        *self.used_bytes.lock()
    }
}

impl Drop for InFlightPermit {
    fn drop(&mut self) {
        *self.of.used_bytes.lock() -= self.bytes;
        self.of.freed.notify_all();
    }
}
