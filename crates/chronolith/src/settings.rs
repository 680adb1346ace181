//! Every setting, once: flag, environment variable, key of the file, default, meaning.
//! Holds: flag before environment before file before default; an unknown key or a bad value is an error that
//! says where it stands, an unknown environment variable is a warning (ADR 0061). A dot in a name may be
//! written as a dash. Not here: the file's syntax (`settings::file`).

mod file;
mod limits;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use chronolith_base::Disk;
use chronolith_server::duration::{parse_duration_ms, parse_size_bytes};
use chronolith_server::limits::SHUTDOWN_DELAY_MAX;
use chronolith_server::{CorsOrigin, Reloaded, ServerOptions};
use chronolith_tsdb::{HeadMemory, SyncMode};
use clap::{Arg, ArgMatches, Command};

/// Why settings cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SettingsError(String);

impl std::fmt::Display for SettingsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SettingsError {}

/// Settings, resolved.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) server: ServerOptions,
    pub(crate) log_level: String,
    pub(crate) log_format: LogFormat,
    /// What is accepted but probably not meant: unknown environment variables, old names.
    pub(crate) warnings: Vec<String>,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// One line with time, level, place, message, fields.
    Full,
    /// The same, shorter.
    Compact,
    /// One JSON object with time, level, source, msg, fields.
    Json,
}

type Apply = fn(&mut Settings, &str) -> Result<(), String>;

/// Whether a reload of the file changes it in a running server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Live,
    Restart,
}

struct Setting {
    name: &'static str,
    default: &'static str,
    help: &'static str,
    change: Change,
    apply: Apply,
}

const fn at_start(name: &'static str, default: &'static str, help: &'static str, apply: Apply) -> Setting {
    Setting { name, default, help, change: Change::Restart, apply }
}

const fn live(name: &'static str, default: &'static str, help: &'static str, apply: Apply) -> Setting {
    Setting { name, default, help, change: Change::Live, apply }
}

