//! Deletions of a gateway: one is added to the list in the bucket, its record goes to all partitions that may
//! have such samples, and once their owners have passed it the tombstones are entered (ADRs 0143, 0150).
//!
//! Invariants: a deletion is answered once it is done; one that is not answered may go on, and owners end
//! what a gateway has left. After the end its record is appended once more: owners that pass this repeat ask
//! readers for a catalogue with the tombstones, so its offsets are those that a read has to see.
//! Not here: the objects (`crate::deletions`), owners (`owner`), status codes (`server`).

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::Clock;
use chronolith_bucket::BucketError;
use chronolith_bucket::tombstones::TombstonesError;
use chronolith_format::record::{RecordStore, RecordTooLarge, encode_event};
use chronolith_model::log_position::PartitionId;
use chronolith_model::{Matcher, TenantId, TimeRange};
use chronolith_replicated_log::{LogError, ReplicatedLog, Ticket};

use super::error::{GatewayError, GatewayFault};
use super::pending::LogOffsets;
use crate::deletions::{ClusterDeletion, Created, Deletions, NewDeletion, Settled, record_of};
use crate::folder::CLUSTER_FOLDER;
use crate::partition_maps::PartitionMaps;
use crate::partition_states::recent_partitions;

/// Pauses between two looks at the marks of a deletion, and at a deletion that is open.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Partitions that a text names.
const NAMED_MAX: usize = 10;

/// Samples to delete.
#[derive(Clone, Copy)]
pub struct GatewayDeletion<'a> {
    /// The tenant.
    pub tenant: &'a TenantId,
    /// Store of the samples.
    pub store: RecordStore,
    /// Series must be selected by all matchers of one of them.
    pub selectors: &'a [Vec<Matcher>],
    /// Times of the samples, in the unit of the store.
    pub range: TimeRange,
    /// Id of the request.
    pub request_id: &'a dyn fmt::Display,
}

/// A deletion that is done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Deleted {
    /// Offsets that a read has to see to have none of the samples; empty if the log did not take them.
    pub offsets: LogOffsets,
    /// Series that have lost samples in blocks of the bucket, counted once per block.
    pub series_count: u64,
    /// Blocks with new tombstones.
    pub block_count: u64,
}

/// A deletion that is not done, by what its sender can do.
#[derive(Debug, thiserror::Error)]
pub enum DeletionError {
    /// Nothing was begun, as for a write.
    #[error(transparent)]
    Gateway(#[from] GatewayError),
    /// The bucket did not answer; the deletion may have been begun.
    #[error("the deletion may not have begun: {0}")]
    Bucket(#[from] BucketError),
    /// Another deletion of the store is open. Nothing was begun.
    #[error(
        "deletion {number} of the same store is open since {age_s} s, and one goes on at a time; nothing of this \
         request was deleted, try again"
    )]
    Busy {
        /// Number of the other one.
        number: u64,
        /// Age by the clock of this process, seconds.
        age_s: i64,
    },
    /// The list has no room. Nothing was begun.
    #[error("the list of deletions in the bucket is full ({0} deletions within 24 h), try again later")]
    Full(usize),
    /// The deadline has passed, and the deletion goes on without this process.
    #[error("deletion {number} goes on, and is not done yet: {why}")]
    GoesOn {
        /// Number of the deletion.
        number: u64,
        /// Last reason.
        why: String,
    },
}

impl DeletionError {
    /// Returns true if the same request may succeed later.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        match self {
            DeletionError::Gateway(error) => error.fault() == GatewayFault::Retry,
            DeletionError::Bucket(error) => !matches!(error, BucketError::Corrupt { .. }),
            DeletionError::Busy { .. } | DeletionError::Full(_) | DeletionError::GoesOn { .. } => true,
        }
    }
}

impl From<RecordTooLarge> for DeletionError {
    fn from(error: RecordTooLarge) -> DeletionError {
        DeletionError::Gateway(error.into())
    }
}

