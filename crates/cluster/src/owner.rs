//! Owner of a partition: reads its records from the log and applies them to its store, in order.
//!
//! Invariants: a record is applied at the position of the store, which moves with it, so a restart goes on
//! where the store is (ADR 0138); no offset is passed over unless its record is in the bucket or the operator
//! has accepted its loss; a record of a later version stops the owner.
//! Not here: windows that become blocks (`windows`, `publish`), the log itself (`replicated_log`), HTTP
//! (`server`).

mod accepted_gaps;
mod answers;
mod cutting;
mod deletions;
mod error;
mod kept_objects;
mod options;
mod owned;
mod partition_owner;
mod publish;
mod recent_bounds;
mod refused;
mod resume;
mod start_catalogues;
mod status;
mod step_error;
mod store;
mod windows;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::{Clock, Env};
use chronolith_bucket::Store;
use chronolith_format::record::{Cut, Record, RecordDecoder, RecordError, RecordOrigin};
use chronolith_model::log_position::LogPartition;
use chronolith_model::{StoreId, WriteBatch};
use chronolith_replicated_log::{Bounds, LogError, ReadLimits, Record as LogRecord, ReplicatedLog};
use chronolith_tsdb::{ApplyRecordError, RecordEffect, Records, Tsdb, WriteError};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use accepted_gaps::AcceptedGaps;
use cutting::{CutSender, windows_of};
use deletions::{OwnerDeletions, Verdict};
pub use error::{GapTimes, OwnerError};
use kept_objects::KeptObjects;
pub use options::OwnerOptions;
use owned::Owned;
pub use partition_owner::PartitionOwner;
use publish::Publication;
use recent_bounds::RecentBounds;
use refused::RefusedRecords;
use resume::StoredResume;
pub use resume::{StoredPosition, stored_resume};
use start_catalogues::StartCatalogues;
use status::StatusState;
pub use status::{CutStatus, DeletionStatus, NotReady, OwnerStatus};
use step_error::{StepError, log_away, retry};
pub use store::open_store;
use windows::OwnerWindows;

/// Shortest and longest pause after a failure that a repeat may end.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Longest wait for the first record after a gap, whose time is named.
const KEPT_WAIT: Duration = Duration::from_secs(2);

/// Parts of a process that an owner works with.
#[derive(Clone)]
pub struct OwnerParts {
    /// Log of the partition.
    pub log: Arc<dyn ReplicatedLog>,
    /// Bucket of the cluster.
    pub bucket: Arc<Store>,
    /// Runtime of the requests to the bucket. Threads of the owner are not its tasks.
    pub handle: Handle,
    /// Store, opened for the partition ([`open_store`]).
    pub tsdb: Arc<Tsdb>,
    /// Clock and randomness.
    pub env: Env,
}

/// Decoder, and the samples of its last record.
struct Decoding {
    decoder: RecordDecoder,
    batch: WriteBatch,
}

/// Owner of a partition.
pub struct Owner {
    log: Arc<dyn ReplicatedLog>,
    tsdb: Arc<Tsdb>,
    refused: RefusedRecords,
    accepted_gaps: AcceptedGaps,
    clock: Arc<dyn Clock>,
    options: OwnerOptions,
    partition: LogPartition,
    status: StatusState,
    windows: OwnerWindows,
    publication: Publication,
    deletions: Arc<OwnerDeletions>,
    cut_sender: CutSender,
    bounds: RecentBounds,
    start_catalogues: StartCatalogues,
    /// Memory of a record.
    decoding: Mutex<Decoding>,
}

