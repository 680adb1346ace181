//! Incremental checkpoint: series records are appended, slices of series state replace their older copies,
//! and the WAL before the oldest copy is removed.
//!
//! Invariants: a slice is valid from its rename on, and then contains all samples that the WAL has queued for
//! its series up to its position, since a frame is queued only after its samples are in memory; everything it
//! references (series records, sealed chunks) is durable before. Both copies of a slice are valid at any
//! time, and WAL segments and sealed files are removed only when neither copy needs them: one damaged copy
//! loses nothing (ADR 0048).
//! Not here: bytes (`format::head::slice`, `format::head::series_file`), loading (`recovery`).

mod definitions;
mod definitions_file;
mod mark;
pub(crate) mod overflow;
mod pace;
mod slice_state;
mod slices;
mod state;
pub(crate) mod texts;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

pub(crate) use definitions_file::{DefinitionsFile, definitions_path, definitions_paths};
pub(crate) use pace::Pace;
pub(crate) use slice_state::{SliceState, slice_of, slice_path};
pub(crate) use state::CheckpointState;
pub use state::{CheckpointStats, Checkpointer};

use mark::CheckpointMark;

use crate::counters::Counter;
use crate::index::ids::GivenIds;
use crate::options::HeadError;
use crate::options::wal_dir;
use crate::series::stripe::PAGE_SLOTS;
use crate::state::HeadState;
use chronolith_wal::WalPosition;

/// Copies of the slices that a checkpoint writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copies {
    /// The newest: startup replays nothing, and the WAL is kept for the older copies.
    Newest,
    /// Both: the WAL before the checkpoint is removed.
    Both,
}

impl Checkpointer {
    pub(crate) fn new(state: Arc<HeadState>, rolling: CheckpointState) -> Checkpointer {
        state.counters.set(Counter::CheckpointBytes, rolling.bytes());
        Checkpointer { state, rolling: Mutex::new(rolling) }
    }

    /// Writes the whole state of the head to both copies of all slices, and removes the WAL before it.
    ///
    /// # Errors
    /// [`HeadError`]; the previous checkpoint and the WAL stay valid.
    pub fn checkpoint(&self) -> Result<CheckpointStats, HeadError> {
        self.write_checkpoint(Copies::Both)
    }

    /// Writes the whole state of the head once, so that startup replays only frames after this call. The WAL
    /// that the older copies need is kept: half the bytes of [`Checkpointer::checkpoint`], but no space is
    /// freed at once.
    ///
    /// # Errors
    /// [`HeadError`]; the previous checkpoint and the WAL stay valid.
    pub fn checkpoint_newest(&self) -> Result<CheckpointStats, HeadError> {
        self.write_checkpoint(Copies::Newest)
    }

    fn write_checkpoint(&self, copies: Copies) -> Result<CheckpointStats, HeadError> {
        // On a full disk queued frames cannot be written; writing both copies frees the old WAL.
        let copies = if self.state.wal.is_disk_full() { Copies::Both } else { copies };
        let _alone = self.state.maintenance.lock();
        let start_ns = self.state.env.clock.mono_ns();
        self.state.index.forget_keys();
        let mut rolling = self.rolling.lock();
        let rolling = &mut *rolling;
        let mut stats = CheckpointStats::default();
        if rolling.dead_files.is_empty() || copies == Copies::Both {
            self.note_dead_files(rolling);
        }
        let sequence = match copies {
            Copies::Both => self.state.wal.rotate()?.0,
            Copies::Newest => {
                let sequence = self.state.wal.position().0;
                // A slice with frames that the WAL has lost would leave a gap in the sequences of the WAL.
                self.state.wal.sync()?;
                sequence
            }
        };
        let mark = self.mark(sequence);
        if copies == Copies::Newest {
            // The other way, the tables are written before the WAL is cut.
            overflow::save(&self.state)?;
        }
        self.extend_definitions(rolling, mark, &mut stats)?;
        let due: Vec<u32> = self.note_slices(rolling, mark, |slice_state| !slice_state.is_current(mark));
        for slice in due {
            self.write_slice(rolling, slice, mark, &mut stats)?;
        }
        let has_dead_definitions = self.has_dead_definitions(rolling);
        if copies == Copies::Both || has_dead_definitions {
            for slice in self.note_slices(rolling, mark, |slice_state| !slice_state.is_mirrored(mark)) {
                self.write_slice(rolling, slice, mark, &mut stats)?;
            }
        }
        self.finish_round(rolling, &mut stats)?;
        if has_dead_definitions {
            self.compact_definitions(rolling, mark, &mut stats)?;
        }
        self.note_written(rolling, &stats);
        self.state.counters.add(Counter::Checkpoints, 1);
        stats.duration_ns = self.state.env.clock.mono_ns().saturating_sub(start_ns);
        Ok(stats)
    }

