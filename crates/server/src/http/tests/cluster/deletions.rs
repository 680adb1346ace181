//! Deletions by gateways: samples that are gone after the answer, answers while one cannot be done.

use chronolith_cluster::deletions::Deletions;

use super::*;

/// Time after which a deletion of these tests is given up: the clock jumps with each pause.
const TIMEOUT_MS: u64 = 1000 * 3_600_000;

async fn process(roles: &str) -> Process {
    let mut process = Process::with(roles, 1, |options| options.service.query.timeout_ms = TIMEOUT_MS);
    process.round().await;
    if roles.contains("owner") {
        process.start_owner().await;
        process.applied(1).await;
    }
    process
}

async fn delete(server: &Fixture, parameters: &str) -> Answer {
    let path = format!("/api/v1/admin/tsdb/delete_series?{parameters}");
    server.send(Request::post(path).body(Body::empty()).expect("a request")).await
}

async fn values(server: &Fixture, offsets: &str) -> Vec<String> {
    let request = Request::get(format!("/api/v1/query?query=up&time={NOW_S}"))
        .header("X-Chronolith-Min-Offsets", offsets)
        .body(Body::empty());
    let found = server.send(request.expect("a request")).await.json();
    let result = found["data"]["result"].as_array().unwrap_or_else(|| panic!("{found}")).clone();
    result.iter().map(|one| one["value"][1].as_str().expect("a value").to_owned()).collect()
}

#[tokio::test]
async fn a_read_with_the_offsets_of_a_deletion_has_none_of_its_samples() {
    let process = process("gateway,owner").await;
    let server = &process.server;
    let write = async |job: &str, value: f64| {
        let answer = server.write(&[(&[("__name__", "up"), ("job", job)], &[(NOW_MS, value)])]).await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT, "{}", answer.text);
        offsets_of(&answer).expect("offsets")
    };
    write("a", 1.0).await;
    let offsets = write("b", 2.0).await;
    assert_eq!(values(server, &offsets).await, ["1", "2"]);
    let answer = delete(server, "match[]=up%7Bjob=%22a%22%7D").await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT, "{}", answer.text);
    assert_eq!(values(server, &offsets_of(&answer).expect("offsets")).await, ["2"]);
    let offsets = write("a", 3.0).await;
    assert_eq!(values(server, &offsets).await, ["3", "2"], "a sample after the deletion, at a deleted time");
    let status = server.get("/api/v1/status/cluster").await.json()["data"].clone();
    assert_eq!(status["owner"]["refusedRecords"], 0, "{status}");
}

#[tokio::test]
async fn a_deletion_that_waits_for_a_partition_is_503_and_so_is_the_next_one() {
    let process = Process::started("gateway").await;
    let answer = delete(&process.server, "match[]=up").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.text);
    let want = "deletion 1 goes on, and is not done yet: the owners of these partitions have not passed its \
                record: 0";
    assert!(answer.text.contains(want), "{}", answer.text);
    assert!(answer.headers.contains_key(header::RETRY_AFTER));
    let answer = delete(&process.server, "match[]=down").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.text);
    assert!(answer.text.contains("deletion 1 of the same store is open since"), "{}", answer.text);
    assert!(answer.headers.contains_key(header::RETRY_AFTER));
    let service = &process.server.web.service;
    let bucket = service.bucket.get().expect("set").bucket().store().clone();
    let env = service.env.clone();
    let list = tokio::task::spawn_blocking(move || {
        Deletions::new(bucket, &env, RUNTIME.handle().clone()).read().expect("a list")
    });
    let list = list.await.expect("no panic");
    assert_eq!((list.last_number, list.open().count()), (1, 1), "the second one was not begun");
}

#[tokio::test]
async fn a_deletion_without_the_admin_api_or_without_a_gateway_is_refused() {
    let disabled = Process::with("gateway", 1, |options| options.web.admin_api = false);
    let answer = delete(&disabled.server, "match[]=up").await;
    assert!(answer.text.contains("admin APIs disabled"), "{}", answer.text);
    let mut owner = Process::new("owner", 1);
    owner.start_owner().await;
    let admin = |options: &mut ServerOptions| {
        options.web.admin_api = true;
        options.service.cluster.roles = "query".parse().expect("a role");
    };
    let query = query_node_with(admin).await;
    let sources =
        BucketSources::open(&BucketOptions::new("memory://"), &query.web.service.env, RUNTIME.handle());
    query.web.service.lifecycle.set_sources(Arc::new(sources.expect("valid")));
    for (server, role) in [(&owner.server, "(--role owner)"), (&query, "(--role query)")] {
        let answer = delete(server, "match[]=up").await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{}", answer.text);
        assert!(
            answer.text.contains(role) && answer.text.contains("deletions to a gateway"),
            "{}",
            answer.text
        );
    }
}

