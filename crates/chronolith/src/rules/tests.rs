//! Verdicts about the files of `kits/promtool-rules` against the recorded ones of promtool 3.16; coverage.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use chronolith_base::Env;
use clap::ArgMatches;

use super::junit::{Case, Report};
use super::unit_test::Outcome;
use super::{check, unit_test};

/// Files in the table, at least.
const FILE_COUNT_MIN: usize = 280;

/// Files with another verdict: YAML 1.2 allows the first one.
const OTHER_VERDICTS: [&str; 1] = ["test/file-question-mark-in-brackets.yml"];

fn kit() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kits/promtool-rules")
}

/// A file with its recorded verdict.
struct Recorded {
    name: String,
    exit_code: u8,
    /// One character per test.
    outcomes: String,
}

fn recorded() -> Vec<Recorded> {
    let text = std::fs::read_to_string(kit().join("verdicts.txt")).expect("the table");
    let parse = |line: &str| {
        let (name, verdicts) = line.split_once(": ").expect("NAME: VERDICT | OLDER");
        let current = verdicts.split(" | ").next().expect("a verdict");
        let (exit_code, outcomes) = current.split_once(' ').unwrap_or((current, ""));
        let exit_code = exit_code.parse().expect("an exit code");
        Recorded { name: name.to_owned(), exit_code, outcomes: outcomes.to_owned() }
    };
    text.lines().filter(|line| !line.starts_with('#')).map(parse).collect()
}

/// Arguments of a tool: its name, the ones in the first line of the file, and the file.
fn arguments(tool: &str, name: &str) -> ArgMatches {
    let path = kit().join(name);
    let text = std::fs::read_to_string(&path).expect("a file of the table");
    let first = text.lines().next().unwrap_or_default().strip_prefix("# args:").unwrap_or_default();
    let path = path.to_str().expect("a path in UTF-8").to_owned();
    let line = [tool].into_iter().chain(first.split_whitespace()).map(str::to_owned).chain([path]);
    let command = super::options::tool(if tool == "check" { check::command() } else { unit_test::command() });
    command.try_get_matches_from(line).expect("arguments that promtool takes")
}

fn outcome_of(case: &Case) -> char {
    match (&case.error, case.failures.is_empty()) {
        (Some(_), _) => '!',
        (None, false) => '-',
        (None, true) => '+',
    }
}

fn outcomes(report: &Report) -> String {
    report.suites.iter().flat_map(|suite| &suite.cases).map(outcome_of).collect()
}

#[test]
fn files_get_the_verdicts_of_promtool() {
    let env = Env::real();
    let mut wrong = Vec::new();
    let all = recorded();
    assert!(all.len() >= FILE_COUNT_MIN, "{} files", all.len());
    for Recorded { name, exit_code, outcomes: want } in &all {
        if name.starts_with("check/") {
            if check::run(&arguments("check", name), &env) != ExitCode::from(*exit_code) {
                wrong.push(format!("{name}: promtool {exit_code}"));
            }
            continue;
        }
        let found = unit_test::run_files(&arguments("test", name), &env).expect("a verdict");
        let outcomes = outcomes(&found.report);
        let is_equal = u8::from(!found.is_passed) == *exit_code && outcomes == *want;
        if is_equal == OTHER_VERDICTS.contains(&name.as_str()) {
            wrong.push(format!(
                "{name}: passed {}, {outcomes:?}, promtool {exit_code} {want:?}",
                found.is_passed
            ));
        }
    }
    assert!(wrong.is_empty(), "{} files:\n{}", wrong.len(), wrong.join("\n"));
}

const RULES: &str = "groups:\n- name: g\n  rules:\n  - {record: a, expr: x}\n  - {record: b, expr: nothing}\n  \
                     - {alert: C, expr: x > 0}\n  - {alert: D, expr: x > 5}\n";
const TESTS: &str = "rule_files: [r.yml]\ntests:\n- {name: one, input_series: [{series: x, values: '1'}], promql_expr_test: [{expr: a, \
                     exp_samples: [{labels: a, value: 1}]}]}\n";
const MORE_TESTS: &str = "rule_files: [../t/r.yml]\ntests: [{input_series: [{series: x, values: '9'}]}]\n";

fn run(arguments: &[&str]) -> Outcome {
    let (env, ..) = Env::fake(0, 1);
    env.disk.create_dir_all(Path::new("/t")).expect("in memory");
    for (path, text) in [("/t/r.yml", RULES), ("/t/one.yml", TESTS), ("/t/two.yml", MORE_TESTS)] {
        env.disk.write_atomic(Path::new(path), text.as_bytes()).expect("in memory");
    }
    let line = ["test"].into_iter().chain(arguments.iter().copied());
    let matches =
        super::options::tool(unit_test::command()).try_get_matches_from(line).expect("good arguments");
    unit_test::run_files(&matches, &env).expect("an outcome")
}

/// Skipped cases of the coverage, as `RULE: REASON`.
fn uncovered(outcome: &Outcome) -> Vec<String> {
    let suite = outcome.report.suites.last().expect("a suite");
    assert_eq!(suite.name, "rule coverage");
    let cases = suite.cases.iter().filter_map(|case| Some((&case.name, case.skipped.as_ref()?)));
    cases.map(|(name, reason)| format!("{name}: {reason}")).collect()
}

#[test]
fn coverage_lists_rules_without_a_result_and_alerts_that_never_fire() {
    let outcome = run(&["--coverage", "/t/one.yml"]);
    assert!(outcome.is_passed);
    assert_eq!(
        uncovered(&outcome),
        ["/t/r.yml:5:5 g record b: no result", "/t/r.yml:7:5 g alert D: never fired"]
    );
    assert_eq!(outcome.report.suites.last().expect("a suite").cases.len(), 4);
}

#[test]
fn coverage_counts_the_tests_of_all_files() {
    let outcome = run(&["--coverage", "/t/one.yml", "/t/two.yml"]);
    assert_eq!(uncovered(&outcome), ["/t/r.yml:5:5 g record b: no result"]);
}

#[test]
fn a_share_below_the_minimum_fails() {
    for (min, want) in [("50", true), ("50.1", false), ("100%", false), ("0", true)] {
        assert_eq!(run(&["--coverage-min", min, "/t/one.yml"]).is_passed, want, "{min}");
    }
    for bad in ["101", "-1", "all"] {
        let line = ["test", "--coverage-min", bad, "f"];
        assert!(super::options::tool(unit_test::command()).try_get_matches_from(line).is_err(), "{bad}");
    }
}

#[test]
fn coverage_is_reported_on_request_alone() {
    assert_eq!(run(&["/t/one.yml"]).report.suites.len(), 1);
}

#[test]
fn a_filter_that_is_no_regular_expression_is_an_error() {
    let (env, ..) = Env::fake(0, 1);
    let matches =
        super::options::tool(unit_test::command()).try_get_matches_from(["test", "--run", "(", "f"]);
    assert!(unit_test::run_files(&matches.expect("good arguments"), &env).is_err());
}
