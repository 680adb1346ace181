//! Files with their verdicts, errors, values and limits.

use super::targets::TARGETS_MAX;
use super::*;

/// Files, each after a line `=== NAME`, or `=== NAME | REASON` where this server's verdict is another one.
const CASES: &str = include_str!("cases.txt");
/// Verdicts of Prometheus 3.16, a line for each case, written by `tools/notifier-golden`.
const VERDICTS: &str = include_str!("verdicts.txt");

fn parse(text: &str) -> Result<AlertingConfig, String> {
    AlertingConfig::parse(text.as_bytes(), Path::new("/etc/chronolith"))
}

#[test]
fn files_get_the_verdicts_of_prometheus_but_for_named_differences() {
    let cases: Vec<(&str, &str)> =
        CASES.split("=== ").skip(1).map(|case| case.split_once('\n').expect("a name")).collect();
    let verdicts: Vec<&str> = VERDICTS.lines().collect();
    assert_eq!(cases.len(), verdicts.len());
    assert!(cases.len() > 100, "{} cases", cases.len());
    for ((header, text), verdict) in cases.into_iter().zip(verdicts) {
        let (name, reason) = header.split_once(" | ").map_or((header, None), |(name, why)| (name, Some(why)));
        let verdict =
            verdict.strip_prefix(name).and_then(|rest| rest.strip_prefix(": ")).expect("its verdict");
        let accepted = verdict == "ok";
        let parsed = parse(text);
        let is_same = parsed.is_ok() == accepted;
        assert_eq!(is_same, reason.is_none(), "{name}: {parsed:?}, Prometheus: {verdict}, {reason:?}");
    }
}

#[track_caller]
fn check_error(text: &str, want: &str) {
    assert_eq!(parse(text).expect_err("refused"), want);
}

#[test]
fn errors_have_line_and_column_and_the_name_of_the_field() {
    let entry = "alerting:\n  alertmanagers:\n  - scheme: http\n";
    for (lines, want) in [
        ("    schema: x\n", "4:5: unknown field `schema` in `alertmanagers`"),
        ("    scheme: https\n", "4:5: field `scheme` of `alertmanagers` is set twice"),
        ("    api_version: v1\n", "4:18: `api_version` is not v2: Alertmanagers have no other"),
        ("    timeout: 10\n", "4:14: not a valid duration string: \"10\""),
        (
            "    proxy_url: http://u:secret@p\n",
            "4:5: `proxy_url` is not supported: requests go to Alertmanagers directly",
        ),
        (
            "    dns_sd_configs: []\n",
            "4:5: `dns_sd_configs` is not supported: use `static_configs` or `file_sd_configs`",
        ),
        ("    tls_config:\n      min_version: TLS11\n", "5:20: TLS11 is not supported: TLS12 and TLS13 are"),
        (
            "    relabel_configs:\n    - action: keep\n      sep: x\n",
            "6:7: unknown field `sep` in `relabel_configs`",
        ),
        (
            "    relabel_configs:\n    - action: hashmod\n",
            "5:7: relabel configuration for hashmod requires non-zero modulus",
        ),
        (
            "    file_sd_configs:\n    - files: [a.txt]\n",
            "5:15: path name \"a.txt\" is not valid for file discovery",
        ),
    ] {
        check_error(&format!("{entry}{lines}"), want);
    }
    check_error("alerting: [", "1:11: not valid YAML, or beyond its limits");
    check_error("a: 1\n---\nb: 2\n", "expected one YAML document, found several");
}

#[test]
fn secrets_are_in_no_error_and_no_debug_text() {
    let entry = "alerting:\n  alertmanagers:\n  - scheme: http\n";
    for lines in [
        "    basic_auth: {username: u, password: [TOPSECRET]}\n",
        "    basic_auth: {username: u, password: TOPSECRET, password_file: x}\n",
        "    basic_auth: TOPSECRET\n",
        "    authorization: {credentials: TOPSECRET, type: basic}\n",
        "    authorization: [TOPSECRET]\n",
        "    bearer_token: {TOPSECRET: 1}\n",
        "    bearer_token: TOPSECRET\n    basic_auth: {username: u}\n",
        "    tls_config: {key: TOPSECRET}\n",
        "    http_headers: {X: {secrets: TOPSECRET}}\n",
        "    proxy_url: http://u:TOPSECRET@p\n",
        "    bearer_token: \"TOPSECRET\n",
        "    bearer_token: TOPSECRET\n    bearer_token: TOPSECRET\n",
    ] {
        let error = parse(&format!("{entry}{lines}")).expect_err("refused");
        assert!(!error.contains("TOPSECRET"), "{error}");
    }
    let config = parse(&format!(
        "{entry}    basic_auth: {{username: u, password: TOPSECRET}}\n    tls_config: {{cert: x, key: TOPSECRET}}\n    \
         http_headers: {{X: {{secrets: [TOPSECRET]}}}}\n"
    ))
    .expect("used");
    let shown = format!("{config:?}");
    assert!(shown.contains("<secret>") && !shown.contains("TOPSECRET"), "{shown}");
}

