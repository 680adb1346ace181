//! Settings of rules and alerts. Invariant: rule files without tenants of requests belong to `anonymous`.

use std::path::PathBuf;
use std::time::Duration;

use chronolith_model::labels::is_legacy_label_name;
use chronolith_model::{Labels, TenantId};

use super::declaration::{Form, Setting, Settings};
use super::value::{self, set};

/// Shortest lease of rules: a request to the bucket may take a third of it.
const LEASE_DURATION_MIN: Duration = Duration::from_secs(5);

pub(super) static SETTINGS: &[Setting] = &[
    Setting::server(
        "rules.files",
        "",
        Form::List("PATTERN"),
        "Prometheus rule files whose rules are evaluated, read again by a reload; patterns may have *, ? and [...], and are separated by commas",
        |s, v| {
            s.server.service.rules.files = items(v).map(PathBuf::from).collect();
            Ok(())
        },
    ),
    Setting::server(
        "rules.tenant",
        "anonymous",
        Form::Text("TENANT"),
        "Tenant whose series the rules of files read and write, with multitenancy",
        |s, v| set(&mut s.server.service.rules.tenant, TenantId::new(v).map_err(|why| why.to_string())),
    ),
    Setting::server(
        "rules.evaluation-interval",
        "1m",
        Form::Duration,
        "Interval of rule groups that set none",
        |s, v| {
            let interval = value::duration_positive(v).map(u64::cast_signed);
            set(&mut s.server.service.rules.defaults.interval_ms, interval)
        },
    ),
    Setting::server(
        "rules.query-offset",
        "0",
        Form::Duration,
        "Rule groups that set no query_offset are evaluated this long before the time of their round",
        |s, v| set(&mut s.server.service.rules.defaults.query_offset_ms, value::duration(v)),
    ),
    Setting::server(
        "rules.catch-up",
        "1h",
        Form::Duration,
        "Rounds that were missed while the server was down are evaluated after the start, back to this age; 0 = none",
        |s, v| set(&mut s.server.service.rules.catch_up_ms, value::duration(v)),
    ),
    Setting::server(
        "rules.repair-window",
        "1h",
        Form::Duration,
        "Rounds of recording rules up to this age are evaluated again after out-of-order samples that they have not seen; 0 = none",
        |s, v| set(&mut s.server.service.rules.repair_window_ms, value::duration(v)),
    ),
    Setting::server(
        "rules.repair-cpu",
        "20%",
        Form::Text("PERCENT"),
        "Part of a core that repairs of recording rules take",
        |s, v| set(&mut s.server.service.rules.repair_cpu_percent, value::percent(v)),
    ),
    Setting::server(
        "rules.alert.for-outage-tolerance",
        "1h",
        Form::Duration,
        "Longest time that the server may be down without pending alerts starting again",
        |s, v| set(&mut s.server.service.rules.outage_tolerance_ms, value::duration(v)),
    ),
    Setting::server(
        "rules.alert.resend-delay",
        "1m",
        Form::Duration,
        "Time after which a firing alert is sent to Alertmanagers again",
        |s, v| set(&mut s.server.service.rules.resend_delay_ms, value::duration(v)),
    ),
    Setting::server(
        "rules.lease-duration",
        "1m",
        Form::Duration,
        "In a cluster, time after which another process evaluates rules if the one that does renews its lease no more",
        |s, v| {
            let duration = value::duration_at_least(v, LEASE_DURATION_MIN);
            set(&mut s.server.service.rules.lease_duration, duration)
        },
    ),
    Setting::server(
        "external-label",
        "",
        Form::List("NAME=VALUE"),
        "Labels of all alerts that are sent, and $externalLabels of their templates, separated by commas",
        |s, v| set(&mut s.server.notifier.external_labels, external_labels(v)),
    ),
    Setting::server(
        "rules.alerting-config",
        "",
        Form::Text("FILE"),
        "File with Prometheus's alerting: block (Alertmanagers, relabelling), read again when it or a file it names changes; empty = none",
        |s, v| set(&mut s.server.notifier.config_file, value::file_or_none(v)),
    ),
    Setting::server(
        "rules.configuration-api",
        "true",
        Form::Switch,
        "Enable Mimir's API that changes rules, /config/v1/rules; rules that are stored stay in either case",
        |s, v| set(&mut s.server.web.rules_api, value::switch(v)),
    ),
    Setting::tenant(
        "rules.groups-max",
        &[],
        "2000",
        Form::Count,
        "Rule groups of one tenant, further ones are refused with their file; 0 = no limit",
        |l, v| set(&mut l.queries.rules.groups_max, value::count_or_none(v)),
    ),
    Setting::tenant(
        "rules.per-group-max",
        &[],
        "2000",
        Form::Count,
        "Rules of one group, larger groups are refused with their file; 0 = no limit",
        |l, v| set(&mut l.queries.rules.group_rules_max, value::count_or_none(v)),
    ),
    Setting::tenant(
        "rules.series-per-rule-max",
        &[],
        "200000",
        Form::Count,
        "Series in the result of one rule, which fails beyond it; 0 = no limit",
        |l, v| set(&mut l.queries.rules.series_max, value::count_or_none(v)),
    ),
];

fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// Labels as `NAME=VALUE`, separated by commas.
fn external_labels(text: &str) -> Result<Labels, String> {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for item in items(text) {
        match item.split_once('=') {
            Some((name, value)) if is_legacy_label_name(name) && !value.is_empty() => {
                if pairs.iter().any(|(other, _)| *other == name) {
                    return Err(format!("label {name} is given twice"));
                }
                pairs.push((name, value));
            }
            _ => return Err(format!("invalid label {item:?}, expected for example region=eu")),
        }
    }
    Ok(Labels::from_pairs(pairs))
}

/// Checks that a server with rule files can store their results, and that their tenant exists.
pub(super) fn check(settings: &Settings) -> Result<(), String> {
    let server = &settings.server;
    let rules = &server.service.rules;
    if !server.service.multitenancy && rules.tenant != TenantId::anonymous() {
        return Err("rules.tenant: expected multitenancy as well".to_owned());
    }
    if !rules.files.is_empty() && server.bucket.as_ref().is_some_and(|bucket| bucket.is_read_only) {
        return Err(
            "rules.files: expected a data directory: a read-only server over a bucket stores no results"
                .to_owned(),
        );
    }
    Ok(())
}
