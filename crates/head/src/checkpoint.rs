//! The rolling checkpoint: definitions are appended, slices of state replace their older copies, the log
//! before the oldest copy goes.
//!
//! Holds: a slice counts from its rename on, and then holds all that the log queued for its series up to its
//! position, since a frame is queued only after its samples are in memory; what it names (definitions, sealed
//! chunks) is durable before. At any time both copies of a slice are whole, and the log and sealed files go
//! only when neither copy needs them: one that is damaged loses nothing (ADR 0048).
//! Not here: bytes (`format::slice`, `format::definitions`), loading (`replay`).

mod definitions;
mod pace;
mod slices;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

pub(crate) use definitions::{DefinitionsFile, definitions_path};
pub(crate) use pace::Pace;
pub(crate) use slices::{Durability, Spot, slice_of, slice_path};

use crate::head::Head;
use crate::ids::{GivenIds, IdMark};
use crate::options::HeadError;
use crate::sealed::SealedPlace;
use crate::stripe::PAGE_SLOTS;
use crate::wal::wal_dir;

/// What a checkpoint cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckpointStats {
    /// Slices that were written.
    pub slice_count: u64,
    /// Bytes of slices and definitions that were written.
    pub bytes: u64,
    /// Series in those slices.
    pub series_count: u64,
    /// Bytes of WAL segments that were deleted.
    pub removed_bytes: u64,
    /// How long it took.
    pub duration_ns: u64,
}

/// Where the checkpoint stands. Locked under `Head::maintenance`.
pub(crate) struct Rolling {
    /// Slices that exist, by number. A slice of ids that were given without an entry has no series.
    pub(crate) slices: BTreeMap<u32, Spot>,
    pub(crate) definitions: DefinitionsFile,
    pub(crate) pace: Pace,
    /// How far ids were given at the last look at pages, and the position of the log before that look.
    pub(crate) ids: IdMark,
    pub(crate) sequence: u64,
    /// Sealed chunks before this place are durable.
    sealed_synced: SealedPlace,
    /// Sealed files that may go once all slices were written after that change.
    dead_files: Vec<u32>,
    dead_change: u64,
    /// Up to here the log may define series anew under other ids, which definitions files do not tell: marks do
    /// not speak of it as long as a slice needs it.
    alias_sequence: u64,
    /// Memory of a slice, reused.
    buffer: Vec<u8>,
}

impl Rolling {
    pub(crate) fn new(
        slices: BTreeMap<u32, Spot>,
        definitions: DefinitionsFile,
        pace: Pace,
        next_id: u32,
        sequence: u64,
        alias_sequence: u64,
    ) -> Rolling {
        Rolling {
            slices,
            definitions,
            pace,
            ids: IdMark::fresh(next_id),
            sequence,
            sealed_synced: SealedPlace { file: 0, offset: 0 },
            dead_files: Vec::new(),
            dead_change: 0,
            alias_sequence,
            buffer: Vec::new(),
        }
    }

    /// Position before which no copy of a slice needs the log.
    pub(crate) fn kept_sequence(&self) -> Option<u64> {
        self.slices.values().map(Spot::kept_sequence).min()
    }

    /// What a mark may say of the log at `moment`.
    fn marked(&self, moment: Moment) -> Moment {
        let is_needed = self.kept_sequence().is_some_and(|kept| kept < self.alias_sequence);
        if is_needed { Moment { sequence: 0, ..moment } } else { moment }
    }

    fn oldest_log_bytes(&self) -> Option<i64> {
        self.slices.values().map(|spot| spot.log_bytes).min()
    }

    /// Bytes of the newest copies and the definitions.
    pub(crate) fn bytes(&self) -> u64 {
        self.slices.values().map(|spot| spot.bytes).sum::<u64>() + self.definitions.bytes()
    }
}

/// A moment between two changes of the head.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    /// What the log had queued is in memory.
    pub(crate) sequence: u64,
    /// Every series with samples queued by then has an id that was given.
    pub(crate) ids: IdMark,
    /// Bytes of the log so far.
    pub(crate) log_bytes: i64,
    /// Changes so far that the log does not tell of.
    pub(crate) change_count: u64,
}

/// Which copies of the slices a checkpoint writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copies {
    /// The newest: a start replays nothing, and the log stays back to the older ones.
    Newest,
    /// Both: the log before the checkpoint goes.
    Both,
}

impl Head {
    /// Writes the whole state of the head into both copies of all slices, and deletes the log before it.
    ///
    /// # Errors
    /// [`HeadError`]; what was written before and the log stay valid then.
    pub fn checkpoint(&self) -> Result<CheckpointStats, HeadError> {
        self.write_checkpoint(Copies::Both)
    }

    /// Writes the whole state of the head once, so that a start replays only what comes after this call. The
    /// log that the older copies need stays: half the bytes of [`Head::checkpoint`], but no space is freed at
    /// once.
    ///
    /// # Errors
    /// [`HeadError`]; what was written before and the log stay valid then.
    pub fn checkpoint_newest(&self) -> Result<CheckpointStats, HeadError> {
        self.write_checkpoint(Copies::Newest)
    }

