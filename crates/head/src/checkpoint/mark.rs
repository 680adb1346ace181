//! Point in time that a checkpoint covers.

use crate::index::ids::IdMark;

/// Point in time between two changes of the head.
#[derive(Clone, Copy)]
pub(crate) struct CheckpointMark {
    /// All frames queued up to here are in memory.
    pub(super) sequence: u64,
    /// Every series with samples queued by then has an assigned id.
    pub(super) ids: IdMark,
    /// Bytes of the WAL so far.
    pub(super) log_bytes: i64,
    /// Changes so far without a frame in the WAL.
    pub(super) change_count: u64,
}
