//! Limits of tenants on what a query reads from the bucket: bytes, series, chunks, lookback.

use chronolith_model::query::FetchLimit;
use chronolith_model::{FetchLimits, QueryLimits};

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
        assert_eq!(server.web.service.query_metrics.fetch_limits[limit as usize].get(), 0);

        let server = limited(&bucket, QueryLimits { fetch: above, ..QueryLimits::default() });
        // A partial result is none of a limit.
        for path in [instant(SUM), format!("{}&partial_response=true", instant(SUM))] {
            let answer = server.get(&path).await;
            assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{limit:?}: {}", answer.text);
            assert_eq!(answer.json()["errorType"], "execution");
            assert!(answer.text.contains(limit.setting()), "{}", answer.text);
        }
        for one in FetchLimit::ALL {
            let count = server.web.service.query_metrics.fetch_limits[one as usize].get();
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
    assert_eq!(server.web.service.query_metrics.moved_starts.get(), 2);
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
