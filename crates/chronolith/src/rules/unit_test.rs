//! `chronolith rules test`: unit tests of rules, with promtool's files, reports and exit codes.
//!
//! Invariants: rule files are read once per test file, by the first test that runs; a file of which no test
//! runs passes whatever its rule files are, as in promtool.
//! Not here: one test (`chronolith_rules::unit_test`), its storage (`storage`).

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use chronolith_base::Env;
use chronolith_base::utc::rfc3339_seconds;
use chronolith_model::SearchRegex;
use chronolith_rules::file::{FileError, FileOptions};
use chronolith_rules::glob;
use chronolith_rules::prometheus_templates::PrometheusTemplates;
use chronolith_rules::unit_test::coverage::Coverage;
use chronolith_rules::unit_test::{self, Test, TestContext, TestFile, TestedGroup, order_groups};
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::args::value;
use crate::log;
use crate::query::print;

use super::coverage;
use super::junit::{Case, Report, Suite};
use super::options::{features, file_options, files, read_rule_file};
use super::storage::StorageInMemory;

pub(super) fn command() -> Command {
    let files = Arg::new("files").required(true).value_name("FILE").action(ArgAction::Append).num_args(1..);
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    let run = Arg::new("run").long("run").value_name("REGEX").action(ArgAction::Append);
    let junit = Arg::new("junit").long("junit").value_name("FILE");
    let command = Command::new("test")
        .about("Run unit tests of rules; exit code 1 if one fails")
        .arg(files.help("Test files in promtool's format"))
        .arg(run.help("Run only tests whose names match one of these regular expressions"))
        .arg(junit.help("Write the results as JUnit XML"))
        .arg(flag("diff", "Show expected and found alerts as a difference of lines"))
        .arg(flag("debug", "Print all samples at the end of each test"));
    coverage::add_arguments(command)
}

/// Parts that all test files of a run share.
struct Session<'a> {
    env: &'a Env,
    options: FileOptions<'a>,
    storage: StorageInMemory,
    name_filter: Option<SearchRegex>,
    has_diff: bool,
    has_dump: bool,
    coverage: Coverage,
    report: Report,
}

/// Result of a run.
pub(super) struct Outcome {
    pub(super) is_passed: bool,
    pub(super) report: Report,
}