/// The table. Names with a dot may be written nested in the file.
static SETTINGS: &[Setting] = &[
    at_start("data-dir", "./data", "Directory that holds everything", |s, v| {
        s.server.tsdb.data_dir = PathBuf::from(v);
        if v.is_empty() { Err("must not be empty".to_owned()) } else { Ok(()) }
    }),
    at_start("http", "127.0.0.1:9595", "Address to listen on, host:port", |s, v| {
        s.server.listen = v.to_owned();
        if v.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
            Ok(())
        } else {
            Err(format!("{v:?} is not host:port"))
        }
    }),
    at_start(
        "multitenancy",
        "false",
        "Take the tenant from X-Scope-OrgID; otherwise all is one tenant",
        |s, v| set(&mut s.server.multitenancy, switch(v)),
    ),
    at_start(
        "web.enable-admin-api",
        "false",
        "Answer the admin API: delete series, clean tombstones, snapshots, pause of compaction",
        |s, v| set(&mut s.server.admin_api, switch(v)),
    ),
    at_start("web.enable-lifecycle", "false", "Answer POST /-/reload; SIGHUP reloads in any case", |s, v| {
        set(&mut s.server.web.lifecycle, switch(v))
    }),
    at_start(
        "web.cors.origin",
        "",
        "Origins whose pages may use the API, an anchored regular expression; empty = its own only",
        |s, v| {
            let origin = if v.is_empty() { Ok(None) } else { CorsOrigin::new(v).map(Some) };
            set(&mut s.server.web.cors_origin, origin)
        },
    ),
    at_start(
        "shutdown-delay",
        "0s",
        "How long /-/ready is 503 before the listener closes, at most 20s; for load balancers",
        |s, v| {
            let delay = duration(v).and_then(|ms| match Duration::from_millis(ms.unsigned_abs()) {
                delay if delay <= SHUTDOWN_DELAY_MAX => Ok(delay),
                _ => Err(format!("must be at most {} s", SHUTDOWN_DELAY_MAX.as_secs())),
            });
            set(&mut s.server.web.shutdown_delay, delay)
        },
    ),
    at_start("sync", "fsync", "When a write is acknowledged: fsync, interval=100ms, os", |s, v| {
        set(&mut s.server.tsdb.sync, sync_mode(v))
    }),
    live("retention", "0", "Age from which samples are removed; 0 keeps all", |s, v| {
        limits::retention(&mut s.server.tsdb.limits.default, v)
    }),
    at_start("retention-size", "0", "Bytes of blocks to keep, oldest go first; 0 keeps all", |s, v| {
        set(&mut s.server.tsdb.retention.bytes_max, size(v))
    }),
    at_start(
        "retention-clock-guard",
        "24h",
        "How long removal by age waits after the clock has jumped ahead by more than 1h; 0 = not at all",
        |s, v| set(&mut s.server.tsdb.retention.clock_guard_ms, duration(v)),
    ),
    at_start("flush-delay", "1h", "How long after its end a two-hour window becomes a block", |s, v| {
        set(&mut s.server.tsdb.flush.delay_ms, duration(v))
    }),
    at_start(
        "flush-small-window",
        "1MiB",
        "A smaller window waits for others of its day, at most 24 times flush-delay; 0 = none waits",
        |s, v| set(&mut s.server.tsdb.flush.small_window_bytes, size(v)),
    ),
    at_start(
        "idle-after",
        "15m",
        "How long a series may take no samples until it leaves memory for a block; 0 = until its window ends",
        |s, v| set(&mut s.server.tsdb.idle.after_ms, duration(v)),
    ),
    at_start(
        "wal-checkpoint-size",
        "4GiB",
        "Size of the write-ahead log that forces a checkpoint",
        |s, v| set(&mut s.server.tsdb.wal.checkpoint_bytes, size_at_least(v, 1 << 20)),
    ),
    live(
        "out-of-order-window",
        "0",
        "Age of samples that are still taken; 0 = any within the retention",
        |s, v| limits::out_of_order_window(&mut s.server.tsdb.limits.default, v),
    ),
    live(
        "duplicates",
        "keep_first",
        "Which of two values of a series and time stays: keep_first or last_wins",
        |s, v| limits::duplicates(&mut s.server.tsdb.limits.default, v),
    ),
    live(
        "block-encoding",
        "dense",
        "Chunks of new blocks: dense (a third of the bytes) or prometheus (XOR, read by Prometheus and Thanos)",
        |s, v| limits::block_encoding(&mut s.server.tsdb.limits.default, v),
    ),
    at_start(
        "compaction-size",
        "2GiB",
        "Bytes of a block that compaction writes, larger ones are split by series; 0 switches compaction off",
        |s, v| set(&mut s.server.tsdb.compaction.block_bytes_max, size(v)),
    ),
    at_start(
        "compaction-rate",
        "64MiB",
        "Bytes a second that compaction reads and writes at most; 0 = no limit",
        |s, v| set(&mut s.server.tsdb.compaction.bytes_per_second, size(v)),
    ),
    at_start(
        "open-block-maps",
        "8192",
        "Memory maps of open blocks at most; Linux grants a process 65530 for everything",
        |s, v| set(&mut s.server.tsdb.open_blocks.maps_max, count(v).map(|count| count as u64)),
    ),
    at_start(
        "open-block-memory",
        "512MiB",
        "Memory of open blocks at most, mapped files aside; a quarter of it is kept for the next query",
        |s, v| set(&mut s.server.tsdb.open_blocks.bytes_max, size_at_least(v, 1 << 20)),
    ),
    at_start("min-free-space", "64MiB", "Writes are refused when less is free on the disk", |s, v| {
        set(&mut s.server.tsdb.free_bytes_min, size(v))
    }),
    at_start(
        "head-memory-limit",
        "50%",
        "Memory of the head of all tenants, as a size or as a part of the cgroup's or machine's; 429 beyond it; 0 = no limit",
        |s, v| set(&mut s.server.tsdb.head_memory, head_memory(v)),
    ),
    at_start(
        "histogram-memory",
        "1GiB",
        "Memory of open chunks and late samples of native histograms; beyond it they go to chunk files early",
        |s, v| set(&mut s.server.tsdb.histogram_bytes_max, size_at_least(v, 1 << 20)),
    ),
    live("future-limit", "10m", "How far samples may lie ahead of the clock; 0 = no limit", |s, v| {
        limits::future_window(&mut s.server.tsdb.limits.default, v)
    }),
    live("series-limit", "50000000", "Series of one tenant in the head", |s, v| {
        limits::series_max(&mut s.server.tsdb.limits.default, v)
    }),
    live("ingestion-rate", "0", "Samples per second of one tenant, 429 beyond it; 0 = no limit", |s, v| {
        limits::ingestion_rate(&mut s.server.tsdb.limits.default, v)
    }),
    live(
        "ingestion-burst",
        "0",
        "Samples of one tenant at once, 400 for a request of more; 0 = ten seconds of ingestion-rate",
        |s, v| limits::ingestion_burst(&mut s.server.tsdb.limits.default, v),
    ),
    live("label-count-limit", "128", "Labels of one series", |s, v| {
        limits::label_count_max(&mut s.server.tsdb.limits.default, v)
    }),
    live("label-name-length-limit", "1KiB", "Bytes of a label name", |s, v| {
        limits::label_name_bytes_max(&mut s.server.tsdb.limits.default, v)
    }),
    live("label-value-length-limit", "16KiB", "Bytes of a label value", |s, v| {
        limits::label_value_bytes_max(&mut s.server.tsdb.limits.default, v)
    }),
    at_start("exemplar-limit", "100000", "Exemplars kept in memory; 0 keeps none", |s, v| {
        set(&mut s.server.tsdb.exemplar_count_max, count_or_none(v))
    }),
    at_start("query.timeout", "2m", "Longest run of a query", |s, v| {
        set(&mut s.server.query.timeout_ms, duration_positive(v))
    }),
    at_start("query.concurrency", "20", "Queries at work at once", |s, v| {
        set(&mut s.server.query.concurrency, places(v))
    }),
    at_start("query.max-samples", "50000000", "Samples one query may hold at once", |s, v| {
        set(&mut s.server.query.samples_max, count(v).map(|n| n as u64))
    }),
    at_start("query.memory", "1GiB", "Memory of one query, its answer included", |s, v| {
        set(&mut s.server.query.memory_bytes_max, size_at_least(v, 1 << 20))
    }),
    at_start("query.memory-total", "2GiB", "Memory of all queries together", |s, v| {
        set(&mut s.server.query.memory_total_bytes_max, size_at_least(v, 1 << 20))
    }),
    at_start("query.lookback", "5m", "How far a query looks back for the latest sample", |s, v| {
        set(
            &mut s.server.query.lookback_ms,
            duration_positive(v).map(|ms| i64::try_from(ms).unwrap_or(i64::MAX)),
        )
    }),
    at_start(
        "query.read-limit",
        "64GiB",
        "Samples (16 B each) that one query may read, by estimate",
        |s, v| set(&mut s.server.query.read_bytes_max, size_at_least(v, 1 << 20)),
    ),
    at_start("query.cache-size", "64MiB", "Memory of kept results of range queries; 0 keeps none", |s, v| {
        set(&mut s.server.query.cache_bytes_max, size(v))
    }),
    at_start(
        "query.align-steps",
        "off",
        "Round start and end of range queries down to multiples of their step, so that kept results fit",
        |s, v| set(&mut s.server.query.align_steps, switch(v)),
    ),
    at_start(
        "query.log-slow",
        "0",
        "Queries that take longer go to the log with their plan, target slow_query; 0 = none",
        |s, v| set(&mut s.server.query.log_slow_ms, duration(v).map(|ms| u64::try_from(ms).unwrap_or(0))),
    ),
    at_start(
        "query.log-file",
        "",
        "File to which all queries are written as JSON, opened again by a reload; empty = none",
        |s, v| {
            s.server.query.log_file = Some(PathBuf::from(v)).filter(|_| !v.is_empty());
            Ok(())
        },
    ),
    live(
        "query.tenant-concurrency",
        "0",
        "Queries of one tenant at work at once; 0 = with multitenancy a quarter of all, at most one per two cores; else all",
        |s, v| limits::query_concurrency_max(&mut s.server.tsdb.limits.default, v),
    ),
    live(
        "query.tenant-memory",
        "0",
        "Memory of all queries of one tenant; 0 = a quarter of all with multitenancy, else all",
        |s, v| limits::query_memory_bytes_max(&mut s.server.tsdb.limits.default, v),
    ),
    at_start(
        "storage.remote.read-sample-limit",
        "50000000",
        "Samples of one remote read query whose answer is not streamed; 0 = no limit",
        |s, v| set(&mut s.server.remote_read.samples_max, count_or_none(v).map(|n| n as u64)),
    ),
    at_start("storage.remote.read-concurrent-limit", "10", "Remote reads at work at once", |s, v| {
        set(&mut s.server.remote_read.concurrency, places(v))
    }),
    at_start(
        "storage.remote.read-max-bytes-in-frame",
        "1MiB",
        "Bytes of a frame of a streamed remote read; clients have a limit, too",
        |s, v| set(&mut s.server.remote_read.frame_bytes_max, size_in_memory(v)),
    ),
    at_start("write.max-compressed", "32MiB", "Largest write request as sent", |s, v| {
        set(&mut s.server.write.compressed_bytes_max, size_in_memory(v))
    }),
    at_start("write.max-decompressed", "64MiB", "Largest write request unpacked", |s, v| {
        set(&mut s.server.write.decompressed_bytes_max, size_in_memory(v))
    }),
    at_start("write.concurrency", "64", "Write requests at work at once", |s, v| {
        set(&mut s.server.write.concurrency, places(v))
    }),
    at_start("write.memory", "512MiB", "Memory of all write requests together", |s, v| {
        set(&mut s.server.write.memory_bytes_max, size_at_least(v, 1 << 20))
    }),
    at_start(
        "self-scrape",
        "10s",
        "How often the server stores its own metrics; off or 0 = never",
        |s, v| {
            // YAML reads a bare `off` as false.
            let ms = if matches!(v, "off" | "false") { Ok(0) } else { duration(v) };
            set(&mut s.server.self_scrape_interval_ms, ms.map(i64::unsigned_abs))
        },
    ),
    at_start(
        "metrics.tenants",
        "100",
        "Tenants with metrics of their own; the others are summed under tenant=\"__overflow__\"",
        |s, v| {
            set(
                &mut s.server.tenant_metrics_max,
                count_or_none(v).and_then(|count| {
                    if count <= 10_000 { Ok(count) } else { Err("must be at most 10000".to_owned()) }
                }),
            )
        },
    ),
    at_start(
        "log.level",
        "info",
        "error, warn, info, debug, trace, or a filter such as info,hyper=debug",
        |s, v| {
            s.log_level = v.to_owned();
            v.parse::<tracing_subscriber::EnvFilter>().map(|_| ()).map_err(|_| {
                format!(
                    "{v:?} is none of error, warn, info, debug, trace, nor a filter such as info,hyper=debug"
                )
            })
        },
    ),
    at_start("log.format", "full", "full, compact or json", |s, v| {
        let format = match v {
            "full" => Ok(LogFormat::Full),
            "compact" => Ok(LogFormat::Compact),
            "json" => Ok(LogFormat::Json),
            _ => Err(format!("{v:?} is none of full, compact, json")),
        };
        set(&mut s.log_format, format)
    }),
    at_start(
        "log.access",
        "false",
        "Write a line to the log for each HTTP request, target access",
        |s, v| set(&mut s.server.access_log, switch(v)),
    ),
    at_start("enable-feature", "", "Experimental parts, separated by commas", features),
];

