//! Group commit: appenders queue frames, one of those who wait writes and syncs for all.
//!
//! Holds: frames reach the log in the order in which they were queued; `wait` returns `Ok` only once every
//! frame up to its ticket is as durable as the sync mode promises; after a failed write or sync nothing is
//! written any more.
//! Not here: what frames hold (`format::wal`), reading them back (`replay`).

mod segment;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use chronolith_base::Env;
use chronolith_format::wal::FrameHeader;
use parking_lot::{Condvar, Mutex, MutexGuard};

pub(crate) use segment::SegmentFile;
use segment::{Segments, WriteFailure};

use crate::options::{HeadOptions, SyncMode, WriteError};

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

#[derive(Default)]
struct Queue {
    pending: Vec<u8>,
    /// The last buffer that was written, kept for its memory.
    spare: Vec<u8>,
    queued_sequence: u64,
    durable_sequence: u64,
    /// Somebody holds the segments and will wake the others.
    led: bool,
    poison: Option<String>,
}

/// Counters of the log.
#[derive(Debug, Default)]
pub(crate) struct WalCounters {
    pub(crate) sync_count: AtomicU64,
    pub(crate) sync_ns: AtomicU64,
    pub(crate) commit_count: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) segment_bytes: AtomicU64,
}

/// The write-ahead log.
pub(crate) struct Wal {
    queue: Mutex<Queue>,
    changed: Condvar,
    segments: Mutex<Segments>,
    state: AtomicU8,
    pub(crate) key: u128,
    pub(crate) counters: WalCounters,
}

/// Where a log starts after a replay.
pub(crate) struct WalStart {
    pub(crate) key: u128,
    pub(crate) sequence: u64,
    /// Number of the first segment to write.
    pub(crate) segment: u64,
    /// Older segments that are still needed.
    pub(crate) kept: Vec<SegmentFile>,
}

impl Wal {
    /// A log that continues behind `start`. The first segment is made by the first write.
    pub(crate) fn new(env: &Env, options: &HeadOptions, dir: PathBuf, start: WalStart) -> Wal {
        let queue =
            Queue { queued_sequence: start.sequence, durable_sequence: start.sequence, ..Queue::default() };
        let key = start.key;
        Wal {
            queue: Mutex::new(queue),
            changed: Condvar::new(),
            segments: Mutex::new(Segments::new(env, options, dir, start)),
            state: AtomicU8::new(OPEN),
            key,
            counters: WalCounters::default(),
        }
    }

