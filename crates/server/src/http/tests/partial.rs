//! `partial_response=true` over a bucket: blocks that cannot be read are left out and named, and without the
//! parameter the request fails.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chronolith_base::SystemClock;

use super::*;

pub(super) const HOUR_MS: i64 = 3_600_000;
/// Ages of samples, each in a block of its own.
const HOURS: [i64; 3] = [-10, -8, -6];

/// A bucket with three blocks that a server has uploaded.
pub(super) struct BucketOfThree {
    env: Env,
    /// Directories of the blocks, by time.
    blocks: Vec<PathBuf>,
}

pub(crate) fn sources(env: &Env, options: &BucketOptions) -> Arc<BucketSources> {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("threads"));
    Arc::new(BucketSources::open(options, env, RUNTIME.handle()).expect("valid"))
}

pub(crate) fn bucket_options() -> BucketOptions {
    BucketOptions { is_read_only: true, ..BucketOptions::new("file:///bucket") }
}

/// A server whose store uploads to `bucket`.
pub(crate) fn uploading(
    env: &Env,
    bucket: &BucketOptions,
    change: impl FnOnce(&mut ServerOptions),
) -> (Fixture, Arc<Tsdb>) {
    let mut options = ServerOptions::new("/data".into());
    change(&mut options);
    let web = Arc::new(Web::new(env.clone(), options, None));
    web.service.read_rules().expect("valid");
    let (options, progress) = (web.service.options.tsdb_options(), Arc::new(ReplayProgress::default()));
    let bucket = sources(env, bucket);
    let store =
        Tsdb::open_with_bucket(env.clone(), options, progress, Some(bucket.bucket().clone())).expect("opens");
    web.service.set_store(store.clone(), Vec::new());
    (Fixture::new(web), store)
}

impl BucketOfThree {
    pub(super) async fn new() -> BucketOfThree {
        let (env, clock, _) = Env::fake(NOW_MS, 1);
        env.disk.create_dir_all(Path::new("/bucket")).expect("a directory");
        let (server, store) =
            uploading(&env, &BucketOptions { is_read_only: false, ..bucket_options() }, |_| {});
        let mut blocks: Vec<PathBuf> = Vec::new();
        for (idx, hour) in HOURS.into_iter().enumerate() {
            let (time, id) = (NOW_MS + hour * HOUR_MS, idx.to_string());
            let own = [("__name__", "m"), ("id", id.as_str())];
            let all: Pairs<'_> = &[("__name__", "m"), ("id", "all")];
            let samples: Vec<(i64, f64)> = (0..100).map(|i| (time + i * 1000, i as f64)).collect();
            let written = server.write(&[(&own, &samples), (all, &samples)]).await;
            assert_eq!(written.status, StatusCode::NO_CONTENT, "{}", written.text);
            clock.advance(Duration::from_millis(1));
            let store = store.clone();
            tokio::task::spawn_blocking(move || {
                store.maintenance().flush_closed(NOW_MS).expect("flushes");
                store.bucket_jobs().upload_blocks();
            })
            .await
            .unwrap();
            let found = env.disk.list(Path::new("/bucket/anonymous")).unwrap();
            let found = found.into_iter().map(|entry| Path::new("/bucket/anonymous").join(entry.name));
            blocks.extend(
                found
                    .filter(|dir| env.disk.exists(&dir.join("index")))
                    .filter(|dir| !blocks.contains(dir))
                    .collect::<Vec<_>>(),
            );
            assert_eq!(blocks.len(), idx + 1, "one more block");
        }
        BucketOfThree { env, blocks }
    }

    /// As other programs leave their blocks.
    async fn without_catalogue() -> BucketOfThree {
        let bucket = BucketOfThree::new().await;
        bucket.env.disk.remove_dir_all(Path::new("/bucket/anonymous/catalog")).unwrap();
        bucket
    }

    fn server(&self) -> Fixture {
        self.server_with(|_| {})
    }

    /// A read-only server over the bucket.
    pub(super) fn server_with(&self, change: impl FnOnce(&mut ServerOptions)) -> Fixture {
        let mut options = ServerOptions::new("/data".into());
        change(&mut options);
        let fixture = Fixture::new(Arc::new(Web::new(self.env.clone(), options, None)));
        let sources = sources(&self.env, &bucket_options());
        fixture.web.service.set_bucket(sources.clone());
        fixture.web.service.lifecycle.set_sources(sources);
        fixture
    }

    fn read(&self, name: &str) -> Vec<u8> {
        self.env.disk.read(&self.blocks[1].join(name)).unwrap()
    }