fn set<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "true" | "on" | "yes" => Ok(true),
        "false" | "off" | "no" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

fn duration(text: &str) -> Result<i64, String> {
    parse_duration_ms(text).ok_or_else(|| format!("{text:?} is no duration such as 15d, 10m or 100ms"))
}

fn duration_positive(text: &str) -> Result<u64, String> {
    let ms = duration(text)?;
    if ms > 0 { Ok(ms.unsigned_abs()) } else { Err("must be longer than 0".to_owned()) }
}

fn size(text: &str) -> Result<u64, String> {
    parse_size_bytes(text).ok_or_else(|| format!("{text:?} is no size such as 64MiB, 1GB or 4096"))
}

fn size_at_least(text: &str, bytes_min: u64) -> Result<u64, String> {
    let bytes = size(text)?;
    if bytes >= bytes_min { Ok(bytes) } else { Err(format!("must be at least {bytes_min} bytes")) }
}

/// A size that fits what one request may take in memory: 1 byte to 1 GiB.
fn size_in_memory(text: &str) -> Result<usize, String> {
    let bytes = size_at_least(text, 1)?;
    match usize::try_from(bytes) {
        Ok(bytes) if bytes <= 1 << 30 => Ok(bytes),
        _ => Err("must be at most 1GiB".to_owned()),
    }
}

