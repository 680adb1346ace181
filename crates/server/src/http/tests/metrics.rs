//! The server's own metrics: names, types, units and help texts as `promtool check metrics` wants them, times
//! of samples, metadata.

use std::collections::BTreeSet;

use std::task::Poll;

use axum::body::Body;
use axum::http::Request;

use chronolith_model::TenantId;
use chronolith_service::limits::{STATUS_CONCURRENCY, STATUS_QUEUE_FACTOR};
use chronolith_service::metrics::{Family, FamilyKind};

use super::{Fixture, NOW_MS, Pairs};
use crate::exposition::gather::gather;
use crate::serve::scrape;

const UP: Pairs<'_> = &[("__name__", "up")];

/// Faults of a family, by the rules of `promtool check metrics` and of Prometheus's naming guide.
fn faults(family: &Family) -> Vec<String> {
    let name = family.name.as_str();
    let mut faults = Vec::new();
    let mut check = |is_good: bool, what: &str| {
        if !is_good {
            faults.push(format!("{name}: {what}"));
        }
    };
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    check(name.chars().all(legal), "characters");
    check(name.starts_with("chronolith_") || name.starts_with("process_"), "prefix");
    check(family.help.ends_with('.') && family.help.len() > 10, "help text is no sentence");
    check(!family.help.contains('\n') && !family.help.contains('\\'), "help text needs escapes");
    check((family.kind == FamilyKind::Counter) == name.ends_with("_total"), "_total is for counters");
    for word in ["counter", "gauge", "summary", "histogram", "untyped"] {
        check(!name.split('_').any(|part| part == word), "name has a type");
    }
    for suffix in ["_count", "_sum", "_bucket"] {
        check(!name.ends_with(suffix), "suffix is for samples of histograms");
    }
    // One unit at the end, in base units only.
    let bare = name.strip_suffix("_total").unwrap_or(name);
    for unit in ["ms", "us", "ns", "milliseconds", "minutes", "hours", "kb", "mb", "kib", "mib", "percent"] {
        check(!bare.split('_').any(|part| part == unit), "unit is no base unit");
    }
    let has_unit = bare.split('_').any(|part| part == "seconds" || part == "bytes");
    check(!has_unit || !family.unit().is_empty(), "unit is not the last word");
    for sample in &family.samples {
        let is_histogram = family.kind == FamilyKind::Histogram;
        check(is_histogram != sample.suffix.is_empty(), "suffix of a sample");
        check(sample.value.is_finite(), "value");
    }
    faults
}

/// Covers a regression: 25 counters were gauges without `_total`, with the help text "Gauge of the store.".
#[tokio::test]
async fn every_metric_has_a_name_type_help_and_unit() {
    let server = Fixture::starting();
    let starting = gather(&server.web);
    let server = server.open();
    server.write(&[(UP, &[(NOW_MS, 1.0)])]).await;
    server.get("/api/v1/query?query=up").await;
    let families = gather(&server.web);
    let faults: Vec<String> = starting.iter().chain(&families).flat_map(faults).collect();
    assert!(faults.is_empty(), "{faults:#?}");
    let names: BTreeSet<&str> = families.iter().map(|family| family.name.as_str()).collect();
    assert_eq!(names.len(), families.len(), "each family stands once");
}

/// The value of a metric without labels.
fn value(server: &Fixture, name: &str) -> Option<f64> {
    let families = gather(&server.web);
    families.iter().find(|family| family.name == name).map(|family| family.samples[0].value)
}

/// Covers a regression: the bounds were the ends of two-hour windows, so that the newest sample lay up to two
/// hours in the future.
#[tokio::test]
async fn times_of_the_head_are_those_of_samples() {
    let server = Fixture::ready();
    assert_eq!(value(&server, "chronolith_head_max_time_seconds"), None);
    server.write(&[(UP, &[(NOW_MS - 7_000_123, 1.0), (NOW_MS - 90_000, 2.0)])]).await;
    server.write(&[(&[("__name__", "b")], &[(NOW_MS - 60_000, 1.0)])]).await;
    let bounds = (
        value(&server, "chronolith_head_min_time_seconds"),
        value(&server, "chronolith_head_max_time_seconds"),
    );
    let seconds = |ms: i64| Some(ms as f64 / 1000.0);
    assert_eq!(bounds, (seconds(NOW_MS - 7_000_123), seconds(NOW_MS - 60_000)));
    let head = server.get("/api/v1/status/tsdb").await.json()["data"]["headStats"].clone();
    assert_eq!(
        (head["minTime"].as_i64(), head["maxTime"].as_i64()),
        (Some(NOW_MS - 7_000_123), Some(NOW_MS - 60_000))
    );
}

