//! Limits of tenants in the configuration file: `limits:` for all, `tenants:` for one.
//! Holds: a tenant has the limits of all but for those that its entry names; an unknown limit or a bad value is an
//! error with line, tenant and limit. Not here: what a limit does (`model::TenantLimits`).

use std::collections::HashSet;

use chronolith_model::{BlockEncoding, DuplicatePolicy, TenantId, TenantLimits};
use chronolith_tsdb::LimitsTable;

use super::{count, count_or_none, duration, file, places_or_none, size, size_in_memory};

/// First part of keys of the limits of all tenants.
const ALL_PREFIX: &str = "limits.";
/// First part of keys of the limits of one tenant.
const TENANTS_PREFIX: &str = "tenants.";
/// Tenants with limits of their own.
const TENANT_COUNT_MAX: usize = 10_000;

/// A limit that may differ from tenant to tenant.
struct Limit {
    /// Its name everywhere: flag, environment variable, key of the file, below `limits:` and below a tenant.
    name: &'static str,
    /// Names below `limits:` and a tenant in files of older versions.
    old_names: &'static [&'static str],
    apply: fn(&mut TenantLimits, &str) -> Result<(), String>,
}

const fn limit(
    name: &'static str,
    old_names: &'static [&'static str],
    apply: fn(&mut TenantLimits, &str) -> Result<(), String>,
) -> Limit {
    Limit { name, old_names, apply }
}

static LIMITS: [Limit; 13] = [
    limit("retention", &[], retention),
    limit("out-of-order-window", &["out_of_order_window"], out_of_order_window),
    limit("duplicates", &[], duplicates),
    limit("block-encoding", &["block_encoding"], block_encoding),
    limit("future-limit", &["future_window"], future_window),
    limit("series-limit", &["series_max"], series_max),
    limit("label-count-limit", &["label_count_max"], label_count_max),
    limit("label-name-length-limit", &["label_name_bytes_max"], label_name_bytes_max),
    limit("label-value-length-limit", &["label_value_bytes_max"], label_value_bytes_max),
    limit("ingestion-rate", &[], ingestion_rate),
    limit("ingestion-burst", &[], ingestion_burst),
    limit("query.tenant-concurrency", &["query_concurrency_max"], query_concurrency_max),
    limit("query.tenant-memory", &["query_memory_bytes_max"], query_memory_bytes_max),
];

/// The limit that `name` stands for; a warning is added if it is an old name.
fn find(name: &str, line: u64, warnings: &mut Vec<String>) -> Option<&'static Limit> {
    let found = LIMITS.iter().find(|limit| limit.name == name || limit.old_names.contains(&name))?;
    if found.name != name {
        let now = found.name;
        warnings.push(format!(
            "{line}: the limit {name:?} is called {now:?}; the old name will be refused one day"
        ));
    }
    Some(found)
}

/// Splits `tenant.limit`, both of which may have dots.
fn split_tenant(key: &str) -> Option<(&str, &str)> {
    let names = LIMITS.iter().flat_map(|limit| limit.old_names.iter().chain([&limit.name]));
    let fits =
        |name: &&&str| key.strip_suffix(**name).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'));
    match names.filter(fits).max_by_key(|name| name.len()) {
        Some(name) => Some((key.strip_suffix(name)?.strip_suffix('.')?, name)),
        None => key.rsplit_once('.'),
    }
}

pub(super) fn retention(limits: &mut TenantLimits, text: &str) -> Result<(), String> {
    limits.retention_ms = duration(text)?;
    Ok(())
}

pub(super) fn out_of_order_window(limits: &mut TenantLimits, text: &str) -> Result<(), String> {
    limits.out_of_order_ms = duration(text)?;
    Ok(())
}

pub(super) fn duplicates(limits: &mut TenantLimits, text: &str) -> Result<(), String> {
    limits.duplicates = match text {
        "keep_first" => DuplicatePolicy::KeepFirst,
        "last_wins" => DuplicatePolicy::LastWins,
        _ => return Err(format!("{text:?} is none of keep_first, last_wins")),
    };
    Ok(())
}

pub(super) fn block_encoding(limits: &mut TenantLimits, text: &str) -> Result<(), String> {
    limits.block_encoding = match text {
        "dense" => BlockEncoding::Dense,
        "prometheus" => BlockEncoding::Prometheus,
        _ => return Err(format!("{text:?} is none of dense, prometheus")),
    };
    Ok(())
}

pub(super) fn future_window(limits: &mut TenantLimits, text: &str) -> Result<(), String> {
    limits.future_ms_max = duration(text)?;
    Ok(())
}

pub(super) fn series_max(limits: &mut TenantLimits, text: &str) -> Result<(), String> {
    limits.series_max = count(text)?;
    Ok(())
}

pub(super) fn label_count_max(limits: &mut TenantLimits, text: &str) -> Result<(), String> {
    limits.label_count_max = count(text)?;
    Ok(())
}