#[test]
fn values_are_read_as_written_and_paths_are_relative_to_the_file() {
    let text = "
global: {evaluation_interval: 1m}
alerting:
  alert_relabel_configs: [{regex: replica, action: labeldrop}]
  alertmanagers:
  - scheme: https
    path_prefix: am
    timeout: 1m5s
    basic_auth: {username: u, password_file: secret/p}
    tls_config: {ca_file: /abs/ca.crt, cert_file: c.crt, key_file: c.key, server_name: am, max_version: TLS12}
    http_headers: {X-Scope: {values: [0123], files: [scope]}}
    enable_http2: false
    static_configs: [{targets: ['a:9093'], labels: {dc: 1}}]
    file_sd_configs: [{files: ['am/*.json'], refresh_interval: 5m}]
rule_files: []
";
    let config = parse(text).expect("used");
    assert_eq!(config.ignored_blocks, ["global", "rule_files"]);
    assert_eq!(config.alert_relabel.len(), 1);
    let [set] = config.alertmanagers.as_slice() else { panic!("{config:?}") };
    let file = |path: &str| Some(Source::File(path.into()));
    let secret = |text: &str| Some(Source::Inline(Secret(text.to_owned())));
    assert_eq!((set.scheme.as_str(), set.path_prefix.as_str(), set.timeout_ms), ("https", "am", 65_000));
    assert_eq!(set.http.auth, Auth::Basic { user: secret("u"), password: file("/etc/chronolith/secret/p") });
    assert_eq!(
        set.http.tls,
        TlsOptions {
            ca: file("/abs/ca.crt"),
            cert: file("/etc/chronolith/c.crt"),
            key: file("/etc/chronolith/c.key"),
            server_name: Some("am".to_owned()),
            insecure_skip_verify: false,
            min_version: None,
            max_version: Some(TlsVersion::Tls12),
        }
    );
    let scope = Source::File("/etc/chronolith/scope".into());
    let values = vec![HeaderValue::Plain("0123".to_owned()), HeaderValue::Hidden(scope)];
    assert_eq!(set.http.headers, [Header { name: "X-Scope".to_owned(), values }]);
    assert!(!set.http.http2);
    let labels = [("dc".to_owned(), "1".to_owned())].into();
    assert_eq!(set.static_groups, [TargetGroup { targets: vec!["a:9093".to_owned()], labels }]);
    assert_eq!(set.files, [FileDiscovery { patterns: vec!["/etc/chronolith/am/*.json".into()] }]);
}

#[test]
fn target_files_are_read_by_their_extension() {
    let read = |name: &str, text: &str| parse_target_file(Path::new(name), text.as_bytes());
    let labels = |name: &str, pairs: &[(&str, &str)]| {
        let path = ("__meta_filepath", name);
        pairs.iter().chain([&path]).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let json = read("/x/a.JSON", r#"[{"targets": ["a:1", "\ud83d\ude00"], "labels": {"é": "ü"}}, {}]"#)
        .expect("JSON");
    let targets = vec!["a:1".to_owned(), "\u{1f600}".to_owned()];
    let first = TargetGroup { targets, labels: labels("/x/a.JSON", &[("é", "ü")]) };
    assert_eq!(json, [first, TargetGroup { targets: Vec::new(), labels: labels("/x/a.JSON", &[]) }]);
    let yaml = read("b.yml", "- targets: [a:1]\n  labels: {n: 1}\n").expect("YAML");
    assert_eq!(
        yaml,
        [TargetGroup { targets: vec!["a:1".to_owned()], labels: labels("b.yml", &[("n", "1")]) }]
    );
    assert_eq!(read("c.yml", "").expect("empty"), []);
    assert_eq!(read("c.json", "null").expect("null"), []);
    for (name, text, want) in [
        ("d.yml", "- target: []\n", "1:3: unknown field `target` in `the file`"),
        ("d.yml", "- \n", "1:"),
        ("d.json", r#"[{"target": []}]"#, "unknown field `target`"),
        ("d.json", "[null]", "invalid type: null"),
        ("d.json", "[{", "EOF"),
    ] {
        let error = read(name, text).expect_err("refused");
        assert!(error.contains(want), "{text}: {error}");
    }
    let many = format!("- targets: [{}]\n", "a,".repeat(TARGETS_MAX + 1));
    assert_eq!(read("e.yml", &many).expect_err("too many"), format!("1:3: more than {TARGETS_MAX} targets"));
}

#[test]
fn files_beyond_their_limits_are_refused() {
    let large = vec![b' '; FILE_BYTES_MAX + 1];
    let error = AlertingConfig::parse(&large, Path::new("")).expect_err("too large");
    assert!(error.contains("bytes"), "{error}");
    assert!(parse_target_file(Path::new("a.json"), &large).expect_err("too large").contains("bytes"));
    let sets = format!("alerting:\n  alertmanagers: [{}]\n", "{},".repeat(65));
    assert!(parse(&sets).expect_err("too many").ends_with("`alertmanagers` has more than 64 entries"));
    // Each alias has ten times the bytes of the one before.
    let mut aliases = "a0: &a0 [xxxxxxxxxxxxxxxxxxxxxxxxx]\n".to_owned();
    for level in 1..12 {
        let items = format!("*a{},", level - 1).repeat(10);
        aliases.push_str(&format!("a{level}: &a{level} [{items}]\n"));
    }
    assert!(parse(&aliases).is_err());
    assert!(parse(&"[".repeat(100_000)).is_err());
    // A chain of aliases is a tree as deep as the chain is long.
    let chain: String = (1..1000).map(|level| format!("a{level}: &a{level} [*a{}]\n", level - 1)).collect();
    assert!(parse(&format!("a0: &a0 x\n{chain}")).is_err());
    // Comparing each name with each other one would take minutes.
    let many: String = (0..90_000).map(|number| format!("a{number}: 1\n")).collect();
    assert_eq!(parse(&many).expect("used").ignored_blocks.len(), 90_000);
}
