//! Documents and examples against the server: the OpenAPI description, metrics in the dashboard.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chronolith_base::Env;
use chronolith_server::{Server, ServerOptions};
use serde_json::Value;

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(checkout().join(path)).expect(path)
}

/// The OpenAPI description, decoded.
fn description(parameters: &str) -> Value {
    let response = get(&format!("/api/v1/openapi.yaml{parameters}"));
    let (head, body) = response.split_once("\r\n\r\n").expect("a body");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.to_ascii_lowercase().contains("content-type: application/yaml; charset=utf-8"), "{head}");
    serde_saphyr::from_str(body).expect("YAML")
}

#[test]
fn the_openapi_description_is_consistent() {
    let document = description("?openapi_version=3.2");
    assert_eq!(document["openapi"], "3.2.0");
    let mut references = Vec::new();
    strings(&document, "$ref", &mut references);
    assert!(references.len() > 500, "{}", references.len());
    for reference in references {
        let pointer = reference.strip_prefix('#').expect("a local reference");
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let listed = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
            let in_path =
                listed.iter().filter(|one| one["in"] == "path").filter_map(|one| one["name"].as_str());
            let named = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
            assert_eq!(in_path.collect::<Vec<_>>(), named.collect::<Vec<_>>(), "{method} {path}");
            assert!(!operation["summary"].as_str().expect("a summary").is_empty(), "{method} {path}");
            assert!(!operation["responses"].as_object().expect("responses").is_empty(), "{method} {path}");
        }
    }
}

/// The response of a server that has just started, with its headers.
fn get(path: &str) -> String {
    let dir = tempfile::tempdir().expect("directory");
    let mut options = ServerOptions::new(dir.path().to_owned());
    options.listen = "127.0.0.1:0".to_owned();
    let server = Server::start(Env::real(), options, None).expect("starts");
    server.wait_ready().expect("opens");
    let mut stream = TcpStream::connect(server.address()).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("timeout");
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    server.stop().expect("stops");
    text
}

/// Names of the families in `/metrics`.
fn metric_names() -> BTreeSet<String> {
    let text = get("/metrics");
    let name = |line: &str| line.strip_prefix("# TYPE ")?.split(' ').next().map(str::to_owned);
    text.lines().filter_map(name).collect()
}

/// Collects all strings under the key `key`, at any depth.
fn strings<'a>(value: &'a Value, key: &str, out: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            out.extend(fields.get(key).and_then(Value::as_str));
            fields.values().for_each(|field| strings(field, key, out));
        }
        Value::Array(items) => items.iter().for_each(|item| strings(item, key, out)),
        _ => {}
    }
}

#[test]
fn every_metric_of_the_dashboard_exists() {
    let names = metric_names();
    let dashboard: Value = serde_json::from_str(&read("examples/grafana/dashboard.json")).expect("JSON");
    let mut queries = Vec::new();
    strings(&dashboard, "expr", &mut queries);
    assert!(queries.len() >= 15, "queries are no longer found: {queries:?}");
    for query in queries {
        let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let used: Vec<&str> =
            words.filter(|word| word.starts_with("chronolith_") || word.starts_with("process_")).collect();
        assert!(!used.is_empty(), "no metric in {query}");
        for word in used {
            // A histogram's samples have a suffix that its family has not.
            let family = ["_bucket", "_count", "_sum"].iter().find_map(|suffix| word.strip_suffix(suffix));
            let exists = names.contains(word) || family.is_some_and(|family| names.contains(family));
            assert!(exists, "{word} in {query} is no metric of the server");
        }
    }
}

/// The alerts of `docs/operate.md` name metrics, too.
#[test]
fn every_metric_of_the_documents_exists() {
    let names = metric_names();
    for path in [
        "README.md",
        "docs/operate.md",
        "docs/ingest.md",
        "docs/query.md",
        "docs/limits.md",
        "docs/influxdb.md",
    ] {
        let text = read(path);
        for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            if word.starts_with("chronolith_") && word != "chronolith_model" {
                assert!(names.contains(word), "{path}: {word} is no metric of the server");
            }
        }
    }
}
