//! Gateway: a batch becomes records of the replicated log, one or more per partition of its tenant.
//!
//! Invariants: a request is acknowledged once the log has acknowledged each of its records; series with
//! labels that are not valid are left out and counted, the others go into the log; a batch that is refused
//! for its size or its rate has no record. Memory of records counts until their outcome is known.
//! Not here: protocols (`ingest`), permits of requests (`service`), decisions that need a store (owners).

mod checked_keys;
mod deletion;
mod error;
mod graphite_stores;
mod pending;
mod records;
mod series_counts;
mod ticks;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_base::{Clock, Env, MemoryBudget};
use chronolith_bucket::Store;
use chronolith_format::bucket::partitions::PartitionsSnapshot;
use chronolith_format::record::RecordOrigin;
use chronolith_model::databases::BucketStoreId;
use chronolith_model::{DuplicatePolicy, StoreId, TenantId, TenantLimits, WriteBatch, WriteOutcome};
use chronolith_replicated_log::{LogError, LogStats, ReplicatedLog, Ticket};
use chronolith_tsdb::{IngestionRates, LimitsTable, RequestSize, limits_of_policies};
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;

pub use self::deletion::{Deleted, DeletionError, GatewayDeletion, GatewayDeletions, RunningDeletion};
pub use self::error::{GatewayError, GatewayFault};
pub use self::pending::{Acknowledged, LogOffsets, PendingRecords};
pub use chronolith_format::record::RecordStore;

use self::checked_keys::{CheckTerms, CheckedKeys};
use self::graphite_stores::GraphiteStores;
use self::records::{Records, Scratch};
use self::series_counts::SeriesCounts;
use self::ticks::Ticks;
use crate::deletions::Deletions;
use crate::folder::CLUSTER_FOLDER;
use crate::options::GatewayOptions;
use crate::partition_maps::{PartitionMaps, RefreshError};
use crate::partition_states::recent_partitions;

/// Buffers that are kept for the next batches, and series of a batch after which they are.
const SCRATCH_COUNT_MAX: usize = 16;
const SCRATCH_SERIES_MAX: usize = 100_000;

/// Parts of a server that a gateway uses.
pub struct GatewayParts {
    /// The log.
    pub log: Arc<dyn ReplicatedLog>,
    /// The bucket, which has the partition map.
    pub bucket: Arc<Store>,
    /// Runtime of requests to the bucket.
    pub handle: Handle,
    /// Memory of records that wait for their acknowledgement.
    pub memory: MemoryBudget,
    /// Limits of all tenants.
    pub limits: LimitsTable,
}

/// Request that a batch belongs to.
#[derive(Clone, Copy)]
pub struct GatewayWrite<'a> {
    /// The tenant.
    pub tenant: &'a TenantId,
    /// Store of the samples.
    pub store: RecordStore,
    /// Id under which owners list what they refuse.
    pub request_id: &'a dyn fmt::Display,
    /// Clock when the request came, milliseconds since 1970.
    pub arrival_ms: i64,
    /// Policy for a second value at a timestamp; `None` = the policy of the tenant.
    pub duplicates: Option<DuplicatePolicy>,
}

/// State of a gateway for its metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GatewayStats {
    /// Counters of the log.
    pub log: LogStats,
    /// Number of the partition map in use; 0 before it is read.
    pub map_number: u64,
    /// Partitions that accept writes.
    pub partition_count: usize,
    /// Reads of the partition map that failed.
    pub map_failures: u64,
    /// Rounds of ticks that the log did not acknowledge.
    pub tick_failures: u64,
    /// Wire keys in memory whose labels were valid.
    pub checked_keys: usize,
    /// Tenants whose series counts owners report.
    pub counted_tenant_count: usize,
    /// Tenants with as many series as their limit allows, as owners report them.
    pub full_tenant_count: usize,
}

/// Writer of requests into the log.
pub struct Gateway {
    log: Arc<dyn ReplicatedLog>,
    clock: Arc<dyn Clock>,
    memory: MemoryBudget,
    options: GatewayOptions,
    limits: RwLock<LimitsTable>,
    rates: IngestionRates,
    maps: PartitionMaps,
    graphite: GraphiteStores,
    deletions: Deletions,
    ticks: Ticks,
    tick_failures: AtomicU64,
    checked_keys: CheckedKeys,
    series_counts: SeriesCounts,
    scratch: Mutex<Vec<Scratch>>,
    /// Reason why the log cannot be used, as of the last refresh.
    log_fault: Mutex<Option<String>>,
}

