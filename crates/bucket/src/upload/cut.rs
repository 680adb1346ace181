//! Blocks of a cut of a partition of the replicated log: they enter the catalogue together with the offset of
//! the cut, in one snapshot.
//!
//! Invariants: a catalogue with a cut gets no block of it or of an earlier one; a catalogue exists before the
//! first block is uploaded, so no listing enters a block that was uploaded and never published.
//! Not here: the rules (`model::cut`), upload of the files.

use std::sync::Arc;

use chronolith_format::bucket::catalogue::{BucketBlock, Snapshot};
use chronolith_model::cut::may_publish;
use chronolith_model::log_position::Position;

use super::publish::Publisher;
use crate::snapshots::Change;
use crate::{BucketError, RequestContext};

/// Result of publishing the blocks of a cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublishedCut {
    /// The catalogue has the cut with these blocks, as of this snapshot.
    Live(Arc<Snapshot>),
    /// The catalogue has the cut or a later one with other blocks: the samples are in these.
    Superseded(Arc<Snapshot>),
    /// Nothing was recorded: files of one of the blocks are being removed, since they were not published
    /// for long. They have to be uploaded under another name.
    NameTaken,
}

/// Returns the catalogue of the folder of `request` before the blocks of a cut are uploaded; creates it if
/// there is none.
///
/// # Errors
/// As [`crate::snapshots::Snapshots::update`].
pub async fn catalogue_for_cuts(
    publisher: &Publisher,
    request: &RequestContext,
) -> Result<Arc<Snapshot>, BucketError> {
    if let Some(latest) = publisher.snapshots.reader().read_latest(request).await? {
        return Ok(latest.snapshot);
    }
    // Blocks of other programs, which readers have found by listings so far.
    publisher.create_catalogue(request).await?;
    let updated = publisher.snapshots.update(request, |snapshot| {
        // Number 0 stands for no snapshot.
        if snapshot.number > 0 { Change::Keep } else { Change::Write }
    });
    Ok(updated.await?.snapshot.expect("an update writes a snapshot, or found one"))
}

/// Adds the blocks of the cut at `cut` to the catalogue of the folder of `request`, and the cut. `records`
/// are all blocks of the cut in this folder; there may be none. Repeating it changes nothing.
///
/// # Errors
/// As [`crate::snapshots::Snapshots::update`]: the blocks may be live then, and the same call tells.
pub async fn publish_cut(
    publisher: &Publisher,
    request: &RequestContext,
    cut: Position,
    records: &[BucketBlock],
) -> Result<PublishedCut, BucketError> {
    let partition = cut.log_partition();
    let mut is_taken = false;
    let updated = publisher.snapshots.update(request, |snapshot| {
        is_taken = false;
        if !may_publish(snapshot.cut_of(partition), cut.offset) {
            return Change::Keep;
        }
        let is_marked =
            |block: &BucketBlock| snapshot.deletion_marks.iter().any(|mark| mark.ulid == block.ulid);
        if records.iter().any(is_marked) {
            is_taken = true;
            return Change::Keep;
        }
        snapshot.blocks.retain(|block| records.iter().all(|new| new.ulid != block.ulid));
        snapshot.blocks.extend(records.iter().cloned());
        snapshot.set_cut(partition, cut.offset);
        Change::Write
    });
    let updated = updated.await?;
    if is_taken {
        return Ok(PublishedCut::NameTaken);
    }
    let snapshot = updated.snapshot.expect("an update writes a snapshot, or found one with a cut");
    let has = |new: &BucketBlock| snapshot.blocks.iter().any(|block| block.ulid == new.ulid);
    if updated.is_written || (!records.is_empty() && records.iter().all(has)) {
        publisher.counters.add_published(records.len());
        return Ok(PublishedCut::Live(snapshot));
    }
    publisher.counters.add_dropped(records.len());
    Ok(PublishedCut::Superseded(snapshot))
}
