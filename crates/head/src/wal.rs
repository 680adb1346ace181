//! The write-ahead log: frames, group-committed into segment files.
//!
//! Holds: frames reach the log in the order in which they were queued; `wait` returns `Ok` only once every
//! frame up to its ticket is as durable as the sync mode promises; after a failed write or sync nothing is
//! written any more.
//! Not here: who writes for whom (`commit`), what frames hold (`format::wal`), reading them back (`replay`).

mod segment;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use chronolith_base::Env;
use chronolith_format::wal::FrameHeader;

pub use crate::commit::Ticket;
use crate::commit::{Commit, WriteFailure};
pub(crate) use segment::SegmentFile;
use segment::Segments;

use crate::options::{HeadOptions, SyncMode, WriteError};

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
    commit: Commit<Segments>,
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
        let (key, sequence) = (start.key, start.sequence);
        let commit = Commit::new(Segments::new(env, options, dir, start), sequence);
        Wal { commit, key, counters: WalCounters::default() }
    }

    /// Whether appends are taken.
    ///
    /// # Errors
    /// Why they are not.
    pub(crate) fn admit(&self) -> Result<(), WriteError> {
        self.commit.admit(|segments, bytes| segments.commit(bytes, &self.counters))
    }

    /// Queues a frame. Callers hold the lock that orders its content against others of its kind.
    pub(crate) fn queue(&self, kind: u8, stripe: u8, payload: &[u8]) {
        let mut header = FrameHeader::for_payload(kind, stripe, payload);
        self.commit.queue(|sequence, pending| {
            header.sequence = sequence;
            header.put_frame(self.key, payload, pending);
        });
    }

    /// The newest frame queued by anyone: an identical repeat of a sample is durable only with the original.
    pub(crate) fn ticket(&self) -> Ticket {
        self.commit.ticket()
    }

    /// Returns once everything up to `ticket` is durable as the sync mode promises.
    ///
    /// # Errors
    /// [`WriteError`]: it may or may not become durable.
    pub(crate) fn wait(&self, ticket: Ticket) -> Result<(), WriteError> {
        self.commit.wait(ticket, |segments, bytes| segments.commit(bytes, &self.counters))
    }

    /// Writes and syncs everything queued, whatever the sync mode.
    pub(crate) fn sync(&self) -> Result<(), WriteError> {
        self.commit.lead_exclusively(|segments, bytes| {
            segments.write(bytes, &self.counters)?;
            segments.sync(&self.counters)
        })
    }

    /// Ends the current segment after all that is queued. Gives the number of the segment that takes later
    /// frames, and the sequence of the last frame before it.
    pub(crate) fn rotate(&self) -> Result<(u64, u64), WriteError> {
        if self.is_disk_full() {
            return self.rotate_without_queue();
        }
        self.commit.lead_exclusively(|segments, bytes| {
            segments.write(bytes, &self.counters)?;
            segments.sync(&self.counters)?;
            let segment = segments.finish_segment();
            Ok((segment, segments.last_sequence()))
        })
    }

    /// While the disk is full, what is queued goes to the next segment: the checkpoint that may free space must
    /// not wait for space.
    fn rotate_without_queue(&self) -> Result<(u64, u64), WriteError> {
        let mut segments = self.commit.sink();
        if let Err(WriteFailure::Failed(text)) = segments.sync(&self.counters) {
            drop(segments);
            self.poison(text);
            return Err(self.commit.poisoned());
        }
        Ok((segments.finish_segment(), segments.last_sequence()))
    }

    /// Whether a finished segment has no frame behind `sequence`.
    pub(crate) fn has_segment_through(&self, sequence: u64) -> bool {
        self.commit.sink().has_segment_through(sequence)
    }

    /// Removes the segments without frames behind `sequence`: durable slices hold what they hold.
    pub(crate) fn remove_through(&self, sequence: u64) -> std::io::Result<u64> {
        self.commit.sink().remove_through(sequence, &self.counters)
    }

    /// Called at least once a second, in interval mode four times per interval: writes what waits while the disk was full, syncs in interval mode.
    pub(crate) fn tick(&self, sync: SyncMode) {
        if self.is_disk_full() {
            // The outcome shows in the state: still full, open again, or poisoned.
            let _ = self.commit.lead_exclusively(|segments, bytes| {
                segments.check_space_again();
                segments.commit(bytes, &self.counters)
            });
        } else if self.commit.is_open() && matches!(sync, SyncMode::Interval(_)) {
            let _ = self.commit.lead_exclusively(|segments, bytes| segments.commit(bytes, &self.counters));
        }
    }

    /// Refuses appends until there is space again.
    pub(crate) fn enter_disk_full(&self) {
        self.commit.enter_disk_full();
    }

    /// Refuses everything for good.
    pub(crate) fn poison(&self, text: String) {
        self.commit.poison(text);
    }

    /// Refuses appends; frames that are queued may still be waited for. False if it was closed before.
    pub(crate) fn close(&self) -> bool {
        self.commit.close()
    }

    /// Why everything is refused, if it is.
    pub(crate) fn failure(&self) -> Option<WriteError> {
        self.is_poisoned().then(|| self.commit.poisoned())
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.commit.is_poisoned()
    }

    pub(crate) fn is_disk_full(&self) -> bool {
        self.commit.is_disk_full()
    }

    pub(crate) fn pending_bytes(&self) -> u64 {
        self.commit.pending_bytes()
    }

    pub(crate) fn buffer_bytes(&self) -> u64 {
        self.commit.buffer_bytes()
    }
}

/// The directory of segments and checkpoints.
pub(crate) fn wal_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("wal")
}