    /// Writes the slices that are due, oldest first, so that replay at startup stays short. The caller runs
    /// it every second or more often; it returns at once if nothing is due or other maintenance of the head
    /// is running.
    ///
    /// # Errors
    /// [`HeadError`]; the previous checkpoint and the WAL stay valid.
    pub fn roll_checkpoint(&self) -> Result<CheckpointStats, HeadError> {
        let mut stats = CheckpointStats::default();
        let Some(_alone) = self.state.maintenance.try_lock() else { return Ok(stats) };
        if self.state.wal.is_disk_full() || self.state.wal.is_poisoned() {
            return Ok(stats);
        }
        let start_ns = self.state.env.clock.mono_ns();
        let mut rolling = self.rolling.lock();
        let rolling = &mut *rolling;
        let sequence = self.state.wal.position().0;
        // A slice with frames that the WAL has lost would leave a gap in the sequences of the WAL.
        self.state.wal.sync()?;
        let mark = self.mark(sequence);
        let slice_count = rolling.slices.len();
        let tail_bytes = mark.log_bytes - rolling.oldest_log_bytes().unwrap_or(mark.log_bytes);
        let state_bytes = rolling.slices.values().map(|slice_state| slice_state.bytes).sum();
        let allowance = rolling.pace.allow(start_ns, mark.log_bytes, tail_bytes, slice_count, state_bytes);
        self.state.counters.set(Counter::TailBytes, tail_bytes.max(0).unsigned_abs());
        self.state.counters.set(Counter::TailNs, rolling.pace.tail_ns(tail_bytes));
        // Replaying a series record from the WAL costs far more than a sample.
        self.extend_definitions(rolling, mark, &mut stats)?;
        let dead_change = (!rolling.dead_files.is_empty()).then_some(rolling.dead_change);
        let mut due = self.note_slices(rolling, mark, |slice_state| {
            // Without new frames, older copies would otherwise reference dead sealed files for ever.
            !slice_state.is_current(mark)
                || dead_change.is_some_and(|change| !slice_state.is_after_change(change))
        });
        due.sort_by_key(|slice| rolling.slices.get(slice).map_or(0, |slice_state| slice_state.sequence));
        for slice in due.into_iter().take(allowance.slice_count) {
            if stats.bytes >= allowance.bytes {
                break;
            }
            let slice_mark = self.mark_for_slice(mark)?;
            self.write_slice(rolling, slice, slice_mark, &mut stats)?;
        }
        self.finish_round(rolling, &mut stats)?;
        self.note_written(rolling, &stats);
        stats.duration_ns = self.state.env.clock.mono_ns().saturating_sub(start_ns);
        Ok(stats)
    }

    /// Returns a mark for the next slice of a round: newer than the mark of the round, unless series were
    /// created since, which the series file lacks.
    // PERF: a slice is copied with all samples of that moment, and a start replays each frame after its mark
    // as a duplicate, which looks up the stored sample. With one mark per round, replaying a tail of 6 M
    // samples took 2.21 instead of 1.51 CPU s.  cargo xtask bench restart --only chronolith
    fn mark_for_slice(&self, round: CheckpointMark) -> Result<CheckpointMark, HeadError> {
        let mark = self.mark(self.state.wal.position().0);
        if mark.ids != round.ids {
            return Ok(round);
        }
        // As for the round: a slice must not cover frames that the WAL may lose.
        self.state.wal.sync_through(WalPosition(mark.sequence))?;
        Ok(mark)
    }

