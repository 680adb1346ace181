//! Deletions of samples in a cluster: their list and the marks of partitions in the bucket, and the step that
//! ends one (ADRs 0143, 0150).
//!
//! Invariants, by the rules of `model::cluster_deletion`: a number is used once, and one deletion per store
//! is open; a mark is created once; tombstones are entered while the deletion is open, after all marks are
//! there. An entry stays for [`KEPT_TIME`] after its end, and until no owner can read its record as a first
//! one; at most [`DELETIONS_MAX`] are kept, then further ones are refused.
//! Not here: records (`gateway`, `owner`), bytes (`format::bucket::deletions`), tombstones
//! (`bucket::tombstones`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::Env;
use chronolith_bucket::snapshots::{Change, Latest, Snapshots};
use chronolith_bucket::store::CreateOutcome;
use chronolith_bucket::store::read::ReadRange;
use chronolith_bucket::tombstones::{Attempt, FolderDeletion, TombstonesError, TombstonesWriter};
use chronolith_bucket::{BucketError, Purpose, RequestContext, Store};
use chronolith_format::bucket::deletions::mark::{decode_mark, encode_mark, mark_name};
pub use chronolith_format::bucket::deletions::{ClusterDeletion, DeletionState, DeletionsSnapshot};
use chronolith_format::record::{Record, RecordOrigin, RecordStore};
use chronolith_model::cluster_deletion::may_settle;
use chronolith_model::log_position::{LogPartition, PartitionId, Position, TopicId};
use chronolith_model::{Matcher, TenantId, TimeRange};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::folder::{CLUSTER_FOLDER, cluster_folder, store_folder};

/// Deletions in the list, open ones and those that are done and kept.
pub const DELETIONS_MAX: usize = 1000;
/// Time for which a deletion that is done stays in the list.
pub const KEPT_TIME: Duration = Duration::from_secs(24 * 3600);
/// Longest time of one request, or of an update of the list.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Characters of the id of a request that are kept.
const REQUEST_ID_CHARS_MAX: usize = 64;
/// Attempts to enter tombstones while compactions change the blocks.
const ATTEMPTS_MAX: usize = 5;

/// Samples to delete.
#[derive(Debug, Clone)]
pub struct NewDeletion {
    /// The tenant.
    pub tenant: TenantId,
    /// The store.
    pub store: RecordStore,
    /// Name of the attempt, which no other one has; kept for the audit of an operator.
    pub request_id: String,
    /// Series must be selected by all matchers of one of them.
    pub selectors: Vec<Vec<Matcher>>,
    /// Times of the samples, in the unit of the store.
    pub range: TimeRange,
    /// Identity of the topic.
    pub topic: TopicId,
    /// Partitions that may have such samples, ascending.
    pub partitions: Vec<PartitionId>,
}

impl NewDeletion {
    /// Returns the deletion as an open one.
    pub(crate) fn with_number(&self, number: u64, created_ms: i64) -> ClusterDeletion {
        let NewDeletion { tenant, store, request_id, selectors, range, topic, partitions } = self.clone();
        let state = DeletionState::Open { request_id, selectors, range };
        ClusterDeletion { number, tenant, store, created_ms, topic, partitions, state }
    }
}

/// Result of adding a deletion to the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created {
    /// The deletion has a number and is open.
    Open(ClusterDeletion),
    /// Another one of the store is open.
    Busy {
        /// Number of the other one.
        number: u64,
        /// Clock of its creator, milliseconds since 1970.
        created_ms: i64,
    },
    /// The list is full.
    Full,
}

/// Result of the step that ends a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// The tombstones are in the catalogue.
    Done {
        /// Number of a catalogue of the store that has them; 0 if the store has none.
        catalogue: u64,
        /// Series that have lost samples in blocks, counted once per block; 0 if another process was first.
        series_count: u64,
        /// Blocks with new tombstones, likewise.
        block_count: u64,
    },
    /// Partitions that have not passed the record.
    Missing(Vec<PartitionId>),
    /// Compactions change the blocks at the same time.
    BlocksChange,
}

