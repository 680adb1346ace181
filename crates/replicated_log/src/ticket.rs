//! Ticket of an append: resolves when the log has acknowledged or refused the record.
//!
//! Invariants: tickets of one partition resolve in the order of their appends; a ticket resolves within the
//! acknowledgement timeout of its log. Dropping one neither cancels the append nor changes its order.
//! Not here: the implementations' own states.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::error::LogError;
use crate::position::Position;

/// State of an append that an implementation keeps.
pub trait PendingAppend: Send {
    /// Returns true once the outcome is known, without waiting.
    fn is_resolved(&mut self) -> bool;

    /// Waits for the outcome.
    ///
    /// # Errors
    /// [`LogError`]: not acknowledged; [`LogError::may_be_written`] tells if the record may be in the log.
    fn wait(self: Box<Self>) -> Result<Position, LogError>;
}

/// A record that was queued.
#[must_use = "a record is in the log once its ticket resolved"]
pub struct Ticket(Box<dyn PendingAppend>);

impl Ticket {
    /// Returns a ticket over the state of an implementation.
    pub fn new(pending: impl PendingAppend + 'static) -> Ticket {
        Ticket(Box::new(pending))
    }

    /// Returns true once the outcome is known, without waiting.
    pub fn is_resolved(&mut self) -> bool {
        self.0.is_resolved()
    }

    /// Waits for the outcome; the calling thread blocks, at most the acknowledgement timeout of the log.
    ///
    /// # Errors
    /// [`LogError`]: not acknowledged; [`LogError::may_be_written`] tells if the record may be in the log.
    pub fn wait(self) -> Result<Position, LogError> {
        self.0.wait()
    }
}

/// Cell that a thread of a log fills once, and the holder of the ticket waits for.
pub(crate) struct Outcome<T = Position> {
    result: Mutex<Option<Result<T, LogError>>>,
    changed: Condvar,
}

impl<T> Default for Outcome<T> {
    fn default() -> Outcome<T> {
        Outcome { result: Mutex::new(None), changed: Condvar::new() }
    }
}

impl<T: Clone> Outcome<T> {
    /// Resolves the ticket; the first result counts.
    pub(crate) fn resolve(&self, result: Result<T, LogError>) {
        self.result.lock().get_or_insert(result);
        self.changed.notify_all();
    }

    /// Returns true once the result is known.
    pub(crate) fn is_resolved(&self) -> bool {
        self.result.lock().is_some()
    }

    /// Waits for the result; `None` if there is none within `within`.
    pub(crate) fn wait(&self, within: Duration) -> Option<Result<T, LogError>> {
        let mut result = self.result.lock();
        self.changed.wait_while_for(&mut result, |result| result.is_none(), within);
        result.clone()
    }
}

/// Ticket of a log with a thread that resolves outcomes.
pub(crate) struct SharedOutcome {
    outcome: Arc<Outcome>,
    within: Duration,
    /// Error if there is no outcome within that time.
    timed_out: LogError,
}

impl SharedOutcome {
    /// Returns a ticket that ends with the error `timed_out` if there is no outcome within `within`.
    pub(crate) fn new(outcome: Arc<Outcome>, within: Duration, timed_out: LogError) -> SharedOutcome {
        SharedOutcome { outcome, within, timed_out }
    }
}

impl PendingAppend for SharedOutcome {
    fn is_resolved(&mut self) -> bool {
        self.outcome.is_resolved()
    }

    fn wait(self: Box<Self>) -> Result<Position, LogError> {
        self.outcome.wait(self.within).unwrap_or(Err(self.timed_out))
    }
}
