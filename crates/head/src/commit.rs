//! Group commit without the files: appenders queue bytes, one of those who wait writes everything queued.
//!
//! Holds: bytes reach the sink in the order in which they were queued; `wait` returns `Ok` only once everything
//! up to its ticket has been written by the sink; after a failure nothing is written any more, and everybody who
//! waits is told; whoever leads wakes the others, whatever happens to it.
//! Not here: what the bytes are and where they go (`wal`). The locks are those of `sync`, so that the tests in
//! `commit/orders.rs` run every order of threads over this very code.

use crate::options::WriteError;
use crate::sync::{AtomicU8, Condvar, Mutex, MutexGuard, Ordering};

/// Queued bytes at which an appender writes them itself before it adds more.
const PENDING_BYTES_MAX: usize = 64 << 20;

/// A written buffer that is larger is given back.
const SPARE_BYTES_MAX: usize = 4 << 20;

const OPEN: u8 = 0;
const DISK_FULL: u8 = 1;
const POISONED: u8 = 2;
const CLOSED: u8 = 3;

/// Proof that frames were queued: what to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[must_use = "nothing is durable before `Head::wait`"]
pub struct Ticket(pub(crate) u64);

/// Why bytes did not reach the sink.
pub(crate) enum WriteFailure {
    /// No space; that many of the bytes are written, the rest may be tried again.
    Full { done_bytes: usize },
    /// The sink is in an unknown state.
    Failed(String),
}

#[derive(Default)]
struct Queue {
    pending: Vec<u8>,
    /// The last buffer that was written, kept for its memory.
    spare: Vec<u8>,
    queued_sequence: u64,
    durable_sequence: u64,
    /// Somebody holds the sink and will wake the others.
    led: bool,
    poison: Option<String>,
}

/// Queue, leader and state around a sink of type `S`.
pub(crate) struct Commit<S> {
    queue: Mutex<Queue>,
    changed: Condvar,
    sink: Mutex<S>,
    state: AtomicU8,
}

/// Poisons if the leader unwinds while it writes: those who wait would wait for ever.
struct Leading<'a, S> {
    commit: &'a Commit<S>,
}

impl<S> Drop for Leading<'_, S> {
    fn drop(&mut self) {
        let mut queue = self.commit.queue.lock();
        queue.led = false;
        self.commit.poison_locked(&mut queue, "the thread that wrote it has panicked".to_owned());
        drop(queue);
        self.commit.changed.notify_all();
    }
}

impl<S> Commit<S> {
    /// An empty queue behind `sequence`.
    pub(crate) fn new(sink: S, sequence: u64) -> Commit<S> {
        let queue = Queue { queued_sequence: sequence, durable_sequence: sequence, ..Queue::default() };
        Commit {
            queue: Mutex::new(queue),
            changed: Condvar::new(),
            sink: Mutex::new(sink),
            state: AtomicU8::new(OPEN),
        }
    }

    /// Whether appends are taken. With too much in the queue, helps to write it first: back-pressure.
    ///
    /// # Errors
    /// Why they are not.
    pub(crate) fn admit(
        &self,
        write: impl FnMut(&mut S, &[u8]) -> Result<(), WriteFailure>,
    ) -> Result<(), WriteError> {
        match self.state.load(Ordering::Acquire) {
            OPEN => {}
            DISK_FULL => return Err(WriteError::DiskFull),
            CLOSED => return Err(WriteError::Closed),
            _ => return Err(self.poison_error(&self.queue.lock())),
        }
        let queue = self.queue.lock();
        if queue.pending.len() > PENDING_BYTES_MAX {
            let all = Ticket(queue.queued_sequence);
            drop(queue);
            return self.wait(all, write);
        }
        Ok(())
    }

    /// Queues what `put` appends, given the sequence that it gets. Callers hold the lock that orders its content
    /// against others of its kind.
    pub(crate) fn queue(&self, put: impl FnOnce(u64, &mut Vec<u8>)) {
        let mut queue = self.queue.lock();
        queue.queued_sequence += 1;
        let sequence = queue.queued_sequence;
        put(sequence, &mut queue.pending);
    }

    /// The newest bytes queued by anyone.
    pub(crate) fn ticket(&self) -> Ticket {
        Ticket(self.queue.lock().queued_sequence)
    }