impl Owner {
    /// Returns the owner of the partition that the store was opened for. Its first record is the one at the
    /// position of the store, else the record that the bucket names. Blocks the thread.
    ///
    /// # Errors
    /// [`OwnerError`]: the log cannot be read, is another one, or lacks records from there on.
    ///
    /// # Panics
    /// If the store was not opened for a partition.
    pub fn open(parts: OwnerParts, options: OwnerOptions) -> Result<Owner, OwnerError> {
        let OwnerParts { log, bucket, handle, tsdb, env } = parts;
        let records = tsdb.records().expect("the store of an owner has a partition");
        let partition = records.partition();
        if log.identity() != partition.topic {
            return Err(OwnerError::OtherTopic { expected: partition, found: log.identity() });
        }
        let stored = StoredResume::new(bucket.clone(), &env, handle.clone(), partition);
        let kept = KeptObjects::new(bucket.clone(), env.clock.clone(), handle.clone());
        let accepted_gaps = AcceptedGaps::new(kept.clone());
        let next = match records.next() {
            Some(position) => position.offset,
            None => resume_offset(&stored, &accepted_gaps, &options)?,
        };
        let bounds = log.bounds(partition.number)?;
        if next > bounds.end {
            return Err(OwnerError::LogEndsEarly { partition, next, end: bounds.end });
        }
        if next < bounds.start {
            let lost = next..bounds.start;
            let error = gap(&*log, partition, lost.clone(), String::new(), None);
            if !options.accepts(&lost) {
                return Err(error);
            }
            accepted_gaps.record(partition, &lost, &error.to_string()).map_err(OwnerError::GapRecord)?;
        }
        let windows = match records.next() {
            Some(position) => {
                OwnerWindows::open(&env, &tsdb.cuts(), position).map_err(OwnerError::Directory)?
            }
            None => {
                let first = next.max(bounds.start);
                let dir = tsdb.cuts().data_dir().to_owned();
                let windows = OwnerWindows::create(&env, &dir, partition.at(first));
                let windows = windows.map_err(OwnerError::Directory)?;
                records.start(first)?;
                windows
            }
        };
        let deletions = Arc::new(OwnerDeletions::new(&bucket, &log, &env, &handle, partition));
        let owner = Owner {
            publication: Publication::new(&bucket, &env, &handle, stored, options.clone(), deletions.clone()),
            deletions,
            start_catalogues: StartCatalogues::new(&bucket, &env, &handle),
            refused: RefusedRecords::new(kept),
            accepted_gaps,
            clock: env.clock.clone(),
            status: StatusState::default(),
            cut_sender: CutSender::new(log.clone(), env.clock.clone(), partition),
            bounds: RecentBounds::default(),
            decoding: Mutex::new(Decoding {
                decoder: RecordDecoder::default(),
                batch: WriteBatch::from_labels(),
            }),
            log,
            tsdb,
            options,
            partition,
            windows,
        };
        owner.deletions.start(owned_by(&owner));
        let position = owner.records().next().expect("an owner has a position").offset;
        if position < bounds.start {
            owner.pass_over(bounds.start)?;
        }
        Ok(owner)
    }