/// Deletions of a cluster.
pub struct Deletions {
    store: Arc<Store>,
    snapshots: Snapshots<DeletionsSnapshot>,
    tombstones: TombstonesWriter,
    env: Env,
    handle: Handle,
    latest: Mutex<Option<Latest<DeletionsSnapshot>>>,
}

impl Deletions {
    /// Requests run on the runtime of `handle`. Sends none.
    #[must_use]
    pub fn new(store: Arc<Store>, env: &Env, handle: Handle) -> Deletions {
        Deletions {
            snapshots: Snapshots::of_kind(store.clone(), env),
            tombstones: TombstonesWriter::new(store.clone(), env, handle.clone()),
            store,
            env: env.clone(),
            handle,
            latest: Mutex::default(),
        }
    }

    /// Returns the newest list. Blocks the thread. Cost: one request if nothing has changed since the last
    /// call.
    ///
    /// # Errors
    /// As other requests; a damaged list is named.
    pub fn read(&self) -> Result<Arc<DeletionsSnapshot>, BucketError> {
        self.read_within(TIMEOUT)
    }

    /// As [`Deletions::read`], within `timeout`.
    pub(crate) fn read_within(&self, timeout: Duration) -> Result<Arc<DeletionsSnapshot>, BucketError> {
        let known = self.latest.lock().clone();
        let request =
            RequestContext::with_timeout(&*self.env.clock, cluster_folder(), timeout, Purpose::Catalog);
        let reader = self.snapshots.reader();
        let latest = self.handle.block_on(async {
            match &known {
                Some(known) => reader.poll(&request, known).await,
                None => reader.read_latest(&request).await,
            }
        })?;
        let Some(latest) = latest else { return Ok(Arc::default()) };
        let snapshot = latest.snapshot.clone();
        *self.latest.lock() = Some(latest);
        Ok(snapshot)
    }

    /// Returns the list of the last read; `None` before the first one.
    #[must_use]
    pub fn last_read(&self) -> Option<Arc<DeletionsSnapshot>> {
        self.latest.lock().as_ref().map(|latest| latest.snapshot.clone())
    }

    /// Returns an id of a request with random digits before it, so that no other attempt has it.
    #[must_use]
    pub fn unique_id(&self, request_id: &dyn fmt::Display) -> String {
        let id: String = request_id.to_string().chars().take(REQUEST_ID_CHARS_MAX).collect();
        format!("{:016x}-{id}", self.env.rng.next_u64())
    }

    /// Adds a deletion to the list; the same call again finds what it has added. An open deletion of the
    /// store in another topic, whose records are lost, leaves the list. Blocks the thread.
    ///
    /// # Errors
    /// As other requests; the deletion may be open then.
    pub fn create(&self, new: &NewDeletion) -> Result<Created, BucketError> {
        let mut created = Created::Full;
        let mut lost = None;
        let now_ms = self.env.clock.now_ms();
        let request = self.request();
        let update = self.snapshots.update(&request, |snapshot| {
            lost = None;
            if let Some(open) = snapshot.open_of(&new.tenant, new.store) {
                if open.topic == new.topic {
                    created = match is_of(open, &new.request_id) {
                        true => Created::Open(open.clone()),
                        false => Created::Busy { number: open.number, created_ms: open.created_ms },
                    };
                    return Change::Keep;
                }
                let number = open.number;
                lost = Some(number);
                snapshot.deletions.retain(|one| one.number != number);
            }
            if snapshot.deletions.len() >= DELETIONS_MAX {
                created = Created::Full;
                return Change::Keep;
            }
            let deletion = new.with_number(snapshot.last_number + 1, now_ms);
            snapshot.last_number = deletion.number;
            snapshot.deletions.push(deletion.clone());
            created = Created::Open(deletion);
            Change::Write
        });
        self.handle.block_on(update)?;
        if let Some(number) = lost {
            tracing::warn!(number, "gave up a deletion that was open in another topic of the replicated log");
        }
        Ok(created)
    }

