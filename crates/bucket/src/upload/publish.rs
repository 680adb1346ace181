//! Record of uploaded blocks in the catalogue: one update adds blocks and drops those that they replace.
//!
//! Invariants: the blocks of one compaction appear together, in the snapshot in which its inputs disappear; a
//! compaction whose inputs are not in the catalogue is dropped, as another one has replaced them; a block
//! that was replaced does not come back.
//! Not here: upload of the files.

use std::collections::BTreeSet;
use std::sync::Arc;

use chronolith_format::block::meta::Ulid;
use chronolith_format::bucket::catalogue::{BucketBlock, DeletionMark, Snapshot};

use super::Uploader;
use crate::snapshots::Change;
use crate::{BucketError, RequestContext};

/// Result of recording blocks in the catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    /// All blocks are in the catalogue, of which this is the newest snapshot. `None` if nothing was to be
    /// recorded and the tenant has no catalogue.
    Recorded(Option<Arc<Snapshot>>),
    /// Nothing was recorded: these inputs are not in the catalogue.
    InputsGone(Vec<Ulid>),
    /// Nothing was recorded: these blocks wait for their removal, or others of the catalogue were made of
    /// them.
    Superseded(Vec<Ulid>),
}

impl Uploader {
    /// Adds the blocks of `records` to the catalogue of the tenant of `request`, and in the same snapshot
    /// drops the blocks in `replaced`, which get a deletion mark. `records` are a single block, or all blocks of
    /// one compaction. Repeating it changes nothing.
    ///
    /// # Errors
    /// As [`crate::snapshots::Snapshots::update`].
    pub async fn publish(
        &self,
        request: &RequestContext,
        records: &[BucketBlock],
        replaced: &[Ulid],
    ) -> Result<Published, BucketError> {
        let now_ms = self.env.clock.now_ms();
        let mut decision = Decision::Done;
        let updated = self.snapshots.update(request, |snapshot| {
            decision = decide(snapshot, records, replaced);
            if decision != Decision::Add {
                return Change::Keep;
            }
            apply(snapshot, records, replaced, now_ms);
            Change::Write
        });
        let updated = updated.await?;
        let dropped = match decision {
            Decision::Add | Decision::Done => {
                if updated.is_written {
                    self.counters.add_published(records.len());
                }
                return Ok(Published::Recorded(updated.snapshot));
            }
            Decision::InputsGone(inputs) => {
                tracing::info!(tenant = %request.tenant, ?inputs, "compacted blocks are not recorded: their inputs are not in the catalogue");
                Published::InputsGone(inputs)
            }
            Decision::Superseded(blocks) => {
                tracing::info!(tenant = %request.tenant, ?blocks, "blocks are not recorded: the catalogue has blocks made of them");
                Published::Superseded(blocks)
            }
        };
        self.counters.add_dropped(records.len());
        Ok(dropped)
    }
}

/// Reaction to blocks that are to be recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Decision {
    Add,
    /// All is as it would be.
    Done,
    InputsGone(Vec<Ulid>),
    Superseded(Vec<Ulid>),
}

fn decide(snapshot: &Snapshot, records: &[BucketBlock], replaced: &[Ulid]) -> Decision {
    let live: BTreeSet<Ulid> = snapshot.blocks.iter().map(|block| block.ulid).collect();
    let is_recorded = records.iter().all(|record| live.contains(&record.ulid));
    if is_recorded {
        let is_done = !replaced.iter().any(|ulid| live.contains(ulid));
        return if is_done { Decision::Done } else { Decision::Add };
    }
    let superseded = records.iter().filter(|record| is_superseded(snapshot, record));
    let superseded: Vec<Ulid> = superseded.map(|record| record.ulid).collect();
    if !superseded.is_empty() {
        return Decision::Superseded(superseded);
    }
    let gone: Vec<Ulid> = replaced.iter().copied().filter(|ulid| !live.contains(ulid)).collect();
    if gone.is_empty() { Decision::Add } else { Decision::InputsGone(gone) }
}

/// Returns true if the samples of `block` are in other blocks of the catalogue, or were removed from it.
fn is_superseded(snapshot: &Snapshot, block: &BucketBlock) -> bool {
    let is_marked = snapshot.deletion_marks.iter().any(|mark| mark.ulid == block.ulid);
    is_marked || snapshot.blocks.iter().any(|live| has_samples_of(live, block))
}

/// Returns true if `merged` was made of `block` or of blocks that were. One of a split set has only some of
/// the series of its sources, so it counts by its parents alone.
fn has_samples_of(merged: &BucketBlock, block: &BucketBlock) -> bool {
    let (merged, sources) = (&merged.ancestry, &block.ancestry.sources);
    let has_sources = merged.split_set.is_none()
        && merged.level > block.ancestry.level
        && !sources.is_empty()
        && sources.iter().all(|source| merged.sources.contains(source));
    has_sources || merged.parents.contains(&block.ulid)
}

fn apply(snapshot: &mut Snapshot, records: &[BucketBlock], replaced: &[Ulid], now_ms: i64) {
    for record in records {
        if !snapshot.blocks.iter().any(|block| block.ulid == record.ulid) {
            snapshot.blocks.push(record.clone());
        }
    }
    for &ulid in replaced {
        let block_count = snapshot.blocks.len();
        snapshot.blocks.retain(|block| block.ulid != ulid);
        let is_dropped = snapshot.blocks.len() < block_count;
        if is_dropped && !snapshot.deletion_marks.iter().any(|mark| mark.ulid == ulid) {
            snapshot.deletion_marks.push(DeletionMark { ulid, marked_ms: now_ms });
        }
    }
}
