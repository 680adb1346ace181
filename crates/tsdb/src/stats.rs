//! Counters and sizes of the whole store, for metrics, status pages and the start page.

use std::sync::atomic::Ordering;

use chronolith_head::{HeadStats, TenantStats};
use chronolith_model::TenantId;

use crate::metric::Metric;
use crate::store::Tsdb;

/// Counters and sizes, for `/metrics`, `/api/v1/status/tsdb` and the start page.
#[derive(Debug, Clone, Default)]
pub struct TsdbStats {
    /// Series in the head, all tenants.
    pub head_series: u64,
    /// Chunks in the head (open, late, sealed).
    pub head_chunks: u64,
    /// Time of the oldest sample in the head; `None` when it is empty.
    pub head_min_time_ms: Option<i64>,
    /// Time of the newest sample in the head.
    pub head_max_time_ms: Option<i64>,
    /// Tenants with data.
    pub tenants: u64,
    /// Blocks of all tenants.
    pub blocks: u64,
    /// Their bytes.
    pub block_bytes: u64,
    /// Bytes of WAL segments and checkpoint.
    pub wal_bytes: u64,
    /// Syncs of the WAL.
    pub wal_sync_count: u64,
    /// Nanoseconds spent in them.
    pub wal_sync_ns: u64,
    /// Batches that were made durable.
    pub wal_batch_count: u64,
    /// Bytes written to the WAL.
    pub wal_written_bytes: u64,
    /// Bytes of WAL segments that are prepared or kept for reuse.
    pub wal_spare_bytes: u64,
    /// WAL segments made of one of these.
    pub wal_spare_used_count: u64,
    /// WAL segments made when there was none.
    pub wal_spare_missing_count: u64,
    /// Whether the WAL is poisoned.
    pub wal_poisoned: bool,
    /// Whether writes are refused for lack of space.
    pub disk_full: bool,
    /// Samples accepted since start.
    pub samples_appended: u64,
    /// Samples that came late.
    pub samples_out_of_order: u64,
    /// Out-of-order samples encoded as chunks.
    pub samples_ooo_sealed: u64,
    /// Samples stored with a start time.
    pub samples_with_start: u64,
    /// Windows cut to blocks since start.
    pub flush_count: u64,
    /// Failed flushes, checkpoints, retention runs.
    pub maintenance_error_count: u64,
    /// Blocks removed by retention.
    pub retention_removed_count: u64,
    /// Whole checkpoints written.
    pub checkpoint_count: u64,
    /// Slices of the checkpoint written.
    pub slice_count: u64,
    /// Bytes of slices and definitions written.
    pub slice_bytes: u64,
    /// How long the last replay took.
    pub replay_ms: u64,
    /// What the last start and the verifications after it found damaged or missing, for people.
    pub replay_notes: Vec<String>,
    /// Further metrics, each with its type and help text.
    pub metrics: Vec<Metric>,
}

impl TsdbStats {
    /// The value of one of [`TsdbStats::metrics`].
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value)
    }
}

impl Tsdb {
    /// Counters and sizes. Walks the head; call it a few times a minute, not a second.
    #[must_use]
    pub fn stats(&self) -> TsdbStats {
        let head = self.head.statistics().stats();
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let blocks = self.blocks.totals();
        TsdbStats {
            head_series: head.series,
            head_chunks: head.chunks,
            head_min_time_ms: head.min_time_ms,
            head_max_time_ms: head.max_time_ms,
            tenants: self.tenants().len() as u64,
            blocks: blocks.count,
            block_bytes: blocks.bytes,
            wal_bytes: head.wal_bytes,
            wal_sync_count: head.wal_sync_count,
            wal_sync_ns: head.wal_sync_ns,
            wal_batch_count: head.wal_batch_count,
            wal_written_bytes: head.wal_written_bytes,
            wal_spare_bytes: head.wal_spare_bytes,
            wal_spare_used_count: head.wal_spare_used_count,
            wal_spare_missing_count: head.wal_spare_missing_count,
            wal_poisoned: head.wal_poisoned,
            disk_full: head.disk_full,
            samples_appended: head.samples_appended,
            samples_out_of_order: head.samples_out_of_order,
            samples_ooo_sealed: head.samples_ooo_sealed,
            samples_with_start: head.samples_with_start,
            flush_count: load(&self.counters.flushes),
            maintenance_error_count: load(&self.counters.upkeep_errors),
            retention_removed_count: load(&self.counters.retention_removed),
            checkpoint_count: head.checkpoint_count,
            slice_count: head.slice_count,
            slice_bytes: head.slice_bytes,
            replay_ms: self.replay_ms,
            replay_notes: self
                .replay_notes
                .iter()
                .chain(&head.sealed_damages)
                .cloned()
                .chain(self.blocks.scrub.notes())
                .collect(),
            metrics: self.metrics(&head),
        }
    }