    fn write_checkpoint(&self, copies: Copies) -> Result<CheckpointStats, HeadError> {
        // Without space what is queued cannot be written; both copies free the log that was.
        let copies = if self.wal.is_disk_full() { Copies::Both } else { copies };
        let _alone = self.maintenance.lock();
        let start_ns = self.env.clock.mono_ns();
        self.forget_keys();
        let mut rolling = self.rolling.lock();
        let rolling = &mut *rolling;
        let mut stats = CheckpointStats::default();
        if rolling.dead_files.is_empty() || copies == Copies::Both {
            self.note_dead_files(rolling);
        }
        let sequence = match copies {
            Copies::Both => self.wal.rotate()?.1,
            Copies::Newest => {
                let sequence = self.wal.ticket().0;
                // A slice that knew of frames which the log has lost would leave a gap in the log's count.
                self.wal.sync()?;
                sequence
            }
        };
        let moment = self.moment(sequence);
        self.extend_definitions(rolling, moment, &mut stats)?;
        let due: Vec<u32> = self.note_slices(rolling, moment, |spot| !spot.is_current(moment));
        for slice in due {
            self.write_slice(rolling, slice, moment, &mut stats)?;
        }
        let has_dead_definitions = self.has_dead_definitions(rolling);
        if copies == Copies::Both || has_dead_definitions {
            for slice in self.note_slices(rolling, moment, |spot| !spot.is_mirrored(moment)) {
                self.write_slice(rolling, slice, moment, &mut stats)?;
            }
        }
        self.finish_round(rolling, &mut stats)?;
        if has_dead_definitions {
            self.compact_definitions(rolling, moment, &mut stats)?;
        }
        self.note_written(rolling, &stats);
        self.counters.checkpoint_count.fetch_add(1, Ordering::Relaxed);
        stats.duration_ns = self.env.clock.mono_ns().saturating_sub(start_ns);
        Ok(stats)
    }

    /// Writes the slices that are due, oldest first, so that what a start has to replay stays short. To be called
    /// every second or more often; returns at once when nothing is due or other upkeep of the head is at work.
    ///
    /// # Errors
    /// [`HeadError`]; what was written before and the log stay valid then.
    pub fn roll_checkpoint(&self) -> Result<CheckpointStats, HeadError> {
        let mut stats = CheckpointStats::default();
        let Some(_alone) = self.maintenance.try_lock() else { return Ok(stats) };
        if self.wal.is_disk_full() || self.wal.is_poisoned() {
            return Ok(stats);
        }
        let start_ns = self.env.clock.mono_ns();
        let mut rolling = self.rolling.lock();
        let rolling = &mut *rolling;
        let sequence = self.wal.ticket().0;
        // A slice that knew of frames which the log has lost would leave a gap in the log's count.
        self.wal.sync()?;
        let moment = self.moment(sequence);
        let slice_count = rolling.slices.len();
        let tail_bytes = moment.log_bytes - rolling.oldest_log_bytes().unwrap_or(moment.log_bytes);
        let state_bytes = rolling.slices.values().map(|spot| spot.bytes).sum();
        let allowance = rolling.pace.allow(start_ns, moment.log_bytes, tail_bytes, slice_count, state_bytes);
        self.counters.tail_bytes.store(tail_bytes.max(0).unsigned_abs(), Ordering::Relaxed);
        self.counters.tail_ns.store(rolling.pace.tail_ns(tail_bytes), Ordering::Relaxed);
        // Taking a definition in from the log costs far more than a sample.
        self.extend_definitions(rolling, moment, &mut stats)?;
        let dead_change = (!rolling.dead_files.is_empty()).then_some(rolling.dead_change);
        let mut due = self.note_slices(rolling, moment, |spot| {
            // Without new frames the older copies would name dead sealed files for ever.
            !spot.is_current(moment) || dead_change.is_some_and(|change| !spot.is_after_change(change))
        });
        due.sort_by_key(|slice| rolling.slices.get(slice).map_or(0, |spot| spot.sequence));
        for slice in due.into_iter().take(allowance.slice_count) {
            if stats.bytes >= allowance.bytes {
                break;
            }
            self.write_slice(rolling, slice, moment, &mut stats)?;
        }
        self.finish_round(rolling, &mut stats)?;
        self.note_written(rolling, &stats);
        stats.duration_ns = self.env.clock.mono_ns().saturating_sub(start_ns);
        Ok(stats)
    }

