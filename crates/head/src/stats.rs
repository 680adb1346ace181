//! Counters and sizes of the head, for metrics and people.

use std::sync::atomic::Ordering;

use chronolith_model::TenantId;

use crate::head::Head;
use crate::select::page_runs;
use crate::stripe::stripe_of;
use crate::tenant::TenantHead;

/// Counters since the start, and sizes as they are.
#[derive(Debug, Clone, Default)]
pub struct HeadStats {
    /// Series, all tenants.
    pub series: u64,
    /// Tenants with series.
    pub tenants: u64,
    /// Chunks: open, late, sealed.
    pub chunks: u64,
    /// Time of the oldest sample, all tenants.
    pub min_time_ms: Option<i64>,
    /// Time of the newest sample, all tenants.
    pub max_time_ms: Option<i64>,
    /// Bytes of WAL segments and checkpoint.
    pub wal_bytes: u64,
    /// Bytes of WAL segments alone: what a checkpoint would free.
    pub wal_segment_bytes: u64,
    /// Syncs of the WAL.
    pub wal_sync_count: u64,
    /// Nanoseconds spent in them.
    pub wal_sync_ns: u64,
    /// Writes of the WAL, each for one or more batches.
    pub wal_batch_count: u64,
    /// Bytes written to the WAL.
    pub wal_written_bytes: u64,
    /// Segments that are prepared or kept for reuse.
    pub wal_spare_count: u64,
    /// Bytes of these.
    pub wal_spare_bytes: u64,
    /// Segments made of one of these.
    pub wal_spare_used_count: u64,
    /// Segments made when there was none.
    pub wal_spare_missing_count: u64,
    /// Bytes queued for the WAL.
    pub wal_pending_bytes: u64,
    /// Whether the WAL is poisoned.
    pub wal_poisoned: bool,
    /// Whether writes are refused for lack of space.
    pub disk_full: bool,
    /// Samples accepted since the start, repeats included.
    pub samples_appended: u64,
    /// Of those, late ones.
    pub samples_late: u64,
    /// Samples encoded again since the start to bring late ones into their chunks.
    pub samples_merged: u64,
    /// Ids that new series can get.
    pub series_ids_left: u64,
    /// Of those accepted, repeats.
    pub samples_repeated: u64,
    /// Of those, samples that replaced another value.
    pub samples_replaced: u64,
    /// Of those, samples whose start time was kept with them.
    pub samples_with_start: u64,
    /// Samples deleted since the start.
    pub samples_deleted: u64,
    /// Bytes of open chunks and late samples of native histograms.
    pub histogram_bytes: u64,
    /// How often histograms of a series were sealed because these were too many.
    pub histograms_sealed_early: u64,
    /// Series made since the start.
    pub series_created: u64,
    /// Whole checkpoints written since the start.
    pub checkpoint_count: u64,
    /// Bytes of the newest copies of all slices, and of the definitions.
    pub checkpoint_bytes: u64,
    /// Slices written since the start.
    pub slice_count: u64,
    /// Bytes of slices and definitions written since the start.
    pub slice_bytes: u64,
    /// Bytes of log that a start would replay, at the last look.
    pub tail_bytes: u64,
    /// Milliseconds that this is expected to take.
    pub tail_ms: u64,
    /// Sealed files.
    pub sealed_files: u64,
    /// Their bytes.
    pub sealed_bytes: u64,
    /// How long the replay took.
    pub replay_ms: u64,
    /// What the replay could not use.
    pub replay_notes: Vec<String>,
    /// Damaged sealed files that were found after the start, for people.
    pub sealed_damages: Vec<String>,
}

/// Sizes of one tenant in the head.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantStats {
    /// Chunks: open, late, sealed.
    pub chunk_count: u64,
    /// Time of the oldest sample; `None` without samples.
    pub min_time_ms: Option<i64>,
    /// Time of the newest sample.
    pub max_time_ms: Option<i64>,
}

