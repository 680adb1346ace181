//! Table of all settings. Invariant: a name is the same in flag, environment variable, file and error
//! texts.
//! Not here: the form of a declaration (`declaration`), parsing of values (`value`).

use super::declaration::{Form, Setting};
use super::value::{self, set};
use super::{bucket, carbon, cluster, fetch_limits, nodes, rules, selection_limits};

/// A group of settings with its heading.
pub(super) struct Group {
    pub(super) title: &'static str,
    pub(super) settings: &'static [Setting],
}

/// All groups, in the order of help, reference and the page of settings.
pub(super) static GROUPS: [Group; 12] = [
    Group { title: "Network", settings: NETWORK },
    Group { title: "Storage", settings: STORAGE },
    Group { title: "Limits of series and samples", settings: LIMITS },
    Group { title: "Queries", settings: QUERIES },
    Group { title: "Writes", settings: WRITES },
    Group { title: "Rules and alerts", settings: rules::SETTINGS },
    Group { title: "InfluxDB", settings: INFLUXDB },
    Group { title: "Graphite", settings: GRAPHITE },
    Group { title: "Bucket", settings: bucket::SETTINGS },
    Group { title: "Roles and replicated log", settings: cluster::SETTINGS },
    Group { title: "Nodes of a cluster", settings: nodes::SETTINGS },
    Group { title: "Metrics and log", settings: LOG },
];

/// All settings, in the order of [`GROUPS`].
pub(super) fn all_settings() -> impl Iterator<Item = &'static Setting> {
    GROUPS.iter().flat_map(|group| group.settings)
}

static NETWORK: &[Setting] = &[
    Setting::server(
        "http",
        "127.0.0.1:9595",
        Form::Text("HOST:PORT"),
        "Address of the HTTP APIs and the web interface; without --access.file everybody who reaches it may do everything",
        |s, v| set(&mut s.server.listen, value::host_and_port(v)),
    ),
    Setting::server(
        "multitenancy",
        "false",
        Form::Switch,
        "Take the tenant from X-Scope-OrgID; otherwise all is one tenant",
        |s, v| set(&mut s.server.service.multitenancy, value::switch(v)),
    ),
    Setting::server(
        "access.file",
        "",
        Form::Text("FILE"),
        "File with principals (credentials, tenants, scopes), read again when it changes; empty = no login is asked for",
        |s, v| set(&mut s.server.service.access.file, value::file_or_none(v)),
    ),
    Setting::server(
        "access.required",
        "false",
        Form::Switch,
        "Do not start with a listener that other hosts reach and that asks for no credentials",
        |s, v| set(&mut s.server.web.access_required, value::switch(v)),
    ),
    Setting::server(
        "audit.file",
        "",
        Form::Text("FILE"),
        "File with one line of JSON per admin action and per refused login, opened again by a reload; empty = none",
        |s, v| set(&mut s.server.service.audit.file, value::file_or_none(v)),
    ),
    Setting::server(
        "audit.file-size",
        "64MiB",
        Form::Size,
        "Size from which the audit log is renamed to FILE.1 and a new one begun, at least 64KiB",
        |s, v| set(&mut s.server.service.audit.file_bytes_max, value::size_at_least(v, 64 << 10)),
    ),
    Setting::server(
        "audit.file-count",
        "10",
        Form::Count,
        "Renamed files of the audit log that are kept, at least 1",
        |s, v| set(&mut s.server.service.audit.file_count_max, value::count(v)),
    ),
    Setting::server(
        "audit.queries",
        "false",
        Form::Switch,
        "Write a line to the audit log for each query too, of all languages",
        |s, v| set(&mut s.server.service.audit.has_queries, value::switch(v)),
    ),
    Setting::server(
        "web.config.file",
        "",
        Form::Text("FILE"),
        "Prometheus's web configuration file: TLS, users, headers, rate limit; read again when it or a certificate changes; empty = none",
        |s, v| set(&mut s.server.web.config_file, value::file_or_none(v)),
    ),
    Setting::server(
        "web.external-url",
        "",
        Form::Text("URL"),
        "URL by which clients reach the server, for example that of a proxy; empty = not known",
        |s, v| set(&mut s.server.web.external_url, value::external_url(v)),
    ),
    Setting::server(
        "web.route-prefix",
        "",
        Form::Text("PATH"),
        "Prefix of the paths of all routes; empty = the path of --web.external-url, / = none",
        |s, v| set(&mut s.server.web.route_prefix, value::route_prefix(v)),
    ),
    Setting::server(
        "web.enable-admin-api",
        "false",
        Form::Switch,
        "Enable the admin API: delete series, clean tombstones, snapshots, pause of compaction",
        |s, v| set(&mut s.server.web.admin_api, value::switch(v)),
    ),
    Setting::server(
        "web.enable-lifecycle",
        "false",
        Form::Switch,
        "Enable POST /-/reload; SIGHUP reloads in any case",
        |s, v| set(&mut s.server.web.lifecycle, value::switch(v)),
    ),
    Setting::server(
        "web.buildinfo-mimir",
        "false",
        Form::Switch,
        "Describe a Grafana Mimir in /api/v1/status/buildinfo, so that Grafana lets people edit rules",
        |s, v| set(&mut s.server.web.mimir_buildinfo, value::switch(v)),
    ),
    Setting::server(
        "web.cors.origin",
        "",
        Form::Text("REGEX"),
        "Origins whose pages may use the API, an anchored regular expression; empty = its own only",
        |s, v| set(&mut s.server.web.cors_origin, value::cors_origin(v)),
    ),
    Setting::server(
        "web.allowed-hosts",
        "",
        Form::Text("LIST"),
        "Hosts that requests may name (NAME, *.NAME, ADDRESS, each also with :PORT), separated by commas; empty = all",
        |s, v| set(&mut s.server.web.allowed_hosts, value::allowed_hosts(v)),
    ),
    Setting::server(
        "shutdown-delay",
        "0s",
        Form::Duration,
        "How long /-/ready is 503 before the listener closes, at most 20s; for load balancers",
        |s, v| set(&mut s.server.web.shutdown_delay, value::shutdown_delay(v)),
    ),
    carbon::LISTEN,
    carbon::PICKLE_LISTEN,
    carbon::TLS,
    carbon::ALLOW,
    Setting::server(
        "influx.udp",
        "",
        Form::Text("LIST"),
        "UDP listeners of line protocol: host:port/DATABASE[/POLICY[/PRECISION]], separated by commas",
        |s, v| set(&mut s.server.service.influx.udp, value::udp_listeners(v)),
    ),
];

