//! `chronolith rules check`: verdict about each rule file, then lint.
//!
//! Invariant: the exit code is promtool's: 1 for a bad file, 3 for a finding of a lint with `--lint-fatal`.

use std::io::Read as _;
use std::process::ExitCode;

use chronolith_base::Env;
use chronolith_rules::file::{FileError, FileLimits, FileOptions, RuleFile, parse};
use chronolith_rules::lint::duplicate_rules;
use chronolith_rules::prometheus_templates::PrometheusTemplates;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::args::value;
use crate::log;
use crate::query::print;

use super::options::{file_options, files, read_rule_file};

/// Exit code of `--lint-fatal`.
const LINT_FAILED: u8 = 3;
/// Name of standard input in errors.
const STANDARD_INPUT: &str = "standard input";

/// Verdict about a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Good,
    LintFinding,
    Bad,
}

pub(super) fn command() -> Command {
    let files = Arg::new("files").value_name("FILE").action(ArgAction::Append).num_args(0..);
    Command::new("check")
        .about("Check rule files; exit code 1 for a bad one")
        .arg(files.help("Rule files; default: standard input"))
        .arg(
            Arg::new("lint")
                .long("lint")
                .value_name("LINTS")
                .default_value("duplicate-rules")
                .help("Lints, separated by commas: all, duplicate-rules, none"),
        )
        .arg(
            Arg::new("lint-fatal")
                .long("lint-fatal")
                .action(ArgAction::SetTrue)
                .help("End with exit code 3 if a lint finds something"),
        )
}

pub(super) fn run(matches: &ArgMatches, env: &Env) -> ExitCode {
    let templates = PrometheusTemplates::default();
    let options = file_options(matches, &templates);
    let has_duplicates_lint = lints_duplicates(value(matches, "lint").unwrap_or_default());
    let mut names = files(matches).peekable();
    let mut worst = Verdict::Good;
    if names.peek().is_none() {
        print("Checking standard input\n");
        worst = report(read_standard_input(&options), has_duplicates_lint);
    }
    for name in names {
        print(&format!("Checking {name}\n"));
        worst = worst.max(report(read_rule_file(env, name, &options), has_duplicates_lint));
    }
    match worst {
        Verdict::Bad => ExitCode::FAILURE,
        Verdict::LintFinding if matches.get_flag("lint-fatal") => ExitCode::from(LINT_FAILED),
        _ => ExitCode::SUCCESS,
    }
}

/// Returns true if the option names the lint of duplicate rules. Unknown names are warnings, as in promtool.
fn lints_duplicates(option: &str) -> bool {
    let mut is_named = false;
    for name in option.split(',').filter(|name| !name.is_empty()) {
        match name {
            "all" | "duplicate-rules" => is_named = true,
            // The second one is a lint of scrape configurations.
            "none" | "too-long-scrape-interval" => {}
            _ => log::print(&format!("WARNING: unknown lint option: {name:?}")),
        }
    }
    is_named
}

fn read_standard_input(options: &FileOptions<'_>) -> Result<RuleFile, Vec<FileError>> {
    let mut bytes = Vec::new();
    let bytes_max = FileLimits::default().bytes_max as u64;
    // One byte more than allowed is refused by the parser.
    match std::io::stdin().lock().take(bytes_max + 1).read_to_end(&mut bytes) {
        Ok(_) => parse(STANDARD_INPUT, &bytes, options),
        Err(error) => {
            let file = STANDARD_INPUT.to_owned();
            Err(vec![FileError { file, position: Default::default(), message: error.to_string() }])
        }
    }
}

/// Prints the verdict about a file.
fn report(read: Result<RuleFile, Vec<FileError>>, has_duplicates_lint: bool) -> Verdict {
    let verdict = match read {
        Err(errors) => {
            log::print("  FAILED:");
            errors.iter().for_each(|error| log::print(&error.to_string()));
            Verdict::Bad
        }
        Ok(file) => lint(&file, has_duplicates_lint),
    };
    print("\n");
    verdict
}

