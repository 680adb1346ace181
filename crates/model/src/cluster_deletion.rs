//! Rules of deletions in a cluster: a `delete` record in each partition that may have such samples, then
//! tombstones in the blocks of the bucket.
//!
//! A deletion takes the samples of records before it, and none after it, in each partition at another offset.
//! Blocks do not name the partitions of their samples, and compaction joins them. So tombstones go to the
//! blocks of a moment: all partitions have passed their record and published what they cut before it, and
//! none has published what it cut after it.
//!
//! - A deletion has a number in the bucket; one at a time is open per store.
//! - An owner that comes to its record, with no cut in the head, creates the mark: an object with the offset,
//!   one per partition. Then it deletes in the head. A record that was written again, since its gateway got
//!   no answer, has another offset than the mark and is passed over.
//! - Cuts after the mark are published once the deletion is *done*.
//! - Once all marks are there, any process writes the tombstones: it reads the catalogue, then looks for the
//!   end of the deletion, and enters the tombstones only if the blocks are as they were read. Then it
//!   creates the object that says that the deletion is done.
//!
//! Invariants, which `tests` verify in every order of owners, processes that write tombstones, compactions
//! and restarts: a sample after the deletion is never deleted; once the deletion is done, no block has a
//! sample that it took.
//! Not here: records (`format::record`), tombstones (`tsdb`).

/// Returns true if an owner applies the record of a deletion at `offset`, whose partition has the mark
/// `marked`.
#[must_use]
pub fn is_applied(marked: u64, offset: u64) -> bool {
    marked == offset
}

/// Returns true if the blocks of a cut at offset `cut` may become live. `marked` is the mark of the partition
/// of the deletion that is not done, if there is one; `None` if it has no mark yet.
#[must_use]
pub fn may_publish_cut(marked: Option<u64>, cut: u64) -> bool {
    marked.is_none_or(|marked| cut < marked)
}

/// Returns true if tombstones may be written: all partitions of the deletion have a mark.
#[must_use]
pub fn may_settle(marks: impl IntoIterator<Item = Option<u64>>) -> bool {
    marks.into_iter().all(|mark| mark.is_some())
}

#[cfg(test)]
mod tests;
