//! Small queries, evaluated on the async worker that read them: handing a query of some microseconds to
//! another thread and its answer back takes longer than the query.
//!
//! Invariants: at least one worker is left for everything else; a query that does not end within
//! [`SMALL_QUERY_SLICE_NS`] is cancelled and starts again on a thread of the pool, and its text is remembered
//! so that it starts there the next time, until it ends within half of that.
//! Not here: how a query is run (`evaluation::run`).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use chronolith_base::hash::hash_bytes;

use crate::limits::{SMALL_QUERY_BYTES_MAX, SMALL_QUERY_MEMORY_COUNT};

/// A query that may be small: the hash of its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate(u64);

/// Running small queries, and texts that proved to be none.
pub struct SmallQueries {
    running: AtomicUsize,
    /// Texts that were not small, by a part of their hash; a later one overwrites an earlier one.
    outgrown: Box<[AtomicU64]>,
}

/// Permit to evaluate a query on the async worker that read it.
pub struct InlinePermit<'a>(&'a SmallQueries);

impl Candidate {
    /// None for a long text, or one with a regex: its cost depends on the number of label values.
    pub fn of(text: &str) -> Option<Candidate> {
        (text.len() <= SMALL_QUERY_BYTES_MAX && !text.contains('~'))
            .then(|| Candidate(hash_bytes(text.as_bytes()).max(1)))
    }
}

impl Default for SmallQueries {
    fn default() -> SmallQueries {
        let outgrown = (0..SMALL_QUERY_MEMORY_COUNT).map(|_| AtomicU64::new(0)).collect();
        SmallQueries { running: AtomicUsize::new(0), outgrown }
    }
}

impl SmallQueries {
    /// Returns a permit to evaluate a query on this worker, one of `thread_count`; none if it was not small
    /// before or if no worker would be left.
    pub fn enter(&self, candidate: Candidate, thread_count: usize) -> Option<InlinePermit<'_>> {
        if self.slot(candidate).load(Ordering::Relaxed) == candidate.0 {
            return None;
        }
        let one_more = |running: usize| (running + 1 < thread_count).then_some(running + 1);
        self.running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(InlinePermit(self))
    }

    /// Remembers that a query was not small.
    pub fn outgrew(&self, candidate: Candidate) {
        self.slot(candidate).store(candidate.0, Ordering::Relaxed);
    }

    /// Forgets that a query was not small: its last run was.
    pub fn shrank(&self, candidate: Candidate) {
        let _ = self.slot(candidate).compare_exchange(candidate.0, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn slot(&self, candidate: Candidate) -> &AtomicU64 {
        let slot_count = self.outgrown.len() as u64;
        &self.outgrown[(candidate.0 % slot_count) as usize]
    }
}

impl Drop for InlinePermit<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(text: &str) -> Candidate {
        Candidate::of(text).expect("may be small")
    }

    #[test]
    fn one_thread_is_left() {
        let small = SmallQueries::default();
        assert!(small.enter(candidate("a"), 1).is_none());
        let first = small.enter(candidate("a"), 2);
        assert!(first.is_some() && small.enter(candidate("b"), 2).is_none());
        assert!(small.enter(candidate("b"), 3).is_some(), "given back at once");
        drop(first);
        assert!(small.enter(candidate("b"), 2).is_some());
    }

    #[test]
    fn what_was_not_small_is_not_tried_again() {
        let small = SmallQueries::default();
        small.outgrew(candidate("a"));
        assert!(small.enter(candidate("a"), 8).is_none());
        assert!(small.enter(candidate("b"), 8).is_some());
    }

    /// The first request for label names prepares what later ones read; all of them ran on a thread of the
    /// pool.
    #[test]
    fn what_has_become_small_is_tried_again() {
        let small = SmallQueries::default();
        small.outgrew(candidate("a"));
        small.shrank(candidate("b"));
        assert!(small.enter(candidate("a"), 8).is_none());
        small.shrank(candidate("a"));
        assert!(small.enter(candidate("a"), 8).is_some());
    }

    #[test]
    fn patterns_and_long_texts_are_no_candidates() {
        assert!(Candidate::of(r#"up{job=~"a.*"}"#).is_none());
        assert!(Candidate::of(&"x".repeat(SMALL_QUERY_BYTES_MAX + 1)).is_none());
        assert!(Candidate::of(r#"up{job="a"}"#).is_some());
    }
}
