//! Limits of tenants in the configuration file: `limits:` for all, `tenants:` for one.
//! Invariants: a tenant has the limits of all but for those that its entry names; an unknown limit or a bad
//! value is an error with line, tenant and limit. Not here: effect of a limit (`model::TenantLimits`).

use std::collections::HashSet;
use std::path::Path;

use chronolith_model::{TenantId, TenantLimits};
use chronolith_server::ShownSetting;
use chronolith_tsdb::LimitsTable;

use super::declaration::{Scope, Setting};
use super::file::Entry;
use super::table::all_settings;

/// First part of keys of the limits of all tenants.
const ALL_PREFIX: &str = "limits.";
/// First part of keys of the limits of one tenant.
const TENANTS_PREFIX: &str = "tenants.";
/// Tenants with limits of their own.
const TENANT_COUNT_MAX: usize = 10_000;

type Apply = fn(&mut TenantLimits, &str) -> Result<(), String>;

/// A setting that may differ from tenant to tenant.
#[derive(Clone, Copy)]
struct Limit {
    setting: &'static Setting,
    apply: Apply,
}

fn limits() -> impl Iterator<Item = Limit> {
    all_settings().filter_map(|setting| match setting.scope {
        Scope::Tenant(apply) => Some(Limit { setting, apply }),
        Scope::Server(_) => None,
    })
}

/// The limit named `name`; a warning is added if the name is deprecated.
fn find(name: &str, line: u64, warnings: &mut Vec<String>) -> Option<Limit> {
    let found = limits().find(|one| one.setting.name == name || one.setting.old_names.contains(&name))?;
    if found.setting.name != name {
        let now = found.setting.name;
        warnings.push(format!(
            "{line}: the limit {name:?} is called {now:?}; the old name will be refused one day"
        ));
    }
    Some(found)
}

/// Splits `tenant.limit`, both of which may have dots.
fn split_tenant(key: &str) -> Option<(&str, &str)> {
    let names = limits().flat_map(|one| one.setting.old_names.iter().chain([&one.setting.name]));
    let fits =
        |name: &&&str| key.strip_suffix(**name).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'));
    match names.filter(fits).max_by_key(|name| name.len()) {
        Some(name) => Some((key.strip_suffix(name)?.strip_suffix('.')?, name)),
        None => key.rsplit_once('.'),
    }
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
    /// Settings of all tenants.
    pub(super) settings: Vec<Entry>,
    /// Settings of single tenants.
    pub(super) tenants: Vec<TenantEntry>,
    pub(super) warnings: Vec<String>,
}

/// Takes the entries of tenants out of `entries`, and turns those below `limits:` into the settings that they
/// stand for. An error, and a warning, is `line: what`.
pub(super) fn split(entries: Vec<Entry>) -> Result<Split, String> {
    let mut out = Split::default();
    for Entry { key, value, line } in entries {
        if let Some(name) = key.strip_prefix(ALL_PREFIX) {
            let Some(limit) = find(name, line, &mut out.warnings) else {
                return Err(format!("{line}: limits: {}", unknown(name)));
            };
            out.settings.push(Entry { key: limit.setting.name.to_owned(), value, line });
        } else if let Some(rest) = key.strip_prefix(TENANTS_PREFIX) {
            let Some((tenant, limit)) = split_tenant(rest) else {
                return Err(format!(
                    "{line}: tenants: limits of tenant {rest:?} are expected, found {value:?}"
                ));
            };
            let Some(known) = find(limit, line, &mut out.warnings) else {
                return Err(format!("{line}: tenant {tenant:?}: {}", unknown(limit)));
            };
            let tenant = tenant.to_owned();
            let limit = known.setting.name.to_owned();
            out.tenants.push(TenantEntry { tenant, limit, value, line });
        } else {
            out.settings.push(Entry { key, value, line });
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
        let Some(known) = limits().find(|known| known.setting.name == limit) else {
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

/// Entries of tenants as settings of the configuration file `path`.
pub(super) fn shown(entries: &[TenantEntry], path: &Path) -> impl Iterator<Item = ShownSetting> {
    entries.iter().map(move |entry| ShownSetting {
        name: format!("{TENANTS_PREFIX}{}.{}", entry.tenant, entry.limit),
        value: entry.value.clone(),
        default: None,
        origin: format!("{}:{}", path.display(), entry.line),
    })
}

fn unknown(name: &str) -> String {
    let known: Vec<&str> = limits().map(|limit| limit.setting.name).collect();
    format!("unknown limit {name:?}, known are {}", known.join(", "))
}
