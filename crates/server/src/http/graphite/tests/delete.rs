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
        assert_eq!(
            (answer.status.as_u16(), answer.json()),
            (200, json!({"count": count, "peers": {}})),
            "{query}"
        );
        let want: Vec<&str> = want.iter().map(|idx| rest[*idx]).collect();
        assert_eq!(left(&server).await, want, "{query}");
    }
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
