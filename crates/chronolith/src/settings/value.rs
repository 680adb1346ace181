//! Parsers of setting values. Invariant: an error names the value and the expected form; its position is the
//! caller's.

use std::path::PathBuf;
use std::time::Duration;

use chronolith_bucket::BucketLayout;
use chronolith_model::duration::parse_duration_ms;
use chronolith_model::tenant::WEIGHT_MAX;
use chronolith_model::{BlockEncoding, DuplicatePolicy, OverflowPolicy};
use chronolith_server::limits::SHUTDOWN_DELAY_MAX;
use chronolith_server::size::parse_size_bytes;
use chronolith_server::{AllowedHosts, CorsOrigin, ExternalUrl, Features, RoutePrefix, UdpListener};
use chronolith_tsdb::{HeadMemory, SyncMode};

use super::declaration::LogFormat;

/// Stores a parsed value.
pub(super) fn set<T>(target: &mut T, value: Result<T, String>) -> Result<(), String> {
    *target = value?;
    Ok(())
}

pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "true" | "on" | "yes" => Ok(true),
        "false" | "off" | "no" => Ok(false),
        _ => Err(format!("invalid switch {text:?}, expected true or false")),
    }
}

pub(super) fn duration(text: &str) -> Result<i64, String> {
    parse_duration_ms(text)
        .ok_or_else(|| format!("invalid duration {text:?}, expected for example 15d, 10m or 100ms"))
}

pub(super) fn duration_positive(text: &str) -> Result<u64, String> {
    let ms = duration(text)?;
    if ms > 0 { Ok(ms.unsigned_abs()) } else { Err("must be longer than 0".to_owned()) }
}

pub(super) fn duration_at_least(text: &str, shortest: Duration) -> Result<Duration, String> {
    let duration = Duration::from_millis(duration_positive(text)?);
    if duration >= shortest {
        Ok(duration)
    } else {
        Err(format!("must be at least {} s", shortest.as_secs()))
    }
}

pub(super) fn size(text: &str) -> Result<u64, String> {
    parse_size_bytes(text)
        .ok_or_else(|| format!("invalid size {text:?}, expected for example 64MiB, 1GB or 4096"))
}

pub(super) fn size_at_least(text: &str, bytes_min: u64) -> Result<u64, String> {
    let bytes = size(text)?;
    if bytes >= bytes_min { Ok(bytes) } else { Err(format!("must be at least {bytes_min} bytes")) }
}

/// A size that fits what one request may take in memory: 1 byte to 1 GiB.
pub(super) fn size_in_memory(text: &str) -> Result<usize, String> {
    let bytes = size_at_least(text, 1)?;
    match usize::try_from(bytes) {
        Ok(bytes) if bytes <= 1 << 30 => Ok(bytes),
        _ => Err("must be at most 1GiB".to_owned()),
    }
}

/// A size, or a percentage of the memory that there is.
pub(super) fn head_memory(text: &str) -> Result<HeadMemory, String> {
    if text.ends_with('%') {
        percent(text).map(HeadMemory::Percent)
    } else {
        size(text).map(HeadMemory::Bytes)
    }
}

pub(super) fn percent(text: &str) -> Result<u8, String> {
    match text.strip_suffix('%').and_then(|number| number.parse().ok()) {
        Some(percent @ 1..=100) => Ok(percent),
        _ => Err(format!("invalid percentage {text:?}, expected 1% to 100%")),
    }
}

pub(super) fn count_or_none(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("invalid number {text:?}, expected a whole number"))
}

pub(super) fn count(text: &str) -> Result<usize, String> {
    match count_or_none(text)? {
        0 => Err("must be at least 1".to_owned()),
        count => Ok(count),
    }
}

pub(super) fn weight(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(weight @ 1..=WEIGHT_MAX) => Ok(weight),
        _ => Err(format!("invalid weight {text:?}, expected 1 to {WEIGHT_MAX}")),
    }
}