static STORAGE: &[Setting] = &[
    Setting::server(
        "data-dir",
        "./data",
        Form::Text("DIR"),
        "Data directory: WAL, checkpoint, blocks, snapshots",
        |s, v| set(&mut s.server.service.tsdb.data_dir, value::directory(v)),
    ),
    Setting::server(
        "sync",
        "fsync",
        Form::Choice("fsync|interval=100ms|os"),
        "When a write is acknowledged: fsync, interval=100ms, os",
        |s, v| set(&mut s.server.service.tsdb.sync, value::sync_mode(v)),
    ),
    Setting::tenant(
        "retention",
        &[],
        "0",
        Form::Duration,
        "Age from which samples are removed; 0 keeps all",
        |l, v| set(&mut l.retention_ms, value::duration(v)),
    ),
    Setting::server(
        "retention-size",
        "0",
        Form::Size,
        "Bytes of blocks to keep, oldest go first; 0 keeps all",
        |s, v| set(&mut s.server.service.tsdb.retention.bytes_max, value::size(v)),
    ),
    Setting::server(
        "retention-clock-guard",
        "24h",
        Form::Duration,
        "How long removal by age waits after the clock has jumped ahead by more than 1h; 0 = not at all",
        |s, v| set(&mut s.server.service.tsdb.retention.clock_guard_ms, value::duration(v)),
    ),
    Setting::server(
        "flush-delay",
        "1h",
        Form::Duration,
        "How long after its end a two-hour window becomes a block",
        |s, v| set(&mut s.server.service.tsdb.flush.delay_ms, value::duration(v)),
    ),
    Setting::server(
        "flush-small-window",
        "1MiB",
        Form::Size,
        "A smaller window waits for others of its day, at most 24 times flush-delay; 0 = none waits",
        |s, v| set(&mut s.server.service.tsdb.flush.small_window_bytes, value::size(v)),
    ),
    Setting::server(
        "idle-after",
        "15m",
        Form::Duration,
        "How long a series may take no samples until it leaves memory for a block; 0 = until its window ends",
        |s, v| set(&mut s.server.service.tsdb.idle.after_ms, value::duration(v)),
    ),
    Setting::server(
        "wal-checkpoint-size",
        "4GiB",
        Form::Size,
        "Size of the WAL that forces a checkpoint",
        |s, v| set(&mut s.server.service.tsdb.wal.checkpoint_bytes, value::size_at_least(v, 1 << 20)),
    ),
    Setting::tenant(
        "out-of-order-window",
        &["out_of_order_window"],
        "0",
        Form::Duration,
        "Age of samples that are still taken; 0 = any within the retention",
        |l, v| set(&mut l.out_of_order_ms, value::duration(v)),
    ),
    Setting::tenant(
        "duplicates",
        &[],
        "keep_first",
        Form::Choice("keep_first|last_wins"),
        "Which of two values of a series and time stays: keep_first or last_wins",
        |l, v| set(&mut l.duplicates, value::duplicate_policy(v)),
    ),
    Setting::tenant(
        "block-encoding",
        &["block_encoding"],
        "dense",
        Form::Choice("dense|prometheus"),
        "Chunks of new blocks: dense (a third of the bytes) or prometheus (XOR, read by Prometheus and Thanos)",
        |l, v| set(&mut l.block_encoding, value::block_encoding(v)),
    ),
    Setting::server(
        "compaction-size",
        "2GiB",
        Form::Size,
        "Bytes of a block that compaction writes, larger ones are split by series; 0 switches compaction off",
        |s, v| set(&mut s.server.service.tsdb.compaction.block_bytes_max, value::size(v)),
    ),
    Setting::server(
        "compaction-rate",
        "64MiB",
        Form::Size,
        "Bytes per second that compaction reads and writes at most; 0 = no limit",
        |s, v| set(&mut s.server.service.tsdb.compaction.bytes_per_second, value::size(v)),
    ),
    Setting::server(
        "open-block-maps",
        "8192",
        Form::Count,
        "Memory maps of open blocks at most; Linux grants a process 65530 for everything",
        |s, v| set(&mut s.server.service.tsdb.open_blocks.maps_max, value::count(v).map(|n| n as u64)),
    ),
    Setting::server(
        "open-block-memory",
        "512MiB",
        Form::Size,
        "Memory of open blocks at most, mapped files aside; a quarter of it is kept for the next query",
        |s, v| set(&mut s.server.service.tsdb.open_blocks.bytes_max, value::size_at_least(v, 1 << 20)),
    ),
    Setting::server(
        "min-free-space",
        "64MiB",
        Form::Size,
        "Writes are refused when less is free on the disk",
        |s, v| set(&mut s.server.service.tsdb.free_bytes_min, value::size(v)),
    ),
    Setting::server(
        "head-memory-limit",
        "50%",
        Form::Text("SIZE|PERCENT"),
        "Memory of the head of all tenants, as a size or as a part of the cgroup's or machine's; 429 beyond it; 0 = no limit",
        |s, v| set(&mut s.server.service.tsdb.head_memory.limit, value::head_memory(v)),
    ),
    Setting::server(
        "head-memory-tenant-share",
        "25%",
        Form::Text("PERCENT"),
        "Part of head-memory-limit that one tenant may use with multitenancy; 429 for that tenant beyond it; 100% = no share",
        |s, v| set(&mut s.server.service.tsdb.head_memory.tenant_percent, value::percent(v)),
    ),
    Setting::server(
        "histogram-memory",
        "1GiB",
        Form::Size,
        "Memory of open chunks and out-of-order samples of native histograms; beyond it they go to chunk files early",
        |s, v| set(&mut s.server.service.tsdb.histogram_bytes_max, value::size_at_least(v, 1 << 20)),
    ),
];

