//! Search API: names by terms, in lines of JSON.

use super::*;
use chronolith_model::metadata::MetricKind;
use chronolith_model::{MetadataEntry, StoreId};

/// Names of the results of all lines, and the last line.
fn read_lines(answer: &Answer, key: &str) -> (Vec<String>, Value) {
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    assert_eq!(answer.headers[header::CONTENT_TYPE], "application/x-ndjson; charset=utf-8");
    assert!(answer.text.ends_with("}\n"), "{}", answer.text);
    let lines = answer.text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let mut lines: Vec<Value> = lines.collect();
    let last = lines.pop().expect("a last line");
    let names = lines.iter().flat_map(|line| line["results"].as_array().expect("results").clone());
    (names.map(|one| one[key].as_str().expect("a name").to_owned()).collect(), last)
}

async fn found(server: &Fixture, path: &str) -> Vec<String> {
    let answer = server.get(&format!("/api/v1/search/{path}")).await;
    let (names, last) = read_lines(&answer, "name");
    assert_eq!(last["status"], "success", "{}", answer.text);
    names
}

fn with_metrics(names: &[&str]) -> Fixture {
    let server = Fixture::ready();
    for name in names {
        server.store_series("anonymous", 0, &[&[("__name__", name), ("job", "j")]]);
    }
    server
}

#[tokio::test]
async fn results_come_in_lines_with_the_status_last() {
    let server = with_metrics(&["c", "a", "b", "d"]);
    let answer = server.get("/api/v1/search/metric_names?limit=3&batch_size=2").await;
    let want = "{\"results\":[{\"name\":\"a\"},{\"name\":\"b\"}]}\n{\"results\":[{\"name\":\"c\"}]}\n\
                {\"status\":\"success\",\"has_more\":true}\n";
    assert_eq!(answer.text, want);
    let answer = server.post_form("/api/v1/search/metric_names", "limit=10000&search[]=none").await;
    assert_eq!(answer.text, "{\"results\":[]}\n{\"status\":\"success\",\"has_more\":false}\n");
    let labels = server.get("/api/v1/search/label_names?search[]=jo").await;
    assert_eq!(read_lines(&labels, "name").0, ["job"]);
    let values = server.get("/api/v1/search/label_values?label=__name__&sort_by=alpha&sort_dir=dsc").await;
    assert_eq!(read_lines(&values, "value").0, ["d", "c", "b", "a"]);
}

