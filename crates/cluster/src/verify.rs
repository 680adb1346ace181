//! Check of a partition: each sample that the log has is in a live block, or in the records that an owner has
//! to read.
//!
//! Invariant: reads alone; nothing is changed. Memory does not grow with the length of the log.
//! Not here: content of blocks, which `bucket` tools verify; heads of owners.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use chronolith_base::Env;
use chronolith_bucket::snapshots::SnapshotReader;
use chronolith_bucket::{BucketError, Folder, Purpose, RequestContext, Store};
use chronolith_format::bucket::catalogue::Snapshot;
use chronolith_format::record::{Cut, CutScope, Record, RecordStore, decode_record};
use chronolith_model::log_position::{LogPartition, PartitionId, TopicId};
use chronolith_model::{LabelSource, StoreId, TenantId, TimeRange, WriteBatch};
use chronolith_replicated_log::{LogError, ReadLimits, ReplicatedLog};
use chronolith_tsdb::Cuts;
use tokio::runtime::Handle;

use crate::folder::store_folder;
use crate::owner::stored_resume;

/// Longest time of reading a catalogue.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Limits of one read of the log.
const READ: ReadLimits = ReadLimits { bytes_max: 8 << 20, wait: Duration::from_millis(200) };
/// Reads in a row without a record after which the log counts as unavailable.
const EMPTY_READS_MAX: u32 = 50;
/// Findings that are listed.
const FINDINGS_MAX: usize = 1000;
/// Windows without a published cut that a check keeps, about 200 bytes each.
const WINDOWS_MAX: usize = 1_000_000;
/// Catalogues whose cut a check keeps; more are read again.
const CATALOGUES_MAX: usize = 100_000;

/// Parts of a process that a check works with.
#[derive(Clone)]
pub struct VerifyParts {
    /// Log of the partition.
    pub log: Arc<dyn ReplicatedLog>,
    /// Bucket of the cluster.
    pub bucket: Arc<Store>,
    /// Runtime of the requests to the bucket. A check must not be called from one of its tasks.
    pub handle: Handle,
    /// Clock.
    pub env: Env,
    /// Parser of the wire keys of a protocol, by its number.
    pub source: fn(u8) -> Option<LabelSource>,
}

/// Samples that no owner will find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// The log has lost records that owners have to read.
    LostRecords(Range<u64>),
    /// A window has samples that owners do not read again, and the catalogue has no cut of it after them.
    Unpublished {
        /// The tenant.
        tenant: TenantId,
        /// The store.
        store: RecordStore,
        /// The window, in the unit of the store.
        window: TimeRange,
        /// Newest record with one of the samples.
        offset: u64,
    },
    /// The bucket has an offset to resume from that is one of another topic.
    OtherTopic(TopicId),
    /// The offset to resume from is after the end of the log.
    ResumeAfterEnd,
}

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verification {
    /// Offsets that the log has.
    pub log: Range<u64>,
    /// Offset from which on an owner without a directory reads.
    pub resume: u64,
    /// Records that were read.
    pub record_count: u64,
    /// Samples of records before `resume`.
    pub published_sample_count: u64,
    /// Samples of records from `resume` on, which may be in no block.
    pub recent_sample_count: u64,
    /// Records that cannot be decoded; owners keep them aside.
    pub undecodable_count: u64,
    /// Findings, the first ones if there are many.
    pub findings: Vec<Finding>,
}

/// The check could not be completed.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The bucket cannot be read.
    #[error(transparent)]
    Bucket(#[from] BucketError),
    /// The log does not return a record within its bounds.
    #[error("the log returns no record at offset {0}, before its end")]
    Stuck(u64),
    /// The check would need too much memory.
    #[error("more than {WINDOWS_MAX} windows of stores have no published cut before offset {0}")]
    TooManyWindows(u64),
}

/// Progress of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifyProgress {
    /// First offset of the log.
    pub start: u64,
    /// Offset of the next record.
    pub next: u64,
    /// Offset after the last record that is read.
    pub end: u64,
}

/// Checks a partition. Blocks the thread. Cost: reads all records of the partition once, and the catalogue of
/// each store that they name. Memory: one read of the log, and windows and stores within limits.
///
/// # Errors
/// [`VerifyError`].
pub fn verify_partition(parts: &VerifyParts, number: PartitionId) -> Result<Verification, VerifyError> {
    verify_partition_with(parts, number, &mut |_| ())
}

/// Checks a partition as [`verify_partition`], and calls `progress` after each read of the log.
///
/// # Errors
/// [`VerifyError`].
pub fn verify_partition_with(
    parts: &VerifyParts,
    number: PartitionId,
    progress: &mut dyn FnMut(VerifyProgress),
) -> Result<Verification, VerifyError> {
    let partition = LogPartition { topic: parts.log.identity(), number };
    // Before the bounds: the log only grows after the offset that is read first.
    let stored = stored_resume(&parts.bucket, &parts.env, &parts.handle, number)?;
    let bounds = parts.log.bounds(number)?;
    let mut findings = Vec::new();
    let resume = match stored {
        Some(position) if position.log_partition() == partition => position.offset,
        Some(other) => {
            findings.push(Finding::OtherTopic(other.topic));
            0
        }
        None => 0,
    };
    if resume > bounds.end {
        findings.push(Finding::ResumeAfterEnd);
    }
    if resume < bounds.start {
        findings.push(Finding::LostRecords(resume..bounds.start));
    }
    let mut check = Check { parts, partition, resume, waiting: BTreeMap::new(), catalogues: BTreeMap::new() };
    let mut verification = Verification {
        log: bounds.start..bounds.end,
        resume,
        record_count: 0,
        published_sample_count: 0,
        recent_sample_count: 0,
        undecodable_count: 0,
        findings,
    };
    check.read_all(&mut verification, progress)?;
    let left = check.waiting.into_iter().map(|((tenant, store, window), offset)| Finding::Unpublished {
        tenant,
        store: store.0,
        window,
        offset,
    });
    let room = FINDINGS_MAX.saturating_sub(verification.findings.len());
    verification.findings.extend(left.take(room));
    Ok(verification)
}

