//! Counters and sizes of the head, for metrics and status pages.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use chronolith_model::TenantId;

use crate::index::tables::Cardinality;
use crate::index::tenant::TenantHead;
use crate::memory_part::MemoryPart;
use crate::recovery::progress::ReplayReport;
use crate::series::page_runs;
use crate::series::stripe::SeriesState;
use crate::series::verify::SealedVerification;
use crate::state::HeadState;
use crate::write::Writer;

/// Counters since startup, and current sizes.
#[derive(Debug, Clone, Default)]
pub struct HeadStats {
    /// Series of all tenants.
    pub series: u64,
    /// Tenants with series.
    pub tenants: u64,
    /// Chunks: open, out-of-order, sealed.
    pub chunks: u64,
    /// Timestamp of the oldest sample of all tenants.
    pub min_time_ms: Option<i64>,
    /// Timestamp of the newest sample of all tenants.
    pub max_time_ms: Option<i64>,
    /// Bytes of WAL segments and checkpoint.
    pub wal_bytes: u64,
    /// Bytes of WAL segments alone: what a checkpoint would free.
    pub wal_segment_bytes: u64,
    /// Syncs of the WAL.
    pub wal_sync_count: u64,
    /// Nanoseconds spent in syncs of the WAL.
    pub wal_sync_ns: u64,
    /// Writes of the WAL, each for one or more batches.
    pub wal_batch_count: u64,
    /// Bytes written to the WAL.
    pub wal_written_bytes: u64,
    /// Spare WAL segments, prepared or recycled.
    pub wal_spare_count: u64,
    /// Bytes of spare WAL segments.
    pub wal_spare_bytes: u64,
    /// Segments created from a spare.
    pub wal_spare_used_count: u64,
    /// Segments created without one, because none was ready.
    pub wal_spare_missing_count: u64,
    /// Bytes queued for the WAL.
    pub wal_pending_bytes: u64,
    /// Set if the WAL is poisoned.
    pub wal_poisoned: bool,
    /// Set if writes are refused because the disk is full.
    pub disk_full: bool,
    /// Samples accepted since startup, duplicates included.
    pub samples_appended: u64,
    /// Accepted samples that were out of order.
    pub samples_out_of_order: u64,
    /// Out-of-order samples encoded as chunks since startup.
    pub samples_ooo_sealed: u64,
    /// Ids available for new series.
    pub series_ids_left: u64,
    /// Accepted samples that were duplicates.
    pub samples_repeated: u64,
    /// Accepted samples that replaced another value.
    pub samples_replaced: u64,
    /// Accepted samples whose start timestamp was stored.
    pub samples_with_start: u64,
    /// Samples deleted since startup.
    pub samples_deleted: u64,
    /// Bytes of open chunks and out-of-order samples of native histograms.
    pub histogram_bytes: u64,
    /// Number of times that histograms of a series were sealed early because of the memory limit for
    /// histograms.
    pub histograms_sealed_early: u64,
    /// Series created since startup.
    pub series_created: u64,
    /// Whole checkpoints written since startup.
    pub checkpoint_count: u64,
    /// Bytes of the newest copies of all slices, and of the series file.
    pub checkpoint_bytes: u64,
    /// Slices written since startup.
    pub slice_count: u64,
    /// Bytes of slices and series records written since startup.
    pub slice_bytes: u64,
    /// Bytes of WAL that a restart would replay, at the last checkpoint step.
    pub tail_bytes: u64,
    /// Estimated milliseconds of that replay.
    pub tail_ms: u64,
    /// Number of sealed files.
    pub sealed_files: u64,
    /// Bytes of sealed files.
    pub sealed_bytes: u64,
    /// Duration of the replay at startup in milliseconds.
    pub replay_ms: u64,
    /// Damage found by the replay, as messages.
    pub replay_notes: Vec<String>,
    /// Damaged sealed files found after startup, as messages.
    pub sealed_damages: Vec<String>,
}

/// Sizes of one tenant in the head.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantStats {
    /// Chunks: open, out-of-order, sealed.
    pub chunk_count: u64,
    /// Timestamp of the oldest sample; `None` without samples.
    pub min_time_ms: Option<i64>,
    /// Timestamp of the newest sample.
    pub max_time_ms: Option<i64>,
}