static LIMITS: &[Setting] = &[
    Setting::tenant(
        "future-limit",
        &["future_window"],
        "10m",
        Form::Duration,
        "How far samples may lie ahead of the clock; 0 = no limit",
        |l, v| set(&mut l.future_ms_max, value::duration(v)),
    ),
    Setting::tenant(
        "series-limit",
        &["series_max"],
        "50000000",
        Form::Count,
        "Series of one tenant in the head",
        |l, v| set(&mut l.series_max, value::count(v)),
    ),
    Setting::tenant(
        "series-per-metric-limit",
        &[],
        "0",
        Form::Count,
        "Series of one metric in the head; 0 = no limit",
        |l, v| set(&mut l.ingestion.metric_series_max, value::count_or_none(v)),
    ),
    Setting::tenant(
        "series-overflow",
        &[],
        "reject",
        Form::Choice("reject|fold"),
        "Samples of series beyond series-limit or series-per-metric-limit: reject them, or fold them into one series per metric",
        |l, v| set(&mut l.ingestion.overflow, value::overflow_policy(v)),
    ),
    Setting::tenant(
        "overflow-series-limit",
        &[],
        "1000000",
        Form::Count,
        "Series of one tenant that are folded at the same time; samples of further ones are rejected",
        |l, v| set(&mut l.ingestion.overflow_series_max, value::count(v)),
    ),
    Setting::tenant(
        "overflow-histogram-memory",
        &[],
        "64MiB",
        Form::Size,
        "Memory of native histograms of one tenant that are folded; those of further series are rejected",
        |l, v| set(&mut l.ingestion.overflow_histogram_bytes_max, value::size_in_memory(v)),
    ),
    Setting::tenant(
        "values-per-label-limit",
        &[],
        "0",
        Form::Count,
        "Values of one label other than the name in the head; 0 = no limit",
        |l, v| set(&mut l.ingestion.label_values_max, value::count_or_none(v)),
    ),
    Setting::tenant(
        "influx.max-series-per-database",
        &[],
        "0",
        Form::Count,
        "Series, one per field, of a retention policy in the head; 0 = series-limit",
        |l, v| set(&mut l.databases.series_max, value::count_or_none(v)),
    ),
    Setting::tenant(
        "influx.max-values-per-tag",
        &[],
        "0",
        Form::Count,
        "Values of a tag of a measurement in the head, per retention policy; 0 = no limit",
        |l, v| set(&mut l.databases.tag_values_max, value::count_or_none(v)),
    ),
    Setting::tenant(
        "ingestion-rate",
        &[],
        "0",
        Form::Count,
        "Samples per second of one tenant, 429 beyond it; 0 = no limit",
        |l, v| set(&mut l.ingestion.rate, value::count_or_none(v).map(|n| n as u64)),
    ),
    Setting::tenant(
        "ingestion-burst",
        &[],
        "0",
        Form::Count,
        "Samples of one tenant at once, 400 for a request of more; 0 = ten seconds of ingestion-rate",
        |l, v| set(&mut l.ingestion.burst, value::count_or_none(v).map(|n| n as u64)),
    ),
    Setting::tenant(
        "ingestion-bytes-rate",
        &[],
        "0",
        Form::Size,
        "Bytes per second of unpacked writes of one tenant, 429 beyond it; 0 = no limit",
        |l, v| set(&mut l.ingestion.bytes_rate, value::size(v)),
    ),
    Setting::tenant(
        "ingestion-bytes-burst",
        &[],
        "0",
        Form::Size,
        "Bytes of one tenant at once, 400 for a request of more; 0 = ten seconds of ingestion-bytes-rate",
        |l, v| set(&mut l.ingestion.bytes_burst, value::size(v)),
    ),
    Setting::tenant(
        "label-count-limit",
        &["label_count_max"],
        "128",
        Form::Count,
        "Labels of one series",
        |l, v| set(&mut l.label_count_max, value::count(v)),
    ),
    Setting::tenant(
        "label-name-length-limit",
        &["label_name_bytes_max"],
        "1KiB",
        Form::Size,
        "Bytes of a label name",
        |l, v| set(&mut l.label_name_bytes_max, value::size_in_memory(v)),
    ),
    Setting::tenant(
        "label-value-length-limit",
        &["label_value_bytes_max"],
        "16KiB",
        Form::Size,
        "Bytes of a label value",
        |l, v| set(&mut l.label_value_bytes_max, value::size_in_memory(v)),
    ),
    Setting::server(
        "exemplar-limit",
        "100000",
        Form::Count,
        "Exemplars kept in memory; 0 keeps none",
        |s, v| set(&mut s.server.service.tsdb.exemplar_count_max, value::count_or_none(v)),
    ),
];

