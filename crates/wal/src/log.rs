//! The public interface of the write-ahead log: append, durable position, truncate.
//!
//! Invariant: frames reach the segments in the order in which they were appended.
//! Not here: leader election (`group_commit`), files (`segment`, `spare`, `control`), replay (`recovery`).

use std::io;

use chronolith_base::Env;
use chronolith_format::head::wal::FrameHeader;

use crate::counters::{WalCounters, WalStats, note_queued};
use crate::group_commit::{GroupCommit, Shortage, WalPosition, WriteFailure};
use crate::options::{SyncMode, WalError, WalOptions};
use crate::segment::{Segments, WalStart};

/// The write-ahead log.
pub struct Wal {
    commit: GroupCommit<Segments>,
    key: u128,
    sync: SyncMode,
    counters: WalCounters,
}

impl Wal {
    /// Returns a log that continues after `start`. The first write creates the first segment.
    pub(crate) fn new(env: &Env, options: &WalOptions, start: WalStart) -> Wal {
        let counters = WalCounters::default();
        let segments = Segments::new(env, options, start, &counters);
        let (key, sequence) = (segments.key(), segments.last_sequence());
        let commit = GroupCommit::new(segments, sequence);
        Wal { commit, key, sync: options.sync, counters }
    }

    /// Returns the key that all frames of this log carry, and the files that belong to it.
    #[must_use]
    pub fn key(&self) -> u128 {
        self.key
    }

    /// Checks that appends are accepted; writes the queue first if it is too long.
    ///
    /// # Errors
    /// [`WalError`]: appends are refused.
    pub fn admit(&self) -> Result<(), WalError> {
        self.commit.admit(|segments, bytes| segments.commit(bytes, &self.counters))
    }

    /// Appends a frame to the queue and returns its sequence; durable only after [`Wal::wait_durable`]. The
    /// caller holds the lock that orders it against other frames of the same stripe.
    pub fn append(&self, kind: u8, stripe: u8, payload: &[u8]) -> u64 {
        let mut header = FrameHeader::for_payload(kind, stripe, payload);
        note_queued(payload.len());
        let mut queued = 0;
        self.commit.queue(|sequence, pending| {
            header.sequence = sequence;
            header.put_frame(self.key, payload, pending);
            queued = sequence;
        });
        queued
    }

    /// Returns the position of the newest frame of any thread: a duplicate of a sample is durable only with
    /// its original.
    pub fn position(&self) -> WalPosition {
        self.commit.position()
    }

    /// Waits until every frame up to `position` is as durable as the sync mode promises.
    ///
    /// # Errors
    /// [`WalError`]: the frames may or may not become durable.
    pub fn wait_durable(&self, position: WalPosition) -> Result<(), WalError> {
        self.commit.wait(position, |segments, bytes| segments.commit(bytes, &self.counters))
    }

    /// Returns once everything up to `position` is synced, whatever the sync mode. In mode `fsync` that joins
    /// the commits of appenders instead of adding a sync to theirs.
    ///
    /// # Errors
    /// [`WalError`]: the frames may or may not become durable.
    pub fn sync_through(&self, position: WalPosition) -> Result<(), WalError> {
        match self.sync {
            SyncMode::Fsync if self.commit.shortage().is_none() => self.wait_durable(position),
            _ => self.sync(),
        }
    }

    /// Writes and syncs everything queued, whatever the sync mode.
    ///
    /// # Errors
    /// [`WalError`]: the frames may or may not become durable.
    pub fn sync(&self) -> Result<(), WalError> {
        self.commit.lead_exclusively(|segments, bytes| {
            segments.write(bytes, &self.counters)?;
            segments.sync(&self.counters)
        })
    }

    /// Ends the current segment after everything queued; returns the position of its last frame.
    ///
    /// # Errors
    /// [`WalError`]: the segment may not have ended.
    pub fn rotate(&self) -> Result<WalPosition, WalError> {
        if self.commit.shortage().is_some() {
            return self.rotate_without_queue();
        }
        self.commit.lead_exclusively(|segments, bytes| {
            segments.write(bytes, &self.counters)?;
            segments.sync(&self.counters)?;
            segments.finish_segment();
            Ok(WalPosition(segments.last_sequence()))
        })
    }

    /// While the disk is full, queued frames go to the next segment: the checkpoint that may free space must
    /// not wait for space. So they do while no segment can be opened.
    fn rotate_without_queue(&self) -> Result<WalPosition, WalError> {
        let mut segments = self.commit.sink();
        if let Err(WriteFailure::Failed(text)) = segments.sync(&self.counters) {
            drop(segments);
            self.poison(text);
            return Err(self.commit.poisoned());
        }
        segments.finish_segment();
        Ok(WalPosition(segments.last_sequence()))
    }

    /// Returns true if a finished segment has no frame after `sequence`.
    pub fn has_segment_through(&self, sequence: u64) -> bool {
        self.commit.sink().has_segment_through(sequence)
    }

