//! Changes of the partition map by an operator: partitions are added, drained and removed.
//!
//! Invariants: a change is the next snapshot of the map, by create-if-absent, on top of the newest one; the
//! history keeps every change that queries may need.
//! Not here: the rules of a map (`model::partition`), its first version (`partition_maps`).

use std::sync::Arc;
use std::time::Duration;

use chronolith_base::{Clock, Env};
use chronolith_bucket::snapshots::{Change, SnapshotReader, Snapshots};
use chronolith_bucket::{BucketError, Purpose, RequestContext, Store};
use chronolith_format::bucket::partitions::PartitionsSnapshot;
use chronolith_model::partition::{PARTITIONS_MAX, PartitionChange, PartitionMapError};
use tokio::runtime::Handle;

use crate::folder::cluster_folder;
use crate::partition_states::DRAINED_TIME;

/// Longest time of a read or a change, with repeats after other writers.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Age from which on the end of an epoch leaves the history.
const HISTORY_TIME: Duration = Duration::from_secs(30 * 86_400);
const _: () = assert!(HISTORY_TIME.as_secs() > DRAINED_TIME.as_secs());

/// The map was not changed, or may not be.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// A partition is named more than once.
    #[error("partition {0} is named twice")]
    Twice(u32),
    /// A number that no map may have.
    #[error("partition {0}, expected less than {PARTITIONS_MAX}")]
    OutOfRange(u32),
    /// The map cannot be changed so.
    #[error(transparent)]
    Map(#[from] PartitionMapError),
    /// The bucket; after a timeout the change may be written.
    #[error(transparent)]
    Bucket(#[from] BucketError),
}

/// Returns the newest map; `None` if the bucket has none. Blocks the thread.
///
/// # Errors
/// As other requests.
pub fn newest_map(
    bucket: &Arc<Store>,
    env: &Env,
    handle: &Handle,
) -> Result<Option<Arc<PartitionsSnapshot>>, BucketError> {
    let reader: SnapshotReader<PartitionsSnapshot> =
        SnapshotReader::of_kind(bucket.clone(), env.clock.clone());
    let latest = handle.block_on(reader.read_latest(&request(&*env.clock)))?;
    Ok(latest.map(|latest| latest.snapshot))
}

/// Changes the map, also one that does not exist yet, and returns it. Blocks the thread.
///
/// # Errors
/// [`ChangeError`].
pub fn change_map(
    bucket: &Arc<Store>,
    env: &Env,
    handle: &Handle,
    change: PartitionChange<'_>,
) -> Result<Arc<PartitionsSnapshot>, ChangeError> {
    check_numbers(change)?;
    let snapshots: Snapshots<PartitionsSnapshot> = Snapshots::of_kind(bucket.clone(), env);
    let now_ms = env.clock.now_ms();
    let history_ms = i64::try_from(HISTORY_TIME.as_millis()).unwrap_or(i64::MAX);
    let mut refused = None;
    let request = request(&*env.clock);
    let update = snapshots.update(&request, |snapshot| {
        match snapshot.map.changed(change, now_ms, now_ms.saturating_sub(history_ms)) {
            Ok(map) => {
                refused = None;
                snapshot.map = map;
                Change::Write
            }
            Err(error) => {
                refused = Some(error);
                Change::Keep
            }
        }
    });
    let updated = handle.block_on(update)?;
    match (refused, updated.snapshot) {
        (Some(error), _) => Err(error.into()),
        (None, Some(snapshot)) => Ok(snapshot),
        // An update that was written has its snapshot.
        (None, None) => Err(PartitionMapError::NoneLeft.into()),
    }
}

fn check_numbers(change: PartitionChange<'_>) -> Result<(), ChangeError> {
    let numbers = match change {
        PartitionChange::Add(numbers)
        | PartitionChange::Drain(numbers)
        | PartitionChange::Remove(numbers) => numbers,
    };
    for (idx, &number) in numbers.iter().enumerate() {
        if number as usize >= PARTITIONS_MAX {
            return Err(ChangeError::OutOfRange(number));
        }
        if numbers.iter().skip(idx + 1).any(|other| *other == number) {
            return Err(ChangeError::Twice(number));
        }
    }
    Ok(())
}

fn request(clock: &dyn Clock) -> RequestContext {
    RequestContext::with_timeout(clock, cluster_folder(), TIMEOUT, Purpose::Tool)
}

#[cfg(test)]
mod tests;