/// A size, or a percentage of the memory that there is.
fn head_memory(text: &str) -> Result<HeadMemory, String> {
    let Some(percent) = text.strip_suffix('%') else {
        return size(text).map(HeadMemory::Bytes);
    };
    match percent.parse() {
        Ok(percent @ 1..=100) => Ok(HeadMemory::Percent(percent)),
        _ => Err(format!("{text:?} is no percentage from 1% to 100%")),
    }
}

fn count_or_none(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("{text:?} is no whole number"))
}

fn count(text: &str) -> Result<usize, String> {
    match count_or_none(text)? {
        0 => Err("must be at least 1".to_owned()),
        count => Ok(count),
    }
}

/// Requests at once: each takes a thread.
fn places(text: &str) -> Result<usize, String> {
    let count = count(text)?;
    if count <= 1024 { Ok(count) } else { Err("must be at most 1024".to_owned()) }
}

/// As [`places`], 0 included.
fn places_or_none(text: &str) -> Result<usize, String> {
    if text == "0" { Ok(0) } else { places(text) }
}

fn sync_mode(text: &str) -> Result<SyncMode, String> {
    match (text, text.strip_prefix("interval=")) {
        ("fsync", _) => Ok(SyncMode::Fsync),
        ("os", _) => Ok(SyncMode::Os),
        (_, Some(interval)) => duration_positive(interval).map(SyncMode::Interval),
        _ => Err(format!("{text:?} is none of fsync, interval=100ms, os")),
    }
}