    /// Replaces an object of the second block.
    fn replace(&self, name: &str, body: &[u8]) {
        let path = self.blocks[1].join(name);
        self.env.disk.remove_file(&path).unwrap();
        self.env.disk.create(&path).unwrap().write_at(body, 0).unwrap();
    }

    /// Damages each 16th byte of a part of an object of the second block.
    fn damage(&self, name: &str, part: impl Fn(usize) -> std::ops::Range<usize>) {
        let mut body = self.read(name);
        let part = part(body.len());
        body[part].iter_mut().step_by(16).for_each(|byte| *byte ^= 0x55);
        self.replace(name, &body);
    }

    fn second(&self) -> &str {
        self.blocks[1].file_name().and_then(|name| name.to_str()).unwrap()
    }
}

pub(super) const SUM: &str = "sum(count_over_time(m[12h]))";

/// Answers of one request without and with the parameter.
async fn both(server: &Fixture, path: &str) -> (Answer, Answer) {
    (server.get(path).await, server.get(&format!("{path}&partial_response=true")).await)
}

pub(super) fn instant(query: &str) -> String {
    format!("/api/v1/query?query={query}&time={NOW_S}")
}

/// Checks that the second block fails without the parameter with `status`; with it, the block alone is left
/// out and named.
async fn check_left_out(bucket: &BucketOfThree, status: u16) {
    let server = bucket.server();
    let (refused, partial) = both(&server, &instant(SUM)).await;
    assert_eq!(refused.status.as_u16(), status, "{}", refused.text);
    assert_eq!(partial.status, StatusCode::OK, "{}", partial.text);
    let partial = partial.json();
    // Two series of 100 samples in each of two blocks.
    assert_eq!(partial["data"]["result"][0]["value"][1], "400", "{partial}");
    let warnings = partial["warnings"].as_array().unwrap();
    let text = warnings[0].as_str().unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let start = "partial result: block ";
    assert!(text.starts_with(&format!("{start}{}", bucket.second())), "{text}");
    assert!(text.contains("(2023-11-14T14:") && text.contains("failed: "), "{text}");
    assert_eq!(server.web.service.queries.metrics.partial.get(), 1);

    let range = format!("/api/v1/query_range?query={SUM}&start={}&end={NOW_S}&step=60", NOW_S - 600);
    let (refused, partial) = both(&server, &range).await;
    assert_eq!((refused.status.as_u16(), partial.status.as_u16()), (status, 200));
    assert_eq!(partial.json()["data"]["result"][0]["values"][0][1], "400");
    assert_eq!(server.web.service.queries.cache.counts().entries, 0, "a partial result is not cached");
}

#[tokio::test]
async fn a_block_that_is_gone_is_left_out_and_named() {
    let bucket = BucketOfThree::new().await;
    let chunks = bucket.read("chunks/000001");
    bucket.env.disk.remove_file(&bucket.blocks[1].join("chunks/000001")).unwrap();
    check_left_out(&bucket, 503).await;
    // A later query reads the block again.
    bucket.env.disk.create(&bucket.blocks[1].join("chunks/000001")).unwrap().write_at(&chunks, 0).unwrap();
    let server = bucket.server();
    let (whole, same) = both(&server, &instant(SUM)).await;
    assert_eq!(whole.json()["data"]["result"][0]["value"][1], "600");
    assert_eq!((same.text, same.status), (whole.text, StatusCode::OK));
}

#[tokio::test]
async fn a_result_that_was_partial_is_evaluated_again() {
    let bucket = BucketOfThree::new().await;
    let chunks = bucket.read("chunks/000001");
    bucket.damage("chunks/000001", |len| 8..len);
    let server = bucket.server();
    let range = format!("/api/v1/query_range?query={SUM}&start={}&end={NOW_S}&step=60", NOW_S - 600);
    let (refused, partial) = both(&server, &range).await;
    assert_eq!((refused.status.as_u16(), partial.status.as_u16()), (500, 200));
    bucket.replace("chunks/000001", &chunks);
    let whole = server.get(&range).await.json();
    assert_eq!(whole["data"]["result"][0]["values"][0][1], "600");
    assert_eq!(server.web.service.queries.cache.counts().entries, 1);
    // A whole result of the cache answers a request that allows a partial one.
    bucket.damage("chunks/000001", |len| 8..len);
    let cached = server.get(&format!("{range}&partial_response=true")).await.json();
    assert_eq!(cached, whole);
}

