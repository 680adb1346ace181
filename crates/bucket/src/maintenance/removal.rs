//! Removal of blocks whose deletion mark is old enough.
//!
//! Invariants: `meta.json` goes first, so that no reader of a listing takes a half-removed folder for a
//! block; the mark stays for another delay after the objects are gone, and is dropped once the folder is
//! found empty then. Thus no block of the same name is recorded while an earlier run still removes its
//! objects.
//! Not here: who marks blocks (`upload::publish`, `retention`, `leftovers`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chronolith_format::block::meta::Ulid;
use chronolith_format::bucket::catalogue::{DeletionMark, Snapshot};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::{META, MaintenanceRun, as_ms};
use crate::BucketError;
use crate::snapshots::Change;
use crate::store::list::ListedObject;

/// Marks that one run executes.
const BLOCKS_MAX: usize = 1000;
/// Blocks that are removed at the same time.
const BLOCKS_AT_ONCE: usize = 4;
/// Shortest time that a mark stays after the objects are gone: no run takes longer.
const EMPTY_MIN: Duration = Duration::from_secs(60 * 60);

/// A block whose deletion mark is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueBlock {
    /// Mark of the block.
    pub mark: DeletionMark,
    /// Objects that it still has, `meta.json` first.
    pub objects: Vec<ListedObject>,
}

/// Result of a removal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removed {
    /// Blocks whose objects were removed.
    pub blocks: Vec<Ulid>,
    /// Objects that were removed.
    pub object_count: u64,
    /// Bytes of the removed objects.
    pub bytes: u64,
    /// Marks that were dropped because their blocks had no objects.
    pub dropped_marks: usize,
}

impl DueBlock {
    /// Bytes of all objects.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.object_bytes).sum()
    }
}

/// Returns the marks of `snapshot` that are at least `delay` old, of blocks that it does not list, the oldest
/// first.
#[must_use]
pub fn due_marks(snapshot: &Snapshot, now_ms: i64, delay: Duration) -> Vec<DeletionMark> {
    let live: BTreeSet<Ulid> = snapshot.blocks.iter().map(|block| block.ulid).collect();
    let is_due = |mark: &&DeletionMark| {
        mark.marked_ms.saturating_add(as_ms(delay)) <= now_ms && !live.contains(&mark.ulid)
    };
    let mut due: Vec<DeletionMark> = snapshot.deletion_marks.iter().filter(is_due).copied().collect();
    due.sort_by_key(|mark| (mark.marked_ms, mark.ulid));
    due.truncate(BLOCKS_MAX);
    due
}

/// Finds the blocks that [`remove_due`] removes. Cost: a listing per block.
///
/// # Errors
/// As [`MaintenanceRun::catalogue`].
pub async fn find_due(run: &MaintenanceRun<'_>, delay: Duration) -> Result<Vec<DueBlock>, BucketError> {
    let Some(snapshot) = run.catalogue().await? else { return Ok(Vec::new()) };
    let due = due_marks(&snapshot, run.now_ms, delay);
    let listings = stream::iter(due).map(|mark| async move {
        let objects = run.objects_of(mark.ulid).await?;
        Ok(DueBlock { mark, objects })
    });
    listings.buffered(BLOCKS_AT_ONCE).try_collect().await
}

/// Removes the objects of blocks that [`find_due`] has found in the same run, and drops the marks of those
/// that had none. Cost: a request per object, one update of the catalogue.
///
/// # Errors
/// As other requests; repeat both then.
pub async fn remove_due(run: &MaintenanceRun<'_>, due: &[DueBlock]) -> Result<Removed, BucketError> {
    let mut removed = Removed::default();
    let with_objects = || due.iter().filter(|block| !block.objects.is_empty());
    let removals = stream::iter(with_objects()).map(|block| remove_block(run, block));
    removals.buffer_unordered(BLOCKS_AT_ONCE).try_collect::<()>().await?;
    for block in with_objects() {
        removed.blocks.push(block.mark.ulid);
        removed.object_count += block.objects.len() as u64;
        removed.bytes += block.bytes();
    }
    removed.dropped_marks = update_marks(run, due).await?;
    Ok(removed)
}

async fn remove_block(run: &MaintenanceRun<'_>, block: &DueBlock) -> Result<(), BucketError> {
    let meta = format!("{}/{META}", run.folder(block.mark.ulid));
    let is_first = block.objects.is_sorted_by_key(|object| object.key != meta);
    assert!(is_first, "{META} of a block is removed before its other objects");
    for object in &block.objects {
        run.store.remove(run.request, &object.key).await?;
    }
    tracing::info!(folder = %run.request.folder, block = %block.mark.ulid, bytes = block.bytes(), "replaced or expired block removed from the bucket");
    Ok(())
}

/// Renews the marks of blocks that were removed, and drops marks of blocks without objects.
async fn update_marks(run: &MaintenanceRun<'_>, due: &[DueBlock]) -> Result<usize, BucketError> {
    let due: BTreeMap<Ulid, &DueBlock> = due.iter().map(|block| (block.mark.ulid, block)).collect();
    let mut dropped = 0;
    let change = |snapshot: &mut Snapshot| {
        let before = snapshot.deletion_marks.len();
        let mut is_renewed = false;
        snapshot.deletion_marks.retain_mut(|mark| {
            let Some(block) = due.get(&mark.ulid).filter(|block| block.mark == *mark) else { return true };
            if !block.objects.is_empty() {
                is_renewed |= mark.marked_ms != run.now_ms;
                mark.marked_ms = run.now_ms;
                return true;
            }
            mark.marked_ms.saturating_add(as_ms(EMPTY_MIN)) > run.now_ms
        });
        dropped = before - snapshot.deletion_marks.len();
        if dropped > 0 || is_renewed { Change::Write } else { Change::Keep }
    };
    run.snapshots.update(run.request, change).await?;
    Ok(dropped)
}
