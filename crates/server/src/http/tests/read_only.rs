//! Servers over a bucket alone, and over a data directory with `--read-only`: they answer queries, and refuse
//! what would store anything.

use super::*;

#[tokio::test]
async fn queries_are_answered_without_a_store() {
    let server = Fixture::read_only();
    assert_eq!(server.get("/-/ready").await.status, StatusCode::OK);
    assert_eq!(server.get("/-/healthy").await.status, StatusCode::OK);
    let paths = [
        "/api/v1/query?query=up",
        "/api/v1/query_range?query=up&start=1&end=2&step=1",
        "/api/v1/series?match[]=up",
        "/api/v1/labels",
        "/api/v1/label/job/values",
        "/api/v1/metadata",
        "/api/v1/query_exemplars?query=up&start=1&end=2",
        "/api/v1/status/tsdb",
        "/api/v1/status/storage",
        "/api/v1/status/runtimeinfo",
        "/api/v1/status/flags",
        "/api/v1/status/bucket",
        "/federate?match[]=up",
        "/",
        "/metrics",
    ];
    for path in paths {
        let answer = server.get(path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text);
    }
    assert_eq!(server.get("/api/v1/query?query=1%2B1").await.json()["data"]["result"][1], "2");
}

#[tokio::test]
async fn writes_and_administration_are_refused() {
    for server in [Fixture::read_only(), Fixture::read_only_store()] {
        check_refusals(&server).await;
    }
}

async fn check_refusals(server: &Fixture) {
    let written = server.write(&[(&[("__name__", "up")], &[(NOW_MS, 1.0)])]).await;
    assert_eq!(written.status, StatusCode::METHOD_NOT_ALLOWED, "{}", written.text);
    assert!(written.text.contains("this server is read-only (--read-only)"), "{}", written.text);
    for path in ["/write?db=a", "/api/v2/write?bucket=a", "/api/v1/admin/tsdb/snapshot"] {
        let answer = server.post_form(path, "m v=1").await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{path}: {}", answer.text);
        assert!(answer.text.contains("read-only"), "{path}: {}", answer.text);
    }
    let created = server.post_form("/query", "q=CREATE+DATABASE+a").await;
    assert_eq!(created.status, StatusCode::METHOD_NOT_ALLOWED, "{}", created.text);
    for statement in
        ["DROP+DATABASE+a", "DROP+MEASUREMENT+m", "SELECT+v+INTO+w+FROM+m", "CREATE+USER+a+WITH+PASSWORD+'b'"]
    {
        let refused = server.post_form("/query", &format!("db=a&q={statement}")).await;
        assert_eq!(refused.status, StatusCode::METHOD_NOT_ALLOWED, "{statement}: {}", refused.text);
        assert!(refused.text.contains("--read-only"), "{statement}: {}", refused.text);
    }
    let metrics = server.get("/metrics").await;
    assert!(metrics.text.contains("\nchronolith_read_only 1\n"));
}

/// Covers reads of what only a store has: with a data directory, they are answered.
#[tokio::test]
async fn a_read_only_server_with_a_data_directory_answers_all_reads() {
    let server = Fixture::read_only_store();
    server.store_series("anonymous", 0, &[&[("__name__", "up")]]);
    let found = server.get(&format!("/api/v1/query?query=up&time={NOW_S}")).await;
    assert_eq!(found.json()["data"]["result"][0]["value"][1], "1", "{}", found.text);
    for path in
        ["/events/get_data", "/metaTags", "/debug/vars", "/api/v1/graphite/series", "/query?q=SHOW+DATABASES"]
    {
        let answer = server.get(path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text);
    }
    assert_eq!(server.get("/-/ready").await.status, StatusCode::OK);
}

#[tokio::test]
async fn statements_are_answered_over_the_bucket() {
    let server = Fixture::read_only();
    let databases = server.get("/query?q=SHOW+DATABASES").await;
    assert_eq!(databases.status, StatusCode::OK, "{}", databases.text);
    assert_eq!(databases.json()["results"][0]["series"][0]["columns"][0], "name", "{}", databases.text);
    let missing = server.get("/query?db=a&q=SELECT+v+FROM+m").await;
    assert!(missing.text.contains("database not found: a"), "{}", missing.text);
}

/// Covers queries that no client could end: `KILL QUERY` was refused as a change, with 405.
#[tokio::test]
async fn queries_over_the_bucket_can_be_killed() {
    let server = Fixture::read_only();
    let killed = server.post_form("/query", "q=KILL+QUERY+999999").await;
    assert_eq!(killed.status, StatusCode::OK, "{}", killed.text);
    assert!(killed.text.contains("no such query id: 999999"), "{}", killed.text);
}