/// Deletion that a gateway carries out, step by step.
pub struct RunningDeletion {
    deletion: ClusterDeletion,
    record: Bytes,
    is_sent: bool,
}

impl RunningDeletion {
    /// Returns the number of the deletion.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.deletion.number
    }
}

/// Result of a step of a deletion.
enum Step {
    Done(Deleted),
    /// The reason why the same step has to be repeated.
    Waits(String),
}

/// Deletions of a gateway.
#[derive(Clone, Copy)]
pub struct GatewayDeletions<'a> {
    pub(super) log: &'a dyn ReplicatedLog,
    pub(super) clock: &'a dyn Clock,
    pub(super) maps: &'a PartitionMaps,
    pub(super) deletions: &'a Deletions,
}

impl GatewayDeletions<'_> {
    /// Deletes samples of a store that are in the log, in heads of owners and in the bucket. Returns once no
    /// query that sees the returned offsets has them; samples that are written later stay, whatever their
    /// time. Blocks the thread until `deadline_ns` of the monotonic clock at most, and one request longer.
    ///
    /// # Errors
    /// [`DeletionError`].
    pub fn delete(&self, request: GatewayDeletion<'_>, deadline_ns: u64) -> Result<Deleted, DeletionError> {
        let mut pause = PAUSE_MIN;
        let mut running = loop {
            match self.begin(request) {
                Err(error @ DeletionError::Busy { .. }) => {
                    self.pause_until(&mut pause, deadline_ns, error)?
                }
                begun => break begun?,
            }
        };
        let mut pause = PAUSE_MIN;
        loop {
            let why = match self.advance(&mut running) {
                Step::Done(deleted) => return Ok(deleted),
                Step::Waits(why) => why,
            };
            let error = DeletionError::GoesOn { number: running.number(), why };
            self.pause_until(&mut pause, deadline_ns, error)?;
        }
    }

    /// Carries out deletions of several stores, one after the other, as [`GatewayDeletions::delete`].
    ///
    /// # Errors
    /// [`DeletionError`]; those before the failed one are done.
    pub fn delete_all(
        &self,
        requests: &[GatewayDeletion<'_>],
        deadline_ns: u64,
    ) -> Result<Deleted, DeletionError> {
        let mut all = Deleted::default();
        for request in requests {
            let Deleted { offsets, series_count, block_count } = self.delete(*request, deadline_ns)?;
            all.offsets.join(offsets);
            all.series_count += series_count;
            all.block_count += block_count;
        }
        Ok(all)
    }

    /// Adds a deletion to the list. Blocks the thread.
    ///
    /// # Errors
    /// [`DeletionError`] but [`DeletionError::GoesOn`].
    pub fn begin(&self, request: GatewayDeletion<'_>) -> Result<RunningDeletion, DeletionError> {
        let GatewayDeletion { tenant, store, selectors, range, request_id } = request;
        if tenant.as_str() == CLUSTER_FOLDER {
            return Err(GatewayError::ReservedTenant.into());
        }
        // The newest map: a partition that was added before the deletion has to pass its record.
        let refreshed = self.maps.refresh(None);
        refreshed.map_err(|error| GatewayError::NotReady(error.to_string()))?;
        let map = self.maps.current().ok_or_else(|| GatewayError::NotReady(self.maps.missing_text()))?;
        let mut partitions = recent_partitions(&map.map, self.clock.now_ms());
        partitions.sort_unstable();
        let new = NewDeletion {
            tenant: tenant.clone(),
            store,
            request_id: self.deletions.unique_id(request_id),
            selectors: selectors.to_vec(),
            range,
            topic: self.log.identity(),
            partitions,
        };
        check_size(&new, self.clock.now_ms())?;
        match self.deletions.create(&new)? {
            Created::Open(deletion) => {
                let record = encoded(&deletion, self.clock.now_ms())?;
                let count = deletion.partitions.len();
                tracing::info!(number = deletion.number, %tenant, ?store, partitions = count, "began a deletion");
                Ok(RunningDeletion { deletion, record, is_sent: false })
            }
            Created::Busy { number, created_ms } => {
                let age_s = (self.clock.now_ms() - created_ms).max(0) / 1000;
                Err(DeletionError::Busy { number, age_s })
            }
            Created::Full => Err(DeletionError::Full(crate::deletions::DELETIONS_MAX)),
        }
    }

    /// Takes one step of a deletion; returns what it has done once it is done. Repeating it is harmless.
    /// Blocks the thread while the log or the bucket answer.
    ///
    /// # Errors
    /// The reason why it is not done.
    pub fn try_advance(&self, running: &mut RunningDeletion) -> Result<Deleted, String> {
        match self.advance(running) {
            Step::Done(deleted) => Ok(deleted),
            Step::Waits(why) => Err(why),
        }
    }

    fn advance(&self, running: &mut RunningDeletion) -> Step {
        if !running.is_sent {
            match self.send(running) {
                Ok(_) => running.is_sent = true,
                Err(error) => return Step::Waits(format!("its record is not in all partitions: {error}")),
            }
        }
        match self.deletions.settle(&running.deletion) {
            Ok(Settled::Done { series_count, block_count, .. }) => {
                // Without the offsets a read may see the samples until owners have read the list.
                let offsets = self.send(running).unwrap_or_default();
                let number = running.number();
                tracing::info!(number, series_count, block_count, "a deletion is done");
                Step::Done(Deleted { offsets, series_count, block_count })
            }
            Ok(Settled::Missing(partitions)) => Step::Waits(missing_text(&partitions)),
            Ok(Settled::BlocksChange) => Step::Waits("compactions change its blocks".to_owned()),
            Err(TombstonesError::Bucket(error)) => Step::Waits(error.to_string()),
            Err(TombstonesError::Read(error)) => Step::Waits(error.to_string()),
        }
    }

    /// Appends the record to all partitions and waits for the acknowledgements.
    fn send(&self, running: &RunningDeletion) -> Result<LogOffsets, LogError> {
        send_to_all(self.log, &running.deletion.partitions, &running.record)
    }

    fn pause_until(
        &self,
        pause: &mut Duration,
        deadline_ns: u64,
        error: DeletionError,
    ) -> Result<(), DeletionError> {
        let left_ns = deadline_ns.saturating_sub(self.clock.mono_ns());
        if left_ns == 0 {
            return Err(error);
        }
        self.clock.sleep((*pause).min(Duration::from_nanos(left_ns)));
        *pause = (*pause * 2).min(PAUSE_MAX);
        Ok(())
    }
}

