//! Verdicts about 137 files against the verdicts of promtool 3.16; positions, bounds and hostile files.

use std::collections::BTreeMap;
use std::path::Path;

use super::*;
use crate::faults::ERRORS_MAX;
use crate::rule::RuleKind;

fn options() -> FileOptions<'static> {
    crate::testing::file_options()
}

fn read(text: &str) -> Result<RuleFile, Vec<FileError>> {
    parse("rules.yml", text.as_bytes(), &options())
}

fn errors(result: Result<RuleFile, Vec<FileError>>) -> Vec<String> {
    result.expect_err("a bad file").iter().map(FileError::to_string).collect()
}

/// Report of promtool about one file.
struct Verdict {
    name: String,
    /// Rules of an accepted file.
    rule_count: Option<usize>,
    messages: Vec<String>,
}

fn verdicts() -> Vec<Verdict> {
    let mut found: Vec<Verdict> = Vec::new();
    for line in include_str!("../../testdata/verdicts.txt").lines().filter(|line| !line.starts_with('#')) {
        if let Some(message) = line.strip_prefix("  ") {
            found.last_mut().expect("a name first").messages.push(message.to_owned());
        } else {
            let (name, verdict) = line.split_once(": ").expect("NAME: VERDICT | VERDICT");
            let current = verdict.split_once(" | ").expect("two verdicts").0;
            let rule_count = current.strip_prefix("ok ").map(|count| count.parse().expect("a number"));
            found.push(Verdict { name: name.to_owned(), rule_count, messages: Vec::new() });
        }
    }
    found
}

/// Splits `12:5: text`, `line 12: text` or `12:5: 13:5: text` into line, column if there is one, and text.
fn split_position(message: &str) -> (Option<usize>, Option<usize>, &str) {
    if let Some((line, text)) = message.strip_prefix("line ").and_then(|rest| rest.split_once(": ")) {
        return (line.parse().ok(), None, text);
    }
    let mut position = (None, None);
    let mut text = message;
    while let Some((before, after)) = text.split_once(": ") {
        let Some((line, column)) = before.split_once(':') else { break };
        let (Ok(line), Ok(column)) = (line.parse::<usize>(), column.parse::<usize>()) else { break };
        if position == (None, None) && line > 0 {
            position = (Some(line), Some(column));
        }
        text = after;
    }
    (position.0, position.1, text)
}

/// Files that are no YAML: the parser has texts of its own.
const OTHER_TEXTS: [&str; 5] =
    ["bad-indentation", "tab-indentation", "unclosed-flow", "unclosed-quote", "unknown-alias"];

/// Files with another position: of the first line of a block, and of an absent value.
const OTHER_POSITIONS: [&str; 2] = ["expr-block-bad", "expr-null"];

#[expect(clippy::disallowed_methods, reason = "reads the files of the table in the repository")]
fn read_file(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/files");
    std::fs::read(folder.join(format!("{name}.yaml"))).expect("a file of the table")
}

fn parse_file(name: &str) -> Result<RuleFile, Vec<FileError>> {
    parse(name, &read_file(name), &options())
}

