//! Deletions of paths and tagged series, and the admin API over the Graphite store.

use serde_json::json;

use super::*;

async fn with_series() -> Fixture {
    let server = Fixture::with(|options| options.web.admin_api = true).open();
    let lines = "a.b 1 1000\na.c 1 1000\na.b.d 1 1000\na.b;dc=x 1 1000\n\
        disk;dc=x 1 1000\ndisk;dc=x;host=h 1 1000\ndisk;dc=y;host=h 1 5000\n";
    let answer = post(&server, "/api/v1/carbon", "identity", lines.as_bytes().to_vec()).await;
    assert_eq!(answer.status.as_u16(), 204);
    let written = server.write(&[(&[("__name__", "a.b")], &[(2_000_000, 1.0)])]).await;
    assert_eq!(written.status.as_u16(), 204);
    server
}

/// Paths with a point at 1000 or 5000 s, sorted.
async fn left(server: &Fixture) -> Vec<String> {
    let mut paths = Vec::new();
    for time in [1000, 5000] {
        let answer = server.get(&format!("/api/v1/query?query=%7B__name__!=%22%22%7D&time={time}")).await;
        for series in answer.json()["data"]["result"].as_array().expect("a list") {
            let labels = series["metric"].as_object().expect("labels");
            let mut path = String::new();
            for (label, value) in labels {
                let value = value.as_str().unwrap_or("");
                path.push_str(&if label == "__name__" {
                    value.to_owned()
                } else {
                    format!(";{label}={value}")
                });
            }
            paths.push(path);
        }
    }
    paths.sort();
    paths
}

#[tokio::test]
async fn matching_leaves_are_deleted() {
    let server = with_series().await;
    let answer = post(&server, "/metrics/delete?query=a.%7Bb,x%7D", "identity", Vec::new()).await;
    assert_eq!((answer.status.as_u16(), answer.json()), (200, json!({"deletedSeries": 1, "peers": {}})));
    let want = ["a.b.d", "a.b;dc=x", "a.c", "disk;dc=x", "disk;dc=x;host=h", "disk;dc=y;host=h"];
    assert_eq!(left(&server).await, want);
    // The series of remote write has the same path.
    let other = server.get("/api/v1/query?query=%7B__name__=%22a.b%22,dc=%22%22%7D&time=2000").await;
    assert_eq!(other.json()["data"]["result"].as_array().map(Vec::len), Some(1));
    let found = server.get("/metrics/find?query=a.*&from=900&until=1100&format=json").await;
    // Leaf and branch `a.b`, of which the leaf is the series of remote write, and `a.c`.
    assert_eq!(found.json().as_array().map(Vec::len), Some(3), "{}", found.text);
    let none = post(&server, "/metrics/delete?query=nothing.*", "identity", Vec::new()).await;
    assert_eq!(none.json()["deletedSeries"], 0);
}

#[tokio::test]
async fn series_are_deleted_by_their_exact_path() {
    let server = with_series().await;
    let answer =
        post(&server, "/tags/delSeries?path=disk%3Bdc%3Dx&path=a.b%3Bdc%3Dx", "identity", Vec::new()).await;
    assert_eq!((answer.status.as_u16(), answer.json()), (200, json!(true)));
    assert_eq!(left(&server).await, ["a.b", "a.b.d", "a.c", "disk;dc=x;host=h", "disk;dc=y;host=h"]);
}

#[tokio::test]
async fn series_are_deleted_by_expressions() {
    let rest = ["a.b", "a.b.d", "a.b;dc=x", "a.c", "disk;dc=x", "disk;dc=x;host=h", "disk;dc=y;host=h"];
    for (query, count, want) in [
        ("expr=name=disk", 3, &[0, 1, 2, 3, 4, 5, 6][..]),
        ("expr=name=disk&execute=true", 3, &[0, 1, 2, 3]),
        ("expr=name=a.b&execute=true", 1, &[0, 1, 3, 4, 5, 6]),
        ("expr=dc=x&expr=host=&execute=true", 2, &[0, 1, 3, 5, 6]),
        ("expr=__tag=~ho&execute=true", 2, &[0, 1, 2, 3, 4]),
        ("expr=dc=~.&olderThan=2000&execute=true", 3, &[0, 1, 3, 6]),
        ("expr=dc=~.&olderThan=2000", 3, &[0, 1, 2, 3, 4, 5, 6]),
    ] {
        let server = with_series().await;
        let answer = post(&server, &format!("/tags/delByQuery?{query}"), "identity", Vec::new()).await;
        let expected = match query.contains("execute") {
            true => json!({"count": count, "left": 0, "peers": {}}),
            false => json!({"count": count, "peers": {}}),
        };
        assert_eq!((answer.status.as_u16(), answer.json()), (200, expected), "{query}");
        let want: Vec<&str> = want.iter().map(|idx| rest[*idx]).collect();
        assert_eq!(left(&server).await, want, "{query}");
    }
}

/// Writes series `disk;dc=x;host=hN` with a point at 1000 s, every third one also at 5000 s.
async fn write_hosts(server: &Fixture, count: usize) {
    let lines: String = (0..count)
        .map(|n| {
            let later = if n % 3 == 0 { format!("disk;dc=x;host=h{n:03} 1 5000\n") } else { String::new() };
            format!("disk;dc=x;host=h{n:03} 1 1000\n{later}")
        })
        .collect();
    let answer = post(server, "/api/v1/carbon", "identity", lines.into_bytes()).await;
    assert_eq!(answer.status.as_u16(), 204);
}

