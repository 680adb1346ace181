//! The write-ahead log: frames, group-committed into segment files.
//!
//! Holds: frames reach the log in the order in which they were queued; `wait` returns `Ok` only once every
//! frame up to its ticket is as durable as the sync mode promises; after a failed write or sync nothing is
//! written any more.
//! Not here: who writes for whom (`commit`), what frames hold (`format::wal`), reading them back (`replay`).

mod control;
mod segment;
mod spare;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_base::Env;
use chronolith_format::wal::FrameHeader;

pub use crate::commit::Ticket;
use crate::commit::{Commit, WriteFailure};
pub(crate) use control::{ControlFile, control_path};
use segment::Segments;
pub(crate) use segment::{SegmentFile, opened_record};
pub(crate) use spare::{Spare, is_spare, keep_spares};

use crate::options::{HeadOptions, SyncMode, WriteError};

/// Counters of the log.
#[derive(Debug, Default)]
pub(crate) struct WalCounters {
    pub(crate) sync_count: AtomicU64,
    pub(crate) sync_ns: AtomicU64,
    pub(crate) commit_count: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) segment_bytes: AtomicU64,
    /// Spares there are.
    pub(crate) spare_count: AtomicU64,
    pub(crate) spare_bytes: AtomicU64,
    /// Segments that were made of a spare, and of none because there was none.
    pub(crate) spare_used_count: AtomicU64,
    pub(crate) spare_missing_count: AtomicU64,
}

impl WalCounters {
    fn note_spares(&self, spares: &VecDeque<Spare>, segment_bytes: u64) {
        let count = spares.len() as u64;
        self.spare_count.store(count, Ordering::Relaxed);
        self.spare_bytes.store(count * segment_bytes, Ordering::Relaxed);
    }
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
    pub(crate) control: ControlFile,
    pub(crate) spares: VecDeque<Spare>,
}

impl Wal {
    /// A log that continues behind `start`. The first segment is made by the first write.
    pub(crate) fn new(env: &Env, options: &HeadOptions, dir: PathBuf, start: WalStart) -> Wal {
        let (key, sequence) = (start.key, start.sequence);
        let counters = WalCounters::default();
        counters.note_spares(&start.spares, options.wal_segment_bytes);
        let commit = Commit::new(Segments::new(env, options, dir, start), sequence);
        Wal { commit, key, counters }
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

    /// Removes the segments without frames behind `sequence`, or makes spares of them: durable slices hold what they
    /// hold. Gives their bytes.
    pub(crate) fn remove_through(&self, sequence: u64) -> std::io::Result<u64> {
        let mut sink = self.commit.sink();
        let segments = sink.take_removable(sequence)?;
        let (disk, dir) = sink.disk_and_dir();
        let is_full = self.is_disk_full();
        drop(sink);
        // Without the lock: the names of files take longer to change than a commit.
        let (mut retired, mut removed_bytes) = (Vec::new(), 0);
        for (idx, segment) in segments.iter().enumerate() {
            let path = segment::segment_path(&dir, segment.number);
            let is_wanted = !is_full && self.commit.sink().wants_freed(segment.bytes, retired.len());
            let spare = if is_wanted {
                Spare::retire(&*disk, &dir, &path, segment.number, segment.last_sequence).ok()
            } else {
                None
            };
            match spare {
                Some(spare) => retired.push(spare),
                None => disk.remove_file(&path).inspect_err(|_| {
                    self.commit.sink().put_back(segments.get(idx..).unwrap_or_default());
                })?,
            }
            removed_bytes += segment.bytes;
            self.counters.segment_bytes.fetch_sub(segment.bytes, Ordering::Relaxed);
        }
        if !retired.is_empty() {
            disk.sync_dir(&dir)?;
            let mut sink = self.commit.sink();
            retired.into_iter().for_each(|spare| sink.add_spare(spare, &self.counters));
        }
        Ok(removed_bytes)
    }

    /// Makes a spare segment if there is none and the log takes frames. Writes as many zeros as a segment has bytes,
    /// without holding up commits.
    pub(crate) fn prepare_segment(&self) -> std::io::Result<()> {
        let goes_on = || self.commit.is_open();
        if self.counters.spare_count.load(Ordering::Relaxed) > 0 || !goes_on() {
            return Ok(());
        }
        let sink = self.commit.sink();
        let Some(order) = sink.spare_order() else { return Ok(()) };
        let (disk, dir) = sink.disk_and_dir();
        drop(sink);
        let spare = Spare::zeroed(&*disk, &dir, order.number, order.len, goes_on)?;
        spare.into_iter().for_each(|spare| self.commit.sink().add_spare(spare, &self.counters));
        Ok(())
    }

    /// Records in the control file that the log is complete, once everything queued is durable and nothing follows.
    pub(crate) fn record_closed(&self) -> std::io::Result<()> {
        self.commit.sink().record_closed()
    }

    /// Called at least once a second, in interval mode four times per interval: writes what waits while the
    /// disk was full, syncs in interval mode.
    pub(crate) fn tick(&self, sync: SyncMode) {
        if self.is_disk_full() {
            // The outcome shows in the state: still full, open again, or poisoned.
            let _ = self.commit.lead_exclusively(|segments, bytes| {
                segments.remove_spares(&self.counters);
                segments.check_space_again();
                segments.commit(bytes, &self.counters)
            });
        } else if self.commit.is_open() && matches!(sync, SyncMode::Interval(_)) {
            let _ = self.commit.lead_exclusively(|segments, bytes| segments.commit(bytes, &self.counters));
        }
        if let Err(error) = self.commit.sink().sync_control() {
            tracing::warn!(%error, "the control file of the log cannot be synced");
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