pub(super) fn label_name_bytes_max(limits: &mut TenantLimits, text: &str) -> Result<(), String> {
    limits.label_name_bytes_max = size_in_memory(text)?;
    Ok(())
}

pub(super) fn label_value_bytes_max(limits: &mut TenantLimits, text: &str) -> Result<(), String> {
    limits.label_value_bytes_max = size_in_memory(text)?;
    Ok(())
}

pub(super) fn ingestion_rate(limits: &mut TenantLimits, text: &str) -> Result<(), String> {
    limits.ingestion_rate = count_or_none(text)? as u64;
    Ok(())
}

pub(super) fn ingestion_burst(limits: &mut TenantLimits, text: &str) -> Result<(), String> {
    limits.ingestion_burst = count_or_none(text)? as u64;
    Ok(())
}

pub(super) fn query_concurrency_max(limits: &mut TenantLimits, text: &str) -> Result<(), String> {
    limits.query_concurrency_max = places_or_none(text)?;
    Ok(())
}

pub(super) fn query_memory_bytes_max(limits: &mut TenantLimits, text: &str) -> Result<(), String> {
    limits.query_memory_bytes_max = size(text)?;
    Ok(())
}

/// One limit of one tenant, as the file has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TenantEntry {
    tenant: String,
    limit: String,
    value: String,
    line: u64,
}

/// Entries of a file by what they are for.
#[derive(Default)]
pub(super) struct Split {
    /// Of all tenants.
    pub(super) settings: Vec<file::Entry>,
    /// Of single ones.
    pub(super) tenants: Vec<TenantEntry>,
    pub(super) warnings: Vec<String>,
}

/// Takes the entries of tenants out of `entries`, and turns those below `limits:` into the settings that they stand
/// for. An error, and a warning, is `line: what`.
pub(super) fn split(entries: Vec<file::Entry>) -> Result<Split, String> {
    let mut out = Split::default();
    for file::Entry { key, value, line } in entries {
        if let Some(name) = key.strip_prefix(ALL_PREFIX) {
            let Some(limit) = find(name, line, &mut out.warnings) else {
                return Err(format!("{line}: limits: {}", unknown(name)));
            };
            out.settings.push(file::Entry { key: limit.name.to_owned(), value, line });
        } else if let Some(rest) = key.strip_prefix(TENANTS_PREFIX) {
            let Some((tenant, limit)) = split_tenant(rest) else {
                return Err(format!(
                    "{line}: tenants: limits of tenant {rest:?} are expected, found {value:?}"
                ));
            };
            let Some(known) = find(limit, line, &mut out.warnings) else {
                return Err(format!("{line}: tenant {tenant:?}: {}", unknown(limit)));
            };
            let (tenant, limit) = (tenant.to_owned(), known.name.to_owned());
            out.tenants.push(TenantEntry { tenant, limit, value, line });
        } else {
            out.settings.push(file::Entry { key, value, line });
        }
    }
    Ok(out)
}

/// The limits of all tenants: `default` but for what `entries` say. An error is `line: what`. Cost: linear in
/// the entries.
pub(super) fn table(default: TenantLimits, entries: &[TenantEntry]) -> Result<LimitsTable, String> {
    let mut table = LimitsTable::from(default);
    let mut seen = HashSet::with_capacity(entries.len());
    for TenantEntry { tenant, limit, value, line } in entries {
        let id = TenantId::new(tenant).map_err(|why| format!("{line}: tenant {tenant:?}: {why}"))?;
        let Some(known) = LIMITS.iter().find(|known| known.name == limit) else {
            return Err(format!("{line}: tenant {tenant:?}: {}", unknown(limit)));
        };
        if !seen.insert((tenant, limit)) {
            return Err(format!("{line}: tenant {tenant:?}: {limit:?} is set twice"));
        }
        let limits = table.by_tenant.entry(id).or_insert_with(|| table.default.clone());
        (known.apply)(limits, value).map_err(|why| format!("{line}: tenant {tenant:?}: {limit}: {why}"))?;
        if table.by_tenant.len() > TENANT_COUNT_MAX {
            return Err(format!("{line}: more than {TENANT_COUNT_MAX} tenants have limits of their own"));
        }
    }
    Ok(table)
}

/// Entries of tenants as keys and values of a configuration file.
pub(super) fn shown(entries: &[TenantEntry]) -> impl Iterator<Item = (String, String)> {
    let pair = |e: &TenantEntry| (format!("{TENANTS_PREFIX}{}.{}", e.tenant, e.limit), e.value.clone());
    entries.iter().map(pair)
}

fn unknown(name: &str) -> String {
    let known: Vec<&str> = LIMITS.iter().map(|limit| limit.name).collect();
    format!("unknown limit {name:?}, known are {}", known.join(", "))
}
