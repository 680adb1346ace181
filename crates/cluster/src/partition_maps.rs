//! Partition map of a gateway or query node: the newest snapshot in the bucket.
//!
//! Invariants: the first gateway creates the map, by create-if-absent; a map in use is only replaced by a
//! later one, and stays in use while the bucket does not answer.
//! Not here: changes of the map by operators, choice of a partition (`model::partition`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chronolith_base::{Clock, Env};
use chronolith_bucket::snapshots::{Change, Latest, Snapshots};
use chronolith_bucket::{BucketError, Purpose, RequestContext, Store};
pub use chronolith_format::bucket::partitions::PartitionsSnapshot;
use chronolith_model::log_position::PartitionId;
use chronolith_model::partition::{PARTITIONS_MAX, PartitionChange, PartitionMapError};
use chronolith_replicated_log::LogError;
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;

use crate::folder::cluster_folder;

/// Time from which on a gateway uses a map with added partitions. By then all query nodes have read it, which
/// they do every 5 s: without an owner that they ask, answers would lack the samples of these partitions.
const ADDED_WAIT: Duration = Duration::from_secs(15);
/// Longest time of one read, or of the creation of the map.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The log or the partition map could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RefreshError {
    /// The log.
    #[error("the log cannot be reached: {0}")]
    Log(LogError),
    /// The bucket.
    #[error("reading the partition map: {0}")]
    Bucket(#[from] BucketError),
    /// Partitions were added so recently that query nodes may not know them.
    #[error("the newest partition map has partitions that were added less than {} s ago", ADDED_WAIT.as_secs())]
    JustAdded,
    /// The map cannot have the partitions of the log.
    #[error("the partition map: {0}")]
    Map(#[from] PartitionMapError),
}

impl RefreshError {
    /// Returns true if only an operator can repair it: the newest map is damaged.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self, RefreshError::Bucket(BucketError::Corrupt { .. }))
    }
}

/// The newest map.
pub struct PartitionMaps {
    snapshots: Snapshots<PartitionsSnapshot>,
    clock: Arc<dyn Clock>,
    handle: Handle,
    latest: RwLock<Option<Latest<PartitionsSnapshot>>>,
    /// Runs before a map comes into use that lacks partitions of the one before it.
    on_removal: Option<Box<dyn Fn() + Send + Sync>>,
    /// Partitions that have left the map since the start, and are not in it.
    removed: Mutex<BTreeSet<u32>>,
    /// Number of a map with added partitions, and when it was read first, by the monotonic clock.
    added: Mutex<Option<(u64, u64)>>,
    /// Error of the last read.
    fault: Mutex<Option<String>>,
    failures: AtomicU64,
}

impl PartitionMaps {
    /// No map yet. Sends no request.
    #[must_use]
    pub fn new(store: Arc<Store>, env: &Env, handle: Handle) -> PartitionMaps {
        PartitionMaps {
            snapshots: Snapshots::of_kind(store, env),
            clock: env.clock.clone(),
            handle,
            latest: RwLock::default(),
            on_removal: None,
            removed: Mutex::default(),
            added: Mutex::default(),
            fault: Mutex::default(),
            failures: AtomicU64::new(0),
        }
    }

    /// Sets what runs before a map comes into use that lacks partitions of the one before it: their samples
    /// are in blocks, of which a list that was read earlier may know nothing.
    #[must_use]
    pub fn with_on_removal(self, on_removal: impl Fn() + Send + Sync + 'static) -> PartitionMaps {
        PartitionMaps { on_removal: Some(Box::new(on_removal)), ..self }
    }

    /// Returns the map in use.
    #[must_use]
    pub fn current(&self) -> Option<Arc<PartitionsSnapshot>> {
        self.latest.read().as_ref().map(|latest| latest.snapshot.clone())
    }

    /// Returns the reason why there is no map.
    #[must_use]
    pub fn missing_text(&self) -> String {
        match self.fault.lock().as_ref() {
            Some(why) => format!("the partition map has not been read: {why}"),
            None => "the partition map has not been read yet".to_owned(),
        }
    }