/// Store of a record, ordered by its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OrderedStore(RecordStore);

impl OrderedStore {
    fn key(self) -> (u8, [u8; 16]) {
        match self.0 {
            RecordStore::Default => (0, [0; 16]),
            RecordStore::Database(id) => (1, id.to_bytes()),
            RecordStore::Graphite(id) => (2, id.to_bytes()),
        }
    }

    /// Any store with its unit.
    fn as_local(self) -> StoreId {
        match self.0 {
            RecordStore::Default => StoreId::anonymous(),
            RecordStore::Database(_) => StoreId::Database { number: 0 },
            RecordStore::Graphite(_) => StoreId::Graphite { number: 0 },
        }
    }
}

impl PartialOrd for OrderedStore {
    fn partial_cmp(&self, other: &OrderedStore) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OrderedStore {
    fn cmp(&self, other: &OrderedStore) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// A check that runs.
struct Check<'a> {
    parts: &'a VerifyParts,
    partition: LogPartition,
    resume: u64,
    /// Newest record before `resume` of each window that no published cut has taken since.
    waiting: BTreeMap<(TenantId, OrderedStore, TimeRange), u64>,
    /// Newest published cut of each folder.
    catalogues: BTreeMap<Folder, Option<u64>>,
}

impl Check<'_> {
    fn read_all(
        &mut self,
        verification: &mut Verification,
        progress: &mut dyn FnMut(VerifyProgress),
    ) -> Result<(), VerifyError> {
        let mut batch = WriteBatch::from_labels();
        let Range { start, end } = verification.log;
        let mut next = start;
        let mut empty_count = 0;
        while next < end {
            let records = self.parts.log.read(self.partition.number, next, READ)?;
            empty_count = if records.is_empty() { empty_count + 1 } else { 0 };
            if empty_count > EMPTY_READS_MAX {
                return Err(VerifyError::Stuck(next));
            }
            for record in records {
                next = record.offset + 1;
                verification.record_count += 1;
                match decode_record(&record.value, self.parts.source, &mut batch) {
                    Ok(Record::Samples { origin, .. }) if record.offset < self.resume => {
                        verification.published_sample_count += batch.times.len() as u64;
                        let store = OrderedStore(origin.store);
                        self.note_samples(&origin.tenant, store, &batch.times, record.offset);
                    }
                    Ok(Record::Samples { .. }) => {
                        verification.recent_sample_count += batch.times.len() as u64;
                    }
                    Ok(Record::Cut(cut)) => self.note_cut(&cut, record.offset)?,
                    Ok(_) => {}
                    Err(_) => verification.undecodable_count += 1,
                }
            }
            if self.waiting.len() > WINDOWS_MAX {
                return Err(VerifyError::TooManyWindows(next));
            }
            progress(VerifyProgress { start, next, end });
        }
        Ok(())
    }

    fn note_samples(&mut self, tenant: &TenantId, store: OrderedStore, times: &[i64], offset: u64) {
        let mut last = TimeRange::new(0, 0);
        for &time in times {
            if !last.contains(time) {
                last = Cuts::window_of(&store.as_local(), time);
                self.waiting.insert((tenant.clone(), store, last), offset);
            }
        }
    }

    /// Takes the windows of a cut whose blocks are live.
    fn note_cut(&mut self, cut: &Cut, offset: u64) -> Result<(), VerifyError> {
        let is_in_scope = |tenant: &TenantId, store: OrderedStore| match &cut.scope {
            Some(CutScope { tenant: only, store: only_store }) => only == tenant && *only_store == store.0,
            None => true,
        };
        let mut published = Vec::new();
        for (tenant, store, window) in self.waiting.keys() {
            let end_ms = store.0.time_unit().to_ms_ceil(window.end);
            if end_ms <= cut.before_ms && is_in_scope(tenant, *store) {
                published.push((tenant.clone(), *store, *window));
            }
        }
        for key in published {
            if self.cut_of(store_folder(&key.0, key.1.0))? >= Some(offset) {
                self.waiting.remove(&key);
            }
        }
        Ok(())
    }

    fn cut_of(&mut self, folder: Folder) -> Result<Option<u64>, VerifyError> {
        if let Some(known) = self.catalogues.get(&folder) {
            return Ok(*known);
        }
        let VerifyParts { bucket, handle, env, .. } = self.parts;
        let request = RequestContext::with_timeout(&*env.clock, &folder, TIMEOUT, Purpose::Tool);
        let reader: SnapshotReader<Snapshot> = SnapshotReader::of_kind(bucket.clone(), env.clock.clone());
        let latest = handle.block_on(reader.read_latest(&request))?;
        let cut = latest.and_then(|latest| latest.snapshot.cut_of(self.partition));
        if self.catalogues.len() >= CATALOGUES_MAX {
            self.catalogues.clear();
        }
        self.catalogues.insert(folder, cut);
        Ok(cut)
    }
}
