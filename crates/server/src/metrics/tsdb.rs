//! Metrics of the store: what `tsdb` counts without names, and its own list of named metrics.

use chronolith_service::metrics::definition::{Metric, Samples};
use chronolith_service::metrics::{Family, FamilyKind, FamilySample};
use chronolith_tsdb::{JobStats, MetricKind, TsdbStats};

pub(crate) static TSDB: &[Metric<TsdbStats>] = &[
    Metric::gauge("chronolith_head_series", "Series in the head, all tenants.", |stats| {
        stats.head.series as f64
    }),
    Metric::gauge("chronolith_head_chunks", "Chunks in the head.", |stats| stats.head.chunks as f64),
    Metric::optional_gauge(
        "chronolith_head_min_time_seconds",
        "Time of the oldest sample in the head, since 1970.",
        |stats| stats.head.min_time_ms.map(|ms| ms as f64 / 1000.0),
    ),
    Metric::optional_gauge(
        "chronolith_head_max_time_seconds",
        "Time of the newest sample in the head, since 1970.",
        |stats| stats.head.max_time_ms.map(|ms| ms as f64 / 1000.0),
    ),
    Metric::gauge("chronolith_tenants", "Tenants with data.", |stats| stats.tenants as f64),
    Metric::gauge("chronolith_blocks", "Blocks of all tenants.", |stats| stats.blocks as f64),
    Metric::gauge("chronolith_block_bytes", "Bytes of all blocks.", |stats| stats.block_bytes as f64),
    Metric::optional_gauge(
        "chronolith_disk_free_bytes",
        "Free space of the disk with the data directory; absent if the file system does not report it.",
        |stats| stats.disk_free_bytes.map(|bytes| bytes as f64),
    ),
    Metric::gauge("chronolith_replay_duration_seconds", "Duration of the last replay.", |stats| {
        stats.replay.ms as f64 / 1000.0
    }),
    Metric::gauge(
        "chronolith_replay_notes",
        "Findings of the last replay (torn tail, damaged frames).",
        |stats| stats.replay.notes.len() as f64,
    ),
    Metric::counter("chronolith_head_samples_appended_total", "Samples accepted by the head.", |stats| {
        stats.head.samples.appended as f64
    }),
    Metric::counter(
        "chronolith_head_samples_out_of_order_total",
        "Accepted samples that were out of order.",
        |stats| stats.head.samples.out_of_order as f64,
    ),
    Metric::counter(
        "chronolith_head_samples_ooo_sealed_total",
        "Out-of-order samples encoded as chunks.",
        |stats| stats.head.samples.ooo_sealed as f64,
    ),
    Metric::counter(
        "chronolith_head_samples_with_start_total",
        "Samples stored with a start time.",
        |stats| stats.head.samples.with_start as f64,
    ),
    Metric::counter("chronolith_flushes_total", "Windows flushed to blocks.", |stats| {
        stats.maintenance.flush_count as f64
    }),
    Metric::counter("chronolith_retention_removed_blocks_total", "Blocks removed by retention.", |stats| {
        stats.maintenance.retention_removed_count as f64
    }),
    Metric::counter("chronolith_checkpoints_total", "Whole checkpoints written.", |stats| {
        stats.head.checkpoint.count as f64
    }),
    Metric::counter("chronolith_checkpoint_slices_total", "Slices of the checkpoint written.", |stats| {
        stats.head.checkpoint.slice_count as f64
    }),
    Metric::counter(
        "chronolith_checkpoint_written_bytes_total",
        "Bytes written to slices and the series file.",
        |stats| stats.head.checkpoint.slice_bytes as f64,
    ),
];

