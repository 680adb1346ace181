//! Statistics of the whole database, for `/metrics`, status pages and the start page.
//!
//! Not here: metrics of the server (`server::metrics`).

use chronolith_head::HeadStats;

use crate::admin::AdminCounters;
use crate::bucket_maintenance::BucketMaintenance;
use crate::exemplars::ExemplarStorage;
use crate::maintenance::{JobKind, JobStats, Maintenance};
use crate::metric::Metric;
use crate::storage::Storage;
use crate::tenant_usage;

/// Statistics of the database, for `/metrics`, `/api/v1/status/tsdb` and the start page.
#[derive(Debug, Clone, Default)]
pub struct TsdbStats {
    /// Head, with its WAL and checkpoint.
    pub head: HeadStats,
    /// Tenants with data.
    pub tenants: u64,
    /// Blocks of all tenants.
    pub blocks: u64,
    /// Size of these blocks.
    pub block_bytes: u64,
    /// Free space of the disk with the data directory; None if the file system does not report it.
    pub disk_free_bytes: Option<u64>,
    /// Background work.
    pub maintenance: MaintenanceStats,
    /// Last start.
    pub replay: ReplayStats,
    /// Further metrics, each with its type and help text.
    pub metrics: Vec<Metric>,
}

/// Background work since the start.
#[derive(Debug, Clone, Default)]
pub struct MaintenanceStats {
    /// Windows flushed to blocks.
    pub flush_count: u64,
    /// Failed jobs, and failed writes of checkpoint and metadata.
    pub error_count: u64,
    /// Blocks removed by retention.
    pub retention_removed_count: u64,
    /// Jobs by kind.
    pub jobs: Vec<JobStats>,
}

/// Last start.
#[derive(Debug, Clone, Default)]
pub struct ReplayStats {
    /// Duration of the replay.
    pub ms: u64,
    /// Damaged or missing files found by the start and by verifications after it, for operators.
    pub notes: Vec<String>,
}

impl TsdbStats {
    /// Returns the value of one of [`TsdbStats::metrics`].
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value)
    }
}

/// Findings of a start.
#[derive(Default)]
pub(super) struct StartReport {
    /// Damage and missing files, for operators.
    pub(super) notes: Vec<String>,
    /// Damaged files that a second copy or the WAL replaced.
    pub(super) repaired_count: u64,
    pub(super) replay_ms: u64,
}

/// Parts of the database with statistics.
pub(super) struct StatsSources<'a> {
    pub(super) storage: &'a Storage,
    pub(super) maintenance: &'a Maintenance,
    pub(super) bucket_maintenance: &'a BucketMaintenance,
    pub(super) admin: &'a AdminCounters,
    pub(super) exemplars: &'a ExemplarStorage,
    pub(super) start: &'a StartReport,
}

/// Returns the statistics of all parts. Walks the head.
pub(super) fn collect(sources: &StatsSources<'_>) -> TsdbStats {
    let storage = sources.storage;
    let counters = sources.maintenance.counters();
    let head = storage.head().statistics().stats();
    let blocks = storage.blocks().totals();
    let notes = sources.start.notes.iter().chain(&head.sealed_damages).cloned();
    TsdbStats {
        tenants: tenant_usage::tenants(storage).len() as u64,
        blocks: blocks.count,
        block_bytes: blocks.bytes,
        disk_free_bytes: storage.env().disk.free_bytes(&storage.options().data_dir),
        maintenance: MaintenanceStats {
            flush_count: counters.flush.windows.get(),
            error_count: counters.errors.get(),
            retention_removed_count: counters.retention.removed_blocks.get(),
            jobs: sources.maintenance.job_stats(),
        },
        replay: ReplayStats {
            ms: sources.start.replay_ms,
            notes: notes.chain(sources.maintenance.scrub().notes()).collect(),
        },
        metrics: metrics(sources, &head),
        head,
    }
}

