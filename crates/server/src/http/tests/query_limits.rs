//! Limits of tenants on what a query reads from the bucket: bytes, series, chunks, lookback.

use chronolith_model::query::FetchLimit;
use chronolith_model::{FetchLimits, QueryLimits, SelectionLimits, TenantLimits};
use chronolith_tsdb::LimitsTable;

use super::partial::{BucketOfThree, HOUR_MS, SUM, instant};
use super::*;

/// A server with limits of its tenants.
fn limited(bucket: &BucketOfThree, limits: QueryLimits) -> Fixture {
    bucket.server_with(|options| options.service.tsdb.limits.default.queries = limits)
}

#[tokio::test]
async fn a_query_above_a_limit_is_refused_and_counted() {
    let bucket = BucketOfThree::new().await;
    let none = FetchLimits::default();
    // Four series, of which one is in all three blocks.
    for (limit, at, above) in [
        (FetchLimit::Series, FetchLimits { series_max: 4, ..none }, FetchLimits { series_max: 3, ..none }),
        (FetchLimit::Chunks, FetchLimits { chunks_max: 6, ..none }, FetchLimits { chunks_max: 5, ..none }),
        (FetchLimit::Bytes, FetchLimits { bytes_max: 1 << 20, ..none }, FetchLimits { bytes_max: 9, ..none }),
    ] {
        let server = limited(&bucket, QueryLimits { fetch: at, ..QueryLimits::default() });
        let answer = server.get(&instant(SUM)).await;
        assert_eq!(answer.json()["data"]["result"][0]["value"][1], "600", "{limit:?}: {}", answer.text);
        assert_eq!(server.web.service.queries.metrics.fetch_limits[limit as usize].get(), 0);

        let server = limited(&bucket, QueryLimits { fetch: above, ..QueryLimits::default() });
        // A partial result is none of a limit.
        for path in [instant(SUM), format!("{}&partial_response=true", instant(SUM))] {
            let answer = server.get(&path).await;
            assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{limit:?}: {}", answer.text);
            assert_eq!(answer.json()["errorType"], "execution");
            assert!(answer.text.contains(limit.setting()), "{}", answer.text);
        }
        for one in FetchLimit::ALL {
            let count = server.web.service.queries.metrics.fetch_limits[one as usize].get();
            assert_eq!(count, if one == limit { 2 } else { 0 }, "{one:?}");
        }
    }
}

#[tokio::test]
async fn samples_older_than_the_lookback_are_not_seen() {
    let bucket = BucketOfThree::new().await;
    // Half of the samples of the second block are older.
    let lookback_ms = 8 * HOUR_MS - 49_500;
    let server = limited(&bucket, QueryLimits { lookback_ms, ..QueryLimits::default() });
    let range =
        |query: &str| format!("/api/v1/query_range?query={query}&start={}&end={NOW_S}&step=60", NOW_S - 600);
    assert_eq!(server.get(&instant(SUM)).await.json()["data"]["result"][0]["value"][1], "300");
    let values = server.get(&range(SUM)).await.json();
    assert_eq!(values["data"]["result"][0]["values"][10][1], "300");
    assert_eq!(server.web.service.queries.metrics.moved_starts.get(), 2);
    let ids = server.get("/api/v1/label/id/values").await.json();
    assert_eq!(ids["data"], serde_json::json!(["1", "2", "all"]));
    let series = server.get("/api/v1/series?match[]=m").await.json();
    assert_eq!(series["data"].as_array().unwrap().len(), 3);
    let old = format!("/api/v1/query?query=m&time={}", NOW_S - 10 * 3600 + 60);
    assert_eq!(server.get(&old).await.json()["data"]["result"], serde_json::json!([]));
    // Recent samples are as they were.
    let recent = format!("/api/v1/query?query=count(m)&time={}", NOW_S - 6 * 3600 + 60);
    assert_eq!(server.get(&recent).await.json()["data"]["result"][0]["value"][1], "2");
}

/// Writes two series of `tenant` with ten samples each, ten seconds apart.
async fn write_two_series(server: &Fixture, tenant: &str) {
    let mut request = RequestEncoder::new();
    for id in ["1", "2"] {
        let samples: Vec<(i64, f64)> = (0..10).map(|i| (NOW_MS - i * 10_000, 1.0)).rev().collect();
        request.push_series([("__name__", "local"), ("id", id)], &samples);
    }
    let request = Request::post("/api/v1/write")
        .header("content-encoding", "snappy")
        .header("x-scope-orgid", tenant)
        .body(Body::from(request.compressed()));
    assert_eq!(server.send(request.unwrap()).await.status, StatusCode::NO_CONTENT);
}