/// Covers a regression: each request for `/metrics` took a thread of its own from the pool that writes need
/// too.
#[tokio::test]
async fn many_requests_for_metrics_share_a_few_threads() {
    let server = Fixture::ready();
    // All permits are taken: every request waits.
    let admission = &server.web.service.admission;
    let mut permits = Vec::new();
    for _ in 0..STATUS_CONCURRENCY {
        let wait_max = std::time::Duration::from_secs(60);
        let permit = admission.status.acquire(&TenantId::anonymous(), 0, wait_max).await;
        permits.push(permit.expect("free"));
    }
    let mut asked: Vec<_> = (0..200).map(|_| Box::pin(server.get("/metrics"))).collect();
    for answer in &mut asked {
        assert!(poll_once(answer.as_mut()).is_pending());
    }
    assert_eq!((admission.status.queue.waiting(), server.web.service.threads.thread_count()), (200, 0));
    assert!(
        gather(&server.web)
            .iter()
            .any(|family| { family.name == "chronolith_status_waiting" && family.samples[0].value == 200.0 })
    );
    // Beyond the queue requests are refused, and say when to come again.
    let left = STATUS_CONCURRENCY * STATUS_QUEUE_FACTOR - 200;
    let mut more: Vec<_> = (0..=left).map(|_| Box::pin(server.get("/metrics"))).collect();
    let refused = more.iter_mut().filter_map(|answer| match poll_once(answer.as_mut()) {
        Poll::Ready(answer) => Some((answer.status.as_u16(), answer.headers.contains_key("retry-after"))),
        Poll::Pending => None,
    });
    assert_eq!(refused.collect::<Vec<_>>(), [(503, true)]);
    drop((permits, more));
    let mut thread_count_max = 0;
    for answer in asked {
        assert_eq!(answer.await.status.as_u16(), 200);
        thread_count_max = thread_count_max.max(server.web.service.threads.thread_count());
    }
    // A permit is given back shortly before its thread is idle.
    assert!(thread_count_max <= 4 * STATUS_CONCURRENCY, "{thread_count_max} threads");
}

/// Polls once, with a waker that does nothing.
fn poll_once<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
}

/// Covers a regression: Grafana's builder showed no type for the server's own metrics: they had no metadata.
#[tokio::test]
async fn own_metrics_have_metadata() {
    let server = Fixture::ready();
    let families = gather(&server.web);
    scrape::round(&server.web, "here:1", &mut chronolith_model::WriteBatch::from_labels());
    let answer = server.get("/api/v1/metadata?metric=chronolith_wal_sync_seconds_total").await.json();
    let entry = &answer["data"]["chronolith_wal_sync_seconds_total"][0];
    assert_eq!((entry["type"].as_str(), entry["unit"].as_str()), (Some("counter"), Some("seconds")));
    assert_eq!(entry["help"].as_str(), Some("Time spent in syncs of the WAL."));
    let all = server.get("/api/v1/metadata").await.json()["data"].as_object().map_or(0, serde_json::Map::len);
    assert_eq!(all, families.len());
}

/// Covers the permit of a self-scrape: without one it is left out.
#[tokio::test]
async fn one_self_scrape_runs_at_a_time() {
    let server = Fixture::ready();
    let service = &server.web.service;
    let scrape = || scrape::round(&server.web, "here:1", &mut chronolith_model::WriteBatch::from_labels());
    let anonymous = chronolith_model::TenantId::anonymous();
    let series_count =
        || service.lifecycle.store().unwrap().reader().series_count(&chronolith_model::StoreId::anonymous());
    let held = service
        .try_admit(
            &service.admission.self_scrape,
            &chronolith_service::access::Identity::internal(&anonymous),
            1_000,
        )
        .expect("free");
    scrape();
    assert_eq!(series_count(), 0, "no permit, no scrape");
    drop(held);
    scrape();
    assert!(series_count() > 100, "{}", series_count());
    assert!(service.queries.active.list(None).is_empty(), "it has ended");
}

/// Covers a regression: `status/tsdb` of a tenant without data showed chunks and times of all tenants.
#[tokio::test]
async fn status_tsdb_is_of_the_tenant_that_asks() {
    let server = Fixture::with(|options| options.service.multitenancy = true).open();
    let store = server.web.service.lifecycle.store().unwrap().clone();
    let mut batch = chronolith_model::WriteBatch::from_labels();
    batch.push_labels(&chronolith_model::Labels::from_pairs(UP.iter().copied()), &[(NOW_MS, 1.0)]);
    store.append(&TenantId::new("a").unwrap().into(), &batch).unwrap();
    for (tenant, chunk_count, time_ms) in [("a", 1, Some(NOW_MS)), ("empty", 0, None)] {
        let request = Request::get("/api/v1/status/tsdb").header("X-Scope-OrgID", tenant);
        let answer = server.send(request.body(Body::empty()).unwrap()).await.json();
        let head = &answer["data"]["headStats"];
        assert_eq!(head["chunkCount"].as_u64(), Some(chunk_count), "{tenant}");
        let times = (head["minTime"].as_i64(), head["maxTime"].as_i64());
        assert_eq!(times, (Some(time_ms.unwrap_or(i64::MAX)), Some(time_ms.unwrap_or(i64::MIN))), "{tenant}");
    }
}
