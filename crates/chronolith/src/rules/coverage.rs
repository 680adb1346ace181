//! `--coverage` of `chronolith rules test`: rules that no test brought to a result, alerts that never fired.

use chronolith_rules::unit_test::coverage::{Coverage, CoveredRule};
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::junit::Case;

/// Name of the suite in JUnit's XML.
pub(super) const SUITE: &str = "rule coverage";

/// Result of a run about coverage.
pub(super) struct Verdict {
    pub(super) table: String,
    /// One per rule, and one for the minimum.
    pub(super) cases: Vec<Case>,
    /// Text of a share that is below the minimum.
    pub(super) failure: Option<String>,
}

/// Adds the arguments.
pub(super) fn add_arguments(command: Command) -> Command {
    command
        .arg(
            Arg::new("coverage")
                .long("coverage")
                .action(ArgAction::SetTrue)
                .help("List the rules that no test brings to a result, and the alerts that never fire"),
        )
        .arg(
            Arg::new("coverage-min")
                .long("coverage-min")
                .value_name("PERCENT")
                .value_parser(parse_percent)
                .help("As --coverage, and exit code 1 if fewer rules are covered"),
        )
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let percent: Option<f64> = text.trim_end_matches('%').parse().ok();
    percent
        .filter(|percent| (0.0..=100.0).contains(percent))
        .ok_or_else(|| "expected a number from 0 to 100".to_owned())
}

pub(super) fn is_wanted(matches: &ArgMatches) -> bool {
    matches.get_flag("coverage") || percent_min(matches).is_some()
}

/// The least share of covered rules, in percent.
pub(super) fn percent_min(matches: &ArgMatches) -> Option<f64> {
    matches.get_one::<f64>("coverage-min").copied()
}

/// Shows the coverage of a run.
pub(super) fn report(coverage: &Coverage, percent_min: Option<f64>) -> Verdict {
    let percent = coverage.percent();
    let head =
        format!("Coverage: {} of {} rules ({percent:.1} %)", coverage.covered_count(), coverage.rule_count());
    let mut rows = Vec::new();
    let mut cases = Vec::new();
    for (file, group, rule) in coverage.rules() {
        let kind = if rule.is_alerting { "alert" } else { "record" };
        let place = format!("{file}:{}", rule.position);
        let name = format!("{place} {group} {kind} {}", rule.name);
        let reason = (!rule.is_covered).then(|| uncovered(rule));
        if let Some(reason) = reason {
            rows.push([place, group.to_owned(), format!("{kind} {}", rule.name), reason.to_owned()]);
        }
        cases.push(Case { name, skipped: reason.map(str::to_owned), ..Case::default() });
    }
    let failure = percent_min
        .filter(|&min| percent < min)
        .map(|min| format!("{head}: fewer than --coverage-min {min}"));
    if percent_min.is_some() {
        let failures = failure.iter().cloned().collect();
        cases.push(Case { name: "coverage-min".to_owned(), failures, ..Case::default() });
    }
    Verdict { table: format!("{head}\n{}", aligned(&rows)), cases, failure }
}

fn uncovered(rule: &CoveredRule) -> &'static str {
    if rule.is_alerting { "never fired" } else { "no result" }
}

/// Rows with columns of equal width.
fn aligned(rows: &[[String; 4]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let place = width(0);
    let group = width(1);
    let rule = width(2);
    rows.iter()
        .map(|row| format!("  {:place$}  {:group$}  {:rule$}  {}\n", row[0], row[1], row[2], row[3]))
        .collect()
}