impl Gateway {
    /// A gateway without a partition map, which [`Gateway::refresh`] reads. Sends no request.
    #[must_use]
    pub fn new(env: &Env, parts: GatewayParts, options: GatewayOptions) -> Gateway {
        let GatewayParts { log, bucket, handle, memory, limits } = parts;
        Gateway {
            maps: PartitionMaps::new(bucket.clone(), env, handle.clone()),
            deletions: Deletions::new(bucket.clone(), env, handle.clone()),
            graphite: GraphiteStores::new(bucket, env, handle),
            ticks: Ticks::default(),
            tick_failures: AtomicU64::new(0),
            checked_keys: CheckedKeys::new(env.rng.next_u64(), env.clock.mono_ns()),
            series_counts: SeriesCounts::default(),
            log,
            clock: env.clock.clone(),
            memory,
            options,
            limits: RwLock::new(limits),
            rates: IngestionRates::default(),
            scratch: Mutex::default(),
            log_fault: Mutex::default(),
        }
    }

    /// Replaces the limits of all tenants.
    pub fn set_limits(&self, limits: LimitsTable) {
        *self.limits.write() = limits;
    }

    /// Replaces the series counts of tenants, as owners report them: new series of tenants that have
    /// reached their limit are refused. Without a call none is.
    pub fn set_tenant_series(&self, counts: BTreeMap<TenantId, u64>) {
        self.series_counts.set(counts);
    }

    /// Returns the limits of a tenant.
    #[must_use]
    pub fn limits_of(&self, tenant: &TenantId) -> TenantLimits {
        self.limits.read().of(tenant).clone()
    }

    /// Asks the log for its partitions and reads the partition map; creates it with all partitions of the log
    /// if the bucket has none. Blocks; must not be called from a task of the runtime.
    ///
    /// # Errors
    /// [`RefreshError`]: the map before it stays in use.
    pub fn refresh(&self) -> Result<(), RefreshError> {
        let found = self.log.partition_count();
        *self.log_fault.lock() = found.as_ref().err().map(ToString::to_string);
        let read = self.maps.refresh(found.as_ref().ok().copied());
        let count = found.map_err(RefreshError::Log)?;
        read?;
        let last = self.maps.current().and_then(|snapshot| snapshot.map.accepting().last().copied());
        if let Some(last) = last.filter(|last| *last >= count) {
            let text = format!("the partition map has partition {last}, and the log has {count} partitions");
            *self.log_fault.lock() = Some(text);
        }
        Ok(())
    }

    /// Returns the reason why writes cannot succeed, as of the last refresh; `None` = ready.
    #[must_use]
    pub fn unready_reason(&self) -> Option<String> {
        if let Some(why) = self.log_fault.lock().as_ref() {
            return Some(format!("the replicated log cannot be used: {why}"));
        }
        match self.maps.current() {
            Some(_) => None,
            None => Some(self.maps.missing_text()),
        }
    }

    /// Returns the Graphite store of a tenant; creates it in the databases of the bucket if there is none.
    /// The first call for a tenant reads the bucket, and blocks the thread.
    ///
    /// # Errors
    /// [`GatewayError::ReservedTenant`], and [`GatewayError::NotReady`] if the bucket does not answer.
    pub fn graphite_store(&self, tenant: &TenantId) -> Result<RecordStore, GatewayError> {
        if tenant.as_str() == CLUSTER_FOLDER {
            return Err(GatewayError::ReservedTenant);
        }
        let ensured = self.graphite.ensure(tenant);
        ensured.map_err(|why| GatewayError::NotReady(format!("the Graphite store of the tenant: {why}")))?;
        Ok(RecordStore::Graphite(BucketStoreId::GRAPHITE))
    }

    /// Returns the Graphite store of a tenant if the databases of the bucket have it. Blocks the thread.
    ///
    /// # Errors
    /// [`GatewayError::NotReady`] if the bucket does not answer.
    pub fn existing_graphite_store(&self, tenant: &TenantId) -> Result<Option<RecordStore>, GatewayError> {
        let found = self.graphite.exists(tenant);
        let exists = found
            .map_err(|why| GatewayError::NotReady(format!("the Graphite store of the tenant: {why}")))?;
        Ok(exists.then_some(RecordStore::Graphite(BucketStoreId::GRAPHITE)))
    }

    /// Checks a batch, and appends its records to the log. They are not acknowledged yet. Blocks the thread
    /// while there is no room among the records in flight, at most the acknowledgement timeout of the log.
    /// Cost: one pass over keys and samples; a wire key that was not seen lately is parsed.
    ///
    /// # Errors
    /// [`GatewayError`]: the request is not acknowledged; [`GatewayError::may_be_written`] tells if records
    /// of it may be in the log.
    pub fn append(
        &self,
        write: GatewayWrite<'_>,
        batch: &WriteBatch,
    ) -> Result<PendingRecords, GatewayError> {
        if write.tenant.as_str() == CLUSTER_FOLDER {
            return Err(GatewayError::ReservedTenant);
        }
        let limits = self.limits_of(write.tenant);
        let series_max = limits.series_max;
        // Owners report the series of default stores alone.
        let full = match write.store {
            RecordStore::Default => self.series_counts.full(write.tenant, &limits),
            RecordStore::Database(_) | RecordStore::Graphite(_) => None,
        };
        let limits = match write.store {
            RecordStore::Default => limits,
            RecordStore::Database(_) | RecordStore::Graphite(_) => limits_of_policies(limits),
        };
        // One rate for all stores of a tenant, since a gateway knows no stores.
        let tenant = StoreId::from(write.tenant);
        let size = RequestSize::of(batch);
        let now_ns = self.clock.mono_ns();
        self.rates.take(&tenant, &limits, size, now_ns).map_err(GatewayError::Limit)?;
        let terms = CheckTerms { limits: &limits, full, now_ns };
        let kept = self.scratch.lock().pop();
        let mut scratch = kept.unwrap_or_else(|| Scratch::new(self.options.packs_records));
        let appended = self.append_with(&mut scratch, write, batch, terms, series_max);
        let mut kept = self.scratch.lock();
        if kept.len() < SCRATCH_COUNT_MAX && batch.series.len() <= SCRATCH_SERIES_MAX {
            kept.push(scratch);
        }
        drop(kept);
        appended.inspect_err(|error| {
            if !error.may_be_written() {
                self.rates.give_back(&tenant, &limits, size);
            }
        })
    }

