//! Metrics that are read from parts of the server with no counters of their own kind.

use std::sync::atomic::Ordering;

use chronolith_model::TenantId;
use chronolith_service::limit_uses;
use chronolith_service::metrics::definition::Metric;
use chronolith_tsdb::{LimitUse, OverflowMetric, Tsdb};

use super::memory::activity;
use crate::version::{BuildInfo, VERSION};
use crate::web::Web;
use crate::web_config::{InUse, WebConfigFile};

pub(super) static SERVER: &[Metric<Web>] = &[
    Metric::gauges(
        "chronolith_build_info",
        &["version", "revision", "branch", "build_date"],
        "Version and commit of the running binary.",
        |web, samples| {
            let BuildInfo { revision, branch, date, .. } = web.options.web.build;
            samples.push(&[VERSION, revision, branch, date], 1.0);
        },
    ),
    Metric::gauge("process_start_time_seconds", "When the process started, since 1970.", |web| {
        web.service.started_ms as f64 / 1000.0
    }),
    Metric::gauge("chronolith_ready", "1 if queries and writes are served.", |web| {
        f64::from(u8::from(web.service.lifecycle.unready_reason().is_none()))
    }),
    Metric::gauge("chronolith_read_only", "1 if writes and other changes are refused.", |web| {
        f64::from(u8::from(web.service.lifecycle.is_read_only()))
    }),
    Metric::counters(
        "chronolith_access_refused_total",
        &["reason"],
        "Requests refused by access control, by reason.",
        |web, samples| {
            let metrics = &web.service.access.metrics;
            for (reason, counter) in [
                ("no_credentials", &metrics.missing),
                ("wrong_credentials", &metrics.wrong),
                ("expired", &metrics.expired),
                ("busy", &metrics.busy),
                ("keys_pending", &metrics.keys_pending),
                ("denied", &metrics.denied),
            ] {
                samples.push(&[reason], counter.as_f64());
            }
        },
    ),
    Metric::gauge("chronolith_access_principals", "Principals of the access file in use.", |web| {
        web.service.access.directory().principal_count() as f64
    }),
    Metric::gauge(
        "chronolith_access_file_last_read_successful",
        "1 if the access file could be used when it was last read, 0 if the principals before it stay; 0 without one.",
        |web| f64::from(u8::from(web.service.access.metrics.read_ok.load(Ordering::Relaxed))),
    ),
    Metric::gauge(
        "chronolith_access_file_last_read_success_timestamp_seconds",
        "When the access file in use was read, since 1970; 0 without one.",
        |web| web.service.access.metrics.read_ms.load(Ordering::Relaxed) as f64 / 1000.0,
    ),
    Metric::gauge("chronolith_access_jwt_keys", "Public keys in use that verify JWTs.", |web| {
        web.service.access.jwt_key_count() as f64
    }),
    Metric::gauge(
        "chronolith_access_jwt_keys_last_read_successful",
        "1 if all JWKS files could be used when they were last read, 0 if keys before them stay; 0 without an access file.",
        |web| f64::from(u8::from(web.service.access.metrics.keys_ok.load(Ordering::Relaxed))),
    ),
    Metric::gauge(
        "chronolith_access_jwt_keys_last_read_success_timestamp_seconds",
        "When changed keys were last read, since 1970; 0 without a JWKS file.",
        |web| web.service.access.metrics.keys_read_ms.load(Ordering::Relaxed) as f64 / 1000.0,
    ),
    Metric::counters(
        "chronolith_access_jwt_key_fetches_total",
        &["result"],
        "Fetches of an issuer's keys from its OpenID Connect provider, by result.",
        |web, samples| {
            let metrics = &web.service.access.metrics;
            samples.push(&["success"], metrics.key_fetches.as_f64());
            samples.push(&["failure"], metrics.key_fetches_failed.as_f64());
        },
    ),
    Metric::gauges(
        "chronolith_access_jwt_keys_last_fetch_successful",
        &["issuer"],
        "1 if the last fetch of the issuer's keys succeeded, 0 if keys before it stay or none were fetched.",
        |web, samples| {
            for provider in web.service.access.providers() {
                samples.push(&[&provider.issuer], f64::from(u8::from(provider.is_good)));
            }
        },
    ),
    Metric::gauges(
        "chronolith_access_jwt_keys_last_fetch_success_timestamp_seconds",
        &["issuer"],
        "When the issuer's keys were last fetched, since 1970; 0 before the first time.",
        |web, samples| {
            for provider in web.service.access.providers() {
                samples.push(&[&provider.issuer], provider.fetched_ms as f64 / 1000.0);
            }
        },
    ),
    Metric::counters(
        "chronolith_access_jwt_refused_total",
        &["reason"],
        "JWTs that are no login, by reason; part of wrong_credentials.",
        |web, samples| {
            for (reason, counter) in web.service.access.metrics.jwt_refused.iter() {
                samples.push(&[reason], counter.as_f64());
            }
        },
    ),
    Metric::gauges(
        "chronolith_web_config_last_read_successful",
        &[],
        "1 if the web configuration file and its certificates could be used when they were last read, 0 if those before them stay.",
        |web, samples| {
            if let Some(file) = web.web_config() {
                samples.push(&[], f64::from(u8::from(file.is_read())));
            }
        },
    ),
    Metric::gauges(
        "chronolith_web_config_last_read_success_timestamp_seconds",
        &[],
        "When the web configuration in use was read, since 1970.",
        |web, samples| {
            if let Some(file) = web.web_config() {
                samples.push(&[], file.read_ms() as f64 / 1000.0);
            }
        },
    ),
    Metric::gauges(
        "chronolith_web_config_certificate_expiry_timestamp_seconds",
        &[],
        "When the server certificate in use expires, since 1970.",
        |web, samples| {
            if let Some(tls) = web.web_config().map(WebConfigFile::current).as_deref().and_then(InUse::tls) {
                samples.push(&[], tls.expires_s() as f64);
            }
        },
    ),
    Metric::gauge("chronolith_tls_handshakes_running", "Connections in their TLS handshake.", |web| {
        web.connections.handshake_count() as f64
    }),
    Metric::counters(
        "chronolith_tls_handshakes_total",
        &[],
        "TLS handshakes that succeeded.",
        |web, samples| {
            if let Some(file) = web.web_config() {
                samples.push(&[], file.handshakes().done_count());
            }
        },
    ),
    Metric::counters(
        "chronolith_tls_handshake_failures_total",
        &["reason"],
        "TLS handshakes that failed, by reason.",
        |web, samples| {
            let failures = web.web_config().into_iter().flat_map(|file| file.handshakes().failed_counts());
            failures.for_each(|(reason, count)| samples.push(&[reason], count));
        },
    ),
    Metric::gauge("chronolith_http_connections", "Open connections.", |web| web.connections.count() as f64),
    Metric::gauge("chronolith_http_connections_limit", "Connections at most.", |web| {
        web.connections.count_max() as f64
    }),
    Metric::counter(
        "chronolith_query_killed_total",
        "Queries killed by status/active_queries/kill.",
        |web| web.service.queries.active.killed_count() as f64,
    ),
    Metric::counter(
        "chronolith_query_log_failures_total",
        "Lines of the query log that could not be written.",
        |web| web.service.queries.log.failures.as_f64(),
    ),
    Metric::counter("chronolith_audit_lines_total", "Lines of the audit log.", |web| {
        web.service.audit.lines.as_f64()
    }),
    Metric::counter("chronolith_audit_written_bytes_total", "Bytes of the lines of the audit log.", |web| {
        web.service.audit.bytes.as_f64()
    }),
    Metric::counter(
        "chronolith_audit_failures_total",
        "Lines of the audit log that could not be written; admin actions are refused then.",
        |web| web.service.audit.failures.as_f64(),
    ),
    Metric::counter(
        "chronolith_audit_suppressed_total",
        "Refused requests without a line of their own in the audit log, because there were many.",
        |web| web.service.audit.suppressed.as_f64(),
    ),
    Metric::counter("chronolith_query_slow_logged_total", "Lines of the slow query log.", |web| {
        let (logged_count, _) = web.service.queries.slow_log.counts();
        logged_count as f64
    }),
    Metric::counter(
        "chronolith_query_slow_left_out_total",
        "Slow queries without a log line because of the rate limit of lines.",
        |web| {
            let (_, left_out_count) = web.service.queries.slow_log.counts();
            left_out_count as f64
        },
    ),
    Metric::gauges(
        "chronolith_activity_bytes",
        &["list"],
        "Memory of the lists of recent activity: costliest queries, selected metrics, refused samples.",
        |web, samples| activity(web).iter().for_each(|part| samples.push(&[part.name], part.bytes as f64)),
    ),
    Metric::gauges("chronolith_activity_entries", &["list"], "Entries of these lists.", |web, samples| {
        activity(web).iter().for_each(|part| samples.push(&[part.name], part.count as f64));
    }),
    Metric::counter(
        "chronolith_metric_usage_evictions_total",
        "Metric names whose counts of queries were dropped for others.",
        |web| web.service.queries.metric_usage.evicted_count() as f64,
    ),
    Metric::counter(
        "chronolith_reject_examples_dropped_total",
        "Examples of refused samples that were not kept for lack of room.",
        |web| web.service.writes.rejects.examples_dropped_count() as f64,
    ),
    Metric::gauge("chronolith_write_batches_pooled", "Empty batches at hand.", |web| {
        web.service.writes.pools.remote_write.free_count() as f64
    }),
];