    /// Reads that failed since the start.
    #[must_use]
    pub fn failure_count(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Reads the newest map; creates one with the first `partition_count` partitions if there is none. With
    /// `None` no map is created, and the newest map is used at once. With a count, one with added partitions
    /// waits for [`ADDED_WAIT`], and until the log has them: clients of Kafka know new partitions of a topic
    /// some seconds late, and appends to them fail until then. Blocks the thread.
    ///
    /// # Errors
    /// [`RefreshError`]: the map before it stays in use.
    pub fn refresh(&self, partition_count: Option<u32>) -> Result<(), RefreshError> {
        let read = self.handle.block_on(self.read(partition_count));
        let read = read.and_then(|latest| self.check_writable(latest, partition_count));
        *self.fault.lock() = read.as_ref().err().map(ToString::to_string);
        match read {
            Ok(Some(latest)) => {
                self.prepare_for(&latest.snapshot);
                let before = self.latest.write().replace(latest.clone());
                let number = latest.snapshot.stamp.number;
                if before.is_none_or(|before| before.snapshot.stamp.number != number) {
                    let accepting = latest.snapshot.map.accepting().len();
                    tracing::info!(number, accepting, "read a partition map");
                }
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// Returns no map in place of one with partitions that writes have to wait for. A wait is no failure
    /// while there is a map; the first one is refused.
    fn check_writable(
        &self,
        latest: Option<Latest<PartitionsSnapshot>>,
        partition_count: Option<u32>,
    ) -> Result<Option<Latest<PartitionsSnapshot>>, RefreshError> {
        let Some((found, count)) = latest.as_ref().zip(partition_count) else { return Ok(latest) };
        let current = self.current();
        let last = found.snapshot.map.accepting().last();
        if current.is_some() && last.is_some_and(|last| *last >= count) {
            return Ok(None);
        }
        if self.has_added(current.as_deref(), &found.snapshot) {
            let now_ns = self.clock.mono_ns();
            let number = found.snapshot.stamp.number;
            let mut added = self.added.lock();
            let known = added.filter(|(known, _)| *known == number);
            let (_, since_ns) = *added.insert(known.unwrap_or((number, now_ns)));
            if now_ns.saturating_sub(since_ns) < ADDED_WAIT.as_nanos() as u64 {
                return if current.is_some() { Ok(None) } else { Err(RefreshError::JustAdded) };
            }
        }
        Ok(latest)
    }

    /// Returns true if `next` has partitions that the map in use does not have; at a start, if it was made
    /// less than [`ADDED_WAIT`] ago with others than the map before it.
    fn has_added(&self, current: Option<&PartitionsSnapshot>, next: &PartitionsSnapshot) -> bool {
        let epochs = next.map.epochs();
        let before = match (current, epochs) {
            (Some(current), _) => current.map.accepting(),
            (None, [.., before, last]) => {
                let age_ms = self.clock.now_ms().saturating_sub(last.since_ms);
                if age_ms >= ADDED_WAIT.as_millis() as i64 {
                    return false;
                }
                &before.accepting
            }
            // Nothing was written before the first map.
            (None, _) => return false,
        };
        next.map.accepting().iter().any(|number| !before.contains(number))
    }

    /// Notes the partitions that leave the map with `next`, and runs `on_removal` if there are some.
    fn prepare_for(&self, next: &PartitionsSnapshot) {
        let Some(current) = self.current() else { return };
        let has = |number: &u32| next.map.epochs().iter().any(|epoch| epoch.accepting.contains(number));
        let known = current.map.epochs().iter().flat_map(|epoch| &epoch.accepting);
        let gone: BTreeSet<u32> = known.filter(|number| !has(number)).copied().collect();
        if let Some(on_removal) = self.on_removal.as_ref().filter(|_| !gone.is_empty()) {
            on_removal();
        }
        let mut removed = self.removed.lock();
        removed.retain(|number| !has(number));
        removed.extend(gone);
    }

    /// Returns true if the partition has left the map since the start, and is not in it: all of its samples
    /// are in blocks, and its owner may be gone.
    #[must_use]
    pub fn is_removed(&self, partition: PartitionId) -> bool {
        self.removed.lock().contains(&partition.0)
    }

    async fn read(
        &self,
        partition_count: Option<u32>,
    ) -> Result<Option<Latest<PartitionsSnapshot>>, RefreshError> {
        let request =
            RequestContext::with_timeout(&*self.clock, cluster_folder(), READ_TIMEOUT, Purpose::Catalog);
        let known = self.latest.read().clone();
        let reader = self.snapshots.reader();
        let found = match &known {
            Some(known) => reader.poll(&request, known).await?,
            None => reader.read_latest(&request).await?,
        };
        let is_made = |latest: &Latest<PartitionsSnapshot>| !latest.snapshot.map.accepting().is_empty();
        if let Some(found) = found.filter(is_made) {
            return Ok(Some(found));
        }
        let Some(partition_count) = partition_count else { return Ok(None) };
        self.create(&request, partition_count).await?;
        Ok(reader.read_latest(&request).await?)
    }

    async fn create(&self, request: &RequestContext, partition_count: u32) -> Result<(), RefreshError> {
        if partition_count as usize > PARTITIONS_MAX {
            return Err(PartitionMapError::TooMany(partition_count as usize).into());
        }
        let numbers: Vec<u32> = (0..partition_count).collect();
        let now_ms = self.clock.now_ms();
        let mut refused = None;
        let created = self.snapshots.update(request, |snapshot| {
            if !snapshot.map.accepting().is_empty() {
                // Another process was first.
                return Change::Keep;
            }
            match snapshot.map.changed(PartitionChange::Add(&numbers), now_ms, i64::MIN) {
                Ok(map) => {
                    snapshot.map = map;
                    Change::Write
                }
                Err(error) => {
                    refused = Some(error);
                    Change::Keep
                }
            }
        });
        created.await?;
        refused.map_or(Ok(()), |error| Err(error.into()))
    }
}
