//! Queue of the tasks that make local sidecars: one runs at a time, for all blocks of all tenants.
//!
//! Invariants: at most [`WAITING_MAX`] tasks wait; the worker ends when none is left, and with its runtime.
//! Not here: the tasks (`sidecar_builder`).

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chronolith_block::{INDEX_END_BYTES, INDEX_START_BYTES};
use parking_lot::Mutex;
use tokio::runtime::Handle;

/// Time between a query by the index and its sidecar.
const BUILD_DELAY: Duration = Duration::from_secs(1);
/// Tasks that wait at most.
const WAITING_MAX: usize = 1024;

/// Makes a sidecar, and records the outcome.
type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Counters at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LocalSidecarSnapshot {
    /// Sidecars that were made.
    pub built: u64,
    /// Bytes of these.
    pub built_bytes: u64,
    /// Attempts that failed.
    pub failures: u64,
    /// Sidecars that were made and are damaged or evicted in part.
    pub losses: u64,
}

/// Tasks in the order in which they came, and counters of what they made.
#[derive(Default)]
pub(crate) struct SidecarQueue {
    state: Mutex<State>,
    pub(crate) built: AtomicU64,
    pub(crate) built_bytes: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) losses: AtomicU64,
    rules: Mutex<BuildRules>,
}

/// Conditions of a local sidecar.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BuildRules {
    /// An index of at most this length is read and cached as a whole: a sidecar would save nothing.
    pub(crate) index_bytes_min: u64,
    /// Time after the query that asked for it, which its requests would slow down.
    pub(crate) delay: Duration,
}

impl Default for BuildRules {
    fn default() -> BuildRules {
        BuildRules { index_bytes_min: INDEX_START_BYTES + INDEX_END_BYTES, delay: BUILD_DELAY }
    }
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Task>,
    has_worker: bool,
}

impl SidecarQueue {
    /// Queues a task, which runs on the runtime of `handle`. Returns false if too many wait.
    pub(crate) fn push(
        self: &Arc<SidecarQueue>,
        handle: &Handle,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> bool {
        let mut state = self.state.lock();
        if state.waiting.len() >= WAITING_MAX {
            return false;
        }
        state.waiting.push_back(Box::pin(task));
        if !std::mem::replace(&mut state.has_worker, true) {
            handle.spawn(self.clone().work());
        }
        true
    }

    pub(crate) fn snapshot(&self) -> LocalSidecarSnapshot {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LocalSidecarSnapshot {
            built: load(&self.built),
            built_bytes: load(&self.built_bytes),
            failures: load(&self.failures),
            losses: load(&self.losses),
        }
    }

    pub(crate) fn rules(&self) -> BuildRules {
        *self.rules.lock()
    }

    /// Replaces the rules: blocks of tests are small.
    #[cfg(test)]
    pub(crate) fn set_rules(&self, rules: BuildRules) {
        *self.rules.lock() = rules;
    }

    /// Returns true if no task runs or waits.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        !self.state.lock().has_worker
    }

    async fn work(self: Arc<SidecarQueue>) {
        while let Some(task) = self.next() {
            // A panic ends its task alone.
            if Handle::current().spawn(task).await.is_err() {
                self.failures.fetch_add(1, Ordering::Relaxed);
                tracing::error!("making a sidecar of a block panicked");
            }
        }
    }

    fn next(&self) -> Option<Task> {
        let mut state = self.state.lock();
        assert!(state.has_worker, "only the worker takes tasks");
        let next = state.waiting.pop_front();
        state.has_worker = next.is_some();
        next
    }
}
