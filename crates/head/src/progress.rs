//! What the replay is doing (readable while it runs) and what it found.

use std::sync::atomic::AtomicU64;

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

/// What a replay found.
#[derive(Debug, Default, Clone)]
pub struct ReplayReport {
    /// Torn tail and damage, for people: file, offset, what was lost.
    pub notes: Vec<String>,
    /// Damaged or missing files that a second copy or the log replaced, for people: nothing was lost.
    pub repaired: Vec<String>,
    /// Series in the head afterwards.
    pub series: u64,
    /// Samples read from the log.
    pub samples: u64,
    /// Samples whose series is not known (their definition was damaged).
    pub samples_unknown: u64,
    /// Bytes of checkpoint and log that were read.
    pub bytes: u64,
    /// How long it took.
    pub duration_ns: u64,
}
