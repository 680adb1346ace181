//! Tests of carbon points over HTTP: answers, and what PromQL reads afterwards.

mod delete;
mod events;
mod grafana;
mod tags;

use std::io::Write as _;

use axum::http::Request;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;
use crate::http::tests::{Answer, Fixture};

async fn post(server: &Fixture, path: &str, encoding: &str, body: Vec<u8>) -> Answer {
    let request = Request::post(path).header("content-encoding", encoding).body(Body::from(body));
    server.send(request.expect("a request")).await
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

async fn value(server: &Fixture, selector: &str) -> String {
    let answer = server.get(&format!("/api/v1/query?query={selector}&time=1000")).await;
    answer.json()["data"]["result"][0]["value"][1].to_string()
}

#[tokio::test]
async fn lines_plain_and_gzip_are_stored() {
    let server = Fixture::ready();
    let answer = post(&server, "/api/v1/carbon", "identity", b"h.a 1 1000\nh.b 2 1000".to_vec()).await;
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (204, ""));
    let answer = post(&server, "/api/v1/carbon", "gzip", packed(b"h.c 3 1000\n")).await;
    assert_eq!(answer.status.as_u16(), 204);
    assert_eq!(value(&server, "sum(%7B__name__%3D~%22h..%22%7D)").await, r#""6""#);
    let answer = post(&server, "/api/v1/carbon", "gzip", b"h.c 3 1000\n".to_vec()).await;
    assert_eq!(answer.status.as_u16(), 400);
    assert!(answer.text.starts_with("gzip: "), "{}", answer.text);
}

#[tokio::test]
async fn refused_points_are_named_and_the_others_stored() {
    let server = Fixture::ready();
    let answer = post(&server, "/api/v1/carbon", "identity", b"ok 1 1000\nno x 1000\n".to_vec()).await;
    assert_eq!(answer.status.as_u16(), 400);
    assert_eq!(answer.text, "1 points refused, the value is not a number: \"no x 1000\"\n");
    assert_eq!(value(&server, "ok").await, r#""1""#);
    let refused = server.get("/api/v1/graphite/refused?reason=bad_value").await.json();
    assert_eq!(refused["data"][0]["line"], "no x 1000");
    assert_eq!(refused["data"][0]["input"], "http");
    let none = server.get("/api/v1/graphite/refused?reason=nan").await.json();
    assert_eq!(none["data"], serde_json::json!([]));
    let unknown = server.get("/api/v1/graphite/refused?reason=x").await;
    assert_eq!(unknown.status.as_u16(), 400);
}

#[tokio::test]
async fn metrics_of_metrictank_are_stored() {
    let server = Fixture::ready();
    let body =
        br#"[{"name":"mt.a","interval":10,"value":4.5,"unit":"","time":1000,"mtype":"gauge","tags":["dc=x"],
        "org_id":1}]"#;
    let answer = post(&server, "/metrics", "identity", body.to_vec()).await;
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (204, ""));
    assert_eq!(value(&server, "%7B__name__%3D%22mt.a%22%2Cdc%3D%22x%22%7D").await, r#""4.5""#);
    let answer = post(&server, "/metrics", "identity", b"{".to_vec()).await;
    assert_eq!(answer.status.as_u16(), 400);
}

/// A server with some paths and tagged series at 60 s steps up to 600 s.
async fn with_points() -> Fixture {
    let server = Fixture::ready();
    let mut lines = String::new();
    for time in (60..=600).step_by(60) {
        for (path, factor) in [("dc.a.cpu", 1), ("dc.b.cpu", 2), ("dc.b.mem", 3), ("disk;host=x;dc=a", 4)] {
            lines.push_str(&format!("{path} {} {time}\n", time / 60 * factor));
        }
    }
    let answer = post(&server, "/api/v1/carbon", "identity", lines.into_bytes()).await;
    assert_eq!(answer.status.as_u16(), 204);
    server
}

#[track_caller]
fn check_json(answer: &Answer, want: serde_json::Value) {
    assert_eq!(answer.status.as_u16(), 200, "{}", answer.text);
    assert_eq!(answer.json(), want);
}