/// Memory of one tenant in the head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantMemory {
    /// The tenant.
    pub tenant: TenantId,
    /// Number of its series.
    pub series_count: u64,
    /// Bytes of its own index, plus its share, by series, of the memory that all tenants share.
    pub bytes: u64,
}

/// Counters, sizes and memory of the head.
pub struct HeadStatistics {
    state: Arc<HeadState>,
    writer: Arc<Writer>,
    sealed_verification: Arc<SealedVerification>,
    replay: ReplayReport,
}

impl HeadStatistics {
    pub(crate) fn new(
        state: Arc<HeadState>,
        writer: Arc<Writer>,
        sealed_verification: Arc<SealedVerification>,
        replay: ReplayReport,
    ) -> HeadStatistics {
        HeadStatistics { state, writer, sealed_verification, replay }
    }

    /// Returns counters and sizes. Cost: visits each stripe and tenant.
    #[must_use]
    pub fn stats(&self) -> HeadStats {
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let (counters, wal) = (&self.state.counters, self.state.wal.stats());
        let (sealed_files, sealed_bytes) = self.state.series.store.sizes();
        let mut stats = HeadStats {
            wal_segment_bytes: wal.segment_bytes,
            wal_bytes: wal.segment_bytes + load(&counters.checkpoint_bytes),
            wal_sync_count: wal.sync_count,
            wal_sync_ns: wal.sync_ns,
            wal_batch_count: wal.batch_count,
            wal_written_bytes: wal.written_bytes,
            wal_spare_count: wal.spare_count,
            wal_spare_bytes: wal.spare_bytes,
            wal_spare_used_count: wal.spare_used_count,
            wal_spare_missing_count: wal.spare_missing_count,
            wal_pending_bytes: wal.pending_bytes,
            wal_poisoned: self.state.wal.is_poisoned(),
            disk_full: self.state.wal.is_disk_full(),
            samples_appended: load(&counters.samples_appended),
            samples_out_of_order: load(&counters.samples_out_of_order),
            samples_replaced: load(&counters.samples_replaced),
            samples_with_start: load(&counters.samples_with_start),
            samples_deleted: load(&counters.samples_deleted),
            histogram_bytes: self.state.series.histograms().used_bytes(),
            histograms_sealed_early: self.state.series.histograms().sealed_early_count(),
            samples_repeated: load(&counters.samples_repeated),
            series_created: load(&counters.series_created),
            checkpoint_count: load(&counters.checkpoint_count),
            checkpoint_bytes: load(&counters.checkpoint_bytes),
            slice_count: load(&counters.slice_count),
            slice_bytes: load(&counters.slice_bytes),
            tail_bytes: load(&counters.tail_bytes),
            tail_ms: load(&counters.tail_ns) / 1_000_000,
            series_ids_left: self.state.index.ids.left_count(),
            sealed_files,
            sealed_bytes,
            replay_ms: self.replay.duration_ns / 1_000_000,
            replay_notes: self.replay.notes.clone(),
            sealed_damages: self.sealed_verification.damages(),
            ..HeadStats::default()
        };
        self.add_tenants(&mut stats);
        for stripe in self.state.series.stripes() {
            let stripe = stripe.lock();
            stats.chunks += stripe.chunk_count();
            stats.samples_ooo_sealed += stripe.ooo_sealed_count();
        }
        stats
    }

    fn add_tenants(&self, stats: &mut HeadStats) {
        for tenant in self.state.index.tenants() {
            let tables = tenant.tables.read();
            stats.series += tables.live_count() as u64;
            stats.tenants += u64::from(tables.live_count() > 0);
            drop(tables);
            let bounds = tenant.windows.lock().bounds_ms();
            if let Some((oldest, newest)) = bounds {
                stats.min_time_ms = Some(stats.min_time_ms.map_or(oldest, |t| t.min(oldest)));
                stats.max_time_ms = Some(stats.max_time_ms.map_or(newest, |t| t.max(newest)));
            }
        }
    }