    /// Reads and applies records until `is_stopped` is set. Pauses after failures; blocks the thread, which
    /// is none of an async runtime.
    ///
    /// # Errors
    /// [`OwnerError`]: the owner cannot go on without an operator.
    pub fn run(&self, is_stopped: &AtomicBool) -> Result<(), OwnerError> {
        let mut pause = PAUSE_MIN;
        while !is_stopped.load(Ordering::Acquire) {
            match self.run_once()? {
                None => pause = PAUSE_MIN,
                Some(why) => {
                    tracing::warn!(partition = %self.partition, why, "the next record was not applied, it is tried again");
                    self.clock.sleep(pause);
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
        Ok(())
    }

    /// Reads the log once and applies what came, as [`Owner::run`] does again and again: a simulation decides
    /// when. Returns the reason why the same read has to be repeated, if it failed.
    ///
    /// # Errors
    /// As [`Owner::run`].
    pub fn run_once(&self) -> Result<Option<String>, OwnerError> {
        match self.step() {
            Ok(()) => Ok(None),
            Err(StepError::Retry(why) | StepError::LogAway(why) | StepError::Wait(why)) => Ok(Some(why)),
            Err(StepError::Stop(error)) => Err(error),
        }
    }

    /// Returns the partition.
    #[must_use]
    pub fn partition(&self) -> LogPartition {
        self.partition
    }

    /// Publishes the oldest cut of each store once, and drops samples that may leave. Returns true if it has
    /// published something, so that there may be more. To be called again and again next to [`Owner::run`],
    /// by one thread; blocks it, and must not be called from a task of the runtime.
    ///
    /// # Errors
    /// The last failure, which is logged and in the status as well; a later call repeats the work.
    pub fn publish(&self) -> Result<bool, String> {
        let next = self.records().next().expect("an owner has a position");
        let published = self.publication.step(owned_by(self), next);
        if let Err(why) = &published {
            tracing::warn!(partition = %self.partition, why, "publishing cuts failed, it is tried again");
        }
        self.status.set_publication_fault(published.as_ref().err().cloned());
        published
    }

    /// Returns the state of the owner.
    #[must_use]
    pub fn status(&self) -> OwnerStatus {
        self.status.snapshot()
    }

    /// Returns the reason why queries of recent data have to ask another owner, if there is one.
    ///
    /// # Errors
    /// [`NotReady`].
    pub fn check_ready(&self) -> Result<(), NotReady> {
        self.status.check_ready(self.options.ready_lag)
    }

    /// Reads once, and applies what came.
    fn step(&self) -> Result<(), StepError> {
        let result = self.try_step();
        match &result {
            Ok(()) | Err(StepError::Wait(_)) => self.status.set_fault(None),
            Err(StepError::Retry(why)) => self.status.set_fault(Some(why.clone())),
            Err(StepError::LogAway(why)) => self.status.set_log_away(why, self.options.ready_lag),
            Err(StepError::Stop(error)) => {
                tracing::error!(partition = %self.partition, %error, "owner stopped");
                self.status.set_fault(Some(error.to_string()));
            }
        }
        result
    }

    fn try_step(&self) -> Result<(), StepError> {
        let records = self.records();
        let next = records.next().expect("an owner has a position").offset;
        let read = match self.log.read(self.partition.number, next, self.options.read) {
            Ok(read) => read,
            Err(error) => return self.after_failed_read(next, error),
        };
        let mut timestamp_ms = None;
        for record in &read {
            timestamp_ms = Some(record.timestamp_ms);
            match self.take(&records, record) {
                Ok(()) => {}
                Err(StepError::Wait(why)) => {
                    self.note_lag(&records, timestamp_ms)?;
                    return Err(StepError::Wait(why));
                }
                Err(error) => return Err(error),
            }
        }
        self.note_lag(&records, timestamp_ms)?;
        self.send_cut_if_due();
        Ok(())
    }

    /// Publishes the lag after records were applied, the last of them written at `timestamp_ms`.
    fn note_lag(&self, records: &Records<'_>, timestamp_ms: Option<i64>) -> Result<(), StepError> {
        let next = records.next().expect("an owner has a position").offset;
        let ask = || self.log.bounds(self.partition.number).map_err(log_away);
        let bounds = self.bounds.get(self.clock.mono_ns(), next, ask)?;
        // A read without records is at the end: the last offsets may have none.
        let lag_ms = match timestamp_ms {
            Some(written_ms) if next < bounds.end => (self.clock.now_ms() - written_ms).max(0),
            _ => 0,
        };
        self.status.note_lag(next, bounds, lag_ms);
        Ok(())
    }

    fn after_failed_read(&self, next: u64, error: LogError) -> Result<(), StepError> {
        let partition = self.partition;
        let (lost, what) = match error {
            LogError::Damaged { lost, what, .. } => (next..lost.end, what),
            LogError::OffsetOutOfRange { bounds: Bounds { start, .. }, .. } if next < start => {
                (next..start, String::new())
            }
            LogError::OffsetOutOfRange { bounds: Bounds { end, .. }, .. } => {
                return Err(OwnerError::LogEndsEarly { partition, next, end }.into());
            }
            LogError::TopicReplaced { found, .. } => {
                return Err(OwnerError::OtherTopic { expected: partition, found }.into());
            }
            error => return Err(log_away(error)),
        };
        let error = gap(&*self.log, partition, lost.clone(), what, self.status.log_time_ms());
        if !self.options.accepts(&lost) {
            return Err(error.into());
        }
        let recorded = self.accepted_gaps.record(partition, &lost, &error.to_string());
        recorded.map_err(|error| retry(OwnerError::GapRecord(error)))?;
        self.pass_over(lost.end)?;
        Ok(())
    }

    /// Applies a record; one that cannot be applied is kept in the bucket.
    fn take(&self, records: &Records<'_>, log_record: &LogRecord) -> Result<(), StepError> {
        let LogRecord { offset, timestamp_ms, value } = log_record;
        let mut decoding = self.decoding.lock();
        let Decoding { decoder, batch } = &mut *decoding;
        let record = match decoder.decode(value, self.options.source, batch) {
            Ok(record) => record,
            Err(error @ (RecordError::LaterVersion { .. } | RecordError::Protocol { .. })) => {
                return Err(OwnerError::LaterVersion { position: self.partition.at(*offset), error }.into());
            }
            Err(error) => return self.keep_aside(records, *offset, value, &error.to_string()),
        };
        if let Record::Delete { origin, number, .. } = &record {
            let store = store_of_deletion(&self.tsdb, records, origin)?;
            match self.deletions.verdict(*number, *offset, &self.windows, store.as_ref())? {
                Verdict::Apply => {}
                Verdict::Repeat => return self.pass_over_record(records, &record, log_record),
                Verdict::Unknown(why) => return self.keep_aside(records, *offset, value, &why),
            }
        }
        let applied = match self.prepare_and_apply(records, *offset, &record, batch)? {
            // Another process may have created it since databases were read.
            Err(ApplyRecordError::UnknownStore { tenant, .. }) => {
                self.tsdb.databases().read_again(&tenant).map_err(retry)?;
                self.prepare_and_apply(records, *offset, &record, batch)?
            }
            applied => applied,
        };
        match applied {
            Err(ApplyRecordError::DroppedStore) => {
                self.status.note_dropped();
                self.pass_over_record(records, &record, log_record)
            }
            Ok(effect) => {
                self.windows.end_record(*offset);
                let outcome = match effect {
                    RecordEffect::Written(outcome) => Some(outcome),
                    RecordEffect::Deleted(_) | RecordEffect::None => None,
                };
                self.status.note_applied(&record, *timestamp_ms, outcome.as_deref());
                Ok(())
            }
            Err(ApplyRecordError::Write(error)) if !error.never_fits() => Err(error.into()),
            Err(error) => self.keep_aside(records, *offset, value, &error.to_string()),
        }
    }

    /// Moves the position after a record that changes nothing.
    fn pass_over_record(
        &self,
        records: &Records<'_>,
        record: &Record,
        log_record: &LogRecord,
    ) -> Result<(), StepError> {
        records.skip(log_record.offset)?;
        self.windows.end_record(log_record.offset);
        self.status.note_applied(record, log_record.timestamp_ms, None);
        Ok(())
    }

    fn prepare_and_apply(
        &self,
        records: &Records<'_>,
        offset: u64,
        record: &Record,
        batch: &WriteBatch,
    ) -> Result<Result<RecordEffect, ApplyRecordError>, StepError> {
        Ok(match self.prepare(records, offset, record, batch)? {
            Ok(()) => records.apply(offset, record, batch),
            Err(error) => Err(error),
        })
    }

    /// Notes the windows of a record, or takes the windows of a cut, before it is applied.
    fn prepare(
        &self,
        records: &Records<'_>,
        offset: u64,
        record: &Record,
        batch: &WriteBatch,
    ) -> Result<Result<(), ApplyRecordError>, StepError> {
        match record {
            Record::Samples { origin, .. } => {
                let store = match records.store_of(origin) {
                    Ok(store) => store,
                    Err(error) => return Ok(Err(error)),
                };
                let log_ms = self.status.log_time_ms().unwrap_or(origin.arrival_ms);
                let position = self.partition.at(offset);
                self.windows.note_samples(&store, &batch.times, position, log_ms).map_err(retry)?;
            }
            Record::Cut(cut) => self.cut_windows(offset, cut).map_err(retry)?,
            Record::Delete { .. } | Record::Tick { .. } => {}
        }
        Ok(Ok(()))
    }

    /// Keeps a record that cannot be applied in the bucket, and moves the position after it.
    fn keep_aside(
        &self,
        records: &Records<'_>,
        offset: u64,
        value: &Bytes,
        why: &str,
    ) -> Result<(), StepError> {
        if self.status.refused_count() >= self.options.refused_max {
            let position = self.partition.at(offset);
            let error = OwnerError::TooManyRefused { position, why: why.to_owned() };
            return Err(error.into());
        }
        self.refused.keep(self.partition, offset, value).map_err(retry)?;
        tracing::error!(partition = %self.partition, offset, why, "record not applied, its bytes are in the bucket");
        self.status.note_refused(offset);
        records.skip(offset)?;
        self.windows.end_record(offset);
        Ok(())
    }

    /// Moves the position to `next`, before which no record is left.
    fn pass_over(&self, next: u64) -> Result<(), WriteError> {
        // A position is after a record.
        let Some(last) = next.checked_sub(1) else { return Ok(()) };
        self.records().skip(last)?;
        self.windows.end_record(last);
        Ok(())
    }

    /// Appends a cut if a window is due. An owner that reads old records finds the cuts of that time in the
    /// log.
    fn send_cut_if_due(&self) {
        if let Some(log_ms) = self.status.log_time_ms()
            && self.status.is_near_end(self.options.ready_lag)
        {
            self.cut_sender.send_if_due(&self.windows, log_ms, self.tsdb.cuts().delay_ms());
        }
    }

    /// Takes the windows of a cut, before its record is applied.
    fn cut_windows(&self, offset: u64, cut: &Cut) -> Result<(), String> {
        let cuts = self.tsdb.cuts();
        let time_ms = self.status.log_time_ms().unwrap_or(cut.arrival_ms);
        self.windows.cut(&cuts, self.partition.at(offset), time_ms, windows_of(cut, &cuts))?;
        self.cut_sender.note_applied(cut.before_ms);
        Ok(())
    }

    fn records(&self) -> Records<'_> {
        self.tsdb.records().expect("the store of an owner has a partition")
    }
}

fn owned_by(owner: &Owner) -> Owned<'_> {
    Owned { windows: &owner.windows, tsdb: &owner.tsdb, status: &owner.status }
}

/// Returns the store of a deletion; `None` if it was dropped, or if the bucket does not have it. Reads the
/// databases again for one that was created lately: its readers need the tombstones too.
fn store_of_deletion(
    tsdb: &Tsdb,
    records: &Records<'_>,
    origin: &RecordOrigin,
) -> Result<Option<StoreId>, StepError> {
    if let Err(ApplyRecordError::UnknownStore { tenant, .. }) = records.store_of(origin) {
        tsdb.databases().read_again(&tenant).map_err(retry)?;
    }
    Ok(records.store_of(origin).ok())
}

/// Returns the offset of the first record of an owner whose directory has no position.
fn resume_offset(
    stored: &StoredResume,
    accepted_gaps: &AcceptedGaps,
    options: &OwnerOptions,
) -> Result<u64, OwnerError> {
    let partition = stored.partition();
    match stored.read()? {
        None => Ok(0),
        Some(StoredPosition { position, .. }) if position.log_partition() == partition => Ok(position.offset),
        Some(other) => {
            let offset = other.position.offset;
            let lost = offset..offset + 1;
            let error = OwnerError::TopicMadeAgain { stored: other, found: partition.topic };
            if !options.accepts(&lost) {
                return Err(error);
            }
            accepted_gaps.record(partition, &lost, &error.to_string()).map_err(OwnerError::GapRecord)?;
            Ok(0)
        }
    }
}

/// Returns the error of lost records, with the times of the records around them.
fn gap(
    log: &dyn ReplicatedLog,
    partition: LogPartition,
    lost: Range<u64>,
    what: String,
    after_ms: Option<i64>,
) -> OwnerError {
    let limits = ReadLimits { bytes_max: 1, wait: KEPT_WAIT };
    let kept = log.read(partition.number, lost.end, limits).ok();
    let before_ms = kept.and_then(|kept| Some(kept.first()?.timestamp_ms));
    OwnerError::Gap { partition, lost, times: GapTimes { after_ms, before_ms }, what }
}

#[cfg(test)]
mod tests;