/// Names of Prometheus's features that need no switch here: what they stand for is always on.
const FEATURES_ALWAYS_ON: [&str; 7] = [
    "promql-duration-expr",
    "promql-extended-range-selectors",
    "promql-per-step-stats",
    "native-histograms",
    "ooo-native-histograms",
    "exemplar-storage",
    "metadata-wal-records",
];

fn features(settings: &mut Settings, text: &str) -> Result<(), String> {
    let features = &mut settings.server.features;
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        match name {
            "promql-experimental-functions" => features.experimental_functions = true,
            "promql-delayed-name-removal" => features.delayed_name_removal = true,
            "promql-binop-fill-modifiers" => features.binop_fill_modifiers = true,
            "use-start-timestamps" => features.start_timestamps = true,
            "type-and-unit-labels" => features.type_and_unit_labels = true,
            _ if FEATURES_ALWAYS_ON.contains(&name) => {}
            // Prometheus only warns. A server that starts without what was asked for surprises later.
            _ => {
                let known = "promql-experimental-functions, promql-delayed-name-removal, \
                             promql-binop-fill-modifiers, use-start-timestamps, type-and-unit-labels";
                let always_on = FEATURES_ALWAYS_ON.join(", ");
                return Err(format!(
                    "unknown feature {name:?}; known are {known}; always on are {always_on}"
                ));
            }
        }
    }
    Ok(())
}

/// `query.timeout` -> `CHRONOLITH_QUERY_TIMEOUT`
fn environment_name(name: &str) -> String {
    format!("CHRONOLITH_{}", name.to_ascii_uppercase().replace(['-', '.'], "_"))
}

