//! State of the rolling checkpoint: its slices, the series file, and what has to be written or may be
//! removed.
//!
//! Not here: writing (`slices`, `definitions`) and its order (the parent).

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::definitions_file::DefinitionsFile;
use super::mark::CheckpointMark;
use super::pace::Pace;
use super::slice_state::SliceState;
use crate::index::ids::IdMark;
use crate::series::sealed_chunks::ChunkRef;
use crate::state::HeadState;

/// Cost of a checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckpointStats {
    /// Slices written.
    pub slice_count: u64,
    /// Bytes of slices and series records written.
    pub bytes: u64,
    /// Series in those slices.
    pub series_count: u64,
    /// Bytes of WAL segments removed.
    pub removed_bytes: u64,
    /// Duration in nanoseconds.
    pub duration_ns: u64,
}

/// State of the checkpoint. Locked after `HeadState::maintenance`.
pub(crate) struct CheckpointState {
    /// Existing slices by number. A slice without an entry whose ids were assigned has no series.
    pub(super) slices: BTreeMap<u32, SliceState>,
    pub(super) definitions: DefinitionsFile,
    pub(super) pace: Pace,
    /// Ids assigned at the last scan of pages, and the WAL position before that scan.
    pub(super) ids: IdMark,
    pub(super) sequence: u64,
    /// Sealed chunks before this reference are durable.
    pub(super) sealed_synced: ChunkRef,
    /// Sealed files that may be deleted once all slices were written after `dead_change`.
    pub(super) dead_files: Vec<u32>,
    pub(super) dead_change: u64,
    /// Up to this sequence the WAL may redefine series under other ids, which series files do not record:
    /// marks do not cover it as long as a slice needs it.
    pub(super) alias_sequence: u64,
    /// Reusable memory for a slice.
    pub(super) buffer: Vec<u8>,
}

impl CheckpointState {
    pub(crate) fn new(
        slices: BTreeMap<u32, SliceState>,
        definitions: DefinitionsFile,
        pace: Pace,
        next_id: u32,
        sequence: u64,
        alias_sequence: u64,
    ) -> CheckpointState {
        CheckpointState {
            slices,
            definitions,
            pace,
            ids: IdMark::fresh(next_id),
            sequence,
            sealed_synced: ChunkRef::default(),
            dead_files: Vec::new(),
            dead_change: 0,
            alias_sequence,
            buffer: Vec::new(),
        }
    }

    /// Returns true if a checkpoint was written, or if there are series.
    pub(crate) fn has_slices(&self) -> bool {
        !self.slices.is_empty()
    }

    /// Returns the position before which no copy of a slice needs the WAL.
    pub(crate) fn kept_sequence(&self) -> Option<u64> {
        self.slices.values().map(SliceState::kept_sequence).min()
    }

    /// Returns `mark` as it may be written: without a WAL position while redefinitions are needed.
    pub(super) fn marked(&self, mark: CheckpointMark) -> CheckpointMark {
        let is_needed = self.kept_sequence().is_some_and(|kept| kept < self.alias_sequence);
        if is_needed { CheckpointMark { sequence: 0, ..mark } } else { mark }
    }

    pub(super) fn oldest_log_bytes(&self) -> Option<i64> {
        self.slices.values().map(|slice_state| slice_state.log_bytes).min()
    }

    /// Returns the bytes of the newest copies and of the series file.
    pub(crate) fn bytes(&self) -> u64 {
        self.slices.values().map(|slice_state| slice_state.bytes).sum::<u64>() + self.definitions.bytes()
    }
}

/// Writes checkpoints and truncates the WAL after them.
pub struct Checkpointer {
    pub(super) state: Arc<HeadState>,
    pub(super) rolling: Mutex<CheckpointState>,
}