    /// Makes removals by [`crate::HeadWindows::drop`] permanent across restarts: writes a checkpoint, unless
    /// all state was written since the last drop.
    ///
    /// # Errors
    /// [`HeadError`]; samples of dropped windows may then reappear, next to the blocks that have them.
    pub fn settle_drops(&self) -> Result<(), HeadError> {
        let alone = self.state.maintenance.lock();
        let mut rolling = self.rolling.lock();
        let change_count = self.state.counters.get(Counter::Changes);
        let has_all = rolling.ids == self.state.index.ids.mark();
        // Older copies of an earlier process may have windows that its newest ones do not have.
        let is_settled =
            has_all && rolling.slices.values().all(|slice_state| slice_state.is_after_change(change_count));
        if is_settled {
            // A process that was killed may not have synced the files that this one has read: series missing
            // in the older series file and samples missing in the older slices would come back in their
            // former state.
            self.sync_definitions(&mut rolling)?;
            return self.sync_slices(&mut rolling);
        }
        drop((rolling, alone));
        self.checkpoint().map(drop)
    }

    /// Returns the state marker for the WAL position `sequence`, which was taken before.
    fn mark(&self, sequence: u64) -> CheckpointMark {
        let log_bytes = self.state.wal.written_bytes().cast_signed();
        // Read after the position: an id is assigned before the first frame with it is queued.
        let change_count = self.state.counters.get(Counter::Changes);
        CheckpointMark { sequence, ids: self.state.index.ids.mark(), log_bytes, change_count }
    }

    /// Adds slices of new series; returns the numbers of those for which `is_due` returns true.
    fn note_slices(
        &self,
        rolling: &mut CheckpointState,
        mark: CheckpointMark,
        is_due: impl Fn(&SliceState) -> bool,
    ) -> Vec<u32> {
        self.note_given(rolling, &self.state.index.ids.given_at(mark.ids), mark.sequence);
        rolling
            .slices
            .iter()
            .filter(|(_, slice_state)| is_due(slice_state))
            .map(|(&slice, _)| slice)
            .collect()
    }

    /// Adds slices whose ids were assigned since the last call; `sequence` is a WAL position before that.
    fn note_given(&self, rolling: &mut CheckpointState, given: &GivenIds, sequence: u64) {
        let log_bytes = self.state.wal.written_bytes().cast_signed();
        // Before the last scan the slice had no series, so no samples either.
        let slice_state = SliceState::unwritten(rolling.sequence, log_bytes);
        let fresh =
            rolling.ids.id_end() / PAGE_SLOTS as u32..given.mark().id_end().div_ceil(PAGE_SLOTS as u32);
        for page in fresh.chain(given.reused_since(rolling.ids).iter().copied()) {
            rolling.slices.entry(slice_of(page * PAGE_SLOTS as u32)).or_insert(slice_state);
        }
        (rolling.ids, rolling.sequence) = (given.mark(), sequence);
    }

    /// Truncates the WAL once a segment is older than both copies of all slices, and deletes sealed files
    /// that none of them references.
    fn finish_round(
        &self,
        rolling: &mut CheckpointState,
        stats: &mut CheckpointStats,
    ) -> Result<(), HeadError> {
        let kept = rolling.kept_sequence().unwrap_or(rolling.sequence);
        let relog_before = self.state.relog_before.load(Ordering::Relaxed);
        let ends_relog = relog_before > 0 && kept >= relog_before;
        if ends_relog || self.state.wal.has_segment_through(kept) {
            stats.removed_bytes = self.cut_log(rolling)?;
        }
        // Written slices must be durable from here on, even if nothing is freed.
        self.sync_slices(rolling)?;
        let is_unnamed =
            rolling.slices.values().all(|slice_state| slice_state.is_after_change(rolling.dead_change));
        if !rolling.dead_files.is_empty() && is_unnamed {
            let dead_files = std::mem::take(&mut rolling.dead_files);
            self.state.series.store.delete(&dead_files)?;
        }
        if rolling.dead_files.is_empty() {
            self.note_dead_files(rolling);
        }
        let freed_change = self.state.texts.file.lock().freed_change();
        if rolling.slices.values().all(|slice_state| slice_state.is_after_change(freed_change)) {
            texts::compact(&self.state)?;
        }
        Ok(())
    }

