//! State of the local sidecar of a block: one that this process made of the index and keeps in its cache
//! alone, in the cache directory or in memory.
//!
//! Invariants: a sidecar of a block is made by one task at a time; after a failure or a loss the next attempt
//! waits, twice as long each time.
//! Not here: making it (`crate::sidecar_builder`), its bytes (`cache`).

use chronolith_base::backoff::{Backoff, PauseBounds};
use parking_lot::Mutex;

/// Pauses after failures.
const PAUSES: PauseBounds = PauseBounds { min_ns: 60_000_000_000, max_ns: 3_600_000_000_000 };

/// State of the local sidecar of one block.
#[derive(Debug, Default)]
pub(crate) struct LocalSidecar(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Bytes of the sidecar, if the cache has one.
    len: Option<u64>,
    /// The cache directory was searched for one of an earlier process.
    was_looked_for: bool,
    is_queued: bool,
    /// No attempt can succeed.
    is_impossible: bool,
    backoff: Backoff,
}

impl LocalSidecar {
    /// Bytes of the sidecar, if the cache is known to have one.
    pub(crate) fn len(&self) -> Option<u64> {
        self.0.lock().len
    }

    /// Returns true if the cache may have one.
    pub(crate) fn may_exist(&self) -> bool {
        let state = self.0.lock();
        state.len.is_some() || !state.was_looked_for
    }

    /// Records that the cache has one of `len` bytes.
    pub(crate) fn note_found(&self, len: u64) {
        let mut state = self.0.lock();
        state.len = Some(len);
        state.was_looked_for = true;
    }

    /// Records that the cache has none.
    pub(crate) fn note_missing(&self) {
        let mut state = self.0.lock();
        state.len = None;
        state.was_looked_for = true;
    }

    /// Returns true if the caller queues an attempt to make it, which [`LocalSidecar::end`] ends.
    pub(crate) fn begin(&self, now_ns: u64) -> bool {
        let mut state = self.0.lock();
        let is_missing = state.len.is_none() && state.was_looked_for && !state.is_impossible;
        is_missing && state.backoff.is_due(now_ns) && !std::mem::replace(&mut state.is_queued, true)
    }

    /// Ends an attempt.
    pub(crate) fn end(&self) {
        self.0.lock().is_queued = false;
    }

    /// Records a failed attempt, or that a part of the sidecar is gone or damaged.
    pub(crate) fn note_failure(&self, now_ns: u64) {
        let mut state = self.0.lock();
        state.len = None;
        state.backoff = state.backoff.after_failure(now_ns, PAUSES);
    }

    /// Records that no later attempt can succeed.
    pub(crate) fn give_up(&self) {
        let mut state = self.0.lock();
        state.len = None;
        state.is_impossible = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_follow_one_another_with_longer_pauses() {
        let sidecar = LocalSidecar::default();
        assert!(sidecar.may_exist() && !sidecar.begin(0), "the cache directory was not looked at");
        sidecar.note_missing();
        assert!(!sidecar.may_exist());
        assert!(sidecar.begin(5) && !sidecar.begin(5), "one at a time");
        sidecar.note_failure(10);
        sidecar.end();
        assert!(!sidecar.begin(9 + PAUSES.min_ns) && sidecar.begin(10 + PAUSES.min_ns));
        sidecar.note_found(7);
        sidecar.end();
        assert!(sidecar.len() == Some(7) && sidecar.may_exist() && !sidecar.begin(u64::MAX), "there is one");
        sidecar.note_failure(1000);
        assert_eq!(sidecar.len(), None);
        assert!(!sidecar.begin(999 + 2 * PAUSES.min_ns) && sidecar.begin(1000 + 2 * PAUSES.min_ns));
        sidecar.end();
        for _ in 0..100 {
            sidecar.note_failure(0);
        }
        assert!(!sidecar.begin(PAUSES.max_ns - 1) && sidecar.begin(PAUSES.max_ns));
        sidecar.end();
        sidecar.give_up();
        assert!(!sidecar.begin(u64::MAX - 1));
    }
}
