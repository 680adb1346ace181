//! Semaphore of helper threads that all queries of an engine share, and work that several threads do.
//! Invariants: never more threads than the semaphore was given; a query that gets none runs on its own
//! thread.

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
    /// Returns a pool of `count` free threads.
    #[must_use]
    pub fn new(count: usize) -> SpareThreads {
        SpareThreads { free_count: AtomicUsize::new(count) }
    }

    /// Returns permits for the free threads, `wanted` at most.
    #[must_use]
    pub fn take(&self, wanted: usize) -> ThreadPermits<'_> {
        let fewer = |free: usize| Some(free - free.min(wanted));
        let before = self.free_count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
        ThreadPermits { spare: self, count: before.unwrap_or_default().min(wanted) }
    }

    /// Runs `work` on the calling thread and on free ones, `thread_max` at most with the calling one. Returns
    /// the results, the calling thread's first.
    ///
    /// # Panics
    /// If `work` panics.
    pub fn run<T: Send>(&self, thread_max: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
        let permits = self.take(thread_max.saturating_sub(1));
        if permits.count() == 0 {
            return vec![work()];
        }
        std::thread::scope(|scope| {
            let start = |_| std::thread::Builder::new().name("query".to_owned()).spawn_scoped(scope, &work);
            // If no thread can be started, the calling one does all.
            let helpers: Vec<_> = (0..permits.count()).filter_map(|idx| start(idx).ok()).collect();
            let mut results = vec![work()];
            for helper in helpers {
                match helper.join() {
                    Ok(result) => results.push(result),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            results
        })
    }
}

impl ThreadPermits<'_> {
    /// Number of threads.
    #[must_use]
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
    use super::*;

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

    #[test]
    fn work_runs_once_per_permit_and_on_the_calling_thread() {
        let spare = SpareThreads::new(2);
        let calls = AtomicUsize::new(0);
        let caller = std::thread::current().id();
        for (thread_max, want) in [(0, 1), (1, 1), (2, 2), (9, 3)] {
            calls.store(0, Ordering::Relaxed);
            let ran_on = spare.run(thread_max, || {
                calls.fetch_add(1, Ordering::Relaxed);
                std::thread::current().id()
            });
            assert_eq!((ran_on.len(), calls.load(Ordering::Relaxed), ran_on[0]), (want, want, caller));
            assert!(ran_on[1..].iter().all(|id| *id != caller));
        }
        assert_eq!(spare.take(9).count(), 2, "permits were returned");
    }
}