#[tokio::test]
async fn damaged_blocks_are_left_out_and_named() {
    let bucket = BucketOfThree::new().await;
    bucket.damage("chunks/000001", |len| 8..len);
    check_left_out(&bucket, 500).await;

    let bucket = BucketOfThree::new().await;
    bucket.env.disk.remove_file(&bucket.blocks[1].join("chronolith.sidecar")).unwrap();
    bucket.damage("index", |len| 64..len);
    check_left_out(&bucket, 500).await;

    // Pages of the sidecar come first; without them the block is read by its index.
    let bucket = BucketOfThree::new().await;
    bucket.damage("chronolith.sidecar", |len| 0..len / 2);
    let (whole, same) = both(&bucket.server(), &instant(SUM)).await;
    assert_eq!(whole.json()["data"]["result"][0]["value"][1], "600", "{}", whole.text);
    assert_eq!(same.text, whole.text);
    bucket.damage("index", |len| 64..len);
    check_left_out(&bucket, 500).await;
}

/// Covers a regression: a block without a catalogue whose `meta.json` was damaged was left out with a line in
/// the log alone: status 200, and its samples were missing.
#[tokio::test]
async fn a_block_with_a_damaged_meta_json_fails_queries_and_is_named() {
    let bucket = BucketOfThree::without_catalogue().await;
    let meta = bucket.read("meta.json");
    let text = String::from_utf8(meta.clone()).unwrap();
    let other = bucket.env.disk.read(&bucket.blocks[0].join("meta.json")).unwrap();
    let of_version_9 = text.replace("\"version\": 1", "\"version\": 9");
    assert_ne!(of_version_9, text);
    let damages: [Vec<u8>; 11] = [
        Vec::new(),
        b"{".to_vec(),
        b"null".to_vec(),
        b"[]".to_vec(),
        b"not JSON".to_vec(),
        vec![0; meta.len()],
        meta[..meta.len() / 2].to_vec(),
        [&meta[..], &meta[..]].concat(),
        of_version_9.into_bytes(),
        text.replace(bucket.second(), "01HF0000000000000000000000").into_bytes(),
        other,
    ];
    for damage in damages {
        bucket.replace("meta.json", &damage);
        let server = bucket.server();
        let (refused, partial) = both(&server, &instant(SUM)).await;
        let shown = String::from_utf8_lossy(&damage).into_owned();
        assert_eq!(refused.status.as_u16(), 500, "{shown}: {}", refused.text);
        assert!(refused.text.contains(&format!("{}/meta.json", bucket.second())), "{}", refused.text);
        let partial = partial.json();
        assert_eq!(partial["data"]["result"][0]["value"][1], "400", "{shown}: {partial}");
        let warning = partial["warnings"][0].as_str().unwrap();
        let block = format!("partial result: block {} (of unknown time)", bucket.second());
        assert!(warning.starts_with(&block), "{warning}");
        let labels = server.get("/api/v1/labels").await;
        assert_eq!(labels.status.as_u16(), 500, "{}", labels.text);
        let metrics = server.get("/metrics").await.text;
        assert!(metrics.contains("\nchronolith_bucket_damaged_meta_blocks 1\n"), "{shown}");
        bucket.replace("meta.json", &meta);
        let whole = bucket.server().get(&instant(SUM)).await.json();
        assert_eq!(whole["data"]["result"][0]["value"][1], "600");
    }
}

#[tokio::test]
async fn lists_of_series_and_labels_name_what_they_lack() {
    let bucket = BucketOfThree::new().await;
    bucket.env.disk.remove_file(&bucket.blocks[1].join("chronolith.sidecar")).unwrap();
    bucket.env.disk.remove_file(&bucket.blocks[1].join("index")).unwrap();
    let server = bucket.server();
    let ids = serde_json::json!(["0", "2", "all"]);
    let series = ids.as_array().unwrap().iter().map(|id| serde_json::json!({"__name__": "m", "id": id}));
    for (path, want) in [
        ("/api/v1/series?match[]=m", series.collect()),
        ("/api/v1/label/id/values?limit=9", ids.clone()),
        ("/api/v1/labels?limit=9", serde_json::json!(["__name__", "id"])),
    ] {
        let (refused, partial) = both(&server, path).await;
        assert_eq!((refused.status.as_u16(), partial.status.as_u16()), (503, 200), "{path}");
        let partial = partial.json();
        assert_eq!(partial["data"], want, "{path}");
        assert_eq!(partial["warnings"].as_array().unwrap().len(), 1, "{path}: {partial}");
        assert!(partial["warnings"][0].as_str().unwrap().contains(bucket.second()), "{path}: {partial}");
    }
    for (path, status) in [("query?query=1", 400), ("labels?", 400)] {
        let answer = server.get(&format!("/api/v1/{path}&partial_response=maybe")).await;
        assert_eq!(answer.status.as_u16(), status);
        assert!(answer.text.contains("is neither true nor false"), "{}", answer.text);
    }
}