    /// Returns once no start brings back what [`Head::drop_window`] has removed: writes a checkpoint, unless all that
    /// there is was written since the last drop.
    ///
    /// # Errors
    /// [`HeadError`]; samples of dropped windows may come back then, beside the blocks that have them.
    pub fn settle_drops(&self) -> Result<(), HeadError> {
        let alone = self.maintenance.lock();
        let mut rolling = self.rolling.lock();
        let change_count = self.counters.change_count.load(Ordering::Relaxed);
        let has_all = rolling.ids == self.ids.mark();
        // Older copies of an earlier process may have windows that its newest ones do not have.
        let is_settled = has_all && rolling.slices.values().all(|spot| spot.is_after_change(change_count));
        if is_settled {
            // A process that was killed may not have synced what this one has read: series that are not in those
            // definitions, and samples that are not in those slices, would come back with what was there before.
            self.sync_definitions(&mut rolling)?;
            return self.sync_slices(&mut rolling);
        }
        drop((rolling, alone));
        self.checkpoint().map(drop)
    }

    /// The state of the head as of the log position `sequence`, which was taken before.
    pub(crate) fn moment(&self, sequence: u64) -> Moment {
        let log_bytes = self.wal.counters.written_bytes.load(Ordering::Relaxed).cast_signed();
        // Read behind the position: an id is taken before the first frame with it is queued.
        let change_count = self.counters.change_count.load(Ordering::Relaxed);
        Moment { sequence, ids: self.ids.mark(), log_bytes, change_count }
    }

    /// Takes slices with new series into account; gives the numbers of those for which `is_due` holds.
    fn note_slices(&self, rolling: &mut Rolling, moment: Moment, is_due: impl Fn(&Spot) -> bool) -> Vec<u32> {
        self.note_given(rolling, &self.ids.given_at(moment.ids), moment.sequence);
        rolling.slices.iter().filter(|(_, spot)| is_due(spot)).map(|(&slice, _)| slice).collect()
    }

    /// Takes slices into account whose ids were given since the last time; `sequence` is a position before that.
    pub(crate) fn note_given(&self, rolling: &mut Rolling, given: &GivenIds, sequence: u64) {
        let log_bytes = self.wal.counters.written_bytes.load(Ordering::Relaxed).cast_signed();
        // Before the last look it had no series, so no samples either.
        let spot = Spot::unwritten(rolling.sequence, log_bytes);
        let fresh = rolling.ids.id_end / PAGE_SLOTS as u32..given.mark().id_end.div_ceil(PAGE_SLOTS as u32);
        for page in fresh.chain(given.reused_since(rolling.ids).iter().copied()) {
            rolling.slices.entry(slice_of(page * PAGE_SLOTS as u32)).or_insert(spot);
        }
        (rolling.ids, rolling.sequence) = (given.mark(), sequence);
    }

    /// Cuts the log once a segment is behind both copies of all slices, and deletes sealed files that none of
    /// them names.
    fn finish_round(&self, rolling: &mut Rolling, stats: &mut CheckpointStats) -> Result<(), HeadError> {
        let kept = rolling.kept_sequence().unwrap_or(rolling.sequence);
        let relog_before = self.relog_before.load(Ordering::Relaxed);
        let ends_relog = relog_before > 0 && kept >= relog_before;
        if ends_relog || self.wal.has_segment_through(kept) {
            stats.removed_bytes = self.cut_log(rolling)?;
        }
        // What was written counts from here on, also where nothing is freed.
        self.sync_slices(rolling)?;
        let is_unnamed = rolling.slices.values().all(|spot| spot.is_after_change(rolling.dead_change));
        if !rolling.dead_files.is_empty() && is_unnamed {
            let dead_files = std::mem::take(&mut rolling.dead_files);
            self.series.store.delete(&dead_files)?;
        }
        if rolling.dead_files.is_empty() {
            self.note_dead_files(rolling);
        }
        Ok(())
    }

    /// Remembers sealed files without chunks. Slices that were written before may still name them, whatever their
    /// position: merging late samples into chunks leaves no frame in the log.
    fn note_dead_files(&self, rolling: &mut Rolling) {
        rolling.dead_files = self.series.store.dead_files();
        if !rolling.dead_files.is_empty() {
            self.counters.change_count.fetch_add(1, Ordering::Relaxed);
        }
        rolling.dead_change = self.counters.change_count.load(Ordering::Relaxed);
    }

    /// Removes the segments that no copy of a slice needs.
    pub(crate) fn cut_log(&self, rolling: &mut Rolling) -> Result<u64, HeadError> {
        self.sync_slices(rolling)?;
        let dir = wal_dir(&self.options.dir);
        let kept = rolling.kept_sequence().unwrap_or(rolling.sequence);
        if kept >= self.relog_before.load(Ordering::Relaxed) {
            self.relog_before.store(0, Ordering::Relaxed);
        }
        self.wal.remove_through(kept).map_err(HeadError::io(&dir))
    }

    fn note_written(&self, rolling: &Rolling, stats: &CheckpointStats) {
        let counters = &self.counters;
        counters.checkpoint_bytes.store(rolling.bytes(), Ordering::Relaxed);
        counters.slice_count.fetch_add(stats.slice_count, Ordering::Relaxed);
        counters.slice_bytes.fetch_add(stats.bytes, Ordering::Relaxed);
    }
}
