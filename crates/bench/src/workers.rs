//! Threads of a load: one per connection, and how far they may drift apart.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;

const POLL: Duration = Duration::from_millis(1);

/// Runs `work` for all items at the same time, each in a thread of its own; the results are in their order.
///
/// # Errors
/// The error of the first item that has one, after all have ended.
pub(crate) fn in_parallel<I: Send, T: Send>(
    items: impl IntoIterator<Item = I>,
    work: impl Fn(usize, I) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let work = &work;
    std::thread::scope(|scope| {
        let spawn = |(idx, item)| scope.spawn(move || work(idx, item));
        let threads: Vec<_> = items.into_iter().enumerate().map(spawn).collect();
        let done: Vec<Result<T>> =
            threads.into_iter().map(|thread| thread.join().expect("a worker does not panic")).collect();
        done.into_iter().collect()
    })
}

/// Steps of several workers, none of which runs ahead of the slowest by more than a few.
pub(crate) struct Progress {
    steps: Vec<AtomicUsize>,
    lead_max: usize,
}

impl Progress {
    /// All workers are at `step`; each may be ahead of the slowest by `lead_max`.
    pub(crate) fn new(worker_count: usize, step: usize, lead_max: usize) -> Progress {
        Progress { steps: (0..worker_count).map(|_| AtomicUsize::new(step)).collect(), lead_max }
    }

    /// Step of the slowest worker; the largest number once all have ended.
    pub(crate) fn slowest(&self) -> usize {
        self.steps.iter().map(|step| step.load(Ordering::Acquire)).min().unwrap_or(0)
    }

    /// Begins a step of `worker`: waits while it would be too far ahead.
    pub(crate) fn begin(&self, worker: usize, step: usize) {
        self.steps[worker].store(step, Ordering::Release);
        while self.slowest().saturating_add(self.lead_max) < step {
            std::thread::sleep(POLL);
        }
    }

    /// Ends `worker`, also after a failure: others must not wait for it.
    pub(crate) fn end(&self, worker: usize) {
        self.steps[worker].store(usize::MAX, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::{Progress, in_parallel};

    #[test]
    fn no_worker_is_ahead_by_more_than_allowed() {
        let progress = Progress::new(3, 0, 2);
        let steps = in_parallel(0..3, |worker, _| {
            for step in 0..200 {
                progress.begin(worker, step);
                assert!(progress.slowest() + 2 >= step, "{step}");
            }
            progress.end(worker);
            Ok(worker)
        });
        assert_eq!(steps.unwrap(), [0, 1, 2]);
        assert_eq!(progress.slowest(), usize::MAX);
    }

    #[test]
    fn a_failed_worker_does_not_stop_the_others_and_fails_the_whole() {
        let progress = Progress::new(2, 0, 1);
        let done = in_parallel([0, 50], |worker, last| {
            (0..=last).for_each(|step| progress.begin(worker, step));
            progress.end(worker);
            if worker == 0 { bail!("refused") } else { Ok(()) }
        });
        assert_eq!(done.unwrap_err().to_string(), "refused");
    }
}