    /// Creates the mark of a partition at the offset of `position`; returns the offset of the mark that is
    /// there, which may be an earlier one. Blocks the thread.
    ///
    /// # Errors
    /// As other requests, and [`BucketError::Corrupt`] for a damaged mark.
    pub fn mark(&self, number: u64, position: Position) -> Result<u64, BucketError> {
        let mut body = Vec::new();
        encode_mark(number, position, &mut body);
        let key = mark_key(number, position.partition);
        let created = self.handle.block_on(self.store.create(&self.request(), &key, Bytes::from(body)))?;
        match created {
            CreateOutcome::Created => Ok(position.offset),
            CreateOutcome::Exists(found) => decoded(&key, &found.bytes, number, position.log_partition()),
        }
    }

    /// Returns the offset of the mark of a partition; `None` without a mark. Blocks the thread.
    ///
    /// # Errors
    /// As [`Deletions::mark`].
    pub fn mark_of(&self, number: u64, partition: LogPartition) -> Result<Option<u64>, BucketError> {
        let key = mark_key(number, partition.number);
        let request = self.request();
        match self.handle.block_on(self.store.read(&request, &key, ReadRange::Whole, None)) {
            Ok(found) => decoded(&key, &found.bytes, number, partition).map(Some),
            Err(BucketError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the marks of all partitions of a deletion, in their order. Blocks the thread. Cost: one
    /// request per partition of an open deletion.
    ///
    /// # Errors
    /// As [`Deletions::mark`].
    pub fn marks(&self, deletion: &ClusterDeletion) -> Result<Vec<Option<u64>>, BucketError> {
        match &deletion.state {
            DeletionState::Done { marks, .. } => Ok(marks.iter().copied().map(Some).collect()),
            DeletionState::Open { .. } => {
                deletion.log_partitions().map(|partition| self.mark_of(deletion.number, partition)).collect()
            }
        }
    }

    /// Ends a deletion whose partitions have all passed its record: enters the tombstones, then the deletion
    /// is done. Any process may call it, several at the same time. Blocks the thread.
    ///
    /// # Errors
    /// [`TombstonesError`]; a later call goes on.
    pub fn settle(&self, deletion: &ClusterDeletion) -> Result<Settled, TombstonesError> {
        let DeletionState::Open { selectors, range, .. } = &deletion.state else {
            return Ok(self.ended(deletion));
        };
        let marks = self.marks(deletion)?;
        if !may_settle(marks.iter().copied()) {
            let each = deletion.partitions.iter().zip(&marks);
            return Ok(Settled::Missing(
                each.filter(|(_, mark)| mark.is_none()).map(|(number, _)| *number).collect(),
            ));
        }
        let marks: Vec<u64> = marks.into_iter().flatten().collect();
        let in_folder = FolderDeletion {
            folder: store_folder(&deletion.tenant, deletion.store),
            selectors: selectors.as_slice().into(),
            range: *range,
        };
        for _ in 0..ATTEMPTS_MAX {
            let mut is_open = || Ok(self.read()?.find(deletion.number).is_some_and(ClusterDeletion::is_open));
            match self.tombstones.attempt(&in_folder, &mut is_open)? {
                Attempt::Entered { catalogue, series_count, block_count } => {
                    self.finish(deletion.number, catalogue, &marks)?;
                    return Ok(Settled::Done { catalogue, series_count, block_count });
                }
                Attempt::NotDue => {
                    let list = self.read()?;
                    return Ok(self.ended(list.find(deletion.number).unwrap_or(deletion)));
                }
                Attempt::BlocksChanged => {}
            }
        }
        Ok(Settled::BlocksChange)
    }

    /// Removes deletions from the list that were done [`KEPT_TIME`] ago and whose records no owner reads as
    /// first ones: `resume_of` returns the position from which on a new owner of a partition reads. Open ones
    /// of other topics than `topic` leave at the same age: no owner can pass their records. Returns their
    /// number. Blocks the thread.
    ///
    /// # Errors
    /// As other requests; a later call goes on. Marks of a removed deletion may be left, which nothing reads.
    pub fn forget_old(
        &self,
        topic: TopicId,
        resume_of: &dyn Fn(PartitionId) -> Result<Option<Position>, BucketError>,
    ) -> Result<usize, BucketError> {
        let kept_ms = i64::try_from(KEPT_TIME.as_millis()).unwrap_or(i64::MAX);
        let before_ms = self.env.clock.now_ms().saturating_sub(kept_ms);
        let list = self.read()?;
        let mut old = Vec::new();
        for deletion in &list.deletions {
            let is_lost = deletion.is_open() && deletion.topic != topic && deletion.created_ms <= before_ms;
            if is_lost || is_done_before(deletion, before_ms) && self.is_passed(deletion, resume_of)? {
                old.push(deletion.clone());
            }
        }
        if old.is_empty() {
            return Ok(0);
        }
        let is_old = |one: &ClusterDeletion| old.iter().any(|old| old.number == one.number);
        let request = self.request();
        let update = self.snapshots.update(&request, |snapshot| {
            let count = snapshot.deletions.len();
            snapshot.deletions.retain(|one| !is_old(one));
            if snapshot.deletions.len() < count { Change::Write } else { Change::Keep }
        });
        self.handle.block_on(update)?;
        // After the list: an owner that finds no deletion creates no mark of it.
        for deletion in &old {
            for number in &deletion.partitions {
                let key = mark_key(deletion.number, *number);
                self.handle.block_on(self.store.remove(&self.request(), &key))?;
            }
        }
        Ok(old.len())
    }

    fn is_passed(
        &self,
        deletion: &ClusterDeletion,
        resume_of: &dyn Fn(PartitionId) -> Result<Option<Position>, BucketError>,
    ) -> Result<bool, BucketError> {
        for partition in deletion.log_partitions() {
            let Some(mark) = deletion.mark_when_done(partition) else { return Ok(false) };
            // Offsets of a topic that was made again are others.
            let is_before = |resume: Position| resume.log_partition() == partition && resume.offset <= mark;
            if resume_of(partition.number)?.is_none_or(is_before) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn ended(&self, deletion: &ClusterDeletion) -> Settled {
        let catalogue = match deletion.state {
            DeletionState::Done { catalogue, .. } => catalogue,
            DeletionState::Open { .. } => 0,
        };
        Settled::Done { catalogue, series_count: 0, block_count: 0 }
    }

    fn finish(&self, number: u64, catalogue: u64, marks: &[u64]) -> Result<(), BucketError> {
        let done_ms = self.env.clock.now_ms();
        let request = self.request();
        let update = self.snapshots.update(&request, |snapshot| {
            let open = snapshot.deletions.iter_mut().find(|one| one.number == number && one.is_open());
            let Some(deletion) = open else { return Change::Keep };
            deletion.state = DeletionState::Done { done_ms, catalogue, marks: marks.to_vec() };
            Change::Write
        });
        self.handle.block_on(update).map(drop)
    }

    fn request(&self) -> RequestContext {
        RequestContext::with_timeout(&*self.env.clock, cluster_folder(), TIMEOUT, Purpose::Catalog)
    }
}

/// Returns the record of an open deletion; `None` for one that is done.
pub(crate) fn record_of(deletion: &ClusterDeletion, arrival_ms: i64) -> Option<Record> {
    let DeletionState::Open { request_id, selectors, range } = &deletion.state else { return None };
    let origin = RecordOrigin {
        tenant: deletion.tenant.clone(),
        store: deletion.store,
        request_id: request_id.clone(),
        arrival_ms,
    };
    let selectors = selectors.clone();
    Some(Record::Delete { origin, number: Some(deletion.number), selectors, range: *range })
}

fn is_of(deletion: &ClusterDeletion, wanted: &str) -> bool {
    matches!(&deletion.state, DeletionState::Open { request_id, .. } if request_id == wanted)
}

fn is_done_before(deletion: &ClusterDeletion, before_ms: i64) -> bool {
    matches!(deletion.state, DeletionState::Done { done_ms, .. } if done_ms <= before_ms)
}

fn mark_key(number: u64, partition: PartitionId) -> String {
    format!("{CLUSTER_FOLDER}/{}", mark_name(number, partition))
}

fn decoded(key: &str, bytes: &[u8], number: u64, partition: LogPartition) -> Result<u64, BucketError> {
    decode_mark(bytes, number, partition).map_err(|error| BucketError::Corrupt {
        key: key.to_owned(),
        what: "mark of a deletion",
        expected: "an intact object".to_owned(),
        found: error.to_string(),
    })
}

#[cfg(test)]
mod tests;
