//! Requests of Grafana's Graphite data source, as it sends them.

use serde_json::{Value, json};

use super::*;

fn form(path: &str, body: &str) -> Request<Body> {
    let request = Request::post(path).header("content-type", "application/x-www-form-urlencoded");
    request
        .header("accept", "application/json, text/plain, */*")
        .body(Body::from(body.to_owned()))
        .expect("valid")
}

fn get(path: &str) -> Request<Body> {
    let request = Request::get(path).header("accept", "application/json, text/plain, */*");
    request.body(Body::empty()).expect("valid")
}

/// Expected content of an answer: a value at a JSON pointer.
type Want = (&'static str, Value);

fn table() -> Vec<(Request<Body>, Want)> {
    let range = "from=240&until=480&format=json&maxDataPoints=1000";
    vec![
        (
            form("/render", &format!("target=aliasByNode(dc.%2A.cpu%2C%201)&{range}")),
            ("/0/target", json!("a")),
        ),
        (
            form("/render", &format!("target=seriesByTag(%27name%3Ddisk%27)&{range}&meta=true")),
            ("/series/0/tags/host", json!("x")),
        ),
        (form("/metrics/find?from=0&until=600", "query=dc.%2A"), ("/1/text", json!("b"))),
        (form("/metrics/find?from=0&until=600", "query=%2A"), ("/0/expandable", json!(1))),
        (form("/metrics/find", "query=dc.b.%2A"), ("/0/leaf", json!(1))),
        (get("/metrics/expand?query=dc.*.cpu&from=0&until=600"), ("/results/1", json!("dc.b.cpu"))),
        (get("/tags?from=0&until=600"), ("/0/tag", json!("dc"))),
        (get("/tags/host?from=0&until=600"), ("/values/0/value", json!("x"))),
        (get("/tags/autoComplete/tags?from=0&until=600&limit=100"), ("/1", json!("host"))),
        (
            get(
                "/tags/autoComplete/tags?expr=name%3Ddisk&expr=dc%3Da&limit=100&tagPrefix=h&from=0&until=600",
            ),
            ("/0", json!("host")),
        ),
        (
            get(
                "/tags/autoComplete/values?expr=name%3Ddisk&tag=host&valuePrefix=&limit=100&from=0&until=600",
            ),
            ("/0", json!("x")),
        ),
        (get("/functions/sumSeries"), ("/name", json!("sumSeries"))),
        (get("/events/get_data?from=1700000000&until=1700000600&tags=deploy"), ("/0/what", json!("release"))),
        (get("/version"), ("/application", json!("Chronolith"))),
    ]
}

#[tokio::test]
async fn each_request_of_the_data_source_is_answered() {
    let server = with_points().await;
    let event = r#"{"what": "release", "tags": ["deploy"], "when": 1700000300}"#;
    let answer = post(&server, "/events/", "identity", event.as_bytes().to_vec()).await;
    assert_eq!(answer.status.as_u16(), 200);
    for (request, (pointer, want)) in table() {
        let path = request.uri().clone();
        let answer = server.send(request).await;
        assert_eq!(answer.status.as_u16(), 200, "{path} {}", answer.text);
        assert_eq!(answer.json().pointer(pointer), Some(&want), "{path} {}", answer.text);
    }
    assert_eq!(server.get("/version/").await.text, "1.1.10\n");
    // Numbers of the list of functions are JSON, but not all of them are floats of 64 bits.
    let functions = server.get("/functions").await;
    assert_eq!(functions.status.as_u16(), 200);
    assert!(functions.text.contains(r#""sumSeries": {"name": "sumSeries""#), "{}", functions.text);
}

#[tokio::test]
async fn pages_of_graphite_web_are_refused_with_a_hint() {
    let server = Fixture::ready();
    for path in ["/dashboard", "/dashboard/find/", "/composer", "/browser", "/account/login"] {
        let answer = server.get(path).await;
        assert_eq!(
            (answer.status.as_u16(), answer.text.as_str()),
            (404, "use Grafana; /render is here\n"),
            "{path}"
        );
    }
    let pdf = server.get("/render?target=a&format=pdf").await;
    assert_eq!(pdf.status.as_u16(), 400);
    assert!(pdf.text.contains("pdf"), "{}", pdf.text);
}

#[tokio::test]
async fn metadata_of_paths_is_their_method() {
    let server = with_points().await;
    let table = [
        ("metric=a.b&key=aggregationMethod", json!({"a.b": {"value": "average"}})),
        ("metric=a&key=x", json!({"a": {"error": "Unsupported metadata key \"x\""}})),
        ("", json!({})),
    ];
    for (query, want) in table {
        check_json(&server.get(&format!("/metrics/get-metadata?{query}")).await, want);
    }
    let script = server.get("/metrics/get-metadata?metric=a&key=aggregationMethod&jsonp=f").await;
    assert_eq!(script.text, r#"f({"a":{"value":"average"}})"#);
    let refused = post(&server, "/metrics/set-metadata", "identity", b"{}".to_vec()).await;
    assert_eq!(refused.status.as_u16(), 400);
}