/// Series by tenant, once the store is open.
pub(super) static TENANT_SERIES: &[Metric<Web>] = &[Metric::gauges(
    "chronolith_tenant_head_series",
    &["tenant"],
    "Series in the head by tenant.",
    |web, samples| {
        let Some(store) = web.service.lifecycle.opened() else { return };
        for (tenant, count) in web.service.writes.tenants.split(store.statistics().head_series_by_store()) {
            samples.push(&[&tenant], count as f64);
        }
    },
)];

/// Deletions of whole tenants.
pub(super) static TENANT_DELETIONS: &[Metric<Tsdb>] = &[
    Metric::gauge("chronolith_tenant_deletions_running", "Tenants that are being deleted.", |store| {
        store.tenant_deletions().running_count() as f64
    }),
    Metric::counter("chronolith_tenant_deletions_total", "Tenants deleted.", |store| {
        store.tenant_deletions().done_count() as f64
    }),
    Metric::counter(
        "chronolith_tenant_deletion_failures_total",
        "Failed attempts to delete a tenant; each is retried.",
        |store| store.tenant_deletions().failure_count() as f64,
    ),
];

/// Limits of tenants with counters of their own, and their use.
pub(super) static TENANT_LIMITS: &[Metric<Vec<TenantLimitUses>>] = &[
    Metric::gauges(
        "chronolith_tenant_limit",
        &["tenant", "limit"],
        "Limits by tenant, of the tenants that have counters of their own.",
        |tenants, samples| {
            for TenantLimitUses { tenant, uses, .. } in tenants {
                let limits = uses.iter().filter_map(|one| Some((one, one.limit?)));
                limits.for_each(|(one, limit)| samples.push(&[tenant, &one.name], limit as f64));
            }
        },
    ),
    Metric::gauges(
        "chronolith_tenant_used",
        &["tenant", "limit"],
        "Use of chronolith_tenant_limit.",
        |tenants, samples| {
            for TenantLimitUses { tenant, uses, .. } in tenants {
                let limited = uses.iter().filter(|one| one.limit.is_some());
                limited.for_each(|one| samples.push(&[tenant, &one.name], one.used as f64));
            }
        },
    ),
    Metric::gauges(
        "chronolith_tenant_weight",
        &["tenant"],
        "Weights of tenants that have counters of their own.",
        |tenants, samples| {
            tenants.iter().for_each(|one| samples.push(&[&one.tenant], f64::from(one.weight)));
        },
    ),
    Metric::gauges(
        "chronolith_tenant_waiting",
        &["tenant", "class"],
        "Requests in the queue by class, of the tenants that have counters of their own.",
        |tenants, samples| {
            for TenantLimitUses { tenant, waiting, .. } in tenants {
                waiting.iter().for_each(|(class, count)| samples.push(&[tenant, class], *count as f64));
            }
        },
    ),
    Metric::gauges(
        "chronolith_overflow_series",
        &["tenant"],
        "Series beyond a limit that are folded, by tenant.",
        |tenants, samples| {
            for TenantLimitUses { tenant, uses, .. } in tenants {
                let folded = uses.iter().filter(|one| one.name == OVERFLOW_SERIES);
                folded.for_each(|one| samples.push(&[tenant], one.used as f64));
            }
        },
    ),
    Metric::gauges(
        "chronolith_tenant_overflow_metric_series",
        &["tenant", "metric"],
        "Series beyond a limit that are folded, of the 5 metrics of a tenant with most of them.",
        |tenants, samples| {
            for TenantLimitUses { tenant, overflow_metrics, .. } in tenants {
                let metrics = overflow_metrics.iter();
                metrics.for_each(|one| samples.push(&[tenant, &one.metric], one.series_count as f64));
            }
        },
    ),
    Metric::gauges(
        "chronolith_tenant_overflow_label_values",
        &["tenant", "metric", "label"],
        "Estimated distinct values among folded series, of the label with most in each of these metrics.",
        |tenants, samples| {
            for TenantLimitUses { tenant, overflow_metrics, .. } in tenants {
                for one in overflow_metrics {
                    let largest = one.values_by_label.first();
                    largest.into_iter().for_each(|(label, count)| {
                        samples.push(&[tenant, &one.metric, label], *count as f64);
                    });
                }
            }
        },
    ),
];