fn send_to_all(
    log: &dyn ReplicatedLog,
    partitions: &[PartitionId],
    record: &Bytes,
) -> Result<LogOffsets, LogError> {
    let tickets: Vec<Result<Ticket, LogError>> =
        partitions.iter().map(|number| log.append(*number, record.clone())).collect();
    let mut offsets = LogOffsets::default();
    let mut failure = None;
    for ticket in tickets {
        match ticket.and_then(Ticket::wait) {
            Ok(position) => offsets.note(position),
            Err(error) => failure = Some(error),
        }
    }
    failure.map_or(Ok(offsets), Err)
}

fn encoded(deletion: &ClusterDeletion, now_ms: i64) -> Result<Bytes, RecordTooLarge> {
    let record = record_of(deletion, now_ms).expect("a deletion that was created is open");
    let mut bytes = Vec::new();
    encode_event(&record, &mut bytes)?;
    Ok(Bytes::from(bytes))
}

/// Refuses a deletion whose record would be too long, before it has a number.
fn check_size(new: &NewDeletion, now_ms: i64) -> Result<(), RecordTooLarge> {
    encoded(&new.with_number(u64::MAX, now_ms), now_ms).map(drop)
}

fn missing_text(partitions: &[PartitionId]) -> String {
    let named: Vec<String> = partitions.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    let more = partitions.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("the owners of these partitions have not passed its record: {}{more}", named.join(", "))
}