    /// Head cardinality of `tenant`, `limit` entries a list.
    #[must_use]
    pub fn cardinality(&self, tenant: &TenantId, limit: usize) -> chronolith_head::Cardinality {
        self.head.statistics().cardinality(tenant, limit)
    }

    /// Sizes of `tenant` in the head. Walks its series.
    #[must_use]
    pub fn head_stats_of(&self, tenant: &TenantId) -> TenantStats {
        self.head.statistics().tenant_stats(tenant)
    }

    /// Series in the head by tenant, those without left out.
    #[must_use]
    pub fn head_series_by_tenant(&self) -> Vec<(TenantId, u64)> {
        self.head.statistics().series_by_tenant()
    }

    fn metrics(&self, head: &HeadStats) -> Vec<Metric> {
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let counters = &self.counters;
        let (gauge, counter) = (Metric::gauge, Metric::counter);
        let (used_bytes, limit_bytes) = self.head.statistics().memory_used_and_limit();
        let mut metrics = vec![
            gauge(
                "head_memory_used_bytes",
                "Memory of the head that counts against head-memory-limit.",
                used_bytes as f64,
            ),
            gauge("head_series_ids_left", "Ids that new series can get.", head.series_ids_left as f64),
            gauge("head_memory_limit_bytes", "head-memory-limit in bytes; 0 = none.", limit_bytes as f64),
            gauge(
                "replay_repaired_files",
                "Damaged files that a second copy or the WAL replaced at the last start.",
                self.replay_repaired_count as f64,
            ),
            gauge("head_sealed_file_bytes", "Size of the files of sealed chunks.", head.sealed_bytes as f64),
            gauge(
                "head_histograms_bytes",
                "Memory of open chunks and out-of-order samples of native histograms.",
                head.histogram_bytes as f64,
            ),
            counter(
                "head_histograms_sealed_early_total",
                "Chunks of native histograms that were sealed early because of histogram-memory.",
                head.histograms_sealed_early as f64,
            ),
            gauge("checkpoint_bytes", "Size of the checkpoint.", head.checkpoint_bytes as f64),
            gauge("checkpoint_tail_bytes", "Bytes of WAL that a start would replay.", head.tail_bytes as f64),
            gauge(
                "checkpoint_tail_replay_seconds",
                "Expected duration of that replay.",
                head.tail_ms as f64 / 1000.0,
            ),
            gauge("wal_pending_bytes", "Bytes queued for the WAL.", head.wal_pending_bytes as f64),
            counter(
                "flush_damaged_chunks_total",
                "Damaged chunks that a flush left out of its block.",
                load(&counters.damaged_chunks),
            ),
            counter(
                "head_idle_series_flushed_total",
                "Series flushed before the end of their window because they took no samples.",
                load(&counters.idle_series),
            ),
            counter("delete_requests_total", "Requests to delete series.", load(&counters.deletions)),
            counter(
                "cleaned_blocks_total",
                "Blocks rewritten without their deleted samples.",
                load(&counters.cleaned_blocks),
            ),
            counter("snapshots_total", "Snapshots written.", load(&counters.snapshots)),
            gauge("exemplars", "Exemplars in memory.", self.exemplars.len() as f64),
            counter(
                "metadata_entries_refused_total",
                "Metadata entries refused because the tenant has too many.",
                self.metadata.refused_count() as f64,
            ),
        ];
        metrics.extend(self.upkeep_metrics());
        metrics.extend(self.compaction.metrics());
        metrics.extend(self.blocks.metrics());
        metrics
    }

    /// Flushing and removal by age.
    fn upkeep_metrics(&self) -> [Metric; 5] {
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let counters = &self.counters;
        let (gauge, counter) = (Metric::gauge, Metric::counter);
        [
            counter(
                "retention_clock_jumps_total",
                "Jumps of the clock that removal by age does not follow at once.",
                load(&counters.clock_jumps),
            ),
            gauge(
                "retention_clock_wait_seconds",
                "Time until removal by age follows a clock that jumped.",
                load(&counters.clock_wait_s),
            ),
            gauge(
                "retention_held_blocks",
                "Blocks that removal by age holds back because the clock jumped.",
                load(&counters.held_blocks),
            ),
            gauge(
                "flush_waiting_windows",
                "Small windows that wait to be flushed with others of their tenant.",
                load(&counters.waiting_windows),
            ),
            gauge("flush_waiting_bytes", "Memory of those windows.", load(&counters.waiting_bytes)),
        ]
    }
}