static QUERIES: &[Setting] = &[
    Setting::server("query.timeout", "2m", Form::Duration, "Longest run of a query", |s, v| {
        set(&mut s.server.service.query.timeout_ms, value::duration_positive(v))
    }),
    Setting::server("query.concurrency", "20", Form::Count, "Queries at work at once", |s, v| {
        set(&mut s.server.service.query.concurrency, value::permits(v))
    }),
    Setting::server(
        "query.max-samples",
        "50000000",
        Form::Count,
        "Samples one query may hold at once",
        |s, v| set(&mut s.server.service.query.samples_max, value::count(v).map(|n| n as u64)),
    ),
    Setting::server(
        "query.memory",
        "1GiB",
        Form::Size,
        "Memory of one query, its response included",
        |s, v| set(&mut s.server.service.query.memory_bytes_max, value::size_at_least(v, 1 << 20)),
    ),
    Setting::server("query.memory-total", "2GiB", Form::Size, "Memory of all queries together", |s, v| {
        set(&mut s.server.service.query.memory_total_bytes_max, value::size_at_least(v, 1 << 20))
    }),
    Setting::server(
        "query.lookback",
        "5m",
        Form::Duration,
        "How far a query looks back for the latest sample",
        |s, v| {
            set(&mut s.server.service.query.lookback_ms, value::duration_positive(v).map(u64::cast_signed))
        },
    ),
    Setting::server(
        "query.read-limit",
        "64GiB",
        Form::Size,
        "Samples (16 B each) that one query may read, by estimate",
        |s, v| set(&mut s.server.service.query.read_bytes_max, value::size_at_least(v, 1 << 20)),
    )
    .hidden(),
    Setting::server(
        "query.cache-size",
        "64MiB",
        Form::Size,
        "Memory of the result cache of range queries; 0 turns it off",
        |s, v| set(&mut s.server.service.query.cache_bytes_max, value::size(v)),
    ),
    Setting::server(
        "query.align-steps",
        "off",
        Form::Choice("on|off"),
        "Round start and end of range queries down to multiples of their step, so that the result cache serves them",
        |s, v| set(&mut s.server.service.query.align_steps, value::switch(v)),
    ),
    Setting::server(
        "query.log-slow",
        "0",
        Form::Duration,
        "Queries that take longer go to the log with their plan, target slow_query; 0 = none",
        |s, v| set(&mut s.server.service.query.log_slow_ms, value::duration(v).map(i64::unsigned_abs)),
    ),
    Setting::server(
        "query.log-file",
        "",
        Form::Text("FILE"),
        "File to which all queries are written as JSON, opened again by a reload; empty = none",
        |s, v| set(&mut s.server.service.query.log_file, value::file_or_none(v)),
    ),
    Setting::tenant(
        "weight",
        &[],
        "10",
        Form::Count,
        "Part of a tenant in permits and memory relative to other tenants, from 1 to 100",
        |l, v| set(&mut l.weight, value::weight(v)),
    ),
    Setting::tenant(
        "query.tenant-concurrency",
        &["query_concurrency_max"],
        "0",
        Form::Count,
        "Queries of one tenant at work at once; 0 = with multitenancy a quarter of all, at most one per two cores; else all",
        |l, v| set(&mut l.queries.concurrency_max, value::permits_or_none(v)),
    ),
    Setting::tenant(
        "query.tenant-memory",
        &["query_memory_bytes_max"],
        "0",
        Form::Size,
        "Memory of all queries of one tenant; 0 = a quarter of all with multitenancy, else all",
        |l, v| set(&mut l.queries.memory_bytes_max, value::size(v)),
    ),
    Setting::tenant(
        "query.max-lookback",
        &[],
        "0",
        Form::Duration,
        "Age from which queries see no samples: their start is moved; 0 = they see all",
        |l, v| set(&mut l.queries.lookback_ms, value::duration(v)),
    ),
    selection_limits::SERIES,
    selection_limits::SAMPLES,
    selection_limits::RANGE,
    fetch_limits::BYTES,
    fetch_limits::SERIES,
    fetch_limits::CHUNKS,
    Setting::server(
        "storage.remote.read-sample-limit",
        "50000000",
        Form::Count,
        "Samples of one remote read query whose response is not streamed; 0 = no limit",
        |s, v| set(&mut s.server.service.remote_read.samples_max, value::count_or_none(v).map(|n| n as u64)),
    ),
    Setting::server(
        "storage.remote.read-concurrent-limit",
        "10",
        Form::Count,
        "Remote reads at work at once",
        |s, v| set(&mut s.server.service.remote_read.concurrency, value::permits(v)),
    ),
    Setting::server(
        "storage.remote.read-max-bytes-in-frame",
        "1MiB",
        Form::Size,
        "Bytes of a frame of a streamed remote read; clients have a limit, too",
        |s, v| set(&mut s.server.service.remote_read.frame_bytes_max, value::size_in_memory(v)),
    ),
];

