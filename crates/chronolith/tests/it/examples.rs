//! The files of `examples/`: the settings start a server, the YAML parses, and URLs name endpoints of the
//! server.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

fn yaml(name: &str) -> Value {
    let text = std::fs::read_to_string(example(name)).expect(name);
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn the_settings_of_the_examples_are_accepted() {
    for name in [
        "chronolith.yml",
        "graphite/chronolith.yml",
        "influxdb/chronolith.yml",
        "mimir-thanos/mimir-read-only.yml",
        "mimir-thanos/server.yml",
        "mimir-thanos/thanos-read-only.yml",
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chronolith"));
        command.args(["serve", "--check-config", "--config"]).arg(example(name));
        let out = command.output().expect("chronolith runs");
        let warnings = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && warnings.is_empty(), "{name}: {warnings}");
    }
}

/// Runs a check of another program, if it is installed.
fn check_with(program: &str, args: &[&str], name: &str) {
    let out = match Command::new(program).args(args).arg(example(name)).stdin(Stdio::null()).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        out => out.expect(program),
    };
    let text = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    assert!(out.status.success(), "{program} {name}: {text}");
}

#[test]
fn other_programs_accept_the_examples() {
    for name in ["prometheus.yml", "prometheus-rules/prometheus.yml", "prometheus-rules/ruler.yml"] {
        check_with("promtool", &["check", "config"], name);
    }
    check_with("promtool", &["check", "rules"], "prometheus-rules/rules.yml");
    check_with("promtool", &["test", "rules"], "cluster-alerts/rules_test.yml");
    // `-t` reads metrics from standard input and shows their ways.
    check_with("carbon-c-relay", &["-t", "-f"], "graphite/carbon-c-relay.conf");
}

/// Runs the unit tests of the alerts, which have one case per alert, and compares names of metrics with the
/// reference.
#[test]
fn alerts_of_a_cluster_fire_as_their_tests_say() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chronolith"));
    let out = command.args(["rules", "test"]).arg(example("cluster-alerts/rules_test.yml")).output();
    let out = out.expect("chronolith runs");
    let text = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    assert!(out.status.success(), "{text}");
    let reference = std::fs::read_to_string(example("../docs/reference/metrics.md")).expect("metrics.md");
    let tests = std::fs::read_to_string(example("cluster-alerts/rules_test.yml")).expect("tests");
    let rules = yaml("cluster-alerts/rules.yml");
    for rule in rules["groups"][0]["rules"].as_array().expect("rules") {
        let name = rule["alert"].as_str().expect("an alert");
        assert!(tests.contains(&format!("alertname: {name}\n")), "{name} has no test");
        let expr = rule["expr"].as_str().expect("an expression");
        let words = expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let metrics: Vec<&str> = words.filter(|word| word.starts_with("chronolith_")).collect();
        assert!(!metrics.is_empty(), "{expr}");
        for metric in metrics {
            assert!(reference.contains(&format!("| `{metric}` |")), "{metric} is no metric of the server");
        }
    }
}

#[test]
fn policies_of_the_bucket_allow_what_the_documents_name() {
    let page = std::fs::read_to_string(example("../docs/bucket.md")).expect("bucket.md");
    let actions = |name: &str| -> Vec<String> {
        let text = std::fs::read_to_string(example(name)).expect(name);
        let policy: Value = serde_json::from_str(&text).expect(name);
        let statements = policy["Statement"].as_array().expect("statements");
        let actions = statements.iter().flat_map(|one| one["Action"].as_array().expect("actions"));
        actions.map(|action| action.as_str().expect("an action").to_owned()).collect()
    };
    let all = actions("mimir-thanos/iam-policy.json");
    assert_eq!(all.len(), 5);
    assert!(all.iter().all(|action| page.contains(&format!("`{action}`"))), "{all:?}");
    assert_eq!(actions("mimir-thanos/iam-policy-read-only.json"), ["s3:ListBucket", "s3:GetObject"]);
}