/// Nothing listens where the bucket should be.
fn unreachable_bucket() -> BucketOptions {
    let mut options = BucketOptions::new("s3://metrics/blocks");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    options.store.endpoint = Some(format!("http://{free}"));
    options.store.allow_http = true;
    (options.store.access_key_id, options.store.secret_access_key) = (Some("id".into()), Some("key".into()));
    options
}

#[tokio::test]
async fn without_the_list_of_blocks_the_store_answers_alone() {
    let (env, ..) = Env::fake(NOW_MS, 1);
    let env = Env { clock: Arc::new(SystemClock::new()), ..env };
    let (server, _store) = uploading(&env, &unreachable_bucket(), |_| {});
    let time = env.clock.now_ms();
    server.write(&[(&[("__name__", "m"), ("id", "head")], &[(time, 1.0)])]).await;
    // A matrix needs blocks before the head.
    let path = "/api/v1/query?query=count_over_time(m[30d])&timeout=800ms";
    let (refused, partial) = both(&server, path).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text);
    assert_eq!(partial.status, StatusCode::OK, "{}", partial.text);
    let partial = partial.json();
    assert_eq!(partial["data"]["result"][0]["value"][1], "1", "{partial}");
    let warnings = partial["warnings"].as_array().unwrap();
    for list in ["blocks", "databases"] {
        let named = format!("partial result: the list of {list} in s3://metrics/blocks failed: ");
        assert!(warnings.iter().any(|warning| warning.as_str().unwrap().starts_with(&named)), "{warnings:?}");
    }
}

/// Checks that a server without a store, which has nothing to answer from, is unavailable.
#[tokio::test]
async fn without_the_list_of_blocks_a_read_only_server_is_unavailable() {
    let (env, ..) = Env::fake(NOW_MS, 1);
    let env = Env { clock: Arc::new(SystemClock::new()), ..env };
    let fixture = Fixture::new(Arc::new(Web::new(env.clone(), ServerOptions::new("/data".into()), None)));
    let sources = sources(&env, &BucketOptions { is_read_only: true, ..unreachable_bucket() });
    fixture.web.service.lifecycle.set_sources(sources);
    let (refused, partial) = both(&fixture, "/api/v1/query?query=m&timeout=800ms").await;
    assert_eq!((refused.status.as_u16(), partial.status.as_u16()), (503, 503), "{}", partial.text);
}

#[tokio::test]
async fn the_status_of_the_bucket_shows_blocks_cache_and_requests() {
    let without = Fixture::ready().get("/api/v1/status/bucket").await;
    assert!(without.json()["data"].is_null(), "{}", without.text);
    let bucket = BucketOfThree::new().await;
    let server = bucket.server();
    let before = server.get("/api/v1/status/bucket").await.json()["data"].clone();
    assert_eq!(before["blocks"], 0, "no query has read the list yet: {before}");
    assert_eq!(server.get("/api/v1/query?query=m").await.status, StatusCode::OK);
    let path = format!("/api/v1/query?query=m&time={}", (NOW_MS - 10 * HOUR_MS) / 1000 + 60);
    assert_eq!(server.get(&path).await.status, StatusCode::OK);
    let status = server.get("/api/v1/status/bucket").await;
    let data = &status.json()["data"];
    assert_eq!(data["url"], "file:///bucket");
    assert_eq!(data["readOnly"], true);
    assert_eq!(data["blocks"], 3, "{}", status.text);
    assert_eq!(data["folders"][0]["folder"], "anonymous");
    assert_eq!(data["folders"][0]["blockBytes"], data["blockBytes"]);
    assert!(data["blockBytes"].as_u64() > Some(0), "{}", status.text);
    assert!(data["folders"][0]["minTime"].as_i64() <= Some(NOW_MS - 10 * HOUR_MS), "{}", status.text);
    let cached = data["cache"]["rangeBytes"].as_u64().zip(data["cache"]["headerBytes"].as_u64());
    assert!(cached.is_some_and(|(ranges, headers)| ranges + headers > 0), "{}", status.text);
    assert!(data["cache"]["budgetBytes"].as_u64() > Some(1 << 20));
    let operations = data["requests"]["operations"].as_array().expect("a list");
    let reads = operations.iter().find(|operation| operation["operation"] == "get").expect("reads");
    assert!(reads["requests"].as_u64() > Some(0) && reads["receivedBytes"].as_u64() > Some(0));
    assert_eq!(reads["failed"], 0, "{}", status.text);
    assert!(data["uploads"].is_null(), "a read-only server uploads nothing");
}
