//! Group commit: appenders queue bytes, and one of the waiting threads (the leader) writes everything queued.
//!
//! Invariants: bytes reach the sink in the order in which they were queued; `wait` returns `Ok` only once the
//! sink has written everything up to its position; after a failure nothing more is written, and every waiter
//! gets the error; the leader wakes the others even if it panics.
//! Not here: the content of the bytes and their files (`log`). The locks come from `base::sync`, so that the
//! tests in `group_commit/orders.rs` run every interleaving of this code.

use chronolith_base::sync::{AtomicU8, Condvar, Mutex, MutexGuard, Ordering};

use crate::options::WalError;

/// Queued bytes at which an appender writes them itself before it adds more.
const PENDING_BYTES_MAX: usize = 64 << 20;

/// A larger buffer is freed once it is written.
const KEPT_BUFFER_BYTES_MAX: usize = 4 << 20;

const OPEN: u8 = 0;
const DISK_FULL: u8 = 1;
const POISONED: u8 = 2;
const CLOSED: u8 = 3;
const NO_FILE_DESCRIPTOR: u8 = 4;

/// Sequence of a frame in the log: everything up to it is durable once [`crate::Wal::wait_durable`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[must_use = "nothing is durable before `wait_durable`"]
pub struct WalPosition(pub u64);

/// Resource that the sink lacks; appends are refused until a retry succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// Space on the disk.
    Space,
    /// A file descriptor.
    Descriptors,
}

impl Shortage {
    fn of_state(state: u8) -> Option<Shortage> {
        match state {
            DISK_FULL => Some(Shortage::Space),
            NO_FILE_DESCRIPTOR => Some(Shortage::Descriptors),
            _ => None,
        }
    }

    fn state(self) -> u8 {
        match self {
            Shortage::Space => DISK_FULL,
            Shortage::Descriptors => NO_FILE_DESCRIPTOR,
        }
    }

    fn error(self) -> WalError {
        match self {
            Shortage::Space => WalError::DiskFull,
            Shortage::Descriptors => WalError::NoFileDescriptor,
        }
    }
}

/// Reasons why bytes did not reach the sink.
pub(crate) enum WriteFailure {
    /// A shortage; `done_bytes` of them are written, the rest may be retried.
    Short { done_bytes: usize, shortage: Shortage },
    /// The sink is in an unknown state.
    Failed(String),
}

#[derive(Default)]
struct Queue {
    pending: Vec<u8>,
    /// The last buffer that was written, kept for its memory.
    kept_buffer: Vec<u8>,
    queued_sequence: u64,
    durable_sequence: u64,
    /// Set while a thread has the sink; it wakes the others.
    has_leader: bool,
    poison: Option<String>,
}

/// Queue, leader election and state around a sink of type `S`.
pub(crate) struct GroupCommit<S> {
    queue: Mutex<Queue>,
    changed: Condvar,
    sink: Mutex<S>,
    state: AtomicU8,
}

/// Poisons the log if the leader unwinds while it writes: the waiters would otherwise wait for ever.
struct LeaderGuard<'a, S> {
    commit: &'a GroupCommit<S>,
}

impl<S> Drop for LeaderGuard<'_, S> {
    fn drop(&mut self) {
        let mut queue = self.commit.queue.lock();
        queue.has_leader = false;
        self.commit.poison_locked(&mut queue, "the thread that wrote it has panicked".to_owned());
        drop(queue);
        self.commit.changed.notify_all();
    }
}

impl<S> GroupCommit<S> {
    /// Returns an empty queue whose last sequence is `sequence`.
    pub(crate) fn new(sink: S, sequence: u64) -> GroupCommit<S> {
        let queue = Queue { queued_sequence: sequence, durable_sequence: sequence, ..Queue::default() };
        GroupCommit {
            queue: Mutex::new(queue),
            changed: Condvar::new(),
            sink: Mutex::new(sink),
            state: AtomicU8::new(OPEN),
        }
    }

    /// Checks that appends are accepted. Back-pressure: a caller that finds too many bytes queued writes them
    /// first.
    ///
    /// # Errors
    /// [`WalError`]: appends are refused.
    pub(crate) fn admit(
        &self,
        write: impl FnMut(&mut S, &[u8]) -> Result<(), WriteFailure>,
    ) -> Result<(), WalError> {
        match self.state.load(Ordering::Acquire) {
            OPEN => {}
            DISK_FULL => return Err(Shortage::Space.error()),
            NO_FILE_DESCRIPTOR => return Err(Shortage::Descriptors.error()),
            CLOSED => return Err(WalError::Closed),
            _ => return Err(self.poison_error(&self.queue.lock())),
        }
        let queue = self.queue.lock();
        if queue.pending.len() > PENDING_BYTES_MAX {
            let all = WalPosition(queue.queued_sequence);
            drop(queue);
            return self.wait(all, write);
        }
        Ok(())
    }

    /// Queues the bytes that `put` appends; `put` gets their sequence. The caller holds the lock that orders
    /// them against other frames of the same stripe.
    pub(crate) fn queue(&self, put: impl FnOnce(u64, &mut Vec<u8>)) {
        let mut queue = self.queue.lock();
        queue.queued_sequence += 1;
        let sequence = queue.queued_sequence;
        put(sequence, &mut queue.pending);
    }

    /// Returns the position of the newest bytes queued by any thread.
    pub(crate) fn position(&self) -> WalPosition {
        WalPosition(self.queue.lock().queued_sequence)
    }