#[test]
fn prometheus_sends_to_endpoints_that_exist() {
    for name in ["prometheus.yml", "prometheus-rules/prometheus.yml", "prometheus-rules/ruler.yml"] {
        let config = yaml(name);
        let url = |section: &str| config[section][0]["url"].as_str().expect(section).to_owned();
        let api = std::fs::read_to_string(example("../docs/reference/api.md")).expect("the API page");
        for (section, path) in [("remote_write", "/api/v1/write"), ("remote_read", "/api/v1/read")] {
            assert_eq!(url(section), format!("http://127.0.0.1:9595{path}"), "{name}");
            assert!(api.contains(&format!("| `{path}` | POST |")), "{path} is no endpoint");
        }
        assert_eq!(
            config["remote_write"][0]["queue_config"]["retry_on_http_429"],
            Value::Bool(true),
            "{name}"
        );
    }
}

#[test]
fn grafana_finds_data_source_and_dashboard() {
    let source = yaml("grafana/datasource.yml");
    assert_eq!(source["datasources"][0]["type"], "prometheus");
    assert_eq!(source["datasources"][0]["url"], "http://127.0.0.1:9595");
    for (name, kind) in [("influxdb", "influxdb"), ("graphite", "graphite")] {
        let source = yaml(&format!("{name}/grafana-datasource.yml"));
        assert_eq!(source["datasources"][0]["type"], kind);
        assert_eq!(source["datasources"][0]["url"], "http://127.0.0.1:9595");
    }
    let provider = yaml("grafana/dashboards.yml");
    let folder = provider["providers"][0]["options"]["path"].as_str().expect("a folder");
    let readme = std::fs::read_to_string(example("../README.md")).expect("README.md");
    assert!(readme.contains(&format!("{folder}/chronolith.json")), "README copies the dashboard elsewhere");
}

/// Runs `jq` with the program over a line of VictoriaMetrics's export; none if `jq` is not installed.
fn openmetrics(line: &str) -> Option<String> {
    let program = example("victoriametrics/openmetrics.jq");
    let mut command = Command::new("jq");
    command.arg("-r").arg("-f").arg(program).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = match command.spawn() {
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        child => child.expect("jq"),
    };
    child.stdin.take().expect("a pipe").write_all(line.as_bytes()).expect("jq reads");
    let out = child.wait_with_output().expect("jq");
    assert!(out.status.success(), "{line}");
    Some(String::from_utf8(out.stdout).expect("UTF-8"))
}

/// Lines as VictoriaMetrics 1.150 writes them: infinities are texts, NaN is null.
#[test]
fn exports_of_victoriametrics_become_openmetrics() {
    for (line, want) in [
        (
            r#"{"metric":{"__name__":"a"},"values":[1,0.1,1e300],"timestamps":[1795870000000,1795870001001,1795870010010]}"#,
            "a{} 1 1795870000\na{} 0.1 1795870001.001\na{} 1e+300 1795870010.01\n",
        ),
        (
            r#"{"metric":{"__name__":"b:c","l":"x \"y\"\\\nz","m":"é;=,"},"values":[-2.5],"timestamps":[1]}"#,
            "b:c{l=\"x \\\"y\\\"\\\\\\nz\",m=\"é;=,\"} -2.5 0.001\n",
        ),
        (
            r#"{"metric":{"__name__":"d"},"values":["Infinity","-Infinity",null,0],"timestamps":[1000,2000,3000,4000]}"#,
            "d{} Inf 1\nd{} -Inf 2\nd{} NaN 3\nd{} 0 4\n",
        ),
        (r#"{"metric":{"__name__":"e"},"values":[],"timestamps":[]}"#, ""),
    ] {
        if let Some(text) = openmetrics(line) {
            // Versions of jq print large numbers in several ways.
            assert_eq!(
                text.replace("1.0000000000000001e+300", "1e+300").replace("1E+300", "1e+300"),
                want,
                "{line}"
            );
        }
    }
}
