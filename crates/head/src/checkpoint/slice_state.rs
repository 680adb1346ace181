//! Slices of the checkpoint: the series of each, and the state of its two copies on disk.
//!
//! Invariant: the pages of all slices partition the series ids; a slice lies within one stripe.
//! Not here: writing copies (`slices`).

use std::path::{Path, PathBuf};

use chronolith_format::head::slice::SliceHeader;

use super::mark::CheckpointMark;
use crate::series::stripe::{PAGE_SLOTS, STRIPE_COUNT};

/// Pages of a stripe per slice: some 2.5 MB at 300 bytes per series.
pub(crate) const SLICE_PAGES: usize = 8;

/// Returns the slice of a series.
pub(crate) fn slice_of(id: u32) -> u32 {
    let page = id / PAGE_SLOTS as u32;
    let stripes = STRIPE_COUNT as u32;
    page / stripes / SLICE_PAGES as u32 * stripes + page % stripes
}

/// Returns the pages of a slice, numbered over all stripes.
pub(crate) fn pages_of(slice: u32) -> impl Iterator<Item = u32> {
    let (stripes, pages) = (STRIPE_COUNT as u32, SLICE_PAGES as u32);
    let first = slice / stripes * pages;
    (first..first + pages).map(move |page| page * stripes + slice % stripes)
}

/// Returns the path of one of the two copies of a slice.
pub(crate) fn slice_path(dir: &Path, slice: u32, copy_idx: usize) -> PathBuf {
    dir.join(format!("{slice:08}.slice{copy_idx}"))
}

/// Durability of the newest copy of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Written by an earlier process: neither bytes nor name may be durable.
    Unknown,
    /// The bytes are durable; the name is not until the directory is synced.
    Renamed,
    Durable,
}

/// State of one slice on disk: the newest copy, and the older one, used if the newest is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SliceState {
    /// WAL sequence that the newest copy (or its absence) covers: replay skips frames up to it.
    pub(super) sequence: u64,
    /// Bytes of the WAL at that position.
    pub(super) log_bytes: i64,
    pub(super) generation: u64,
    /// Index of the newest copy; `None` if there is no valid one.
    pub(super) copy_idx: Option<usize>,
    /// Existing files, by copy.
    pub(super) exists: [bool; 2],
    pub(super) durability: Durability,
    pub(super) bytes: u64,
    pub(super) series_count: u32,
    /// Changes without a frame in the WAL before it was written.
    pub(super) change_count: u64,
    /// Position from which the WAL restores the slice together with the older copy, or without a copy if
    /// there is no older one; 0 if the older one is not usable.
    pub(super) older_sequence: u64,
    /// As `change_count`, of the older copy; `None` if an earlier process wrote it.
    pub(super) older_change_count: Option<u64>,
}

impl SliceState {
    /// Returns a slice without copies, of which the WAL before `sequence` has no samples.
    pub(crate) fn unwritten(sequence: u64, log_bytes: i64) -> SliceState {
        SliceState {
            sequence,
            log_bytes,
            generation: 0,
            copy_idx: None,
            exists: [false; 2],
            durability: Durability::Durable,
            bytes: 0,
            series_count: 0,
            change_count: 0,
            older_sequence: sequence,
            older_change_count: None,
        }
    }

    /// Returns a slice of which startup found files, none of them read.
    pub(crate) fn found(exists: [bool; 2], generation: u64) -> SliceState {
        SliceState {
            exists,
            generation,
            durability: Durability::Unknown,
            ..SliceState::unwritten(0, i64::MIN / 2)
        }
    }

    /// Makes `copy_idx` with `header` the newest valid copy; `older_sequence` is the sequence of the other
    /// copy.
    pub(crate) fn set_copy(&mut self, copy_idx: usize, header: &SliceHeader, older_sequence: u64) {
        self.copy_idx = Some(copy_idx);
        self.older_sequence = older_sequence;
        (self.sequence, self.bytes) = (header.sequence, header.byte_len);
        self.series_count = header.series_count;
    }

    /// Returns the index of the copy that should exist next to the newest one and does not. A single file is
    /// left if a crash came between the first writes of both copies, or if the other file is lost.
    pub(crate) fn missing_copy(&self) -> Option<usize> {
        let other = 1 - self.copy_idx?;
        (!self.exists[other] && self.generation > 1).then_some(other)
    }

    /// WAL sequence that the newest copy (or its absence) covers.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Index of the newest copy.
    pub(crate) fn copy_idx(&self) -> Option<usize> {
        self.copy_idx
    }

    /// Bytes of the newest copy.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sets the bytes of the WAL at the position of the newest copy.
    pub(crate) fn set_log_bytes(&mut self, log_bytes: i64) {
        self.log_bytes = log_bytes;
    }

    /// Returns true if writing the slice again would change nothing.
    pub(super) fn is_current(&self, mark: CheckpointMark) -> bool {
        self.is_whole() && self.sequence >= mark.sequence && self.change_count == mark.change_count
    }

    /// Returns true if writing the slice twice would change nothing: both copies are as new as `mark`.
    pub(super) fn is_mirrored(&self, mark: CheckpointMark) -> bool {
        self.is_current(mark)
            && self.older_sequence >= mark.sequence
            && self.older_change_count == Some(mark.change_count)
    }

    /// Returns true if both copies were written after change number `change`.
    pub(super) fn is_after_change(&self, change: u64) -> bool {
        self.is_whole()
            && self.change_count >= change
            && self.older_change_count.is_some_and(|older| older >= change)
    }

    /// Returns the position before which neither copy needs the WAL.
    pub(crate) fn kept_sequence(&self) -> u64 {
        self.sequence.min(self.older_sequence)
    }

    /// Returns true if there is a valid copy.
    pub(crate) fn is_whole(&self) -> bool {
        self.copy_idx.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::stripe::stripe_of;

    #[test]
    fn slices_partition_the_ids() {
        for id in (0..3_000_000).step_by(1024).chain([1, 1023, 16_383, 131_071, 131_072, u32::MAX - 1]) {
            let slice = slice_of(id);
            assert_eq!(slice as usize % STRIPE_COUNT, stripe_of(id));
            assert!(pages_of(slice).any(|page| page == id / PAGE_SLOTS as u32));
        }
        assert_eq!(slice_of(0), slice_of(16 * 1024 * 7));
        assert_ne!(slice_of(0), slice_of(16 * 1024 * 8));
    }
}