/// Limits of what a query selects hold without a bucket; a reload changes them, and each tenant has its own.
#[tokio::test]
async fn a_query_that_selects_more_than_a_limit_is_refused() {
    let server = Fixture::with(|options| options.service.multitenancy = true).open();
    let (a, b) = (TenantId::new("a").unwrap(), TenantId::new("b").unwrap());
    for tenant in [&a, &b] {
        write_two_series(&server, tenant.as_str()).await;
    }
    let none = SelectionLimits::default();
    let sum = "/api/v1/query?query=sum(sum_over_time(local[5m]))";
    for (below, at, above, text) in [
        (
            SelectionLimits { series_max: 3, ..none },
            SelectionLimits { series_max: 2, ..none },
            SelectionLimits { series_max: 1, ..none },
            "query selects 2 series or more, and query.max-selected-series allows 1",
        ),
        (
            SelectionLimits { samples_max: 21, ..none },
            SelectionLimits { samples_max: 20, ..none },
            SelectionLimits { samples_max: 19, ..none },
            "query reads 20 samples or more, and query.max-selected-samples allows 19",
        ),
        (
            SelectionLimits { range_ms: 301_000, ..none },
            SelectionLimits { range_ms: 300_000, ..none },
            SelectionLimits { range_ms: 299_000, ..none },
            "a selector of the query reads 300s, and query.max-range allows 299s",
        ),
    ] {
        for (selection, is_refused) in [(below, false), (at, false), (above, true), (at, false)] {
            let limits = TenantLimits {
                queries: QueryLimits { selection, ..QueryLimits::default() },
                ..TenantLimits::default()
            };
            let mut table = LimitsTable::default();
            table.by_tenant.insert(a.clone(), limits);
            server.web.service.set_limits(table);
            let answer = server.get_as("b", sum).await;
            assert_eq!(answer.json()["data"]["result"][0]["value"][1], "20", "{}", answer.text);
            let answer = server.get_as("a", sum).await;
            if is_refused {
                assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", answer.text);
                assert!(answer.text.contains(text), "{}", answer.text);
            } else {
                assert_eq!(answer.json()["data"]["result"][0]["value"][1], "20", "{}", answer.text);
            }
        }
    }
}

/// Statements of InfluxQL, whose times are nanoseconds, have the same limits.
#[tokio::test]
async fn a_statement_that_selects_more_than_a_limit_is_refused() {
    let server = Fixture::with(|_| {}).open();
    let create = Request::post("/query?q=CREATE%20DATABASE%20db").body(Body::empty());
    assert_eq!(server.send(create.unwrap()).await.status, StatusCode::OK);
    let lines: String =
        (0..20).map(|i| format!("m,id={} v=1 {}\n", i % 2, NOW_MS - i / 2 * 10_000)).collect();
    let write = Request::post("/write?db=db&precision=ms").body(Body::from(lines));
    assert_eq!(server.send(write.unwrap()).await.status, StatusCode::NO_CONTENT);
    let none = SelectionLimits::default();
    let sum = "/query?db=db&q=SELECT%20sum(v)%20FROM%20m%20WHERE%20time%20%3E%20now()%20-%205m%20AND%20time%20%3C%3D%20now()";
    for (at, above, text) in [
        (
            SelectionLimits { series_max: 2, ..none },
            SelectionLimits { series_max: 1, ..none },
            "query selects 2 series or more, and query.max-selected-series allows 1",
        ),
        (
            SelectionLimits { samples_max: 20, ..none },
            SelectionLimits { samples_max: 19, ..none },
            "query.max-selected-samples allows 19",
        ),
        (
            SelectionLimits { range_ms: 300_000, ..none },
            SelectionLimits { range_ms: 299_000, ..none },
            "and query.max-range allows 299s",
        ),
    ] {
        for (selection, is_refused) in [(at, false), (above, true), (at, false)] {
            let limits = TenantLimits {
                queries: QueryLimits { selection, ..QueryLimits::default() },
                ..TenantLimits::default()
            };
            server.web.service.set_limits(LimitsTable { default: limits, ..LimitsTable::default() });
            let answer = server.get(sum).await;
            let value = &answer.json()["results"][0]["series"][0]["values"][0][1];
            assert_eq!(*value == 20, !is_refused, "{}", answer.text);
            assert_eq!(answer.text.contains(text), is_refused, "{}", answer.text);
        }
    }
}
