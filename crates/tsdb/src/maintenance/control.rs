//! Signals to running maintenance: shutdown, pauses per kind, operators that wait.
//!
//! Invariants: a signal takes effect between two steps of a job; shutdown is final.
//! Not here: the steps of a job (`compaction::pace`, the job files), the kinds (`job`).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Signals, set by any thread and read by the thread that runs jobs.
#[derive(Default)]
pub(crate) struct Control {
    is_stopped: AtomicBool,
    /// One bit per kind of job.
    paused_kinds: AtomicU32,
    operators_waiting: AtomicU64,
}

/// Counts an operator as waiting until dropped.
pub(super) struct WaitingOperator<'a>(&'a Control);

impl Drop for WaitingOperator<'_> {
    fn drop(&mut self) {
        self.0.operators_waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Control {
    /// Ends running jobs at their next step; no others start.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
    }

    /// Returns true if maintenance has been stopped.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

    /// Pauses or resumes the kind of index `kind_idx`.
    pub(super) fn set_paused(&self, kind_idx: usize, is_paused: bool) {
        if is_paused {
            self.paused_kinds.fetch_or(1 << kind_idx, Ordering::SeqCst);
        } else {
            self.paused_kinds.fetch_and(!(1 << kind_idx), Ordering::SeqCst);
        }
    }

    /// Returns true if the kind of index `kind_idx` is paused.
    pub(super) fn is_paused(&self, kind_idx: usize) -> bool {
        self.paused_kinds.load(Ordering::SeqCst) & (1 << kind_idx) != 0
    }

    /// Announces an operator that waits for maintenance to yield.
    pub(super) fn announce_operator(&self) -> WaitingOperator<'_> {
        self.operators_waiting.fetch_add(1, Ordering::SeqCst);
        WaitingOperator(self)
    }

    /// Returns true if an operator waits for maintenance to yield.
    pub(super) fn is_operator_waiting(&self) -> bool {
        self.operators_waiting.load(Ordering::SeqCst) > 0
    }
}