    /// Removes or recycles the segments without frames after `sequence`; returns their size in bytes.
    ///
    /// # Errors
    /// The disk reported an error; segments that remain are removed by the next call.
    pub fn truncate_through(&self, sequence: u64) -> io::Result<u64> {
        let mut sink = self.commit.sink();
        let segments = sink.take_removable(sequence)?;
        let (disk, dir) = sink.disk_and_dir();
        let is_full = self.is_disk_full();
        drop(sink);
        // Without the lock: a rename takes longer than a commit.
        let (mut retired, mut removed_bytes) = (Vec::new(), 0);
        for (idx, segment) in segments.iter().enumerate() {
            let is_wanted = !is_full && self.commit.sink().wants_freed(segment, retired.len());
            match is_wanted.then(|| segment.retire(&*disk, &dir).ok()).flatten() {
                Some(spare) => retired.push(spare),
                None => disk.remove_file(&segment.path(&dir)).inspect_err(|_| {
                    self.commit.sink().put_back(segments.get(idx..).unwrap_or_default());
                })?,
            }
            removed_bytes += segment.bytes();
            self.counters.note_freed(segment.bytes());
        }
        if !retired.is_empty() {
            // Names that are not durable must not receive frames; without spares, segments are created.
            if let Err(error) = disk.sync_dir(&dir) {
                retired.into_iter().for_each(|spare| spare.remove(&*disk));
                return Err(error);
            }
            let mut sink = self.commit.sink();
            retired.into_iter().for_each(|spare| sink.add_spare(spare, &self.counters));
        }
        Ok(removed_bytes)
    }

    /// Prepares a segment filled with zeros if none is ready and the log is open. Commits continue meanwhile.
    ///
    /// # Errors
    /// The disk reported an error; the next segment is then created when it is needed.
    pub fn prepare_segment(&self) -> io::Result<()> {
        let goes_on = || self.commit.is_open();
        if self.counters.has_spare() || !goes_on() {
            return Ok(());
        }
        let sink = self.commit.sink();
        let Some(order) = sink.spare_order() else { return Ok(()) };
        let (disk, dir) = sink.disk_and_dir();
        drop(sink);
        let spare = order.fill(&*disk, &dir, goes_on)?;
        spare.into_iter().for_each(|spare| self.commit.sink().add_spare(spare, &self.counters));
        Ok(())
    }

    /// Records in the control file that the log is complete. Everything queued is durable and nothing
    /// follows.
    ///
    /// # Errors
    /// The disk reported an error; the next startup treats the end of the log as after a kill.
    pub fn record_closed(&self) -> io::Result<()> {
        self.commit.sink().record_closed()
    }

    /// Retries frames that wait for disk space or a descriptor, and syncs in interval mode. The caller runs
    /// it at least once per second, in interval mode four times per interval.
    pub fn maintain(&self) {
        if let Some(shortage) = self.commit.shortage() {
            // The result is visible in the state: still short, open again, or poisoned.
            let _ = self.commit.lead_exclusively(|segments, bytes| {
                if shortage == Shortage::Space {
                    segments.remove_spares(&self.counters);
                    segments.check_space_again();
                }
                segments.commit(bytes, &self.counters)
            });
        } else if self.commit.is_open() && matches!(self.sync, SyncMode::Interval(_)) {
            let _ = self.commit.lead_exclusively(|segments, bytes| segments.commit(bytes, &self.counters));
        }
        if let Err(error) = self.commit.sink().sync_control() {
            tracing::warn!(%error, "syncing the control file of the WAL failed");
        }
    }

    /// Refuses appends until there is space again.
    pub fn enter_disk_full(&self) {
        self.commit.enter_shortage(Shortage::Space);
    }

    /// Refuses everything until the process is restarted; writers get `text` as the reason.
    pub fn poison(&self, text: String) {
        self.commit.poison(text);
    }

    /// Refuses appends; queued frames may still be waited for. Returns false if it was closed before.
    pub fn close(&self) -> bool {
        self.commit.close()
    }

    /// Returns the error of a poisoned log.
    #[must_use]
    pub fn failure(&self) -> Option<WalError> {
        self.is_poisoned().then(|| self.commit.poisoned())
    }

    /// Returns true if a write or sync failed.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.commit.is_poisoned()
    }

    /// Returns true if appends are refused for lack of space.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        self.commit.shortage() == Some(Shortage::Space)
    }

    /// Returns the bytes of frames written since startup.
    pub fn written_bytes(&self) -> u64 {
        self.counters.written_bytes()
    }

    /// Returns counters and sizes since startup.
    #[must_use]
    pub fn stats(&self) -> WalStats {
        WalStats {
            pending_bytes: self.commit.pending_bytes(),
            buffer_bytes: self.commit.buffer_bytes(),
            is_poisoned: self.is_poisoned(),
            is_disk_full: self.is_disk_full(),
            ..self.counters.stats()
        }
    }
}