    /// Whether appends are taken.
    ///
    /// # Errors
    /// Why they are not.
    pub(crate) fn admit(&self) -> Result<(), WriteError> {
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
            return self.wait(all);
        }
        Ok(())
    }

    /// Queues a frame. Callers hold the lock that orders its content against others of its kind.
    pub(crate) fn queue(&self, kind: u8, stripe: u8, payload: &[u8]) {
        let mut header = FrameHeader::for_payload(kind, stripe, payload);
        let mut queue = self.queue.lock();
        queue.queued_sequence += 1;
        header.sequence = queue.queued_sequence;
        header.put_frame(self.key, payload, &mut queue.pending);
    }

    /// The newest frame queued by anyone: an identical repeat of a sample is durable only with the original.
    pub(crate) fn ticket(&self) -> Ticket {
        Ticket(self.queue.lock().queued_sequence)
    }

    /// Returns once everything up to `ticket` is durable as the sync mode promises.
    ///
    /// # Errors
    /// [`WriteError`]: it may or may not become durable.
    pub(crate) fn wait(&self, ticket: Ticket) -> Result<(), WriteError> {
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
                let (guard, led) =
                    self.lead(queue, |segments, bytes, wal| segments.commit(bytes, &wal.counters));
                led?;
                queue = guard;
            }
        }
    }

    /// Takes everything queued, lets `write` bring it to disk without the queue's lock, wakes all who wait.
    fn lead<'a, T>(
        &'a self,
        mut queue: MutexGuard<'a, Queue>,
        write: impl FnOnce(&mut Segments, &[u8], &Wal) -> Result<T, WriteFailure>,
    ) -> (MutexGuard<'a, Queue>, Result<T, WriteError>) {
        queue.led = true;
        let spare = std::mem::take(&mut queue.spare);
        let mut bytes = std::mem::replace(&mut queue.pending, spare);
        let sequence = queue.queued_sequence;
        drop(queue);
        let written = write(&mut self.segments.lock(), &bytes, self);
        let mut queue = self.queue.lock();
        queue.led = false;
        let result = match written {
            Ok(value) => {
                queue.durable_sequence = sequence;
                if bytes.capacity() <= SPARE_BYTES_MAX {
                    bytes.clear();
                    queue.spare = bytes;
                }
                if self.state.load(Ordering::Acquire) == DISK_FULL {
                    self.state.store(OPEN, Ordering::Release);
                }
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

    /// As [`Wal::lead`], waiting for another leader to finish first.
    fn lead_exclusively<T>(
        &self,
        write: impl FnOnce(&mut Segments, &[u8], &Wal) -> Result<T, WriteFailure>,
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

    /// Writes and syncs everything queued, whatever the sync mode.
    pub(crate) fn sync(&self) -> Result<(), WriteError> {
        self.lead_exclusively(|segments, bytes, wal| {
            segments.write(bytes, &wal.counters)?;
            segments.sync(&wal.counters)
        })
    }

    /// Ends the current segment after all that is queued. Gives the number of the segment that takes later
    /// frames, and the sequence of the last frame before it.
    pub(crate) fn rotate(&self) -> Result<(u64, u64), WriteError> {
        if self.is_disk_full() {
            return self.rotate_without_queue();
        }
        self.lead_exclusively(|segments, bytes, wal| {
            segments.write(bytes, &wal.counters)?;
            segments.sync(&wal.counters)?;
            let segment = segments.finish_segment();
            Ok((segment, segments.last_sequence()))
        })
    }

    /// While the disk is full, what is queued goes to the next segment: the checkpoint that may free space must
    /// not wait for space.
    fn rotate_without_queue(&self) -> Result<(u64, u64), WriteError> {
        let mut segments = self.segments.lock();
        if let Err(WriteFailure::Failed(text)) = segments.sync(&self.counters) {
            drop(segments);
            self.poison(text);
            return Err(self.poison_error(&self.queue.lock()));
        }
        Ok((segments.finish_segment(), segments.last_sequence()))
    }

    /// Removes the segments before `segment`: a durable checkpoint holds what they hold.
    pub(crate) fn remove_before(&self, segment: u64) -> std::io::Result<u64> {
        self.segments.lock().remove_before(segment, &self.counters)
    }

    /// Called every second: writes what waits while the disk was full, syncs in interval mode.
    pub(crate) fn tick(&self, sync: SyncMode) {
        match self.state.load(Ordering::Acquire) {
            DISK_FULL => {
                // The outcome shows in the state: still full, open again, or poisoned.
                let _ = self.lead_exclusively(|segments, bytes, wal| {
                    segments.check_space_again();
                    segments.commit(bytes, &wal.counters)
                });
            }
            OPEN if matches!(sync, SyncMode::Interval(_)) => {
                let _ = self.lead_exclusively(|segments, bytes, wal| segments.commit(bytes, &wal.counters));
            }
            _ => {}
        }
    }

    /// Refuses appends until there is space again.
    pub(crate) fn enter_disk_full(&self) {
        let _ = self.state.compare_exchange(OPEN, DISK_FULL, Ordering::AcqRel, Ordering::Acquire);
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

    /// Refuses appends; frames that are queued may still be waited for. False if it was closed before.
    pub(crate) fn close(&self) -> bool {
        let close = |state| if state == POISONED || state == CLOSED { None } else { Some(CLOSED) };
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, close).is_ok()
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

    fn poison_error(&self, queue: &Queue) -> WriteError {
        WriteError::Poisoned(queue.poison.clone().unwrap_or_default())
    }
}

/// The directory of segments and checkpoints.
pub(crate) fn wal_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("wal")
}