/// Memory of the head, its limit, and the share of a tenant.
fn head_memory_metrics(sources: &StatsSources<'_>) -> [Metric; 4] {
    let statistics = sources.storage.head().statistics();
    let (used_bytes, limit_bytes) = statistics.memory_used_and_limit();
    let (share_bytes, refused_count) = statistics.tenant_share_and_refused();
    [
        Metric::gauge(
            "head_memory_used_bytes",
            "Memory of the head that counts against head-memory-limit.",
            used_bytes as f64,
        ),
        Metric::gauge("head_memory_limit_bytes", "head-memory-limit in bytes; 0 = none.", limit_bytes as f64),
        Metric::gauge(
            "head_memory_tenant_share_bytes",
            "Memory of the head that one tenant may use; 0 = all of it.",
            share_bytes as f64,
        ),
        Metric::counter(
            "head_tenant_share_refused_total",
            "Batches refused since their tenant is at its share of the head.",
            refused_count as f64,
        ),
    ]
}

fn metrics(sources: &StatsSources<'_>, head: &HeadStats) -> Vec<Metric> {
    let counters = sources.maintenance.counters();
    let (gauge, counter) = (Metric::gauge, Metric::counter);
    let mut metrics = Vec::from(head_memory_metrics(sources));
    metrics.extend([
        gauge("head_series_ids_left", "Ids that new series can get.", head.series_ids_left as f64),
        gauge(
            "replay_repaired_files",
            "Damaged files that a second copy or the WAL replaced at the last start.",
            sources.start.repaired_count as f64,
        ),
        gauge("head_sealed_file_bytes", "Size of the files of sealed chunks.", head.sealed_bytes as f64),
        gauge(
            "head_histograms_bytes",
            "Memory of open chunks and out-of-order samples of native histograms.",
            head.histograms.bytes as f64,
        ),
        counter(
            "head_histograms_sealed_early_total",
            "Chunks of native histograms that were sealed early because of histogram-memory.",
            head.histograms.sealed_early_count as f64,
        ),
        gauge("head_text_bytes", "Memory of different texts in the head.", head.texts.bytes as f64),
        gauge("head_text_limit_bytes", "text-bytes-limit in bytes.", head.texts.bytes_max as f64),
        gauge("checkpoint_bytes", "Size of the checkpoint.", head.checkpoint.bytes as f64),
        gauge(
            "checkpoint_tail_bytes",
            "Bytes of WAL that a start would replay.",
            head.checkpoint.tail_bytes as f64,
        ),
        gauge(
            "checkpoint_tail_replay_seconds",
            "Expected duration of the replay of that WAL.",
            head.checkpoint.tail_ms as f64 / 1000.0,
        ),
        gauge("wal_pending_bytes", "Bytes queued for the WAL.", head.wal.pending_bytes as f64),
        counter(
            "flush_damaged_chunks_total",
            "Damaged chunks that a flush left out of its block.",
            counters.flush.damaged_chunks.as_f64(),
        ),
        counter(
            "head_idle_series_flushed_total",
            "Series flushed before the end of their window because they took no samples.",
            counters.flush.idle_series.as_f64(),
        ),
        counter("delete_requests_total", "Requests to delete series.", sources.admin.deletions.as_f64()),
        counter(
            "cleaned_blocks_total",
            "Blocks rewritten without their deleted samples.",
            sources.admin.cleaned_blocks.as_f64(),
        ),
        counter(
            "own_policy_blocks_total",
            "Blocks of batches whose duplicate policy is not the one of their store.",
            sources.admin.own_policy_blocks(),
        ),
        counter("snapshots_total", "Snapshots written.", sources.admin.snapshots.as_f64()),
        gauge("exemplars", "Exemplars in memory.", sources.exemplars.len() as f64),
    ]);
    metrics.extend(flush_and_retention_metrics(sources.maintenance));
    metrics.extend(compaction_metrics(sources.maintenance));
    metrics.extend(rollup_metrics(sources.maintenance));
    metrics.extend(sources.storage.blocks().metrics(sources.maintenance.scrub().is_done()));
    metrics.extend(bucket_metrics(sources));
    metrics.extend(side_store_metrics(sources.storage));
    metrics
}