static WRITES: &[Setting] = &[
    Setting::server("write.max-compressed", "32MiB", Form::Size, "Largest write request as sent", |s, v| {
        set(&mut s.server.service.write.compressed_bytes_max, value::size_in_memory(v))
    }),
    Setting::server(
        "write.max-decompressed",
        "64MiB",
        Form::Size,
        "Largest write request unpacked",
        |s, v| set(&mut s.server.service.write.decompressed_bytes_max, value::size_in_memory(v)),
    ),
    Setting::server("write.concurrency", "64", Form::Count, "Write requests at work at once", |s, v| {
        set(&mut s.server.service.write.concurrency, value::permits(v))
    }),
    Setting::server("write.memory", "512MiB", Form::Size, "Memory of all write requests together", |s, v| {
        set(&mut s.server.service.write.memory_bytes_max, value::size_at_least(v, 1 << 20))
    }),
];

static INFLUXDB: &[Setting] = &[
    Setting::server(
        "influx.auth-enabled",
        "false",
        Form::Switch,
        "Require the credentials of a user for /write and /query",
        |s, v| set(&mut s.server.service.influx.auth_enabled, value::switch(v)),
    ),
    Setting::server(
        "influx.shared-secret",
        "",
        Form::Secret,
        "Secret of JSON web tokens (HS256, HS384, HS512); empty = no tokens. Better given as a variable or in the file",
        |s, v| set(&mut s.server.service.influx.shared_secret, Ok(v.to_owned())),
    ),
    Setting::server(
        "influx.version",
        "1.8.10",
        Form::Text("VERSION"),
        "Version in X-Influxdb-Version, by which clients choose what they send",
        |s, v| set(&mut s.server.service.influx.version, value::header_text(v)),
    ),
    Setting::server(
        "influx.prometheus-database",
        "",
        Form::Text("NAME"),
        "Name under which InfluxQL reads the series of other protocols as a read-only database; empty = not at all",
        |s, v| {
            set(
                &mut s.server.service.influx.prometheus_database,
                Ok(Some(v.to_owned()).filter(|v| !v.is_empty())),
            )
        },
    ),
    Setting::server(
        "influx.field-separator",
        "_",
        Form::Text("TEXT"),
        "Text between measurement and field in the metric names of PromQL",
        |s, v| set(&mut s.server.service.tsdb.field_separator, Ok(v.to_owned())),
    ),
    Setting::server(
        "influx.max-body-size",
        "25MB",
        Form::Size,
        "Largest write in line protocol as sent; unpacked, write.max-decompressed holds",
        |s, v| set(&mut s.server.service.influx.body_bytes_max, value::size_in_memory(v)),
    ),
    Setting::server("influx.max-line-size", "16MiB", Form::Size, "Longest line of line protocol", |s, v| {
        set(&mut s.server.service.influx.line_bytes_max, value::size_in_memory(v))
    }),
    Setting::server("influx.max-text-size", "1MiB", Form::Size, "Longest text of a field", |s, v| {
        set(&mut s.server.service.influx.text_bytes_max, value::size_in_memory(v))
    }),
    Setting::server(
        "text-bytes-limit",
        "256MiB",
        Form::Size,
        "Memory of different texts in the head of all tenants; at three quarters windows are flushed early",
        |s, v| set(&mut s.server.service.tsdb.texts.head_bytes_max, value::size_at_least(v, 1 << 20)),
    ),
    Setting::server(
        "influx.max-row-limit",
        "0",
        Form::Count,
        "Rows of a query response that is not chunked; the rest is cut and marked partial; 0 = no limit",
        |s, v| set(&mut s.server.service.influx.row_count_max, value::count_or_none(v)),
    ),
    Setting::server(
        "influx.max-select-series",
        "0",
        Form::Count,
        "Series that a SELECT may read; 0 = no limit",
        |s, v| set(&mut s.server.service.influx.select_series_max, value::count_or_none(v)),
    )
    .hidden(),
    Setting::server(
        "influx.max-select-point",
        "0",
        Form::Count,
        "Points that a SELECT may read; 0 = no limit",
        |s, v| set(&mut s.server.service.influx.select_point_max, value::count_or_none(v)),
    )
    .hidden(),
    Setting::server(
        "influx.max-select-buckets",
        "0",
        Form::Count,
        "Windows of GROUP BY time() that a SELECT may make; 0 = no limit",
        |s, v| set(&mut s.server.service.influx.select_bucket_max, value::count_or_none(v)),
    )
    .hidden(),
    Setting::server(
        "influx.query-timeout",
        "0s",
        Form::Duration,
        "Longest run of a request with InfluxQL; 0 = query.timeout",
        |s, v| set(&mut s.server.service.influx.query_timeout_ms, value::duration(v).map(i64::unsigned_abs)),
    ),
    Setting::server(
        "influx.max-concurrent-queries",
        "0",
        Form::Count,
        "Requests with InfluxQL of a tenant at once, refused beyond it; 0 = no limit, they wait as query.concurrency says",
        |s, v| set(&mut s.server.service.influx.concurrent_query_max, value::count_or_none(v)),
    ),
    Setting::server(
        "influx.continuous-queries",
        "true",
        Form::Switch,
        "Run the continuous queries of the databases",
        |s, v| set(&mut s.server.service.influx.runs_continuous_queries, value::switch(v)),
    ),
];