pub(super) fn run(matches: &ArgMatches, env: &Env) -> anyhow::Result<ExitCode> {
    let outcome = run_files(matches, env)?;
    if let Some(path) = value(matches, "junit") {
        write_file(env, path, &outcome.report.to_xml()).with_context(|| format!("writing {path}"))?;
    }
    Ok(if outcome.is_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs all files and prints their results.
pub(super) fn run_files(matches: &ArgMatches, env: &Env) -> anyhow::Result<Outcome> {
    let templates = PrometheusTemplates::default();
    let mut session = Session {
        env,
        options: file_options(matches, &templates),
        storage: StorageInMemory { features: features(matches) },
        name_filter: name_filter(matches)?,
        has_diff: matches.get_flag("diff"),
        has_dump: matches.get_flag("debug"),
        coverage: Coverage::default(),
        report: Report::default(),
    };
    let mut is_passed = true;
    for file in files(matches) {
        print(&format!("Processing test file: {file}\n"));
        let failures = session.run_file(file);
        if failures.is_empty() {
            print("  SUCCESS\n");
        } else {
            log::print("  FAILED:");
            for failure in &failures {
                log::print(failure);
                print("\n");
            }
            is_passed = false;
        }
        print("\n");
    }
    if coverage::is_wanted(matches) {
        let timestamp = session.timestamp();
        let verdict = coverage::report(&session.coverage, coverage::percent_min(matches));
        print(&verdict.table);
        session.report.suites.push(Suite {
            name: coverage::SUITE.to_owned(),
            timestamp,
            cases: verdict.cases,
        });
        if let Some(failure) = verdict.failure {
            log::print(&failure);
            is_passed = false;
        }
    }
    Ok(Outcome { is_passed, report: session.report })
}

/// The pattern of `--run`; `None` for all tests.
fn name_filter(matches: &ArgMatches) -> anyhow::Result<Option<SearchRegex>> {
    let Some(patterns) = matches.get_many::<String>("run") else { return Ok(None) };
    let pattern = patterns.map(String::as_str).collect::<Vec<_>>().join("|");
    SearchRegex::new(&pattern).map(Some).with_context(|| format!("--run {pattern}"))
}

fn write_file(env: &Env, path: &str, text: &str) -> std::io::Result<()> {
    env.disk.create(Path::new(path))?.write_at(text.as_bytes(), 0)
}

impl Session<'_> {
    /// Local time is UTC here, where promtool takes the zone of the machine.
    fn timestamp(&self) -> String {
        rfc3339_seconds(self.env.clock.now_ms()).trim_end_matches('Z').to_owned()
    }

    /// Runs the tests of a file; returns all failures.
    fn run_file(&mut self, path: &str) -> Vec<String> {
        let mut suite = Suite { name: path.to_owned(), timestamp: self.timestamp(), cases: Vec::new() };
        let failures = match self.read_file(path) {
            Ok((file, rule_files)) => self.run_tests(&file, &rule_files, &mut suite.cases),
            Err(errors) => {
                let case =
                    Case { name: "unknown".to_owned(), error: errors.first().cloned(), ..Case::default() };
                suite.cases.push(case);
                errors
            }
        };
        self.report.suites.push(suite);
        failures
    }

    /// The test file and the paths of its rule files.
    fn read_file(&self, path: &str) -> Result<(TestFile, Vec<String>), Vec<String>> {
        let bytes = self.env.disk.read(Path::new(path));
        let bytes = bytes.map_err(|error| vec![format!("{path}: cannot be read: {error}")])?;
        let file = unit_test::parse(path, &bytes).map_err(|errors| texts(&errors))?;
        let rule_files = self.rule_files(path, &file).map_err(|error| vec![error])?;
        Ok((file, rule_files))
    }

    /// Paths of rule files: patterns are relative to the test file.
    fn rule_files(&self, path: &str, file: &TestFile) -> Result<Vec<String>, String> {
        let dir = Path::new(path).parent().unwrap_or(Path::new(""));
        let mut paths = Vec::new();
        for pattern in &file.rule_files {
            let is_relative = !pattern.is_empty() && Path::new(pattern).is_relative();
            let joined = if is_relative { glob::clean(&dir.join(pattern)) } else { pattern.into() };
            let joined = joined.to_string_lossy();
            let found = glob::expand(&*self.env.disk, &joined);
            let found = found.map_err(|glob::BadPattern| format!("{joined}: syntax error in pattern"))?;
            if found.is_empty() {
                log::print(&format!("  WARNING: no file match pattern {joined}"));
            }
            paths.extend(found);
        }
        Ok(paths)
    }

    fn run_tests(&mut self, file: &TestFile, rule_files: &[String], cases: &mut Vec<Case>) -> Vec<String> {
        let mut groups = None;
        let mut failures = Vec::new();
        for (idx, test) in file.tests.iter().enumerate() {
            if self.name_filter.as_ref().is_some_and(|filter| !filter.is_match(&test.name)) {
                continue;
            }
            let groups = groups.get_or_insert_with(|| self.load_groups(file, rule_files));
            if let Ok(groups) = groups {
                self.coverage.add_groups(groups);
            }
            let name = if test.name.is_empty() { format!("unnamed#{idx}") } else { test.name.clone() };
            let found = self.run_test(file, test, &name, groups);
            cases.push(Case { name, failures: found.clone(), ..Case::default() });
            failures.extend(found);
        }
        failures
    }

    fn run_test(
        &mut self,
        file: &TestFile,
        test: &Test,
        name: &str,
        groups: &Result<Vec<TestedGroup>, Vec<FileError>>,
    ) -> Vec<String> {
        if self.has_dump {
            log::print(&format!("DEBUG: test {name}"));
        }
        let ctx = TestContext {
            file,
            groups: groups.as_deref().map_err(Vec::as_slice),
            storage: &self.storage,
            templates: self.options.templates,
            parser: self.options.parser,
            has_dump: self.has_dump,
            has_diff: self.has_diff,
        };
        let outcome = unit_test::run(test, &ctx, &mut self.coverage);
        if let Some(dump) = outcome.dump {
            log::print(&format!("DEBUG: {dump}"));
        }
        outcome.failures
    }

    /// Groups of all rule files in the order of their evaluation, or the errors of the first bad file.
    fn load_groups(&self, file: &TestFile, paths: &[String]) -> Result<Vec<TestedGroup>, Vec<FileError>> {
        let mut groups: Vec<TestedGroup> = Vec::new();
        for (idx, path) in paths.iter().enumerate() {
            // A file that two patterns match counts once.
            if paths.iter().take(idx).any(|earlier| earlier == path) {
                continue;
            }
            let parsed = read_rule_file(self.env, path, &self.options)?;
            groups.extend(parsed.groups.into_iter().map(|entry| TestedGroup { file: path.clone(), entry }));
        }
        order_groups(&mut groups, file);
        Ok(groups)
    }
}

fn texts(errors: &[FileError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}