fn side_store_metrics(storage: &Storage) -> [Metric; 3] {
    let log = storage.graphite();
    [
        Metric::counter(
            "metadata_entries_refused_total",
            "Metadata entries refused because the tenant has too many.",
            storage.metadata().refused_count() as f64,
        ),
        Metric::gauge("graphite_events", "Events of Graphite clients.", log.event_count() as f64),
        Metric::counter(
            "graphite_events_dropped_total",
            "Events removed, the earliest first, because their tenant has too many.",
            log.dropped_count() as f64,
        ),
    ]
}

fn bucket_metrics(sources: &StatsSources<'_>) -> Vec<Metric> {
    let Some(uploads) = sources.storage.uploads() else { return Vec::new() };
    let mut metrics = Vec::from(uploads.metrics());
    metrics.extend(sources.bucket_maintenance.metrics());
    metrics
}

fn flush_and_retention_metrics(maintenance: &Maintenance) -> [Metric; 5] {
    let counters = maintenance.counters();
    let (gauge, counter) = (Metric::gauge, Metric::counter);
    [
        counter(
            "retention_clock_jumps_total",
            "Jumps of the clock that removal by age does not follow at once.",
            counters.retention.clock_jumps.as_f64(),
        ),
        gauge(
            "retention_clock_wait_seconds",
            "Time until removal by age follows a clock that jumped.",
            counters.retention.clock_wait_seconds.as_f64(),
        ),
        gauge(
            "retention_held_blocks",
            "Blocks that removal by age holds back because the clock jumped.",
            counters.retention.held_blocks.as_f64(),
        ),
        gauge(
            "flush_waiting_windows",
            "Small windows that wait to be flushed with others of their tenant.",
            counters.flush.waiting_windows.as_f64(),
        ),
        gauge("flush_waiting_bytes", "Memory of those windows.", counters.flush.waiting_bytes.as_f64()),
    ]
}

fn rollup_metrics(maintenance: &Maintenance) -> [Metric; 4] {
    let counters = &maintenance.counters().rollup;
    [
        Metric::counter("rollup_blocks_total", "Blocks that were rolled up.", counters.blocks.as_f64()),
        Metric::counter("rollup_windows_total", "Windows that were rolled up.", counters.windows.as_f64()),
        Metric::counter(
            "rollup_written_bytes_total",
            "Bytes of roll-up files that were written.",
            counters.written_bytes.as_f64(),
        ),
        Metric::counter(
            "rollup_damaged_total",
            "Blocks whose roll-ups were damaged and written again.",
            counters.damaged.as_f64(),
        ),
    ]
}

fn compaction_metrics(maintenance: &Maintenance) -> [Metric; 10] {
    let counters = &maintenance.counters().compaction;
    let (gauge, counter) = (Metric::gauge, Metric::counter);
    let paused = f64::from(u8::from(maintenance.is_paused(JobKind::Compaction)));
    [
        counter("compaction_runs_total", "Compactions completed.", counters.runs.as_f64()),
        counter("compaction_read_bytes_total", "Bytes read by compaction.", counters.read_bytes.as_f64()),
        counter(
            "compaction_written_bytes_total",
            "Bytes written by compaction.",
            counters.written_bytes.as_f64(),
        ),
        counter("compaction_failures_total", "Compactions that failed.", counters.failures.as_f64()),
        counter(
            "compaction_refused_total",
            "Compactions refused because of their inputs, which stay as they are.",
            counters.refused.as_f64(),
        ),
        counter(
            "compaction_space_skips_total",
            "Compactions put off for lack of disk space.",
            counters.space_skips.as_f64(),
        ),
        counter(
            "compaction_throttled_seconds_total",
            "Time that compaction waited because of compaction-rate.",
            counters.throttled_ns.as_f64() / 1e9,
        ),
        gauge(
            "compaction_step_bytes",
            "Size of the blocks of the running compaction.",
            counters.step_bytes.as_f64(),
        ),
        gauge(
            "compaction_step_moved_bytes",
            "Bytes that the running compaction has read and written.",
            counters.step_moved_bytes.as_f64(),
        ),
        gauge("compaction_paused", "1 if compaction is paused by the admin API.", paused),
    ]
}
