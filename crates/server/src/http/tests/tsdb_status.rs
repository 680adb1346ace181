//! `status/tsdb` of selected series, and `status/tsdb/blocks`.

use super::partial::{BucketOfThree, uploading};
use super::*;
use std::path::Path;

const OLD_MS: i64 = -10 * 3_600_000;

#[tokio::test]
async fn blocks_are_listed_newest_first_for_their_tenant() {
    let server = Fixture::with(|options| options.service.multitenancy = true).open();
    server.store_series("a", OLD_MS, &[&[("__name__", "m")], &[("__name__", "n")]]);
    server.store_series("a", OLD_MS + 4 * 3_600_000, &[&[("__name__", "m")]]);
    server.store_series("b", OLD_MS, &[&[("__name__", "m")]]);
    server.flush().await;
    let data = server.get_as("a", "/api/v1/status/tsdb/blocks").await.json()["data"].clone();
    let blocks = data["blocks"].as_array().expect("a list");
    assert_eq!((blocks.len(), &data["total"], &data["bucketError"]), (2, &2.into(), &Value::Null));
    assert!(blocks[0]["minTime"].as_i64() > blocks[1]["minTime"].as_i64(), "{data}");
    let older = &blocks[1];
    assert_eq!(older["stats"], serde_json::json!({ "numSamples": 2, "numSeries": 2, "numChunks": 2 }));
    let ulid = older["ulid"].as_str().expect("a name");
    assert_eq!(older["compaction"], serde_json::json!({ "level": 1, "sources": [ulid] }));
    assert_eq!((&older["version"], &older["location"]), (&1.into(), &"local".into()));
    assert!(older["bytes"].as_u64() > Some(0));
    let empty = server.get_as("c", "/api/v1/status/tsdb/blocks").await.json();
    assert_eq!(empty["data"]["blocks"], serde_json::json!([]));
    check_error(&server.get("/api/v1/status/tsdb/blocks").await, 401, "bad_data", "no org id");
}

#[tokio::test]
async fn blocks_of_the_bucket_are_listed() {
    let bucket = BucketOfThree::new().await;
    let server = bucket.server_with(|_| {});
    let data = server.get("/api/v1/status/tsdb/blocks").await.json()["data"].clone();
    let blocks = data["blocks"].as_array().expect("a list");
    assert_eq!(blocks.len(), 3, "{data}");
    for block in blocks {
        assert_eq!(block["location"], "bucket");
        assert_eq!((&block["stats"]["numSeries"], &block["compaction"]["level"]), (&2.into(), &1.into()));
        assert!(block["bytes"].as_u64() > Some(0));
    }
}

#[tokio::test]
async fn uploaded_blocks_are_in_both() {
    let (env, _clock, _) = Env::fake(NOW_MS, 1);
    env.disk.create_dir_all(Path::new("/bucket")).expect("a directory");
    let (server, store) = uploading(&env, &BucketOptions::new("file:///bucket"), |_| {});
    server.store_series("anonymous", OLD_MS, &[&[("__name__", "m")]]);
    server.flush().await;
    tokio::task::spawn_blocking(move || store.bucket_jobs().upload_blocks()).await.expect("no panic");
    server.store_series("anonymous", OLD_MS + 4 * 3_600_000, &[&[("__name__", "m")]]);
    server.flush().await;
    let data = server.get("/api/v1/status/tsdb/blocks").await.json()["data"].clone();
    let locations = data["blocks"].as_array().expect("a list").iter().map(|block| block["location"].clone());
    assert_eq!(locations.collect::<Vec<_>>(), ["local", "both"], "{data}");
}

#[tokio::test]
async fn cardinality_of_selected_series_covers_head_and_blocks() {
    let server = Fixture::ready();
    let old: [Pairs<'_>; 2] = [&[("__name__", "m"), ("job", "a")], &[("__name__", "old"), ("job", "b")]];
    server.store_series("anonymous", OLD_MS, &old);
    server.flush().await;
    server.store_series(
        "anonymous",
        0,
        &[&[("__name__", "m"), ("job", "a")], &[("__name__", "m"), ("job", "c")]],
    );
    let read =
        async |query: &str| server.get(&format!("/api/v1/status/tsdb?{query}")).await.json()["data"].clone();
    let pair = |name: &str, value: u64| serde_json::json!({ "name": name, "value": value });

    let head = read("").await;
    assert_eq!(head["seriesCountByMetricName"], serde_json::json!([pair("m", 2)]));
    let all = read("start=0").await;
    assert_eq!(all["headStats"]["numSeries"], 3);
    assert_eq!(all["seriesCountByMetricName"], serde_json::json!([pair("m", 2), pair("old", 1)]));
    assert_eq!(all["labelValueCountByLabelName"], serde_json::json!([pair("job", 3), pair("__name__", 2)]));
    assert_eq!(all["memoryInBytesByLabelName"], serde_json::json!([pair("__name__", 4), pair("job", 3)]));
    assert_eq!(all["headStats"]["chunkCount"], head["headStats"]["chunkCount"], "of the head");
    // A series of two selectors counts once.
    let two = read("match[]=m&match[]=%7Bjob%3D%22a%22%7D&limit=1").await;
    assert_eq!(two["headStats"]["numSeries"], 2);
    assert_eq!(two["seriesCountByLabelValuePair"], serde_json::json!([pair("__name__=m", 2)]));
    let recent = read(&format!("match[]=%7Bjob%3D~%22.%2B%22%7D&start={}", NOW_S - 3600)).await;
    assert_eq!(recent["seriesCountByMetricName"], serde_json::json!([pair("m", 2)]));
    // Selectors of everything were refused, which Prometheus takes here.
    let everything = [
        "%7B%7D",
        "%7Bjob!%3D%22x%22%7D",
        "%7Bjob%3D%22%22%7D",
        "%7Bjob%3D~%22.*%22%7D",
        "%7Bx!~%22.%2B%22%7D",
    ];
    for (selector, count) in everything.into_iter().zip([3, 3, 0, 3, 3]) {
        let selected = read(&format!("match[]={selector}")).await;
        assert_eq!(selected["headStats"]["numSeries"], count, "{selector}");
    }
}