/// Answers of requests that go on until nothing is left.
async fn delete_all(server: &Fixture, query: &str) -> Vec<serde_json::Value> {
    let mut answers = Vec::new();
    let mut after = String::new();
    loop {
        let answer = post(server, &format!("/tags/delByQuery?{query}{after}"), "identity", Vec::new()).await;
        assert_eq!(answer.status.as_u16(), 200, "{}", answer.text);
        let answer = answer.json();
        let next = answer["next"].as_str().map(str::to_owned);
        answers.push(answer);
        assert!(answers.len() < 1000, "the requests come to an end");
        let Some(next) = next else { return answers };
        let escaped: String = next.bytes().map(|byte| format!("%{byte:02x}")).collect();
        after = format!("&after={escaped}");
    }
}

#[tokio::test]
async fn a_limited_deletion_goes_on_after_the_last_deleted_series() {
    let server = Fixture::with(|options| options.web.admin_api = true).open();
    write_hosts(&server, 30).await;
    let query = "expr=name=disk&olderThan=2000&execute=true&limit=8";
    let answers = delete_all(&server, query).await;
    let counts: Vec<_> = answers.iter().map(|answer| (&answer["count"], &answer["left"])).collect();
    // Twenty of thirty series are old; steps have three.
    assert_eq!(json!(counts), json!([[8, 12], [8, 4], [4, 0]]));
    assert_eq!(answers[0]["next"], r#"{"__name__":"disk","dc":"x","host":"h011"}"#);
    // Each is listed for both times of its points.
    let kept: Vec<String> =
        (0..30).step_by(3).flat_map(|n| vec![format!("disk;dc=x;host=h{n:03}"); 2]).collect();
    assert_eq!(left(&server).await, kept);
    // Deleted series are not found again.
    let again = post(&server, &format!("/tags/delByQuery?{query}"), "identity", Vec::new()).await;
    assert_eq!(again.json(), json!({"count": 0, "left": 0, "peers": {}}));
}

#[tokio::test]
async fn a_deletion_out_of_time_goes_on_with_the_next_request() {
    let server = Fixture::with(|options| {
        options.web.admin_api = true;
        options.service.query.timeout_ms = 0;
    })
    .open();
    write_hosts(&server, 6).await;
    // Each search ends at the series that it has found, and each request deletes it all the same.
    let answers = delete_all(&server, "expr=name=disk&execute=true").await;
    let counts: Vec<_> = answers.iter().map(|answer| answer["count"].as_u64()).collect();
    assert_eq!(counts, [1, 1, 1, 1, 1, 1, 0].map(Some));
    assert_eq!(left(&server).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_deletion_holds_labels_of_the_query_budget_alone() {
    let server = Fixture::with(|options| {
        options.web.admin_api = true;
        options.service.query.memory_bytes_max = 64_000;
    })
    .open();
    write_hosts(&server, 300).await;
    let query = "/tags/delByQuery?expr=name=disk&olderThan=2000";
    let execute = format!("{query}&execute=true");
    let answer = post(&server, &execute, "identity", Vec::new()).await;
    assert_eq!(answer.status.as_u16(), 422, "{}", answer.text);
    // Nothing was deleted; counting holds no labels.
    let answer = post(&server, query, "identity", Vec::new()).await;
    assert_eq!((answer.status.as_u16(), answer.json()), (200, json!({"count": 200, "peers": {}})));
}

#[tokio::test]
async fn the_admin_api_reaches_the_graphite_store() {
    let server = with_series().await;
    let path = "/api/v1/admin/tsdb/delete_series?match[]=%7B__name__=~%22a.*%22%7D";
    assert_eq!(post(&server, path, "identity", Vec::new()).await.status.as_u16(), 204);
    assert_eq!(left(&server).await, ["disk;dc=x", "disk;dc=x;host=h", "disk;dc=y;host=h"]);
    let cleaned = post(&server, "/api/v1/admin/tsdb/clean_tombstones", "identity", Vec::new()).await;
    assert_eq!(cleaned.status.as_u16(), 204);
}

#[tokio::test]
async fn refusals_delete_nothing() {
    let server = with_series().await;
    for path in [
        "/metrics/delete",
        "/tags/delSeries",
        "/tags/delSeries?path=%3Ba=b",
        "/tags/delByQuery",
        "/tags/delByQuery?expr=a!=b",
        "/tags/delByQuery?expr=dc=x&execute=1&olderThan=x",
        "/tags/delByQuery?expr=dc=x&execute=1&archive=1",
        "/tags/delByQuery?expr=dc=x&execute=1&limit=0",
        "/tags/delByQuery?expr=dc=x&execute=1&after=disk",
    ] {
        let answer = post(&server, path, "identity", Vec::new()).await;
        assert_eq!(answer.status.as_u16(), 400, "{path} {}", answer.text);
    }
    assert_eq!(left(&server).await.len(), 7);
    let closed = with_points().await;
    for path in ["/metrics/delete?query=dc.*.*", "/tags/delSeries?path=a", "/tags/delByQuery?expr=host=x"] {
        let answer = post(&closed, path, "identity", Vec::new()).await;
        assert_eq!(answer.status.as_u16(), 403, "{path} {}", answer.text);
    }
}