    /// Returns once everything up to `ticket` has gone through `write`, this caller's or another's.
    ///
    /// # Errors
    /// [`WriteError`]: it may or may not have been written.
    pub(crate) fn wait(
        &self,
        ticket: Ticket,
        mut write: impl FnMut(&mut S, &[u8]) -> Result<(), WriteFailure>,
    ) -> Result<(), WriteError> {
        let mut queue = self.queue.lock();
        loop {
            if queue.durable_sequence >= ticket.0 {
                return Ok(());
            }
            match self.state.load(Ordering::Acquire) {
                DISK_FULL => return Err(WriteError::DiskFull),
                POISONED => return Err(self.poison_error(&queue)),
                _ => {}
            }
            if queue.led {
                self.changed.wait(&mut queue);
            } else {
                let (guard, led) = self.lead(queue, &mut write);
                led?;
                queue = guard;
            }
        }
    }

    /// Takes everything queued, lets `write` bring it to the sink without the queue's lock, wakes all who wait.
    fn lead<'a, T>(
        &'a self,
        mut queue: MutexGuard<'a, Queue>,
        write: impl FnOnce(&mut S, &[u8]) -> Result<T, WriteFailure>,
    ) -> (MutexGuard<'a, Queue>, Result<T, WriteError>) {
        queue.led = true;
        let spare = std::mem::take(&mut queue.spare);
        let mut bytes = std::mem::replace(&mut queue.pending, spare);
        let sequence = queue.queued_sequence;
        drop(queue);
        let leading = Leading { commit: self };
        let written = write(&mut self.sink.lock(), &bytes);
        std::mem::forget(leading);
        let mut queue = self.queue.lock();
        queue.led = false;
        let result = match written {
            Ok(value) => {
                queue.durable_sequence = sequence;
                if bytes.capacity() <= SPARE_BYTES_MAX {
                    bytes.clear();
                    queue.spare = bytes;
                }
                self.leave_disk_full();
                Ok(value)
            }
            Err(WriteFailure::Full { done_bytes }) => {
                bytes.drain(..done_bytes);
                bytes.extend_from_slice(&queue.pending);
                queue.pending = bytes;
                self.enter_disk_full();
                Err(WriteError::DiskFull)
            }
            Err(WriteFailure::Failed(text)) => {
                self.poison_locked(&mut queue, text);
                Err(self.poison_error(&queue))
            }
        };
        self.changed.notify_all();
        (queue, result)
    }

    /// Leads with `write`, waiting for another leader to finish first.
    ///
    /// # Errors
    /// [`WriteError`] as [`Commit::wait`].
    pub(crate) fn lead_exclusively<T>(
        &self,
        write: impl FnOnce(&mut S, &[u8]) -> Result<T, WriteFailure>,
    ) -> Result<T, WriteError> {
        let mut queue = self.queue.lock();
        while queue.led {
            self.changed.wait(&mut queue);
        }
        if self.state.load(Ordering::Acquire) == POISONED {
            return Err(self.poison_error(&queue));
        }
        self.lead(queue, write).1
    }

    /// The sink, without a look at the queue.
    pub(crate) fn sink(&self) -> MutexGuard<'_, S> {
        self.sink.lock()
    }

    /// Refuses appends until there is space again.
    pub(crate) fn enter_disk_full(&self) {
        let _ = self.state.compare_exchange(OPEN, DISK_FULL, Ordering::AcqRel, Ordering::Acquire);
    }

    /// What is written shows that there is space. A log that was closed or poisoned meanwhile stays so.
    fn leave_disk_full(&self) {
        let _ = self.state.compare_exchange(DISK_FULL, OPEN, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Refuses everything for good.
    pub(crate) fn poison(&self, text: String) {
        self.poison_locked(&mut self.queue.lock(), text);
        self.changed.notify_all();
    }

    fn poison_locked(&self, queue: &mut Queue, text: String) {
        tracing::error!(error = %text, "write-ahead log is poisoned");
        queue.poison.get_or_insert(text);
        self.state.store(POISONED, Ordering::Release);
    }

    /// Refuses appends; what is queued may still be waited for. False if it was closed before.
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

    pub(crate) fn is_disk_full(&self) -> bool {
        self.state.load(Ordering::Acquire) == DISK_FULL
    }

    pub(crate) fn pending_bytes(&self) -> u64 {
        self.queue.lock().pending.len() as u64
    }

    /// Bytes of the buffers of the queue, in use or kept.
    pub(crate) fn buffer_bytes(&self) -> u64 {
        let queue = self.queue.lock();
        (queue.pending.capacity() + queue.spare.capacity()) as u64
    }

    /// The error of a poisoned log.
    pub(crate) fn poisoned(&self) -> WriteError {
        self.poison_error(&self.queue.lock())
    }

    fn poison_error(&self, queue: &Queue) -> WriteError {
        WriteError::Poisoned(queue.poison.clone().unwrap_or_default())
    }
}

#[cfg(all(test, loom))]
mod orders;
#[cfg(all(test, not(loom)))]
mod tests;