#[test]
fn files_get_the_verdicts_of_promtool() {
    let verdicts = verdicts();
    assert!(verdicts.len() >= 130, "{} files", verdicts.len());
    let mut wrong = Vec::new();
    for Verdict { name, rule_count, .. } in &verdicts {
        let found =
            parse_file(name).map(|file| file.groups.iter().map(|group| group.rules.len()).sum::<usize>());
        match (&found, rule_count) {
            (Ok(found), Some(count)) if found == count => {}
            (Err(_), None) => {}
            (found, want) => wrong.push(format!("{name}: {found:?}, promtool: {want:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn errors_have_the_texts_and_positions_of_promtool() {
    let mut wrong = Vec::new();
    for Verdict { name, messages, .. } in &verdicts() {
        if OTHER_TEXTS.contains(&name.as_str()) {
            continue;
        }
        let found = parse_file(name).err().unwrap_or_default();
        for message in messages {
            let (mut line, mut column, text) = split_position(message);
            if OTHER_POSITIONS.contains(&name.as_str()) {
                line = None;
                column = None;
            }
            let same = found.iter().find(|error| {
                error.message.trim_end() == text
                    && line.is_none_or(|line| error.position.line == line)
                    && column.is_none_or(|column| error.position.column == column)
            });
            if same.is_none() {
                wrong.push(format!("{name}: {message}\n  ours: {found:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn fields_of_a_file_reach_its_rules() {
    let file = read(
        "groups:\n- name: g\n  interval: 30s\n  query_offset: 1m\n  limit: 7\n  labels: {team: a, tier: '1'}\n  rules:\n  \
         - record: r\n    expr: sum( b )\n    labels: {tier: '2'}\n  - alert: A\n    expr: up == 0\n    for: 1m\n    \
         keep_firing_for: 2m\n    annotations: {summary: x}\n",
    )
    .expect("a good file");
    let [group] = &file.groups[..] else { panic!("{file:?}") };
    assert_eq!(
        (group.interval_ms, group.query_offset_ms, group.limit),
        (Some(30_000), Some(60_000), Some(7))
    );
    let [record, alert] = &group.rules[..] else { panic!("{group:?}") };
    assert_eq!(
        (record.name.as_str(), record.query.as_str(), &record.kind),
        ("r", "sum(b)", &RuleKind::Recording)
    );
    let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    assert_eq!(record.labels, labels(&[("team", "a"), ("tier", "2")]));
    assert_eq!(alert.labels, labels(&[("team", "a"), ("tier", "1")]));
    let alerting = alert.alerting().expect("an alert");
    assert_eq!((alerting.hold_ms, alerting.keep_firing_ms), (60_000, 120_000));
    assert_eq!(alerting.annotations, labels(&[("summary", "x")]));
    assert_eq!(alert.position, Position { line: 11, column: 5 });
}

#[test]
fn all_errors_of_a_file_are_reported_with_their_positions() {
    let text = "groups:\n- name: g\n  rules:\n  - alert: A\n    expr: up ==\n    labels: {a: '{{ x'}\n  - record: r\n    \
                expr: b\n    for: 1m\n- name: g\n";
    let want = [
        "rules.yml: 5:11: group \"g\", rule 1, \"A\": could not parse expression: 1:6: parse error: unexpected end of input",
        "rules.yml: 6:14: group \"g\", rule 1, \"A\": label \"a\": template: __alert_A:1: unclosed action",
        "rules.yml: 7:13: group \"g\", rule 2, \"r\": invalid field 'for' in recording rule",
        "rules.yml: 10:3: groupname: \"g\" is repeated in the same file",
    ];
    assert_eq!(errors(read(text)), want);
}

#[test]
fn unknown_fields_are_skipped_on_request() {
    let options = FileOptions { unknown_fields: UnknownFields::Ignore, ..options() };
    let text = "x: 1\ngroups:\n- name: g\n  y: 2\n  rules:\n  - record: a\n    expr: b\n    z: 3\n";
    let file = parse("f", text.as_bytes(), &options).expect("only unknown fields");
    assert_eq!(file.groups[0].rules.len(), 1);
}

#[test]
fn each_bound_of_a_file_is_named() {
    let limits = FileLimits { bytes_max: 300, groups_max: 2, rules_max: 3 };
    let options = FileOptions { limits, ..options() };
    let rule = "  - record: a\n    expr: b\n";
    let group = |name: &str, count: usize| format!("- name: {name}\n  rules:\n{}", rule.repeat(count));
    for (text, want) in [
        (format!("#{}\n", "x".repeat(300)), "f: 1:1: file has 302 bytes, at most 300 are allowed"),
        (
            format!("groups:\n{}{}{}", group("a", 0), group("b", 0), group("c", 0)),
            "f: 6:3: file has more than 2 groups",
        ),
        (format!("groups:\n{}{}", group("a", 2), group("b", 2)), "f: 12:5: file has more than 3 rules"),
        (
            format!("groups:\n- name: &a {}\n  rules: [*a, *a, *a]\n", "x".repeat(100)),
            "f: 3:15: yaml: values and aliases have more than 300 bytes",
        ),
        (
            format!("groups: {}{}", "[".repeat(40), "]".repeat(40)),
            "f: 1:40: yaml: lists and mappings nested deeper than 32 levels",
        ),
    ] {
        assert_eq!(errors(parse("f", text.as_bytes(), &options)), [want]);
    }
}

#[test]
fn aliases_of_aliases_end_at_the_bound_of_bytes() {
    let mut text = "a0: &a0 [xxxxxxxxxxxxxxxx]\n".to_owned();
    for level in 1..40 {
        let before = format!("*a{}, ", level - 1).repeat(10);
        text.push_str(&format!("a{level}: &a{level} [{before}]\n"));
    }
    text.push_str("groups: *a39\n");
    let errors = errors(read(&text));
    assert!(errors[0].ends_with("values and aliases have more than 33554432 bytes"), "{errors:?}");
}

#[test]
fn a_chain_of_aliases_is_no_deeper_than_other_values() {
    let chain = |open: &str, close: &str| {
        let link = |level: usize| format!("a{level}: &a{level} {open}*a{}{close}\n", level - 1);
        let links: String = (1..5000).map(link).collect();
        format!("a0: &a0 {{x: y}}\n{links}groups: *a4999\n")
    };
    for text in [chain("[", "]"), chain("{<<: ", "}")] {
        assert!(errors(read(&text))[0].ends_with("nested deeper than 32 levels"));
    }
}

#[test]
fn errors_beyond_a_thousand_are_counted() {
    let errors = errors(read(&format!("groups:\n{}", "- name: ''\n".repeat(1500))));
    assert_eq!(errors.len(), ERRORS_MAX + 1);
    // The first group has one fault; each other one repeats its name, too.
    assert!(errors[ERRORS_MAX].ends_with(": and 1999 more errors"), "{}", errors[ERRORS_MAX]);
}

#[test]
fn invalid_utf8_has_a_position() {
    let bytes = b"groups:\n- name: a\xff\n";
    assert_eq!(errors(parse("f", bytes, &options())), ["f: 2:10: yaml: invalid UTF-8"]);
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_without_panic(text in "[-a-z:&*<>|{}\\[\\]'\"#~ \n\t0-9%!,?]{0,200}") {
        drop(read(&text));
        drop(read(&format!("groups:\n- name: g\n  rules:\n  - {text}")));
    }

    #[test]
    fn damaged_files_are_read_without_panic(at in 0usize..400, byte in proptest::prelude::any::<u8>()) {
        let mut bytes = read_file("merge-key");
        let at = at % bytes.len();
        bytes[at] = byte;
        drop(parse("f", &bytes, &options()));
    }
}
