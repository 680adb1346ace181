//! The files of `examples/`: the settings start a server, the YAML parses, and URLs name endpoints of the
//! server.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

fn yaml(name: &str) -> Value {
    let text = std::fs::read_to_string(example(name)).expect(name);
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn the_settings_of_the_example_are_accepted() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chronolith"));
    command.args(["serve", "--check-config", "--config"]).arg(example("chronolith.yml"));
    let out = command.output().expect("chronolith runs");
    let warnings = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && warnings.is_empty(), "{warnings}");
}

#[test]
fn prometheus_sends_to_endpoints_that_exist() {
    let config = yaml("prometheus.yml");
    let url = |section: &str| config[section][0]["url"].as_str().expect(section).to_owned();
    let api = std::fs::read_to_string(example("../docs/reference/api.md")).expect("the API page");
    for (section, path) in [("remote_write", "/api/v1/write"), ("remote_read", "/api/v1/read")] {
        assert_eq!(url(section), format!("http://127.0.0.1:9595{path}"));
        assert!(api.contains(&format!("| `{path}` | POST |")), "{path} is no endpoint");
    }
    assert_eq!(config["remote_write"][0]["queue_config"]["retry_on_http_429"], Value::Bool(true));
}

#[test]
fn grafana_finds_data_source_and_dashboard() {
    let source = yaml("grafana/datasource.yml");
    assert_eq!(source["datasources"][0]["type"], "prometheus");
    assert_eq!(source["datasources"][0]["url"], "http://127.0.0.1:9595");
    let provider = yaml("grafana/dashboards.yml");
    let folder = provider["providers"][0]["options"]["path"].as_str().expect("a folder");
    let readme = std::fs::read_to_string(example("../README.md")).expect("README.md");
    assert!(readme.contains(&format!("{folder}/chronolith.json")), "README copies the dashboard elsewhere");
}