fn lint(file: &RuleFile, has_duplicates_lint: bool) -> Verdict {
    if file.has_more_documents {
        log::print("  WARNING: the file has several YAML documents; only the first one is read");
    }
    let duplicates = if has_duplicates_lint { duplicate_rules(&file.groups) } else { Vec::new() };
    if duplicates.is_empty() {
        let rule_count: usize = file.groups.iter().map(|group| group.rules.len()).sum();
        print(&format!("  SUCCESS: {rule_count} rules found\n"));
        return Verdict::Good;
    }
    log::print("  FAILED:");
    log::print(&format!("lint error {} duplicate rule(s) found.", duplicates.len()));
    for rule in &duplicates {
        log::print(&format!("Metric: {}\nLabel(s):", rule.name));
        rule.labels.iter().for_each(|(name, value)| log::print(&format!("\t{name}: {value}")));
    }
    log::print("Might cause inconsistency while recording expressions");
    Verdict::LintFinding
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn check(files: &[(&str, &str)], arguments: &[&str]) -> ExitCode {
        let (env, ..) = Env::fake(0, 1);
        for (name, text) in files {
            env.disk.write_atomic(Path::new(name), text.as_bytes()).expect("a file in memory");
        }
        let names = files.iter().map(|(name, _)| *name);
        let line = ["check"].into_iter().chain(arguments.iter().copied()).chain(names);
        run(&super::super::options::tool(command()).get_matches_from(line), &env)
    }

    const GOOD: &str = "groups: [{name: g, rules: [{record: a, expr: b}]}]";
    const BAD: &str = "groups: [{name: g, rules: [{record: a, expr: 'b ='}]}]";
    const TWICE: &str = "groups: [{name: g, rules: [{record: a, expr: b}, {record: a, expr: c}]}]";
    const UNKNOWN: &str = "groups: [{name: g, owner: me, rules: [{record: a, expr: b}]}]";
    const EXPERIMENTAL: &str = "groups: [{name: g, rules: [{record: a, expr: 'sort_by_label(b, \"c\")'}]}]";

    #[test]
    fn exit_codes_are_those_of_promtool() {
        let lint_failed = ExitCode::from(3);
        for (text, arguments, want) in [
            (GOOD, &[][..], ExitCode::SUCCESS),
            (BAD, &[], ExitCode::FAILURE),
            (TWICE, &[], ExitCode::SUCCESS),
            (TWICE, &["--lint-fatal"], lint_failed),
            (TWICE, &["--lint=all", "--lint-fatal"], lint_failed),
            (TWICE, &["--lint=none", "--lint-fatal"], ExitCode::SUCCESS),
            (TWICE, &["--lint=nonsense", "--lint-fatal"], ExitCode::SUCCESS),
            (BAD, &["--lint-fatal"], ExitCode::FAILURE),
            (UNKNOWN, &[], ExitCode::FAILURE),
            (UNKNOWN, &["--ignore-unknown-fields"], ExitCode::SUCCESS),
            (EXPERIMENTAL, &[], ExitCode::FAILURE),
            (EXPERIMENTAL, &["--enable-feature=promql-experimental-functions"], ExitCode::SUCCESS),
        ] {
            assert_eq!(check(&[("f", text)], arguments), want, "{text} {arguments:?}");
        }
    }

    #[test]
    fn the_worst_file_counts() {
        assert_eq!(check(&[("a", TWICE), ("b", BAD), ("c", GOOD)], &["--lint-fatal"]), ExitCode::FAILURE);
        assert_eq!(check(&[("a", TWICE), ("c", GOOD)], &["--lint-fatal"]), ExitCode::from(3));
    }

    #[test]
    fn a_file_that_is_absent_is_a_bad_one() {
        let (env, ..) = Env::fake(0, 1);
        let matches = super::super::options::tool(command()).get_matches_from(["check", "absent"]);
        assert_eq!(run(&matches, &env), ExitCode::FAILURE);
    }
}