pub(crate) static WAL: &[Metric<TsdbStats>] = &[
    Metric::gauge("chronolith_wal_bytes", "Bytes of WAL segments and checkpoint.", |stats| {
        (stats.head.wal.segment_bytes + stats.head.checkpoint.bytes) as f64
    }),
    Metric::gauge(
        "chronolith_wal_spare_bytes",
        "Bytes of WAL segments prepared or kept for reuse.",
        |stats| stats.head.wal.spare_bytes as f64,
    ),
    Metric::counter("chronolith_wal_sync_seconds_total", "Time spent in syncs of the WAL.", |stats| {
        stats.head.wal.sync_ns as f64 / 1e9
    }),
    Metric::counter("chronolith_wal_syncs_total", "Syncs of the WAL.", |stats| {
        stats.head.wal.sync_count as f64
    }),
    Metric::counter("chronolith_wal_batches_total", "Batches made durable.", |stats| {
        stats.head.wal.batch_count as f64
    }),
    Metric::counter("chronolith_wal_written_bytes_total", "Bytes written to the WAL.", |stats| {
        stats.head.wal.written_bytes as f64
    }),
    Metric::counter(
        "chronolith_wal_segments_prepared_total",
        "WAL segments begun in a file that was prepared ahead.",
        |stats| stats.head.wal.spare_used_count as f64,
    ),
    Metric::counter(
        "chronolith_wal_segments_unprepared_total",
        "WAL segments begun when no file was prepared: their commits take longer.",
        |stats| stats.head.wal.spare_missing_count as f64,
    ),
    Metric::gauge("chronolith_wal_poisoned", "Whether the WAL refuses writes until a restart.", |stats| {
        flag(stats.head.wal.is_poisoned)
    }),
    Metric::gauge("chronolith_disk_full", "Whether writes are refused for lack of space.", |stats| {
        flag(stats.head.wal.is_disk_full)
    }),
];

/// Maintenance jobs by kind.
pub(crate) static MAINTENANCE: &[Metric<TsdbStats>] = &[
    Metric::counters(
        "chronolith_maintenance_runs_total",
        &["kind"],
        "Maintenance jobs run.",
        |stats, samples| {
            push_jobs(stats, samples, |job| job.run_count as f64);
        },
    ),
    Metric::counters(
        "chronolith_maintenance_failures_total",
        &["kind"],
        "Maintenance jobs that failed and are retried.",
        |stats, samples| push_jobs(stats, samples, |job| job.failure_count as f64),
    ),
    Metric::counters(
        "chronolith_maintenance_duration_seconds_total",
        &["kind"],
        "Time spent in maintenance jobs.",
        |stats, samples| push_jobs(stats, samples, |job| job.busy_ns as f64 / 1e9),
    ),
    Metric::gauges(
        "chronolith_maintenance_queue_length",
        &["kind"],
        "Queued maintenance jobs.",
        |stats, samples| push_jobs(stats, samples, |job| job.queued_count as f64),
    ),
    Metric::gauges(
        "chronolith_maintenance_queue_bytes",
        &["kind"],
        "Estimated bytes that queued maintenance jobs read or write.",
        |stats, samples| push_jobs(stats, samples, |job| job.queued_bytes as f64),
    ),
    Metric::gauges(
        "chronolith_maintenance_queue_overdue_seconds",
        &["kind"],
        "Time since the oldest queued maintenance job was due.",
        |stats, samples| push_jobs(stats, samples, |job| job.overdue_ms as f64 / 1000.0),
    ),
    Metric::gauges(
        "chronolith_maintenance_paused",
        &["kind"],
        "1 if maintenance jobs of the kind are paused.",
        |stats, samples| push_jobs(stats, samples, |job| flag(job.is_paused)),
    ),
];

fn flag(is_set: bool) -> f64 {
    f64::from(u8::from(is_set))
}

fn push_jobs(stats: &TsdbStats, samples: &mut Samples, value: fn(&JobStats) -> f64) {
    for job in &stats.maintenance.jobs {
        samples.push(&[job.kind.name()], value(job));
    }
}

/// Appends the metrics that the store names itself.
pub(crate) fn collect_named(stats: &TsdbStats, families: &mut Vec<Family>) {
    families.extend(stats.metrics.iter().map(|metric| {
        let kind = match metric.kind {
            MetricKind::Counter => FamilyKind::Counter,
            MetricKind::Gauge => FamilyKind::Gauge,
        };
        let sample = FamilySample { suffix: "", labels: Vec::new(), value: metric.value };
        let name = format!("chronolith_{}", metric.name);
        Family { name, kind, help: metric.help, samples: vec![sample] }
    }));
}
