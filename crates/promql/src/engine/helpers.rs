//! Threads that help queries: how many may be at work for all of them together.
//! Holds: never more than the engine was given; a query that finds none left does its work alone.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Helping threads that are free.
#[derive(Debug, Default)]
pub(crate) struct Helpers {
    free_count: AtomicUsize,
}

/// Leave to run some threads; given back when it goes.
pub(crate) struct Leave<'h> {
    helpers: &'h Helpers,
    count: usize,
}

impl Helpers {
    /// This many.
    pub(crate) fn new(count: usize) -> Helpers {
        Helpers { free_count: AtomicUsize::new(count) }
    }

    /// As many as are free, `wanted` at most.
    pub(crate) fn take(&self, wanted: usize) -> Leave<'_> {
        let fewer = |free: usize| Some(free - free.min(wanted));
        let before = self.free_count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
        Leave { helpers: self, count: before.unwrap_or_default().min(wanted) }
    }
}

impl Leave<'_> {
    /// How many threads.
    pub(crate) fn count(&self) -> usize {
        self.count
    }
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.helpers.free_count.fetch_add(self.count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Helpers;

    #[test]
    fn there_are_never_more_than_were_given() {
        let helpers = Helpers::new(3);
        let (first, second, third) = (helpers.take(2), helpers.take(5), helpers.take(1));
        assert_eq!((first.count(), second.count(), third.count()), (2, 1, 0));
        drop(first);
        assert_eq!(helpers.take(9).count(), 2);
        drop((second, third));
        assert_eq!(helpers.take(9).count(), 3);
    }
}