    fn append_with(
        &self,
        scratch: &mut Scratch,
        write: GatewayWrite<'_>,
        batch: &WriteBatch,
        terms: CheckTerms<'_>,
        series_max: usize,
    ) -> Result<PendingRecords, GatewayError> {
        let snapshot = self.maps.current().ok_or_else(|| GatewayError::NotReady(self.maps.missing_text()))?;
        let accepting_count = snapshot.map.accepting().len();
        let count = self.options.tenant_partition_count(series_max, accepting_count);
        let partitions = snapshot.map.tenant(write.tenant, count);
        let outcome = self.checked_keys.check(batch, terms, &mut scratch.keys);
        let origin = RecordOrigin {
            tenant: write.tenant.clone(),
            store: write.store,
            request_id: write.request_id.to_string(),
            arrival_ms: write.arrival_ms,
        };
        let duplicates = write.duplicates.unwrap_or(terms.limits.duplicates);
        let records = scratch.encode(&origin, duplicates, batch, &partitions, &self.memory)?;
        self.append_records(records, outcome)
    }

    fn append_records(
        &self,
        records: Records,
        outcome: WriteOutcome,
    ) -> Result<PendingRecords, GatewayError> {
        let Records { list, held } = records;
        self.ticks.note_written(list.iter().map(|(partition, _)| *partition));
        let mut tickets: Vec<Ticket> = Vec::with_capacity(list.len());
        for (partition, bytes) in list {
            match self.log.append(partition, bytes) {
                Ok(ticket) => tickets.push(ticket),
                Err(error) => {
                    // Records that the log has taken are appended all the same.
                    let others_may_be = !tickets.is_empty();
                    return Err(GatewayError::of_log(error, others_may_be));
                }
            }
        }
        Ok(PendingRecords::new(tickets, outcome, held))
    }

    /// Appends a tick to each partition that accepts writes, or did so until recently, and to which this
    /// gateway has appended nothing since the last call, and waits for them; returns their number. To be
    /// called every few seconds; blocks the thread, at most the acknowledgement timeout of the log.
    ///
    /// # Errors
    /// [`LogError`] of the first tick that is not acknowledged.
    pub fn tick(&self) -> Result<usize, LogError> {
        let Some(snapshot) = self.maps.current() else { return Ok(0) };
        let now_ms = self.clock.now_ms();
        let partitions = recent_partitions(&snapshot.map, now_ms);
        let ticked = self.ticks.append_due(&*self.log, &partitions, now_ms);
        if ticked.is_err() {
            self.tick_failures.fetch_add(1, Ordering::Relaxed);
        }
        ticked
    }

    /// Returns the deletions of the gateway.
    #[must_use]
    pub fn deletions(&self) -> GatewayDeletions<'_> {
        GatewayDeletions {
            log: &*self.log,
            clock: &*self.clock,
            maps: &self.maps,
            deletions: &self.deletions,
        }
    }

    /// Returns the partition map in use.
    #[must_use]
    pub fn partition_map(&self) -> Option<Arc<PartitionsSnapshot>> {
        self.maps.current()
    }

    fn full_tenant_count(&self) -> usize {
        let limits = self.limits.read();
        self.series_counts.full_count(|tenant| limits.of(tenant))
    }

    /// Returns the state for metrics.
    #[must_use]
    pub fn stats(&self) -> GatewayStats {
        let snapshot = self.maps.current();
        GatewayStats {
            log: self.log.stats(),
            map_number: snapshot.as_ref().map_or(0, |snapshot| snapshot.stamp.number),
            partition_count: snapshot.map_or(0, |snapshot| snapshot.map.accepting().len()),
            map_failures: self.maps.failure_count(),
            tick_failures: self.tick_failures.load(Ordering::Relaxed),
            checked_keys: self.checked_keys.len(),
            counted_tenant_count: self.series_counts.len(),
            full_tenant_count: self.full_tenant_count(),
        }
    }
}

#[cfg(test)]
mod tests;
