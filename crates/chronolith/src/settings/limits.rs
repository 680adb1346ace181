//! Limits of tenants in the configuration file: `limits:` for all, `tenants:` for one.
//! Holds: a tenant has the limits of all but for those that its entry names; an unknown limit or a bad value is an
//! error with line, tenant and limit. Not here: what a limit does (`model::TenantLimits`).

use std::collections::HashSet;

use chronolith_model::{BlockEncoding, DuplicatePolicy, TenantId, TenantLimits};
use chronolith_tsdb::LimitsTable;

use super::{count, duration, file, places_or_none, size, size_in_memory};

/// First part of keys of the limits of all tenants.
const ALL_PREFIX: &str = "limits.";
/// First part of keys of the limits of one tenant.
const TENANTS_PREFIX: &str = "tenants.";
/// Tenants with limits of their own.
const TENANT_COUNT_MAX: usize = 10_000;

/// A limit that may differ from tenant to tenant.
struct Limit {
    /// Its key below `limits:` and below a tenant.
    key: &'static str,
    /// The setting that is the same for all tenants.
    setting: &'static str,
    apply: fn(&mut TenantLimits, &str) -> Result<(), String>,
}

static LIMITS: [Limit; 11] = [
    Limit { key: "retention", setting: "retention", apply: retention },
    Limit { key: "out_of_order_window", setting: "out-of-order-window", apply: out_of_order_window },
    Limit { key: "duplicates", setting: "duplicates", apply: duplicates },
    Limit { key: "block_encoding", setting: "block-encoding", apply: block_encoding },
    Limit { key: "future_window", setting: "future-limit", apply: future_window },
    Limit { key: "series_max", setting: "series-limit", apply: series_max },
    Limit { key: "label_count_max", setting: "label-count-limit", apply: label_count_max },
    Limit { key: "label_name_bytes_max", setting: "label-name-length-limit", apply: label_name_bytes_max },
    Limit { key: "label_value_bytes_max", setting: "label-value-length-limit", apply: label_value_bytes_max },
    Limit { key: "query_concurrency_max", setting: "query.tenant-concurrency", apply: query_concurrency_max },
    Limit { key: "query_memory_bytes_max", setting: "query.tenant-memory", apply: query_memory_bytes_max },
];

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

/// Takes the entries of tenants out of `entries`, and turns those below `limits:` into the settings that they stand
/// for. An error is `line: what`.
pub(super) fn split(entries: Vec<file::Entry>) -> Result<(Vec<file::Entry>, Vec<TenantEntry>), String> {
    let (mut settings, mut tenants) = (Vec::new(), Vec::new());
    for file::Entry { key, value, line } in entries {
        if let Some(name) = key.strip_prefix(ALL_PREFIX) {
            let Some(limit) = LIMITS.iter().find(|limit| limit.key == name) else {
                return Err(format!("{line}: limits: {}", unknown(name)));
            };
            settings.push(file::Entry { key: limit.setting.to_owned(), value, line });
        } else if let Some(rest) = key.strip_prefix(TENANTS_PREFIX) {
            // Names of limits have no dot, names of tenants may have several.
            let Some((tenant, limit)) = rest.rsplit_once('.') else {
                return Err(format!(
                    "{line}: tenants: limits of tenant {rest:?} are expected, found {value:?}"
                ));
            };
            tenants.push(TenantEntry { tenant: tenant.to_owned(), limit: limit.to_owned(), value, line });
        } else {
            settings.push(file::Entry { key, value, line });
        }
    }
    Ok((settings, tenants))
}

/// The limits of all tenants: `default` but for what `entries` say. An error is `line: what`. Cost: linear in the entries.
pub(super) fn table(default: TenantLimits, entries: &[TenantEntry]) -> Result<LimitsTable, String> {
    let mut table = LimitsTable::from(default);
    let mut seen = HashSet::with_capacity(entries.len());
    for TenantEntry { tenant, limit, value, line } in entries {
        let id = TenantId::new(tenant).map_err(|why| format!("{line}: tenant {tenant:?}: {why}"))?;
        let Some(known) = LIMITS.iter().find(|known| known.key == limit) else {
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
    let known: Vec<&str> = LIMITS.iter().map(|limit| limit.key).collect();
    format!("unknown limit {name:?}, known are {}", known.join(", "))
}