#[tokio::test]
async fn statements_of_influxql_delete_in_all_partitions() {
    let process = process("gateway,owner").await;
    let server = &process.server;
    assert_eq!(statements(server, "CREATE DATABASE telegraf").await, (200, DONE.to_owned()));
    let lines =
        format!("cpu,host=a v=1 {NOW_MS}000000\ncpu,host=b v=2 {NOW_MS}000000\nmem v=3 {NOW_MS}000000");
    let write = Request::post("/write?db=telegraf").body(Body::from(lines)).expect("a request");
    let answer = server.send(write).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT, "{}", answer.text);
    assert_eq!(statements(server, "DELETE FROM cpu WHERE host = 'a'").await, (200, DONE.to_owned()));
    // The records after the end are applied in order.
    let select = async |text: &str| {
        let uri = format!("/query?db=telegraf&epoch=ns&q={}", text.replace(' ', "+"));
        let request = Request::get(uri).header("X-Chronolith-Read-Consistency", "strong");
        server.send(request.body(Body::empty()).expect("a request")).await.text
    };
    let found = select("SELECT v,host FROM cpu").await;
    assert!(found.contains(&format!(r#"[[{NOW_MS}000000,2,"b"]]"#)), "{found}");
    assert_eq!(statements(server, "DROP MEASUREMENT cpu").await, (200, DONE.to_owned()));
    assert_eq!(select("SELECT v FROM cpu").await.trim_end(), DONE);
    let found = select("SELECT v FROM mem").await;
    assert!(found.contains(&format!("[[{NOW_MS}000000,3]]")), "{found}");
}

/// Covers a gateway that would delete the series of its own view alone.
#[tokio::test]
async fn a_condition_on_each_series_needs_a_process_that_sees_all_of_them() {
    let process = process("gateway").await;
    let server = &process.server;
    assert_eq!(statements(server, "CREATE DATABASE telegraf").await, (200, DONE.to_owned()));
    let (_, text) = statements(server, "DELETE FROM cpu WHERE host = 'a' OR dc = 'b'").await;
    assert!(text.contains("does not see all of them"), "{text}");
    let (status, text) = statements(server, "SELECT v FROM cpu").await;
    assert_eq!(status, 405, "{text}");
}

/// Covers an owner that would hold the samples of a dropped database for ever, or stop: a cut of them waits
/// for a deletion of the database, which waits for a partition without an owner.
#[tokio::test]
async fn a_dropped_database_leaves_an_owner_whose_cut_waits_for_a_deletion() {
    let mut process = Process::with("gateway,owner", 2, |options| {
        options.service.cluster.gateway.tenant_partitions_min = 2;
    });
    process.round().await;
    process.start_owner().await;
    let server = &process.server;
    let owner = server.web.service.lifecycle.roles.owner().expect("open");
    assert_eq!(statements(server, "CREATE DATABASE telegraf").await, (200, DONE.to_owned()));
    let lines: Vec<String> = (0..24).map(|host| format!("cpu,host={host} v=1 {NOW_MS}000000")).collect();
    let write = Request::post("/write?db=telegraf").body(Body::from(lines.join("\n"))).expect("a request");
    let answer = server.send(write).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT, "{}", answer.text);
    assert_eq!(offsets_of(&answer).expect("offsets").split(',').count(), 2, "both partitions have series");
    let (status, text) = statements(server, "DELETE FROM cpu WHERE host = '3'").await;
    assert_eq!(status, 200, "{text}");
    assert!(text.contains("deletion 1 goes on, and is not done yet"), "{text}");
    process.clock.advance(Duration::from_secs(4 * 3600));
    // The first round finds that records were appended since the last one.
    process.round().await;
    process.round().await;
    while owner.status().cuts.waits_for_deletion != Some(1) {
        tokio::task::yield_now().await;
    }
    assert_eq!(statements(server, "DROP DATABASE telegraf").await, (200, DONE.to_owned()));
    while owner.status().cuts.held_cut_count > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(statements(server, "CREATE DATABASE telegraf").await, (200, DONE.to_owned()));
    let (_, text) = statements(server, "DELETE FROM cpu WHERE host = '3'").await;
    assert!(text.contains("deletion 2 goes on"), "another store: {text}");
    let status = owner.status();
    assert_eq!((status.refused_count, status.fault, status.cuts.fault), (0, None, None));
    assert_eq!((status.cuts.published_block_count, status.cuts.waits_for_deletion), (0, None));
}
