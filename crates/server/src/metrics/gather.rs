//! Everything the server says about itself, as families. Holds: names start with `chronolith_` but for the
//! `process_` ones every dashboard knows.

use chronolith_model::Reject;
use chronolith_tsdb::{JobStats, MetricKind, TsdbStats};

use super::exposition::{Family, FamilyKind, FamilySample};
use super::{REFUSED_REASONS, Seconds, process};
use crate::app::App;
use crate::memory::Memory;

/// All families at this moment.
pub(crate) fn gather(app: &App) -> Vec<Family> {
    let mut sheet = Sheet::default();
    build_and_process(app, &mut sheet);
    requests(app, &mut sheet);
    writes(app, &mut sheet);
    queries(app, &mut sheet);
    remote_reads(app, &mut sheet);
    federation(app, &mut sheet);
    admission(app, &mut sheet);
    memory(app, &mut sheet);
    tenants(app, &mut sheet);
    match app.store.get() {
        Some(store) => tsdb(&store.stats(), &mut sheet),
        None => replay(app, &mut sheet),
    }
    sheet.families
}

/// Collects families.
#[derive(Default)]
struct Sheet {
    families: Vec<Family>,
}

impl Sheet {
    fn family(&mut self, name: &str, kind: FamilyKind, help: &'static str, samples: Vec<FamilySample>) {
        self.families.push(Family { name: format!("chronolith_{name}"), kind, help, samples });
    }

    fn gauge(&mut self, name: &str, help: &'static str, value: f64) {
        self.family(name, FamilyKind::Gauge, help, vec![plain(value)]);
    }

    fn counter(&mut self, name: &str, help: &'static str, value: f64) {
        debug_assert!(name.ends_with("_total"), "counters end in _total: {name}");
        self.family(name, FamilyKind::Counter, help, vec![plain(value)]);
    }

    fn process(&mut self, name: &str, kind: FamilyKind, help: &'static str, value: Option<f64>) {
        let Some(value) = value else { return };
        let name = format!("process_{name}");
        self.families.push(Family { name, kind, help, samples: vec![plain(value)] });
    }
}

fn plain(value: f64) -> FamilySample {
    FamilySample { suffix: "", labels: Vec::new(), value }
}

fn labelled(label: &'static str, text: &str, value: f64) -> FamilySample {
    FamilySample { suffix: "", labels: vec![(label, text.to_owned())], value }
}