/// Requests at once: each takes a thread.
pub(super) fn permits(text: &str) -> Result<usize, String> {
    let count = count(text)?;
    if count <= 1024 { Ok(count) } else { Err("must be at most 1024".to_owned()) }
}

/// As [`permits`], 0 included.
pub(super) fn permits_or_none(text: &str) -> Result<usize, String> {
    if text == "0" { Ok(0) } else { permits(text) }
}

pub(super) fn sync_mode(text: &str) -> Result<SyncMode, String> {
    match (text, text.strip_prefix("interval=")) {
        ("fsync", _) => Ok(SyncMode::Fsync),
        ("os", _) => Ok(SyncMode::Os),
        (_, Some(interval)) => duration_positive(interval).map(SyncMode::Interval),
        _ => Err(format!("invalid value {text:?}, expected fsync, os or for example interval=100ms")),
    }
}

pub(super) fn bucket_layout(text: &str) -> Result<BucketLayout, String> {
    match text {
        "mimir" => Ok(BucketLayout::Mimir),
        "thanos" => Ok(BucketLayout::Thanos { writer: None }),
        _ => Err(format!("invalid value {text:?}, expected mimir or thanos")),
    }
}

pub(super) fn duplicate_policy(text: &str) -> Result<DuplicatePolicy, String> {
    match text {
        "keep_first" => Ok(DuplicatePolicy::KeepFirst),
        "last_wins" => Ok(DuplicatePolicy::LastWins),
        _ => Err(format!("invalid value {text:?}, expected keep_first or last_wins")),
    }
}

pub(super) fn overflow_policy(text: &str) -> Result<OverflowPolicy, String> {
    match text {
        "reject" => Ok(OverflowPolicy::Reject),
        "fold" => Ok(OverflowPolicy::Fold),
        _ => Err(format!("invalid value {text:?}, expected reject or fold")),
    }
}

pub(super) fn block_encoding(text: &str) -> Result<BlockEncoding, String> {
    match text {
        "dense" => Ok(BlockEncoding::Dense),
        "prometheus" => Ok(BlockEncoding::Prometheus),
        _ => Err(format!("invalid value {text:?}, expected dense or prometheus")),
    }
}

pub(super) fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "full" => Ok(LogFormat::Full),
        "compact" => Ok(LogFormat::Compact),
        "json" => Ok(LogFormat::Json),
        _ => Err(format!("invalid value {text:?}, expected full, compact or json")),
    }
}

pub(super) fn directory(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("must not be empty".to_owned()) } else { Ok(PathBuf::from(text)) }
}

pub(super) fn file_or_none(text: &str) -> Result<Option<PathBuf>, String> {
    Ok(Some(PathBuf::from(text)).filter(|_| !text.is_empty()))
}

pub(super) fn text_or_none(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

pub(super) fn host_and_port(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        // Prometheus takes an empty host for all addresses: all are to be named, since there is no TLS.
        Some(("", port)) if port.parse::<u16>().is_ok() => Err(format!(
            "invalid address {text:?} without a host, expected 127.0.0.1:{port}, or 0.0.0.0:{port} for all"
        )),
        Some((_, port)) if port.parse::<u16>().is_ok() => Ok(text.to_owned()),
        _ => Err(format!("invalid address {text:?}, expected host:port, for example 127.0.0.1:9595")),
    }
}

pub(super) fn external_url(text: &str) -> Result<Option<ExternalUrl>, String> {
    if text.is_empty() { Ok(None) } else { ExternalUrl::parse(text).map(Some) }
}

pub(super) fn route_prefix(text: &str) -> Result<Option<RoutePrefix>, String> {
    if text.is_empty() { Ok(None) } else { RoutePrefix::parse(text).map(Some) }
}

pub(super) fn cors_origin(text: &str) -> Result<Option<CorsOrigin>, String> {
    if text.is_empty() { Ok(None) } else { CorsOrigin::new(text).map(Some) }
}