/// Name of the limit of folded series.
const OVERFLOW_SERIES: &str = "overflow_series";

/// Use of the limits of one tenant.
pub(super) struct TenantLimitUses {
    tenant: String,
    uses: Vec<LimitUse>,
    overflow_metrics: Vec<OverflowMetric>,
    weight: u32,
    /// Requests in the queue, by class.
    waiting: [(&'static str, usize); 4],
}

/// Returns the use of limits of the tenants that have counters of their own: a bounded number.
pub(super) fn tenant_limit_uses(web: &Web) -> Vec<TenantLimitUses> {
    let names = web.service.writes.tenants.list().into_iter().map(|(name, _)| name);
    let uses = |tenant: String| {
        // The sum of the other tenants has no id.
        let id = TenantId::new(&tenant).ok()?;
        let admission = &web.service.admission;
        let classes = [&admission.write, &admission.write_apply, &admission.query, &admission.remote_read];
        Some(TenantLimitUses {
            tenant,
            uses: limit_uses(&web.service, &id),
            overflow_metrics: overflow_metrics(web, &id),
            weight: admission.weights.of(&id),
            waiting: classes.map(|class| (class.name, class.queue.waiting_of(&id))),
        })
    };
    names.filter_map(uses).collect()
}

/// Metrics of a tenant with metrics of their own about their folded series.
const OVERFLOW_METRIC_COUNT: usize = 5;

fn overflow_metrics(web: &Web, tenant: &TenantId) -> Vec<OverflowMetric> {
    let store = web.service.lifecycle.opened();
    let metrics = store.map(|store| store.statistics().overflow_metrics(tenant, OVERFLOW_METRIC_COUNT));
    metrics.unwrap_or_default()
}

/// Progress of the replay, until the store is open.
pub(super) static REPLAY: &[Metric<Web>] = &[
    Metric::gauge("chronolith_replay_bytes", "Bytes replayed so far.", |web| {
        web.service.lifecycle.replay_snapshot().bytes_done as f64
    }),
    Metric::gauge("chronolith_replay_expected_bytes", "Bytes to replay.", |web| {
        web.service.lifecycle.replay_snapshot().bytes_total as f64
    }),
];
