//! YAML of groups: indentation, and texts that read back as they were.

use chronolith_promql::parser::ParserOptions;

use super::*;
use crate::file::{FileLimits, FileOptions, UnknownFields, parse_group, parse_with_sources};
use crate::prometheus_templates::PrometheusTemplates;

fn options() -> FileOptions<'static> {
    static TEMPLATES: std::sync::LazyLock<PrometheusTemplates> =
        std::sync::LazyLock::new(PrometheusTemplates::default);
    FileOptions {
        parser: ParserOptions::default(),
        unknown_fields: UnknownFields::Refuse,
        templates: &*TEMPLATES,
        limits: FileLimits::default(),
    }
}

const GROUP: &str = r#"name: a group
interval: 1m30s
query_offset: 0s
limit: 5
rules:
    - record: job:up:sum
      expr: |-
        sum by (job) (
          up{job!=""}
        )
      labels:
        "on": "yes"
        team: 'a: b'
    - alert: Down
      expr: 'up == 0'
      for: 1h
      keep_firing_for: 5m
      annotations:
        text: |
            {{ $value }} is "down"

            since
labels:
    source: 'x'
"#;

const PRINTED: &str = r#"name: a group
interval: 1m30s
query_offset: 0s
limit: 5
rules:
    - record: job:up:sum
      expr: |-
        sum by (job) (
          up{job!=""}
        )
      labels:
        'on': 'yes'
        team: 'a: b'
    - alert: Down
      expr: up == 0
      for: 1h
      keep_firing_for: 5m
      annotations:
        text: |
            {{ $value }} is "down"

            since
labels:
    source: x
"#;

#[test]
fn a_group_is_indented_as_by_go_yaml() {
    let group = parse_group("ns", GROUP.as_bytes(), &options()).expect("a group");
    let printed = group_yaml(&group.source);
    assert_eq!(printed, PRINTED);
    let again = parse_group("ns", printed.as_bytes(), &options()).expect("a group");
    assert_eq!(again.source, group.source);
}

#[test]
fn namespaces_and_files_are_indented() {
    let group = parse_group("ns", b"{name: g, rules: [{record: a, expr: b}]}", &options()).expect("a group");
    let rules = "    - name: g\n      rules:\n        - record: a\n          expr: b\n";
    assert_eq!(file_yaml([&group.source]), format!("groups:\n{rules}"));
    let namespaces = namespaces_yaml([("a/b", vec![&group.source]), ("1", vec![])]);
    assert_eq!(namespaces, format!("a/b:\n{rules}'1': []\n"));
    assert_eq!(namespaces_yaml(Vec::<(&str, Vec<&GroupSource>)>::new()), "{}\n");
}

/// Texts that are something else in YAML: a wrong quote changed or lost them.
const TEXTS: &[&str] = &[
    "",
    " ",
    "a",
    " a",
    "a ",
    "a:",
    "a: b",
    "a #b",
    "#a",
    "- a",
    "-",
    "?",
    "'",
    "\"",
    "it's",
    "a\\b",
    "~",
    "null",
    "Null",
    "true",
    "No",
    "y",
    "1",
    "1.5",
    "0x1f",
    "1e5",
    "12:30:45",
    "2001-01-01",
    "+1",
    ".5",
    "=",
    "<<",
    "*a",
    "&a",
    "!a",
    "!!int 1",
    "%a",
    "@a",
    "`a",
    "{a}",
    "[a]",
    "a,b",
    "|",
    ">",
    "a\nb",
    "a\nb\n",
    "a\n\nb",
    "\na",
    "a\n",
    "a\n\n",
    "\n",
    " a\nb",
    "a \nb",
    "a\n b",
    "\ta\nb",
    "a\t\nb",
    "a\tb",
    "a\r\nb",
    "a\u{85}b",
    "a\u{2028}b",
    "\u{feff}a",
    "\u{7f}",
    "\u{1}",
    "ä",
    "日本",
    "😀",
    "---",
    "...",
    "---\na",
    "a\n---\nb",
    "a\n...\nb",
    "{{ $labels.instance }}: {{ $value }}",
    "sum(a{b=~\"c|d\"})\n  / # half\n  2\n",
];

#[test]
fn every_text_reads_back_as_it_was() {
    let annotations = TEXTS.iter().enumerate().map(|(idx, text)| (format!("a{idx}"), (*text).to_owned()));
    let labels =
        TEXTS.iter().filter(|text| !text.is_empty()).map(|text| ((*text).to_owned(), "v".to_owned()));
    let rule = RuleSource {
        record: String::new(),
        alert: "- it's: #1\n".to_owned(),
        expr: "up\n".to_owned(),
        hold_ms: 90_000,
        keep_firing_ms: 1,
        labels: labels.filter(|(name, _)| name != "<<").collect(),
        annotations: annotations.filter(|(_, text)| !text.contains("{{")).collect(),
    };
    let group = GroupSource {
        name: "*".to_owned(),
        interval_ms: 86_400_000,
        query_offset_ms: None,
        limit: -1,
        labels: vec![("x".to_owned(), "0".to_owned())],
        rules: vec![rule],
    };
    let yaml = file_yaml([&group]);
    let groups =
        parse_with_sources("f", yaml.as_bytes(), &options()).unwrap_or_else(|e| panic!("{e:?}\n{yaml}"));
    assert_eq!(groups.len(), 1);
    for (found, want) in groups[0].source.rules[0].annotations.iter().zip(&group.rules[0].annotations) {
        assert_eq!(found, want);
    }
    assert_eq!(groups[0].source, group, "{yaml}");
}
