//! Threads of queries, remote reads, federation, status and admin requests: a pool that grows with demand.
//! Blocks of compressed responses have a pool of their own with a limit.
//!
//! Invariants: a thread whose priority was lowered (`base::thread`) ends with the request that it ran,
//! because it cannot raise it again; others wait for the next request for a while. A panic ends the request,
//! not the pool.
//! Not here: how many requests run at once (`admission`), which bounds threads and jobs.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use chronolith_base::thread;
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::limits::THREAD_STACK_BYTES;

/// A thread without a request ends after this.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// The pool. Its threads are not joined: they end when they are idle, or with the process.
#[derive(Clone)]
pub struct QueryThreads(Arc<Pool>);

impl Default for QueryThreads {
    fn default() -> QueryThreads {
        QueryThreads::bounded("query", usize::MAX)
    }
}

struct Pool {
    /// Name of its threads.
    name: &'static str,
    thread_count_max: usize,
    state: Mutex<PoolState>,
    has_job: Condvar,
}

#[derive(Default)]
struct PoolState {
    jobs: VecDeque<Job>,
    thread_count: usize,
    idle_count: usize,
}

/// Reason that a request has no result.
#[derive(Debug, thiserror::Error)]
pub enum ThreadError {
    /// The request panicked; the message is on stderr.
    #[error("the thread of the request panicked")]
    Panicked,
    /// There is no thread for it.
    #[error("starting a thread: {0}")]
    Spawn(std::io::Error),
}

impl QueryThreads {
    /// A pool of at most `thread_count_max` threads; further jobs wait for a free one.
    pub fn bounded(name: &'static str, thread_count_max: usize) -> QueryThreads {
        let pool = Pool { name, thread_count_max, state: Mutex::default(), has_job: Condvar::new() };
        QueryThreads(Arc::new(pool))
    }

    /// Runs `work` on a thread of the pool. It continues when the future is dropped.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ThreadError> {
        let (send, result) = oneshot::channel();
        // The receiver is gone when the client has disconnected.
        let job = move || drop(send.send(work()));
        self.start(Box::new(job)).map_err(ThreadError::Spawn)?;
        result.await.map_err(|_| ThreadError::Panicked)
    }

    /// Runs `job` on an idle thread of the pool, or on a new one.
    pub fn start(&self, job: Job) -> std::io::Result<()> {
        let mut state = self.0.state.lock();
        state.jobs.push_back(job);
        if state.idle_count >= state.jobs.len() {
            drop(state);
            self.0.has_job.notify_one();
            return Ok(());
        }
        if state.thread_count >= self.0.thread_count_max {
            // A busy thread runs it when it is done with its own.
            return Ok(());
        }
        state.thread_count += 1;
        drop(state);
        let pool = self.0.clone();
        let spawned = thread::spawn_with_stack(pool.name, THREAD_STACK_BYTES, move || work_until_idle(&pool));
        let Err(error) = spawned else { return Ok(()) };
        let mut state = self.0.state.lock();
        state.thread_count -= 1;
        if state.thread_count > 0 {
            // A busy thread runs it next.
            return Ok(());
        }
        state.jobs.clear();
        Err(error)
    }

    /// Number of its threads.
    #[must_use]
    pub fn thread_count(&self) -> usize {
        self.0.state.lock().thread_count
    }
}

fn work_until_idle(pool: &Pool) {
    let mut state = pool.state.lock();
    loop {
        while let Some(job) = state.jobs.pop_front() {
            drop(state);
            // The panic message is on stderr; the dropped channel reports the panic to the waiting request.
            let _ = catch_unwind(AssertUnwindSafe(job));
            state = pool.state.lock();
            if thread::is_priority_lowered() {
                // Jobs that came meanwhile have threads of their own: this one was not idle.
                state.thread_count -= 1;
                return;
            }
        }
        state.idle_count += 1;
        let timed_out = pool.has_job.wait_for(&mut state, IDLE_TIMEOUT).timed_out();
        state.idle_count -= 1;
        if timed_out && state.jobs.is_empty() {
            state.thread_count -= 1;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_thread_of_short_work_is_used_again_and_one_of_long_work_is_not() {
        let threads = QueryThreads::default();
        let id = || std::thread::current().id();
        let first = threads.run(id).await.expect("runs");
        // The thread may still be on its way from the result to its next job.
        while threads.0.state.lock().idle_count == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(threads.run(id).await.expect("runs"), first);
        let long = move || thread::lower_priority_of_long_work(0).map_or_else(id, |_| unreachable!());
        threads.run(long).await.expect("runs");
        while threads.0.state.lock().idle_count > 0 || threads.thread_count() > 1 {
            tokio::task::yield_now().await;
        }
        let lowered = threads.run(thread::is_priority_lowered).await.expect("runs");
        assert!(!lowered, "work after it has its own priority");
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_the_pool_goes_on() {
        let threads = QueryThreads::default();
        let panicked = threads.run(|| -> u32 { panic!("a bug") }).await;
        assert!(matches!(panicked, Err(ThreadError::Panicked)));
        assert_eq!(threads.run(|| 7).await.expect("runs"), 7);
    }
}