/// Settings whose flag needs no value to mean "true".
const SWITCHES: [&str; 4] = ["multitenancy", "web.enable-admin-api", "web.enable-lifecycle", "log.access"];

/// `query.timeout` -> `query-timeout`
fn with_dashes(name: &str) -> String {
    name.replace('.', "-")
}

/// The setting called `name`, dots or dashes.
fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name || with_dashes(setting.name) == name)
}

/// Adds a flag for every setting, `--config` and `--check-config`.
pub(crate) fn add_flags(command: Command) -> Command {
    let config = Arg::new("config").long("config").value_name("FILE");
    let check = Arg::new("check-config").long("check-config").action(clap::ArgAction::SetTrue);
    let command = command.arg(config.help("YAML file with settings [env: CHRONOLITH_CONFIG]")).arg(
        check.help("Check flags, environment and file, then end: exit code 1 if the server would not start"),
    );
    SETTINGS.iter().fold(command, |command, setting| {
        let help = format!(
            "{} [default: {}] [env: {}]",
            setting.help,
            setting.default,
            environment_name(setting.name)
        );
        let arg = Arg::new(setting.name).long(setting.name).alias(with_dashes(setting.name));
        let arg = arg.value_name("VALUE").help(help);
        command.arg(if SWITCHES.contains(&setting.name) {
            arg.num_args(0..=1).default_missing_value("true").require_equals(true)
        } else {
            arg
        })
    })
}

/// Where settings come from, beside the defaults.
pub(crate) struct Sources<'a> {
    /// Flags.
    pub(crate) flags: &'a ArgMatches,
    /// Environment variables whose name starts with `CHRONOLITH_`.
    pub(crate) environment: &'a BTreeMap<String, String>,
    /// Reads the configuration file.
    pub(crate) disk: &'a dyn Disk,
}

impl Sources<'_> {
    /// The configuration file, if one is named.
    pub(crate) fn config_path(&self) -> Option<PathBuf> {
        let flag = crate::value(self.flags, "config").map(str::to_owned);
        flag.or_else(|| self.environment.get(CONFIG_VARIABLE).cloned()).map(PathBuf::from)
    }

    /// Reads everything.
    pub(crate) fn resolve(&self) -> Result<Settings, SettingsError> {
        let mut settings = Settings {
            server: ServerOptions::new(PathBuf::new()),
            log_level: String::new(),
            log_format: LogFormat::Full,
            warnings: unknown_variables(self.environment),
        };
        let path = self.config_path();
        let limits::Split { settings: entries, tenants, warnings } = match &path {
            Some(path) => read_file(self.disk, path)?,
            None => limits::Split::default(),
        };
        settings.warnings.extend(warnings);
        for setting in SETTINGS {
            let (value, origin) = self.value_of(setting, &entries, path.as_deref());
            (setting.apply)(&mut settings, &value)
                .map_err(|why| SettingsError(format!("{origin}{}: {why}", setting.name)))?;
            settings.server.shown.push((setting.name.to_owned(), value));
        }
        let table = limits::table(settings.server.tsdb.limits.default.clone(), &tenants);
        let shown_path = path.as_deref().unwrap_or(Path::new("")).display();
        settings.server.tsdb.limits = table.map_err(|why| SettingsError(format!("{shown_path}:{why}")))?;
        settings.server.shown.extend(limits::shown(&tenants));
        settings.server.config_yaml = show_yaml(&settings.server.shown);
        Ok(settings)
    }

    /// The value and what an error is to begin with.
    fn value_of(&self, setting: &Setting, entries: &[file::Entry], path: Option<&Path>) -> (String, String) {
        if let Some(value) = crate::value(self.flags, setting.name) {
            return (value.to_owned(), "--".to_owned());
        }
        let variable = environment_name(setting.name);
        if let Some(value) = self.environment.get(&variable) {
            return (value.clone(), format!("environment variable {variable}: "));
        }
        if let Some(entry) = entries.iter().find(|entry| entry.key == setting.name) {
            let path = path.map(Path::display);
            let origin = path.map_or_else(String::new, |path| format!("{path}:{}: ", entry.line));
            return (entry.value.clone(), origin);
        }
        (setting.default.to_owned(), String::new())
    }
}

