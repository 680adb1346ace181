//! Interruption of rounds and continuous queries by a stop of the server.
//!
//! Invariant: once it is requested, every running query of either is canceled, and none begins.
//! Not here: kills of single queries (`activity::active_queries`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// Queries of rules and continuous queries that run, and the request to end them.
#[derive(Default)]
pub struct Interrupts {
    is_requested: AtomicBool,
    running: Mutex<Vec<Arc<AtomicBool>>>,
}

/// A running query; it leaves the list on drop.
pub struct Interruptible<'a> {
    interrupts: &'a Interrupts,
    canceled: Arc<AtomicBool>,
}

impl Interrupts {
    /// Returns true once queries are to end.
    pub(crate) fn is_requested(&self) -> bool {
        self.is_requested.load(Ordering::Acquire)
    }

    /// Cancels all running queries, and those that begin later.
    pub(crate) fn request(&self) {
        self.is_requested.store(true, Ordering::Release);
        for canceled in self.running.lock().iter() {
            canceled.store(true, Ordering::Relaxed);
        }
    }

    /// Lists a query by the flag that cancels it.
    pub(crate) fn enter(&self, canceled: Arc<AtomicBool>) -> Interruptible<'_> {
        let mut running = self.running.lock();
        // Under the lock: a request comes before this query is listed, or finds it.
        if self.is_requested() {
            canceled.store(true, Ordering::Relaxed);
        }
        running.push(canceled.clone());
        Interruptible { interrupts: self, canceled }
    }
}

impl Drop for Interruptible<'_> {
    fn drop(&mut self) {
        self.interrupts.running.lock().retain(|other| !Arc::ptr_eq(other, &self.canceled));
    }
}