    /// Returns the sizes of one tenant. Cost: visits each of its series.
    #[must_use]
    pub fn tenant_stats(&self, id: &TenantId) -> TenantStats {
        let Some(tenant) = self.state.index.tenant(id) else { return TenantStats::default() };
        let bounds = tenant.windows.lock().bounds_ms();
        let mut chunk_count = 0;
        for run in page_runs(&tenant.series_ids()) {
            let stripe = self.state.series.lock(run[0]);
            chunk_count += run.iter().map(|&id| stripe.chunk_count_of(id)).sum::<u64>();
        }
        TenantStats {
            chunk_count,
            min_time_ms: bounds.map(|(oldest, _)| oldest),
            max_time_ms: bounds.map(|(_, newest)| newest),
        }
    }

    /// Returns the number of series by tenant, without tenants that have none. Cost: visits each tenant.
    #[must_use]
    pub fn series_by_tenant(&self) -> Vec<(TenantId, u64)> {
        let count = |tenant: &TenantHead| tenant.tables.read().live_count() as u64;
        let tenants = self.state.index.tenants();
        let counts = tenants.iter().map(|tenant| (tenant.id.clone(), count(tenant)));
        counts.filter(|(_, series_count)| *series_count > 0).collect()
    }

    /// Returns all parts, each once.
    #[must_use]
    pub fn memory(&self) -> Vec<MemoryPart> {
        let mut parts = self.shared_memory();
        for tenant in self.state.index.tenants() {
            MemoryPart::add(&mut parts, tenant.tables.read().memory());
        }
        parts
    }

    /// Returns the `limit` tenants with the most memory.
    #[must_use]
    pub fn memory_by_tenant(&self, limit: usize) -> Vec<TenantMemory> {
        let shared_bytes: u64 = self.shared_memory().iter().map(|part| part.bytes).sum();
        let mut out = Vec::new();
        for tenant in self.state.index.tenants() {
            let tables = tenant.tables.read();
            let bytes = tables.memory().iter().map(|part| part.bytes).sum();
            out.push(TenantMemory {
                tenant: tenant.id.clone(),
                series_count: tables.live_count() as u64,
                bytes,
            });
        }
        let all_count = out.iter().map(|one| one.series_count).sum::<u64>().max(1);
        for one in &mut out {
            let share = u128::from(shared_bytes) * u128::from(one.series_count) / u128::from(all_count);
            one.bytes += u64::try_from(share).unwrap_or(u64::MAX);
        }
        out.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.tenant.cmp(&b.tenant)));
        out.truncate(limit);
        out
    }

    /// Returns memory that belongs to no single tenant.
    fn shared_memory(&self) -> Vec<MemoryPart> {
        let mut parts = self.state.series.memory();
        MemoryPart::add(&mut parts, self.state.index.key_memory());
        parts.push(MemoryPart::new("wal_buffers", self.state.wal.stats().buffer_bytes, 1));
        parts.push(self.writer.memory());
        parts
    }

    /// Measures the memory of the head for its limit. The caller runs it every second. Cost: as
    /// [`HeadStatistics::memory`].
    pub fn measure_memory(&self) {
        self.writer.memory_limit().update(|| self.memory().iter().map(|part| part.bytes).sum());
    }

    /// Returns the memory that counts against the limit, and the limit, in bytes; both 0 if there is none.
    #[must_use]
    pub fn memory_used_and_limit(&self) -> (u64, u64) {
        self.writer.memory_limit().used_and_limit()
    }

    /// Returns the tenants with series, sorted.
    #[must_use]
    pub fn tenants(&self) -> Vec<TenantId> {
        let mut out: Vec<TenantId> = self.series_by_tenant().into_iter().map(|(tenant, _)| tenant).collect();
        out.sort();
        out
    }

    /// Returns true if the tenant has series, or a request or flush is running for it.
    #[must_use]
    pub fn has_tenant(&self, tenant: &TenantId) -> bool {
        self.state.index.tenant(tenant).is_some()
    }

    /// Returns the label names, values and pairs of `tenant` with the most series, at most `limit` per list.
    #[must_use]
    pub fn cardinality(&self, tenant: &TenantId, limit: usize) -> Cardinality {
        self.state.index.tenant(tenant).map(|t| t.tables.read().cardinality(limit)).unwrap_or_default()
    }
}

const _: () = assert!(size_of::<SeriesState>() == 64, "reports show memory per series");