fn histogram(seconds: &Seconds, labels: &[(&'static str, String)], out: &mut Vec<FamilySample>) {
    let (buckets, sum) = seconds.cumulative();
    let count = buckets.last().map_or(0, |(_, count)| *count);
    for (bound, count) in buckets {
        let mut labels = labels.to_vec();
        let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
        labels.push(("le", bound));
        out.push(FamilySample { suffix: "_bucket", labels, value: count as f64 });
    }
    out.push(FamilySample { suffix: "_sum", labels: labels.to_vec(), value: sum });
    out.push(FamilySample { suffix: "_count", labels: labels.to_vec(), value: count as f64 });
}

fn build_and_process(app: &App, sheet: &mut Sheet) {
    let build = labelled("version", crate::VERSION, 1.0);
    sheet.family("build_info", FamilyKind::Gauge, "Version of the running binary.", vec![build]);
    let stats = process::read(&app.env);
    let (gauge, counter) = (FamilyKind::Gauge, FamilyKind::Counter);
    sheet.process("cpu_seconds_total", counter, "User and system CPU time.", stats.cpu_seconds);
    sheet.process("resident_memory_bytes", gauge, "Resident memory.", stats.resident_bytes);
    sheet.process("virtual_memory_bytes", gauge, "Virtual memory.", stats.virtual_bytes);
    sheet.process("threads", gauge, "Threads of the operating system.", stats.threads);
    sheet.process("open_fds", gauge, "Open file descriptors.", stats.open_fds);
    let started = app.started_ms as f64 / 1000.0;
    sheet.process("start_time_seconds", gauge, "When the process started, since 1970.", Some(started));
    sheet.gauge("ready", "Whether queries and writes are answered.", f64::from(u8::from(app.is_ready())));
}

fn requests(app: &App, sheet: &mut Sheet) {
    let (mut durations, mut bytes) = (Vec::new(), Vec::new());
    for ((route, code), stat) in app.metrics.routes() {
        let labels = [("route", route), ("code", code.to_string())];
        histogram(&stat.duration, &labels, &mut durations);
        let value = stat.answer_bytes.get() as f64;
        bytes.push(FamilySample { suffix: "", labels: labels.to_vec(), value });
    }
    let help = "Time from the headers of a request to those of its answer, by route and code.";
    sheet.family("http_request_duration_seconds", FamilyKind::Histogram, help, durations);
    let help =
        "Bytes of answers that are sent as they are, by route and code; compressed ones are not counted.";
    sheet.family("http_response_bytes_total", FamilyKind::Counter, help, bytes);
    let connection = &app.metrics.connection;
    sheet.gauge("http_connections", "Open connections.", app.connections.count() as f64);
    sheet.gauge("http_connections_limit", "Connections at most.", app.connections.count_max() as f64);
    let accepted = connection.accepted.get() as f64;
    sheet.counter("http_connections_accepted_total", "Connections accepted.", accepted);
    let evicted = connection.evicted.get() as f64;
    sheet.counter("http_connections_evicted_total", "Idle connections closed to make room.", evicted);
    let failed = connection.failed.get() as f64;
    sheet.counter("http_accept_failures_total", "Connections that could not be accepted.", failed);
    let reloads = app.metrics.reload_failures.get() as f64;
    sheet.counter("config_reload_failures_total", "Reloads refused because of errors in the file.", reloads);
}

fn writes(app: &App, sheet: &mut Sheet) {
    let write = &app.metrics.write;
    let accepted = write.samples_accepted.get() as f64;
    sheet.counter("write_samples_accepted_total", "Samples stored, repeats included.", accepted);
    let repeated = write.samples_repeated.get() as f64;
    sheet.counter("write_samples_repeated_total", "Samples that were stored already.", repeated);
    let rejected = Reject::ALL.iter().zip(&write.samples_rejected);
    let rejected = rejected.map(|(kind, count)| labelled("reason", kind.reason(), count.get() as f64));
    let help = "Samples refused, by reason.";
    sheet.family("write_samples_rejected_total", FamilyKind::Counter, help, rejected.collect());
    let refused = REFUSED_REASONS.iter().zip(&write.requests_refused);
    let refused = refused.map(|(reason, count)| labelled("reason", reason, count.get() as f64));
    let help = "Write requests that a limit refused as a whole, by reason.";
    sheet.family("write_requests_refused_total", FamilyKind::Counter, help, refused.collect());
    let created = write.series_created.get() as f64;
    sheet.counter("write_series_created_total", "Series seen for the first time.", created);
    let exemplars = write.exemplars_accepted.get() as f64;
    sheet.counter("write_exemplars_accepted_total", "Exemplars kept, repeats included.", exemplars);
    let late = write.exemplars_late.get() as f64;
    sheet.counter("write_exemplars_late_total", "Exemplars of remote write 2.0 out of order.", late);
    let starts = write.start_times.get() as f64;
    sheet.counter("write_start_times_total", "Samples that came with a start time.", starts);
    let compressed = write.bytes_compressed.get() as f64;
    sheet.counter("write_compressed_bytes_total", "Bytes of write requests as sent.", compressed);
    let decompressed = write.bytes_decompressed.get() as f64;
    sheet.counter("write_decompressed_bytes_total", "Bytes of write requests unpacked.", decompressed);
    sheet.counter("write_failures_total", "Batches refused by the store.", write.failures.get() as f64);
    for (name, seconds, help) in [
        ("write_decode_duration_seconds", &write.decode, "Time to unpack and decode a batch."),
        ("write_append_duration_seconds", &write.append, "Time to append a batch and make it durable."),
    ] {
        let mut samples = Vec::new();
        histogram(seconds, &[], &mut samples);
        sheet.family(name, FamilyKind::Histogram, help, samples);
    }
}

fn queries(app: &App, sheet: &mut Sheet) {
    let query = &app.metrics.query;
    let mut samples = Vec::new();
    histogram(&query.instant, &[("kind", "instant".to_owned())], &mut samples);
    histogram(&query.range, &[("kind", "range".to_owned())], &mut samples);
    let help = "Time to evaluate a query and print its answer.";
    sheet.family("query_duration_seconds", FamilyKind::Histogram, help, samples);
    sheet.counter("query_samples_total", "Samples read by queries.", query.samples.get() as f64);
    let ends = [("failed", &query.failed), ("canceled", &query.canceled), ("timeout", &query.timed_out)];
    let ends = ends.map(|(end, count)| labelled("end", end, count.get() as f64)).to_vec();
    sheet.family("query_failures_total", FamilyKind::Counter, "Queries without an answer.", ends);
    let cache = app.range_cache.counts();
    let finds = [("hit", cache.hits), ("partial", cache.partial_hits), ("miss", cache.misses)];
    let finds = finds.map(|(found, count)| labelled("found", found, count as f64)).to_vec();
    let help = "Range queries by what the cache of results had of them.";
    sheet.family("query_cache_requests_total", FamilyKind::Counter, help, finds);
    sheet.gauge("query_cache_bytes", "Memory of kept results.", cache.bytes as f64);
    sheet.gauge("query_cache_entries", "Kept results.", cache.entries as f64);
    let help = "Results that went to make room for others.";
    sheet.counter("query_cache_evictions_total", help, cache.evictions as f64);
    let killed = app.active.killed_count() as f64;
    sheet.counter("query_killed_total", "Queries killed by an operator.", killed);
    let (written, left_out) = app.slow_log.counts();
    let failures = app.query_log.failures.get() as f64;
    sheet.counter("query_log_failures_total", "Lines of the query log that could not be written.", failures);
    sheet.counter("query_slow_logged_total", "Lines of the slow query log.", written as f64);
    let help = "Slow queries without a line, because there were too many at once.";
    sheet.counter("query_slow_left_out_total", help, left_out as f64);
}

fn remote_reads(app: &App, sheet: &mut Sheet) {
    let read = &app.metrics.remote_read;
    let forms = [("samples", &read.messages), ("streamed_xor_chunks", &read.streams)];
    let forms = forms.map(|(form, count)| labelled("response_type", form, count.get() as f64)).to_vec();
    sheet.family("remote_read_requests_total", FamilyKind::Counter, "Remote reads by form of answer.", forms);
    let help = "Streamed answers that were cut off by an error or a client that left.";
    sheet.counter("remote_read_aborted_total", help, read.stream.aborted.get() as f64);
    for (name, help, count) in [
        ("remote_read_series_total", "Series sent by remote read.", &read.series),
        ("remote_read_samples_total", "Samples sent by remote read.", &read.samples),
    ] {
        sheet.counter(name, help, count.get() as f64);
    }
    let bytes = (read.message_bytes.get() + read.stream.bytes.get()) as f64;
    sheet.counter("remote_read_bytes_total", "Bytes of answers to remote read.", bytes);
}

fn federation(app: &App, sheet: &mut Sheet) {
    let federate = &app.metrics.federate;
    let help = "Answers to federation that were cut off by an error or a client that left.";
    sheet.counter("federate_aborted_total", help, federate.aborted.get() as f64);
    let help = "Bytes of answers to federation, before compression.";
    sheet.counter("federate_bytes_total", help, federate.bytes.get() as f64);
}

fn admission(app: &App, sheet: &mut Sheet) {
    let admission = &app.admission;
    let mut waits = Vec::new();
    for class in admission.classes() {
        let (name, queue) = (class.name, &class.queue);
        sheet.gauge(&format!("{name}_active"), "Requests at work.", queue.running() as f64);
        sheet.gauge(&format!("{name}_waiting"), "Requests in the queue.", queue.waiting() as f64);
        let refused = queue.refused() as f64;
        sheet.counter(&format!("{name}_refused_total"), "Requests refused in the queue.", refused);
        histogram(&queue.wait, &[("class", name.to_owned())], &mut waits);
    }
    let help = "Time in the queue of admission, by class, of requests that ran.";
    sheet.family("admission_wait_seconds", FamilyKind::Histogram, help, waits);
    for (name, budget) in [("write", &admission.write_memory.total), ("query", &admission.query_memory.total)]
    {
        let used = budget.used_bytes() as f64;
        sheet.gauge(&format!("{name}_memory_bytes"), "Memory reserved.", used);
        let peak = budget.peak_bytes() as f64;
        sheet.gauge(&format!("{name}_memory_peak_bytes"), "Most memory reserved since start.", peak);
        let limit = budget.limit_bytes() as f64;
        sheet.gauge(&format!("{name}_memory_limit_bytes"), "Memory that may be reserved.", limit);
    }
    sheet.gauge("write_batches_pooled", "Empty batches at hand.", app.batches.len() as f64);
    let panics = app.metrics.thread_panics.get() as f64;
    sheet.counter("background_panics_total", "Rounds of background threads that panicked.", panics);
    let failures = app.metrics.scrape_failures.get() as f64;
    sheet.counter("self_scrape_failures_total", "Own metrics that could not be stored.", failures);
}

fn memory(app: &App, sheet: &mut Sheet) {
    let memory = Memory::read(app, 0);
    let parts = memory.parts().map(|part| labelled("part", part.name, part.bytes as f64)).collect();
    sheet.family("memory_bytes", FamilyKind::Gauge, "Memory on the heap by consumer.", parts);
    let mapped =
        memory.store.mapped.iter().map(|part| labelled("part", part.name, part.bytes as f64)).collect();
    let help = "Files that are read through maps, resident or not.";
    sheet.family("memory_mapped_bytes", FamilyKind::Gauge, help, mapped);
    if let Some(bytes) = memory.unaccounted_bytes() {
        let help = "Resident memory of no file that is in no part: allocator, stacks, connections.";
        sheet.gauge("memory_unaccounted_bytes", help, bytes);
    }
}

fn tenants(app: &App, sheet: &mut Sheet) {
    let (mut accepted, mut rejected, mut queries) = (Vec::new(), Vec::new(), Vec::new());
    for (tenant, stat) in app.tenant_metrics.list() {
        accepted.push(labelled("tenant", &tenant, stat.accepted.get() as f64));
        queries.push(labelled("tenant", &tenant, stat.queries.get() as f64));
        for (kind, count) in Reject::ALL.iter().zip(&stat.rejected) {
            let labels = vec![("tenant", tenant.clone()), ("reason", kind.reason().to_owned())];
            rejected.push(FamilySample { suffix: "", labels, value: count.get() as f64 });
        }
    }
    // Reasons that never occurred are left out: there are many for each tenant.
    rejected.retain(|sample| sample.value > 0.0);
    let help = "Samples stored by tenant, repeats included.";
    sheet.family("tenant_samples_accepted_total", FamilyKind::Counter, help, accepted);
    let help = "Samples refused by tenant and reason.";
    sheet.family("tenant_samples_rejected_total", FamilyKind::Counter, help, rejected);
    let help = "Instant and range queries by tenant.";
    sheet.family("tenant_queries_total", FamilyKind::Counter, help, queries);
    if let Some(store) = app.store.get() {
        let series = app.tenant_metrics.split(store.head_series_by_tenant());
        let series = series.into_iter().map(|(tenant, count)| labelled("tenant", &tenant, count as f64));
        let help = "Series in the head by tenant.";
        sheet.family("tenant_head_series", FamilyKind::Gauge, help, series.collect());
    }
}

fn tsdb(stats: &TsdbStats, sheet: &mut Sheet) {
    sheet.gauge("head_series", "Series in the head, all tenants.", stats.head.series as f64);
    sheet.gauge("head_chunks", "Chunks in the head.", stats.head.chunks as f64);
    for (name, time, help) in [
        (
            "head_min_time_seconds",
            stats.head.min_time_ms,
            "Time of the oldest sample in the head, since 1970.",
        ),
        (
            "head_max_time_seconds",
            stats.head.max_time_ms,
            "Time of the newest sample in the head, since 1970.",
        ),
    ] {
        if let Some(ms) = time {
            sheet.gauge(name, help, ms as f64 / 1000.0);
        }
    }
    sheet.gauge("tenants", "Tenants with data.", stats.tenants as f64);
    sheet.gauge("blocks", "Blocks of all tenants.", stats.blocks as f64);
    sheet.gauge("block_bytes", "Bytes of all blocks.", stats.block_bytes as f64);
    sheet.gauge(
        "wal_bytes",
        "Bytes of WAL segments and checkpoint.",
        (stats.head.wal.segment_bytes + stats.head.checkpoint.bytes) as f64,
    );
    let spare_bytes = stats.head.wal.spare_bytes as f64;
    sheet.gauge("wal_spare_bytes", "Bytes of WAL segments prepared or kept for reuse.", spare_bytes);
    let sync_seconds = stats.head.wal.sync_ns as f64 / 1e9;
    sheet.counter("wal_sync_seconds_total", "Time spent in syncs of the WAL.", sync_seconds);
    tsdb_counters(stats, sheet);
    let flag = |set: bool| f64::from(u8::from(set));
    sheet.gauge(
        "wal_poisoned",
        "Whether the WAL refuses writes until a restart.",
        flag(stats.head.wal.is_poisoned),
    );
    sheet.gauge(
        "disk_full",
        "Whether writes are refused for lack of space.",
        flag(stats.head.wal.is_disk_full),
    );
    sheet.gauge("replay_duration_seconds", "Duration of the last replay.", stats.replay.ms as f64 / 1000.0);
    let notes = stats.replay.notes.len() as f64;
    sheet.gauge("replay_notes", "Findings of the last replay (torn tail, damaged frames).", notes);
    for metric in &stats.metrics {
        let kind = match metric.kind {
            MetricKind::Counter => FamilyKind::Counter,
            MetricKind::Gauge => FamilyKind::Gauge,
        };
        sheet.family(metric.name, kind, metric.help, vec![plain(metric.value)]);
    }
    maintenance_jobs(&stats.maintenance.jobs, sheet);
}

/// Maintenance jobs, by kind.
fn maintenance_jobs(jobs: &[JobStats], sheet: &mut Sheet) {
    let mut family = |name, kind, help, value: fn(&JobStats) -> f64| {
        let samples = jobs.iter().map(|job| labelled("kind", job.kind.name(), value(job)));
        sheet.family(name, kind, help, samples.collect());
    };
    let (gauge, counter) = (FamilyKind::Gauge, FamilyKind::Counter);
    family("maintenance_runs_total", counter, "Maintenance jobs run.", |job| job.run_count as f64);
    let help = "Maintenance jobs that failed and are retried.";
    family("maintenance_failures_total", counter, help, |job| job.failure_count as f64);
    let help = "Time spent in maintenance jobs.";
    family("maintenance_duration_seconds_total", counter, help, |job| job.busy_ns as f64 / 1e9);
    family("maintenance_queue_length", gauge, "Queued maintenance jobs.", |job| job.queued_count as f64);
    let help = "Estimated bytes that queued maintenance jobs read or write.";
    family("maintenance_queue_bytes", gauge, help, |job| job.queued_bytes as f64);
    let help = "Time since the oldest queued maintenance job was due.";
    family("maintenance_queue_overdue_seconds", gauge, help, |job| job.overdue_ms as f64 / 1000.0);
    let help = "1 if maintenance jobs of the kind are paused.";
    family("maintenance_paused", gauge, help, |job| f64::from(u8::from(job.is_paused)));
}

fn tsdb_counters(stats: &TsdbStats, sheet: &mut Sheet) {
    for (name, help, value) in [
        ("wal_syncs_total", "Syncs of the WAL.", stats.head.wal.sync_count),
        ("wal_batches_total", "Batches made durable.", stats.head.wal.batch_count),
        ("wal_written_bytes_total", "Bytes written to the WAL.", stats.head.wal.written_bytes),
        (
            "wal_segments_prepared_total",
            "WAL segments begun in a file that was prepared ahead.",
            stats.head.wal.spare_used_count,
        ),
        (
            "wal_segments_unprepared_total",
            "WAL segments begun when no file was prepared: their commits take longer.",
            stats.head.wal.spare_missing_count,
        ),
        ("head_samples_appended_total", "Samples accepted by the head.", stats.head.samples.appended),
        (
            "head_samples_out_of_order_total",
            "Accepted samples that were out of order.",
            stats.head.samples.out_of_order,
        ),
        (
            "head_samples_ooo_sealed_total",
            "Out-of-order samples encoded as chunks.",
            stats.head.samples.ooo_sealed,
        ),
        ("head_samples_with_start_total", "Samples stored with a start time.", stats.head.samples.with_start),
        ("flushes_total", "Windows flushed to blocks.", stats.maintenance.flush_count),
        (
            "retention_removed_blocks_total",
            "Blocks removed by retention.",
            stats.maintenance.retention_removed_count,
        ),
        ("checkpoints_total", "Whole checkpoints written.", stats.head.checkpoint.count),
        ("checkpoint_slices_total", "Slices of the checkpoint written.", stats.head.checkpoint.slice_count),
        (
            "checkpoint_written_bytes_total",
            "Bytes written to slices and definitions.",
            stats.head.checkpoint.slice_bytes,
        ),
    ] {
        sheet.counter(name, help, value as f64);
    }
}

fn replay(app: &App, sheet: &mut Sheet) {
    let progress = app.replay_snapshot();
    sheet.gauge("replay_bytes", "Bytes replayed so far.", progress.bytes_done as f64);
    sheet.gauge("replay_expected_bytes", "Bytes to replay.", progress.bytes_total as f64);
}