    /// Returns once everything up to `position` has gone through `write`, the caller's or another thread's.
    ///
    /// # Errors
    /// [`WalError`]: the bytes may or may not have been written.
    pub(crate) fn wait(
        &self,
        position: WalPosition,
        mut write: impl FnMut(&mut S, &[u8]) -> Result<(), WriteFailure>,
    ) -> Result<(), WalError> {
        let mut queue = self.queue.lock();
        loop {
            if queue.durable_sequence >= position.0 {
                return Ok(());
            }
            match self.state.load(Ordering::Acquire) {
                DISK_FULL => return Err(Shortage::Space.error()),
                NO_FILE_DESCRIPTOR => return Err(Shortage::Descriptors.error()),
                POISONED => return Err(self.poison_error(&queue)),
                _ => {}
            }
            if queue.has_leader {
                self.changed.wait(&mut queue);
            } else {
                let (guard, written) = self.lead(queue, &mut write);
                written?;
                queue = guard;
            }
        }
    }

    /// Runs as the leader: passes everything queued to `write` without holding the lock of the queue, and
    /// wakes all waiters.
    fn lead<'a, T>(
        &'a self,
        mut queue: MutexGuard<'a, Queue>,
        write: impl FnOnce(&mut S, &[u8]) -> Result<T, WriteFailure>,
    ) -> (MutexGuard<'a, Queue>, Result<T, WalError>) {
        queue.has_leader = true;
        let kept = std::mem::take(&mut queue.kept_buffer);
        let mut bytes = std::mem::replace(&mut queue.pending, kept);
        let sequence = queue.queued_sequence;
        drop(queue);
        let guard = LeaderGuard { commit: self };
        let written = write(&mut self.sink.lock(), &bytes);
        std::mem::forget(guard);
        let mut queue = self.queue.lock();
        queue.has_leader = false;
        let result = match written {
            Ok(value) => {
                queue.durable_sequence = sequence;
                if bytes.capacity() <= KEPT_BUFFER_BYTES_MAX {
                    bytes.clear();
                    queue.kept_buffer = bytes;
                }
                self.leave_shortage();
                Ok(value)
            }
            Err(WriteFailure::Short { done_bytes, shortage }) => {
                bytes.drain(..done_bytes);
                bytes.extend_from_slice(&queue.pending);
                queue.pending = bytes;
                self.enter_shortage(shortage);
                Err(shortage.error())
            }
            Err(WriteFailure::Failed(text)) => {
                self.poison_locked(&mut queue, text);
                Err(self.poison_error(&queue))
            }
        };
        self.changed.notify_all();
        (queue, result)
    }

    /// Becomes the leader with `write`, after the current leader has finished.
    ///
    /// # Errors
    /// [`WalError`] as [`GroupCommit::wait`].
    pub(crate) fn lead_exclusively<T>(
        &self,
        write: impl FnOnce(&mut S, &[u8]) -> Result<T, WriteFailure>,
    ) -> Result<T, WalError> {
        let mut queue = self.queue.lock();
        while queue.has_leader {
            self.changed.wait(&mut queue);
        }
        if self.state.load(Ordering::Acquire) == POISONED {
            return Err(self.poison_error(&queue));
        }
        self.lead(queue, write).1
    }

    /// Locks the sink alone, not the queue.
    pub(crate) fn sink(&self) -> MutexGuard<'_, S> {
        self.sink.lock()
    }

    /// Refuses appends until a shortage ends. A log that was closed or poisoned stays so.
    pub(crate) fn enter_shortage(&self, shortage: Shortage) {
        let enter = |state| {
            let may_enter = state == OPEN || Shortage::of_state(state).is_some();
            may_enter.then_some(shortage.state())
        };
        let _ = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, enter);
    }

    /// Accepts appends again: a successful write proves that the shortage has ended. A log that was closed or
    /// poisoned stays so.
    fn leave_shortage(&self) {
        let leave = |state| Shortage::of_state(state).map(|_| OPEN);
        let _ = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, leave);
    }

    /// Refuses everything until the process is restarted.
    pub(crate) fn poison(&self, text: String) {
        self.poison_locked(&mut self.queue.lock(), text);
        self.changed.notify_all();
    }

    fn poison_locked(&self, queue: &mut Queue, text: String) {
        tracing::error!(error = %text, "writing the WAL failed, writes are refused until restart");
        queue.poison.get_or_insert(text);
        self.state.store(POISONED, Ordering::Release);
    }

    /// Refuses appends; queued bytes may still be waited for. Returns false if it was closed before.
    pub(crate) fn close(&self) -> bool {
        let close = |state| if state == POISONED || state == CLOSED { None } else { Some(CLOSED) };
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, close).is_ok()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) == OPEN
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.state.load(Ordering::Acquire) == POISONED
    }

    /// Returns the shortage for which appends are refused.
    pub(crate) fn shortage(&self) -> Option<Shortage> {
        Shortage::of_state(self.state.load(Ordering::Acquire))
    }

    pub(crate) fn pending_bytes(&self) -> u64 {
        self.queue.lock().pending.len() as u64
    }

    /// Returns the capacity of the buffers of the queue in bytes, in use or kept.
    pub(crate) fn buffer_bytes(&self) -> u64 {
        let queue = self.queue.lock();
        (queue.pending.capacity() + queue.kept_buffer.capacity()) as u64
    }

    /// Returns the error of a poisoned log.
    pub(crate) fn poisoned(&self) -> WalError {
        self.poison_error(&self.queue.lock())
    }

    fn poison_error(&self, queue: &Queue) -> WalError {
        WalError::Poisoned(queue.poison.clone().unwrap_or_default())
    }
}

#[cfg(all(test, loom))]
mod orders;
#[cfg(all(test, not(loom)))]
mod tests;