#[tokio::test]
async fn targets_are_rendered_as_graphite_web_does() {
    let server = with_points().await;
    let range = "from=300&until=480&format=json";
    let answer = server.get(&format!("/render?target=sumSeries(dc.*.cpu)&{range}")).await;
    check_json(
        &answer,
        serde_json::json!([{
            "target": "sumSeries(dc.*.cpu)",
            "tags": {"name": "sumSeries(dc.*.cpu)", "aggregatedBy": "sum"},
            "datapoints": [[18.0, 360], [21.0, 420], [24.0, 480]],
        }]),
    );
    let answer = server.get(&format!("/render?target=seriesByTag('host=x')&{range}")).await;
    check_json(
        &answer,
        serde_json::json!([{
            "target": "disk;dc=a;host=x",
            "tags": {"name": "disk", "dc": "a", "host": "x"},
            "datapoints": [[24.0, 360], [28.0, 420], [32.0, 480]],
        }]),
    );
    let form = Request::post("/render")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::from(format!("target=dc.b.%7Bcpu,mem%7D&{}", range.replace("json", "raw"))));
    let answer = server.send(form.expect("a request")).await;
    assert_eq!(answer.text, "dc.b.cpu,360,540,60|12.0,14.0,16.0\ndc.b.mem,360,540,60|18.0,21.0,24.0\n");
}

#[tokio::test]
async fn requests_that_cannot_be_answered_are_refused_with_the_reason() {
    let server = with_points().await;
    for (query, text) in [
        ("target=nosuch(a)", "unknown function: nosuch"),
        ("target=a&from=x", "from or until"),
        ("target=a&format=pdf", "unknown format \"pdf\""),
        ("target=a&maxDataPoints=x", "maxDataPoints"),
    ] {
        let answer = server.get(&format!("/render?{query}")).await;
        assert_eq!(answer.status.as_u16(), 400, "{query}");
        assert!(answer.text.contains(text), "{query}: {}", answer.text);
    }
}

/// The samples of a series that is read need memory, however few points the answer has.
#[tokio::test]
async fn a_series_that_does_not_fit_into_the_memory_of_a_query_is_refused() {
    let server = Fixture::with(|options| options.query.memory_bytes_max = 64 << 10).open();
    let lines: String = (1..=20_000).map(|time| format!("many {time} {time}\n")).collect();
    let answer = post(&server, "/api/v1/carbon", "identity", lines.into_bytes()).await;
    assert_eq!(answer.status.as_u16(), 204);
    let few = server.get("/render?target=many&from=1&until=100").await;
    assert_eq!(few.status.as_u16(), 200, "{}", few.text);
    let all = server.get("/render?target=many&from=1&until=20000&maxDataPoints=10").await;
    assert!(all.text.contains("memory"), "{} {}", all.status, all.text);
}

#[tokio::test]
async fn paths_are_found_level_by_level() {
    let server = with_points().await;
    let names = |answer: &Answer| -> Vec<String> {
        let nodes = answer.json();
        nodes
            .as_array()
            .expect("a list")
            .iter()
            .map(|node| node["id"].as_str().unwrap_or("").to_owned())
            .collect()
    };
    assert_eq!(names(&server.get("/metrics/find?query=*").await), ["dc"]);
    assert_eq!(names(&server.get("/metrics/find?query=dc.*").await), ["dc.a", "dc.b"]);
    let leaves = server.get("/metrics/find?query=dc.b.*").await;
    assert_eq!(names(&leaves), ["dc.b.cpu", "dc.b.mem"]);
    assert_eq!(leaves.json()[0]["leaf"], 1);
    let expanded = server.get("/metrics/expand?query=dc.*.cpu").await;
    check_json(&expanded, serde_json::json!({"results": ["dc.a.cpu", "dc.b.cpu"]}));
    let index = server.get("/metrics/index.json").await;
    check_json(&index, serde_json::json!(["dc.a.cpu", "dc.b.cpu", "dc.b.mem"]));
    let functions = server.get("/functions/sumSeries").await;
    assert_eq!(functions.json()["name"], "sumSeries");
}

/// The head alone left out all labels, because only the presence of the series was asked for, so that no path
/// was found.
#[tokio::test]
async fn paths_of_remote_write_are_found_without_points_of_carbon() {
    let server = Fixture::ready();
    let written = server.write(&[(&[("__name__", "a.b")], &[(1_000_000, 1.0)])]).await;
    assert_eq!(written.status.as_u16(), 204);
    let found = server.get("/metrics/find?query=a.*&format=json").await;
    assert_eq!(found.json()[0]["path"], "a.b", "{}", found.text);
}