/// Variable that names the configuration file.
const CONFIG_VARIABLE: &str = "CHRONOLITH_CONFIG";

/// A warning for each variable that is no setting. Kubernetes sets variables for its services, which may be
/// called
/// `chronolith` and are no mistake.
fn unknown_variables(environment: &BTreeMap<String, String>) -> Vec<String> {
    let names: Vec<String> = SETTINGS.iter().map(|setting| environment_name(setting.name)).collect();
    let is_service = |name: &str| {
        name.ends_with("_SERVICE_HOST")
            || name.contains("_SERVICE_PORT")
            || name.ends_with("_PORT")
            || name.contains("_PORT_")
    };
    let is_known = |name: &String| name == CONFIG_VARIABLE || names.contains(name) || is_service(name);
    let warning = |name: &String| {
        let nearest = names.iter().min_by_key(|known| edit_distance(known, name));
        format!("unknown environment variable {name}, did you mean {}?", nearest.map_or("", String::as_str))
    };
    environment.keys().filter(|name| !is_known(name)).map(warning).collect()
}

fn read_file(disk: &dyn Disk, path: &Path) -> Result<limits::Split, SettingsError> {
    let shown = path.display();
    let bytes = disk.read(path).map_err(|error| SettingsError(format!("reading {shown}: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|_| SettingsError(format!("{shown}: not UTF-8")))?;
    let split = file::parse(&text).and_then(limits::split);
    let mut split = split.map_err(|why| SettingsError(format!("{shown}:{why}")))?;
    let mut seen = BTreeSet::new();
    for entry in &mut split.settings {
        let Some(setting) = find(&entry.key) else {
            let nearest = SETTINGS.iter().min_by_key(|setting| edit_distance(setting.name, &entry.key));
            let nearest = nearest.map_or("", |setting| setting.name);
            let what = format!("unknown setting {:?}, did you mean {nearest:?}?", entry.key);
            return Err(SettingsError(format!("{shown}:{}: {what}", entry.line)));
        };
        setting.name.clone_into(&mut entry.key);
        if !seen.insert(setting.name) {
            return Err(SettingsError(format!("{shown}:{}: {:?} is set twice", entry.line, entry.key)));
        }
    }
    for warning in &mut split.warnings {
        *warning = format!("{shown}:{warning}");
    }
    Ok(split)
}

/// All settings in a form that can be a configuration file.
fn show_yaml(shown: &[(String, String)]) -> String {
    // Names of tenants may have characters that mean something in YAML; a JSON string is one of YAML too.
    let is_plain = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    let text = |text: &str| serde_json::Value::from(text).to_string();
    let line = |(name, value): &(String, String)| {
        let name = if is_plain(name) { name.clone() } else { text(name) };
        format!("{name}: {}\n", text(value))
    };
    shown.iter().map(line).collect()
}

/// What a reload gives: live settings from `fresh`, the others as they are in the running server.
pub(crate) fn reloaded(running: &Settings, fresh: Settings) -> Reloaded {
    let mut shown = Vec::new();
    let tenants = fresh.server.shown.get(SETTINGS.len()..).unwrap_or_default().to_vec();
    for (setting, (old, new)) in SETTINGS.iter().zip(running.server.shown.iter().zip(fresh.server.shown)) {
        if setting.change == Change::Live || *old == new {
            shown.push(new);
        } else {
            tracing::warn!(setting = setting.name, "changed in the file, takes effect at the next start");
            shown.push(old.clone());
        }
    }
    shown.extend(tenants);
    Reloaded { limits: fresh.server.tsdb.limits, config_yaml: show_yaml(&shown), shown }
}

/// Insertions, deletions and replacements between two words.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, to) in row.iter_mut().skip(1).zip(&b) {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = *cell;
            left = replaced.min(*cell + 1).min(left + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}
