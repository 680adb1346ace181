//! Retention in the bucket: expired blocks leave the catalogue in one snapshot and get a deletion mark.
//!
//! Not here: the age of a tenant's blocks (`tsdb`), removal of their objects (`removal`).

use chronolith_format::bucket::catalogue::{BucketBlock, DeletionMark, Snapshot};
use chronolith_model::TimeRange;

use super::MaintenanceRun;
use crate::BucketError;
use crate::snapshots::Change;

/// Blocks that expire.
#[derive(Debug, Clone, Copy)]
pub struct Expiry<'a> {
    /// Blocks that end at this time or before it expire, in milliseconds since 1970.
    pub oldest_ms: i64,
    /// Times of local blocks, in milliseconds since 1970. Blocks of the bucket that overlap them stay: they
    /// may have a local copy, or a local block that was made of them and is not uploaded yet.
    pub local: &'a [TimeRange],
}

impl Expiry<'_> {
    /// Returns true if the block expires.
    #[must_use]
    pub fn applies_to(&self, block: &BucketBlock) -> bool {
        let range = block.time_unit.range_to_ms(block.range);
        range.end <= self.oldest_ms && !self.local.iter().any(|local| local.overlaps(range))
    }
}

/// Takes the blocks that `is_expired` selects out of a snapshot and marks them. Returns them.
pub fn expire(
    snapshot: &mut Snapshot,
    now_ms: i64,
    is_expired: impl Fn(&BucketBlock) -> bool,
) -> Vec<BucketBlock> {
    let expired: Vec<BucketBlock> = snapshot.blocks.extract_if(.., |block| is_expired(block)).collect();
    for block in &expired {
        if !snapshot.deletion_marks.iter().any(|mark| mark.ulid == block.ulid) {
            snapshot.deletion_marks.push(DeletionMark { ulid: block.ulid, marked_ms: now_ms });
        }
    }
    expired
}

/// Takes the expired blocks out of the catalogue and marks them. Returns them.
///
/// # Errors
/// As [`crate::snapshots::Snapshots::update`].
pub async fn retire_expired(
    run: &MaintenanceRun<'_>,
    expiry: &Expiry<'_>,
) -> Result<Vec<BucketBlock>, BucketError> {
    let mut expired = Vec::new();
    let change = |snapshot: &mut Snapshot| {
        expired = expire(snapshot, run.now_ms, |block| expiry.applies_to(block));
        if expired.is_empty() { Change::Keep } else { Change::Write }
    };
    run.snapshots.update(run.request, change).await?;
    for block in &expired {
        let end = block.range.end;
        tracing::info!(folder = %run.request.folder, block = %block.ulid, end, "expired block removed from the catalogue");
    }
    Ok(expired)
}