impl Head {
    /// Counters and sizes. Cost: a look at each stripe and tenant.
    #[must_use]
    pub fn stats(&self) -> HeadStats {
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let (counters, wal) = (&self.counters, &self.wal.counters);
        let (sealed_files, sealed_bytes) = self.series.store.sizes();
        let mut stats = HeadStats {
            wal_segment_bytes: load(&wal.segment_bytes),
            wal_bytes: load(&wal.segment_bytes) + load(&counters.checkpoint_bytes),
            wal_sync_count: load(&wal.sync_count),
            wal_sync_ns: load(&wal.sync_ns),
            wal_batch_count: load(&wal.commit_count),
            wal_written_bytes: load(&wal.written_bytes),
            wal_spare_count: load(&wal.spare_count),
            wal_spare_bytes: load(&wal.spare_bytes),
            wal_spare_used_count: load(&wal.spare_used_count),
            wal_spare_missing_count: load(&wal.spare_missing_count),
            wal_pending_bytes: self.wal.pending_bytes(),
            wal_poisoned: self.wal.is_poisoned(),
            disk_full: self.wal.is_disk_full(),
            samples_appended: load(&counters.samples_appended),
            samples_late: load(&counters.samples_late),
            samples_replaced: load(&counters.samples_replaced),
            samples_with_start: load(&counters.samples_with_start),
            samples_deleted: load(&counters.samples_deleted),
            histogram_bytes: self.series.histograms.used_bytes(),
            histograms_sealed_early: self.series.histograms.sealed_early_count(),
            samples_repeated: load(&counters.samples_repeated),
            series_created: load(&counters.series_created),
            checkpoint_count: load(&counters.checkpoint_count),
            checkpoint_bytes: load(&counters.checkpoint_bytes),
            slice_count: load(&counters.slice_count),
            slice_bytes: load(&counters.slice_bytes),
            tail_bytes: load(&counters.tail_bytes),
            tail_ms: load(&counters.tail_ns) / 1_000_000,
            series_ids_left: self.ids.left_count(),
            sealed_files,
            sealed_bytes,
            replay_ms: self.replay.duration_ns / 1_000_000,
            replay_notes: self.replay.notes.clone(),
            sealed_damages: self.sealed_verification.lock().damages(),
            ..HeadStats::default()
        };
        self.add_tenants(&mut stats);
        for stripe in &self.series.stripes {
            let stripe = stripe.lock();
            stats.chunks += stripe.chunk_count();
            stats.samples_merged += stripe.merged_count;
        }
        stats
    }

    fn add_tenants(&self, stats: &mut HeadStats) {
        for tenant in self.all_tenants() {
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

    /// Sizes of one tenant. Cost: a look at each of its series.
    #[must_use]
    pub fn tenant_stats(&self, id: &TenantId) -> TenantStats {
        let Some(tenant) = self.tenant(id) else { return TenantStats::default() };
        let bounds = tenant.windows.lock().bounds_ms();
        let mut chunk_count = 0;
        for run in page_runs(&tenant.series_ids()) {
            let stripe = self.series.stripes[stripe_of(run[0])].lock();
            chunk_count += run.iter().map(|&id| stripe.chunk_count_of(id)).sum::<u64>();
        }
        TenantStats {
            chunk_count,
            min_time_ms: bounds.map(|(oldest, _)| oldest),
            max_time_ms: bounds.map(|(_, newest)| newest),
        }
    }

    /// Series in the head by tenant, those without left out. Cost: a look at each tenant.
    #[must_use]
    pub fn series_by_tenant(&self) -> Vec<(TenantId, u64)> {
        let count = |tenant: &TenantHead| tenant.tables.read().live_count() as u64;
        let tenants = self.all_tenants();
        let counts = tenants.iter().map(|tenant| (tenant.id.clone(), count(tenant)));
        counts.filter(|(_, series_count)| *series_count > 0).collect()
    }
}
