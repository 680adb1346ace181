//! Counters and sizes of the whole store, for metrics, status pages and the start page.

use std::sync::atomic::Ordering;

use chronolith_model::TenantId;

use crate::store::Tsdb;

/// Counters and sizes, for `/metrics`, `/api/v1/status/tsdb` and the start page.
#[derive(Debug, Clone, Default)]
pub struct TsdbStats {
    /// Series in the head, all tenants.
    pub head_series: u64,
    /// Chunks in the head (open, late, sealed).
    pub head_chunks: u64,
    /// Earliest sample in the head; `None` when it is empty.
    pub head_min_time_ms: Option<i64>,
    /// Latest sample in the head.
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
    /// Whether the WAL is poisoned.
    pub wal_poisoned: bool,
    /// Whether writes are refused for lack of space.
    pub disk_full: bool,
    /// Samples accepted since start.
    pub samples_appended: u64,
    /// Samples that came late.
    pub samples_late: u64,
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
    /// What the last replay could not use (torn tail, damaged frames), for people.
    pub replay_notes: Vec<String>,
    /// Further gauges by name (without prefix).
    pub gauges: Vec<(&'static str, f64)>,
}

impl Tsdb {
    /// Counters and sizes. Walks the head; call it a few times a minute, not a second.
    #[must_use]
    pub fn stats(&self) -> TsdbStats {
        let head = self.head.stats();
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let lists: Vec<_> = self.tenants.read().values().map(|t| t.list()).collect();
        let blocks: Vec<_> = lists.into_iter().flatten().collect();
        TsdbStats {
            head_series: head.series,
            head_chunks: head.chunks,
            head_min_time_ms: head.min_time_ms,
            head_max_time_ms: head.max_time_ms,
            tenants: self.tenants().len() as u64,
            blocks: blocks.len() as u64,
            block_bytes: blocks.iter().map(|b| b.size_bytes()).sum(),
            wal_bytes: head.wal_bytes,
            wal_sync_count: head.wal_sync_count,
            wal_sync_ns: head.wal_sync_ns,
            wal_batch_count: head.wal_batch_count,
            wal_written_bytes: head.wal_written_bytes,
            wal_poisoned: head.wal_poisoned,
            disk_full: head.disk_full,
            samples_appended: head.samples_appended,
            samples_late: head.samples_late,
            samples_with_start: head.samples_with_start,
            flush_count: load(&self.counters.flushes),
            maintenance_error_count: load(&self.counters.upkeep_errors),
            retention_removed_count: load(&self.counters.retention_removed),
            checkpoint_count: head.checkpoint_count,
            slice_count: head.slice_count,
            slice_bytes: head.slice_bytes,
            replay_ms: self.replay_ms,
            replay_notes: self.replay_notes.clone(),
            gauges: [
                ("head_sealed_file_bytes", head.sealed_bytes as f64),
                ("head_histogram_bytes", head.histogram_bytes as f64),
                ("head_histograms_sealed_early", head.histograms_sealed_early as f64),
                ("checkpoint_bytes", head.checkpoint_bytes as f64),
                ("checkpoint_tail_bytes", head.tail_bytes as f64),
                ("checkpoint_tail_replay_seconds", head.tail_ms as f64 / 1000.0),
                ("wal_pending_bytes", head.wal_pending_bytes as f64),
                ("flush_damaged_chunks", load(&self.counters.damaged_chunks) as f64),
                ("head_idle_series_cut", load(&self.counters.idle_series) as f64),
                ("delete_requests", load(&self.counters.deletions) as f64),
                ("cleaned_blocks", load(&self.counters.cleaned_blocks) as f64),
                ("snapshots_made", load(&self.counters.snapshots) as f64),
                ("block_tombstones", blocks.iter().map(|b| b.tombstone_count()).sum::<usize>() as f64),
                ("exemplars", self.exemplars.len() as f64),
                ("metadata_entries_refused", self.metadata.refused_count() as f64),
            ]
            .into_iter()
            .chain(self.compaction.gauges())
            .collect(),
        }
    }

    /// Head cardinality of `tenant`, `limit` entries a list.
    #[must_use]
    pub fn cardinality(&self, tenant: &TenantId, limit: usize) -> chronolith_head::Cardinality {
        self.head.cardinality(tenant, limit)
    }
}
