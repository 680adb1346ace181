//! Progress of the recovery (readable while it runs) and its report.

use std::sync::atomic::AtomicU64;

use chronolith_model::log_position::Position;

/// Progress of the replay, readable while [`crate::Head::open`] runs on another thread.
#[derive(Debug, Default)]
pub struct ReplayProgress {
    /// First WAL segment to replay.
    pub segment_first: AtomicU64,
    /// Last WAL segment to replay.
    pub segment_last: AtomicU64,
    /// Segment being replayed.
    pub segment_now: AtomicU64,
    /// Bytes replayed.
    pub bytes_done: AtomicU64,
    /// Bytes to replay.
    pub bytes_total: AtomicU64,
}

/// Result of the recovery.
#[derive(Debug, Default, Clone)]
pub struct ReplayReport {
    /// Torn tail and damage, as messages: file, offset, extent of the loss.
    pub notes: Vec<String>,
    /// Damaged or missing files that a second copy or the WAL replaced, as messages: nothing was lost.
    pub repaired: Vec<String>,
    /// Series in the head afterwards.
    pub series: u64,
    /// Samples read from the WAL.
    pub samples: u64,
    /// Samples of unknown series (their series record was damaged).
    pub samples_unknown: u64,
    /// Bytes of checkpoint and WAL that were read.
    pub bytes: u64,
    /// Duration in nanoseconds.
    pub duration_ns: u64,
    /// Position of the next record of an owner of a partition of the replicated log; `None` if there is none
    /// yet.
    pub log_position: Option<Position>,
    /// Frames of the WAL after that position, which were removed: the log is read again.
    pub removed_frames: u64,
}
