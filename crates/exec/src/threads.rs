//! Semaphore of helper threads that all queries of an engine share.
//! Invariants: never more threads than the engine was given; a query that gets none runs on its own thread.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Helper threads that are free.
#[derive(Debug, Default)]
pub struct SpareThreads {
    free_count: AtomicUsize,
}

/// Permits to run some threads; returned when dropped.
pub struct ThreadPermits<'h> {
    spare: &'h SpareThreads,
    count: usize,
}

impl SpareThreads {
    /// This many.
    pub fn new(count: usize) -> SpareThreads {
        SpareThreads { free_count: AtomicUsize::new(count) }
    }

    /// As many as are free, `wanted` at most.
    pub fn take(&self, wanted: usize) -> ThreadPermits<'_> {
        let fewer = |free: usize| Some(free - free.min(wanted));
        let before = self.free_count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
        ThreadPermits { spare: self, count: before.unwrap_or_default().min(wanted) }
    }
}

impl ThreadPermits<'_> {
    /// Number of threads.
    pub fn count(&self) -> usize {
        self.count
    }
}

impl Drop for ThreadPermits<'_> {
    fn drop(&mut self) {
        self.spare.free_count.fetch_add(self.count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::SpareThreads;

    #[test]
    fn there_are_never_more_than_were_given() {
        let spare = SpareThreads::new(3);
        let (first, second, third) = (spare.take(2), spare.take(5), spare.take(1));
        assert_eq!((first.count(), second.count(), third.count()), (2, 1, 0));
        drop(first);
        assert_eq!(spare.take(9).count(), 2);
        drop((second, third));
        assert_eq!(spare.take(9).count(), 3);
    }
}
