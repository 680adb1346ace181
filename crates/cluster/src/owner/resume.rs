//! Offset in the bucket from which on an owner without a directory reads: `cluster/resume/PARTITION/N`.
//!
//! Invariant: the stored offset of a topic only grows, whichever owner writes (`model::cut::next_resume`).
//! Not here: the rule for the offset (`model::cut`), bytes (`format::bucket::resume`).

use std::sync::Arc;
use std::time::Duration;

use chronolith_base::{Clock, Env};
use chronolith_bucket::snapshots::{Change, SnapshotReader, Snapshots};
use chronolith_bucket::{BucketError, Purpose, RequestContext, Store};
use chronolith_format::bucket::resume::ResumeSnapshot;
use chronolith_model::cut::next_resume;
use chronolith_model::log_position::{LogPartition, PartitionId, Position};
use tokio::runtime::Handle;

use crate::folder::cluster_folder;

/// Longest time of one read or update.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Stored offset of one partition.
pub(super) struct StoredResume {
    snapshots: Snapshots<ResumeSnapshot>,
    partition: LogPartition,
    clock: Arc<dyn Clock>,
    handle: Handle,
}

/// Returns the position from which on an owner of partition `number` without a directory reads, which may be
/// one of another topic; `None` if no owner has stored one. Blocks the thread.
///
/// # Errors
/// As other requests.
pub fn stored_resume(
    bucket: &Arc<Store>,
    env: &Env,
    handle: &Handle,
    number: PartitionId,
) -> Result<Option<Position>, BucketError> {
    let names = ResumeSnapshot::names_of(number);
    let reader: SnapshotReader<ResumeSnapshot> =
        SnapshotReader::of_series(bucket.clone(), env.clock.clone(), names);
    let read = handle.block_on(reader.read_latest(&request(&*env.clock)));
    Ok(read?.and_then(|latest| latest.snapshot.position))
}

fn request(clock: &dyn Clock) -> RequestContext {
    RequestContext::with_timeout(clock, cluster_folder(), TIMEOUT, Purpose::Catalog)
}

/// Position in the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredPosition {
    /// From here on an owner without a directory reads.
    pub position: Position,
    /// Time at which it was stored, milliseconds since 1970.
    pub stored_ms: i64,
}

/// Result of storing an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stored {
    /// The bucket has this offset or a later one.
    Done,
    /// The bucket has an offset of another topic, which stays.
    OtherTopic(Position),
}

impl StoredResume {
    /// Requests run on the runtime of `handle`. Sends none.
    pub(super) fn new(store: Arc<Store>, env: &Env, handle: Handle, partition: LogPartition) -> StoredResume {
        let names = ResumeSnapshot::names_of(partition.number);
        let snapshots = Snapshots::of_series(store, env, names);
        StoredResume { snapshots, partition, clock: env.clock.clone(), handle }
    }

    pub(super) fn partition(&self) -> LogPartition {
        self.partition
    }

    /// Returns the stored position, which may be one of another topic; `None` if no owner has stored one.
    /// Blocks the thread.
    ///
    /// # Errors
    /// As other requests.
    pub(super) fn read(&self) -> Result<Option<StoredPosition>, BucketError> {
        let read = self.handle.block_on(self.snapshots.reader().read_latest(&self.request()));
        Ok(read?.and_then(|latest| {
            let stored_ms = latest.snapshot.stamp.created_ms;
            Some(StoredPosition { position: latest.snapshot.position?, stored_ms })
        }))
    }

    /// Stores `offset` unless the bucket has a later one. An offset of another topic is replaced if
    /// `replaces_topic` is that topic's position. Blocks the thread.
    ///
    /// # Errors
    /// As other requests; the offset may be stored then.
    pub(super) fn store(&self, offset: u64, replaces_topic: Option<Position>) -> Result<Stored, BucketError> {
        let mut stored = Stored::Done;
        let request = self.request();
        let update = self.snapshots.update(&request, |snapshot| {
            stored = Stored::Done;
            let before = match snapshot.position {
                Some(position) if position.log_partition() == self.partition => Some(position.offset),
                Some(other) if Some(other) != replaces_topic => {
                    stored = Stored::OtherTopic(other);
                    return Change::Keep;
                }
                _ => None,
            };
            let Some(next) = next_resume(before, offset) else { return Change::Keep };
            snapshot.position = Some(self.partition.at(next));
            Change::Write
        });
        self.handle.block_on(update)?;
        Ok(stored)
    }

    fn request(&self) -> RequestContext {
        request(&*self.clock)
    }
}

#[cfg(test)]
mod tests;