pub(super) fn allowed_hosts(text: &str) -> Result<Option<AllowedHosts>, String> {
    if text.is_empty() { Ok(None) } else { AllowedHosts::parse(text).map(Some) }
}

pub(super) fn shutdown_delay(text: &str) -> Result<Duration, String> {
    match Duration::from_millis(duration(text)?.unsigned_abs()) {
        delay if delay <= SHUTDOWN_DELAY_MAX => Ok(delay),
        _ => Err(format!("must be at most {} s", SHUTDOWN_DELAY_MAX.as_secs())),
    }
}

/// Milliseconds; 0 = off. YAML reads a bare `off` as false.
pub(super) fn interval_or_off(text: &str) -> Result<u64, String> {
    if matches!(text, "off" | "false") { Ok(0) } else { duration(text).map(i64::unsigned_abs) }
}

pub(super) fn tenant_metrics_count(text: &str) -> Result<usize, String> {
    let count = count_or_none(text)?;
    if count <= 10_000 { Ok(count) } else { Err("must be at most 10000".to_owned()) }
}

pub(super) fn log_filter(text: &str) -> Result<String, String> {
    match text.parse::<tracing_subscriber::EnvFilter>() {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(format!(
            "invalid filter {text:?}, expected error, warn, info, debug, trace or for example info,hyper=debug"
        )),
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

/// Switches on the features that `text` names, separated by commas. Unknown names are warnings, as in
/// Prometheus: flags of another version must not keep a server from its start.
pub(super) fn enable_features(features: &mut Features, text: &str, warnings: &mut Vec<String>) {
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        match name {
            "promql-experimental-functions" => features.experimental_functions = true,
            "promql-delayed-name-removal" => features.delayed_name_removal = true,
            "promql-binop-fill-modifiers" => features.binop_fill_modifiers = true,
            "promql-unquoted-utf8-names" => features.unquoted_utf8_names = true,
            "use-start-timestamps" => features.start_timestamps = true,
            "type-and-unit-labels" => features.type_and_unit_labels = true,
            "query-cost" => features.query_cost = true,
            _ if FEATURES_ALWAYS_ON.contains(&name) => {}
            _ => {
                let known = "promql-experimental-functions, promql-delayed-name-removal, \
                             promql-binop-fill-modifiers, promql-unquoted-utf8-names, use-start-timestamps, \
                             type-and-unit-labels, query-cost";
                let always_on = FEATURES_ALWAYS_ON.join(", ");
                warnings.push(format!(
                    "enable-feature: unknown feature {name:?} is ignored; known are {known}; always on are {always_on}"
                ));
            }
        }
    }
}

/// A text that can stand in a header.
pub(super) fn header_text(text: &str) -> Result<String, String> {
    let is_visible = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_visible { Ok(text.to_owned()) } else { Err("must be visible ASCII without blanks".to_owned()) }
}

/// UDP listeners: `host:port/DATABASE[/POLICY[/PRECISION]]`, separated by commas.
pub(super) fn udp_listeners(text: &str) -> Result<Vec<UdpListener>, String> {
    text.split(',').map(str::trim).filter(|one| !one.is_empty()).map(udp_listener).collect()
}

fn udp_listener(text: &str) -> Result<UdpListener, String> {
    let mut parts = text.split('/');
    let listen = host_and_port(parts.next().unwrap_or(""))?;
    let mut next = || parts.next().unwrap_or("").to_owned();
    let database = next();
    let policy = next();
    let precision = next();
    let is_known = matches!(precision.as_str(), "" | "n" | "ns" | "u" | "ms" | "s" | "m" | "h");
    if database.is_empty() || !is_known || parts.next().is_some() {
        return Err(format!("invalid listener {text:?}, expected host:port/DATABASE[/POLICY[/PRECISION]]"));
    }
    Ok(UdpListener { listen, database, policy, precision })
}