#[tokio::test]
async fn terms_prefixes_and_scores() {
    let server = with_metrics(&["http_requests", "http_errors", "x_http", "node_cpu", "Http"]);
    assert_eq!(found(&server, "metric_names?search[]=http_").await, ["http_errors", "http_requests"]);
    assert_eq!(
        found(&server, "metric_names?search[]=http&sort_by=score").await,
        ["http_errors", "http_requests", "x_http"]
    );
    // Enough names begin with the term: the others are not looked at.
    assert_eq!(found(&server, "metric_names?search[]=http&sort_by=score&limit=1").await, ["http_errors"]);
    assert_eq!(
        found(&server, "metric_names?search[]=HTTP&case_sensitive=false&sort_by=score").await,
        ["Http", "http_errors", "http_requests", "x_http"]
    );
    assert_eq!(
        found(&server, "metric_names?search[]=http&fuzz_threshold=100").await,
        ["http_errors", "http_requests"]
    );
    assert_eq!(found(&server, "metric_names?search[]=ncpu").await, ["node_cpu"]);
    assert_eq!(found(&server, "metric_names?search[]=ncpu&fuzz_alg=jarowinkler").await, [""; 0]);
    assert_eq!(
        found(&server, "metric_names?search[]=cpu&search[]=x_&fuzz_alg=jarowinkler").await,
        ["node_cpu", "x_http"]
    );
    let scored = server.get("/api/v1/search/metric_names?search[]=x_http&include_score=true").await;
    assert!(scored.text.contains(r#"{"name":"x_http","score":1}"#), "{}", scored.text);
}

#[tokio::test]
async fn names_of_head_and_blocks_come_once() {
    let server = Fixture::ready();
    let old_ms = -10 * 3_600_000;
    server.store_series(
        "anonymous",
        old_ms,
        &[&[("__name__", "old"), ("job", "a")], &[("__name__", "both")]],
    );
    server.flush().await;
    server.store_series("anonymous", 0, &[&[("__name__", "both")], &[("__name__", "new"), ("job", "b")]]);
    assert_eq!(found(&server, "metric_names").await, ["both", "new"], "of the last hour");
    let start = NOW_S - 12 * 3600;
    assert_eq!(found(&server, &format!("metric_names?start={start}")).await, ["both", "new", "old"]);
    let path = format!("metric_names?start={start}&match[]=%7Bjob%3D%22a%22%7D&match[]=new");
    assert_eq!(found(&server, &path).await, ["new", "old"]);
    assert_eq!(found(&server, &format!("label_values?label=job&start={start}")).await, ["a", "b"]);
}

#[tokio::test]
async fn a_tenant_finds_its_own_names_only() {
    let server = Fixture::with(|options| options.service.multitenancy = true).open();
    server.store_series("a", 0, &[&[("__name__", "of_a")]]);
    server.store_series("b", 0, &[&[("__name__", "of_b")]]);
    for kind in ["metric_names", "label_values?label=__name__"] {
        let answer = server.get_as("a", &format!("/api/v1/search/{kind}")).await;
        assert_eq!(read_lines(&answer, "name").0, ["of_a"]);
    }
    check_error(&server.get("/api/v1/search/metric_names").await, 401, "bad_data", "no org id");
}

#[tokio::test]
async fn metrics_have_metadata_when_asked() {
    let server = with_metrics(&["up", "lat_bucket", "lat_created"]);
    let mut batch = WriteBatch::from_labels();
    for (metric, kind, help) in
        [("up", MetricKind::Gauge, "Is it \"up\"?"), ("lat", MetricKind::Histogram, "Of a family.")]
    {
        let unit = String::new();
        batch.metadata.push(MetadataEntry { metric: metric.to_owned(), kind, help: help.to_owned(), unit });
    }
    server.web.service.lifecycle.store().unwrap().append(&StoreId::anonymous(), &batch).unwrap();
    let answer = server.get("/api/v1/search/metric_names?include_metadata=true").await;
    for want in [
        r#"{"name":"up","type":"gauge","help":"Is it \"up\"?"}"#,
        r#"{"name":"lat_bucket","type":"histogram","help":"Of a family."}"#,
        r#"{"name":"lat_created"}"#,
    ] {
        assert!(answer.text.contains(want), "{want}: {}", answer.text);
    }
}

#[tokio::test]
async fn wrong_parameters_are_named() {
    let server = Fixture::ready();
    let many = "search[]=a&".repeat(33);
    let long = format!("search[]={}", "x".repeat(1025));
    for (query, message) in [
        (many.as_str(), r#"invalid parameter "search[]": 33 terms are more than the limit of 32"#),
        (long.as_str(), r#"invalid parameter "search[]": 1025 bytes are more than the limit of 1024"#),
        ("limit=10001", r#"invalid parameter "limit": must not exceed 10000"#),
        ("limit=-1", r#"invalid parameter "limit": limit must be non-negative"#),
        ("fuzz_threshold=101", r#"invalid parameter "fuzz_threshold": not a whole number from 0 to 100"#),
        ("fuzz_alg=x", r#"invalid parameter "fuzz_alg": "x" is neither subsequence nor jarowinkler"#),
        ("sort_by=x", r#"invalid parameter "sort_by": "x" is neither alpha nor score"#),
        ("sort_by=score", r#"invalid parameter "sort_by": score needs at least one search[]"#),
        ("sort_dir=asc", r#"invalid parameter "sort_dir": only valid with sort_by=alpha"#),
        (
            "search[]=a&sort_by=score&sort_dir=asc",
            r#"invalid parameter "sort_dir": not supported with sort_by=score"#,
        ),
        ("case_sensitive=2", r#"invalid parameter "case_sensitive": "2" is neither true nor false"#),
        ("start=2&end=1", r#"invalid parameter "end": end timestamp must not be before start timestamp"#),
        ("match[]=%7B%7D", "match[] must contain at least one non-empty matcher"),
    ] {
        let answer = server.get(&format!("/api/v1/search/metric_names?{query}")).await;
        check_error(&answer, 400, "bad_data", message);
    }
    let no_label = server.get("/api/v1/search/label_values").await;
    check_error(&no_label, 400, "bad_data", r#"invalid parameter "label": the name of the label is missing"#);
}

/// Names of 200 bytes, sorted.
fn store_long_names(server: &Fixture, count: usize) {
    let mut batch = WriteBatch::from_labels();
    for idx in 0..count {
        let name = format!("{idx:0>200}");
        batch.push_labels(&Labels::from_pairs([("__name__", name.as_str())]), &[(NOW_MS, 1.0)]);
    }
    server.web.service.lifecycle.store().unwrap().append(&StoreId::anonymous(), &batch).unwrap();
}

#[tokio::test]
async fn an_error_after_the_first_line_is_the_last_line() {
    // The names fit, and two or three lines of the client do.
    let server = Fixture::with(|options| options.service.query.memory_bytes_max = 860_000).open();
    store_long_names(&server, 3000);
    let answer = server.get("/api/v1/search/metric_names?limit=10000&batch_size=100").await;
    let (names, last) = read_lines(&answer, "name");
    assert!((100..2000).contains(&names.len()), "{} names", names.len());
    assert_eq!((&last["status"], &last["errorType"]), (&"error".into(), &"execution".into()));
    assert!(last["error"].as_str().is_some_and(|text| text.contains("memory")), "{last}");
    // Without room for the names there is no line.
    let small = Fixture::with(|options| options.service.query.memory_bytes_max = 100_000).open();
    store_long_names(&small, 3000);
    let refused = small.get("/api/v1/search/metric_names?limit=10000").await;
    assert_eq!((refused.status.as_u16(), refused.json()["errorType"].as_str()), (422, Some("execution")));
}

#[tokio::test]
async fn a_search_ends_when_its_client_leaves() {
    let server = Fixture::ready();
    store_long_names(&server, 2000);
    let request = Request::get("/api/v1/search/metric_names?limit=10000&batch_size=1");
    let response = router(server.web.clone()).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let mut body = response.into_body();
    assert!(body.frame().await.expect("a line").is_ok());
    drop(body);
    let aborted = &server.web.metrics.search.aborted;
    while aborted.get() == 0 || server.web.service.admission.query_memory.total.used_bytes() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(aborted.get(), 1);
}

/// Ninety-fifth percentile of the times of a search by each of `terms`, and the largest answer.
async fn measure(server: &Fixture, query: &str, terms: &[String]) -> (std::time::Duration, usize) {
    let mut times = Vec::new();
    let mut bytes_max = 0;
    for term in terms {
        let start = tokio::time::Instant::now();
        let answer = server.get(&format!("/api/v1/search/metric_names?search[]={term}&{query}")).await;
        times.push(start.elapsed());
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        bytes_max = bytes_max.max(answer.text.len());
    }
    times.sort();
    (times[times.len() * 95 / 100], bytes_max)
}

/// Searches a million metric names for a typed prefix and a rare substring.
#[tokio::test]
#[ignore = "measures: cargo test --release -p chronolith-server a_million_names -- --ignored --show-output"]
async fn a_million_names_are_searched_in_place() {
    let server = Fixture::ready();
    for part in 0..100 {
        let mut batch = WriteBatch::from_labels();
        for idx in 0..10_000 {
            let number = part * 10_000 + idx;
            let name = format!("service_{}_requests_of_endpoint_{number:07}_total", number % 97);
            batch.push_labels(&Labels::from_pairs([("__name__", name.as_str())]), &[(NOW_MS, 1.0)]);
        }
        server.web.service.lifecycle.store().unwrap().append(&StoreId::anonymous(), &batch).unwrap();
    }
    // The first search sorts the names.
    server.get("/api/v1/search/metric_names?search[]=x").await;
    let prefixes: Vec<String> = (0..97).map(|number| format!("service_{number}_req")).collect();
    let inside: Vec<String> = (0..100).map(|number| format!("endpoint_{:07}", number * 9973)).collect();
    let absent: Vec<String> = (0..50).map(|number| format!("zz{number}")).collect();
    for (what, query, terms) in [
        ("prefix, by score", "sort_by=score", &prefixes),
        ("prefix, by name", "", &prefixes),
        ("inside, by score", "sort_by=score", &inside),
        ("inside, jarowinkler", "fuzz_alg=jarowinkler", &inside),
        ("inside, any case", "case_sensitive=false&sort_by=score", &inside),
        ("absent", "", &absent),
    ] {
        let (p95, bytes) = measure(&server, query, terms).await;
        println!("{what}: p95 {p95:?}, largest answer {bytes} bytes");
        assert!(bytes < 100_000, "{what}: {bytes} bytes");
    }
}