    /// Records sealed files without live chunks. Slices written before may still reference them, whatever
    /// their position: merging out-of-order samples into chunks leaves no frame in the WAL.
    fn note_dead_files(&self, rolling: &mut CheckpointState) {
        rolling.dead_files = self.state.series.store.dead_files();
        if !rolling.dead_files.is_empty() {
            self.state.counters.add(Counter::Changes, 1);
        }
        rolling.dead_change = self.state.counters.get(Counter::Changes);
    }

    /// Removes the WAL segments that no copy of a slice needs.
    fn cut_log(&self, rolling: &mut CheckpointState) -> Result<u64, HeadError> {
        self.sync_slices(rolling)?;
        texts::save(&self.state)?;
        overflow::save(&self.state)?;
        let dir = wal_dir(&self.state.options.dir);
        let kept = rolling.kept_sequence().unwrap_or(rolling.sequence);
        if kept >= self.state.relog_before.load(Ordering::Relaxed) {
            self.state.relog_before.store(0, Ordering::Relaxed);
        }
        if let Some(cache) = &self.state.log_cache {
            // The newest position may be in a segment that goes.
            cache.repeat(&self.state.wal)?;
        }
        self.state.wal.truncate_through(kept).map_err(HeadError::io(&dir))
    }

    /// Writes series records that were read from the WAL to the series file: duplicates are logged again
    /// until all slices are written, and must find their series after the next restart.
    pub(crate) fn settle_definitions_of_log(&self) -> Result<(), HeadError> {
        let _alone = self.state.maintenance.lock();
        let mut rolling = self.rolling.lock();
        let mark = self.mark(self.state.wal.position().0);
        match self.extend_definitions(&mut rolling, mark, &mut CheckpointStats::default()) {
            Err(HeadError::Io { error, .. }) if error.kind() == std::io::ErrorKind::StorageFull => {
                self.state.wal.enter_disk_full();
                Ok(())
            }
            other => other,
        }
    }

    /// Removes WAL segments that a crash has left after their slices were written.
    pub(crate) fn cut_finished_log(&self) -> Result<(), HeadError> {
        let _alone = self.state.maintenance.lock();
        let mut rolling = self.rolling.lock();
        let kept = rolling.kept_sequence().unwrap_or(0);
        if self.state.wal.has_segment_through(kept) {
            self.cut_log(&mut rolling)?;
        }
        Ok(())
    }

    /// Makes the next checkpoint write all series records and all slices again.
    pub(crate) fn invalidate(&self) {
        self.rolling.lock().definitions.set_broken();
        // No slice is up to date any more.
        self.state.counters.add(Counter::Changes, 1);
    }

    /// Makes released ids assignable again, and adds the slices of ids assigned since the last checkpoint.
    /// The caller holds the maintenance lock.
    pub(crate) fn reuse_ids(&self) {
        let mut rolling = self.rolling.lock();
        let sequence = self.state.wal.position().0;
        self.state.index.ids.reuse(|given| {
            // The slices contain the ids assigned so far; they cannot be determined after the reuse.
            self.note_given(&mut rolling, given, sequence);
        });
        rolling.ids = self.state.index.ids.mark();
        // The file finds missing series by id order, which restarts here, so it must be written again.
        rolling.definitions.set_broken();
    }

    fn note_written(&self, rolling: &CheckpointState, stats: &CheckpointStats) {
        let counters = &self.state.counters;
        counters.set(Counter::CheckpointBytes, rolling.bytes());
        counters.add(Counter::Slices, stats.slice_count);
        counters.add(Counter::SliceBytes, stats.bytes);
    }
}