static GRAPHITE: &[Setting] = &[
    carbon::SYNC_INTERVAL,
    carbon::SCHEMAS,
    carbon::AGGREGATION,
    carbon::REWRITES,
    carbon::MAX_SERIES,
    carbon::MAX_POINTS,
    carbon::MAX_POINTS_SOFT,
    carbon::MAX_TARGETS,
    carbon::MAX_NODES,
    carbon::MAX_TAG_RESULTS,
    carbon::MAX_EVENT_SIZE,
    carbon::MAX_EVENTS,
    carbon::MAX_EVENTS_SIZE,
    carbon::MAX_META_TAGS,
    carbon::MAX_META_TAGS_SIZE,
    carbon::EVENTS_MEMORY,
];

static LOG: &[Setting] = &[
    Setting::server(
        "self-scrape",
        "10s",
        Form::Text("DURATION|off"),
        "How often the server stores its own metrics; off or 0 = never",
        |s, v| set(&mut s.server.self_scrape_interval_ms, value::interval_or_off(v)),
    ),
    Setting::server(
        "metrics.tenants",
        "100",
        Form::Count,
        "Tenants with metrics of their own; the others are summed under tenant=\"__overflow__\"",
        |s, v| set(&mut s.server.service.tenant_metrics_max, value::tenant_metrics_count(v)),
    ),
    Setting::server(
        "log.level",
        "info",
        Form::Text("LEVEL"),
        "error, warn, info, debug, trace, or a filter such as info,hyper=debug",
        |s, v| set(&mut s.log_level, value::log_filter(v)),
    ),
    Setting::server(
        "log.format",
        "full",
        Form::Choice("full|compact|json"),
        "full, compact or json",
        |s, v| set(&mut s.log_format, value::log_format(v)),
    ),
    Setting::server(
        "log.access",
        "false",
        Form::Switch,
        "Write a line to the log for each HTTP request, target access",
        |s, v| set(&mut s.server.access_log, value::switch(v)),
    ),
    Setting::server(
        "enable-feature",
        "",
        Form::Text("NAMES"),
        "Experimental parts, separated by commas",
        |s, v| {
            value::enable_features(&mut s.server.service.features, v, &mut s.warnings);
            Ok(())
        },
    ),
];

/// Returns the setting called `name`, with dots or dashes.
pub(super) fn find(name: &str) -> Option<&'static Setting> {
    all_settings().find(|setting| setting.name == name || setting.dashed_name() == name)
}

/// Returns the name that is most like `name`.
pub(super) fn nearest_name(name: &str) -> &'static str {
    let nearest = all_settings().min_by_key(|setting| strsim::levenshtein(setting.name, name));
    nearest.map_or("", |setting| setting.name)
}
