//! Prometheus's PromQL scripts and ours, asked over HTTP by the kit `promqltest`.
//!
//! Holds: every eval of every script passes, but for scripts in [`NOT_YET`], which must name what storage refuses;
//! one of them that passes fails the step, so that the list can only shrink.
//! Not here: the same scripts in process (`crates/promql/tests/promqltest`).

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::tally::Tally;
use super::{Ci, kits};
use crate::process::Server;

/// Scripts that store native histograms, as long as the server does not.
const NOT_YET: &[&str] = &[];
/// How the server refuses what a script of [`NOT_YET`] needs.
const REFUSAL: &str = "native histograms cannot be stored by this version";

const KIT: &str = "promqltest";
const SCRIPT_DIRS: [&str; 2] = ["scripts", "own"];
const TENANT_HEADER: &str = "X-Scope-OrgID";
/// Every experimental part that a script uses; upstream runs them without types in labels. Scripts begin at 1970 and are loaded faster than disks sync.
const SERVER_FLAGS: [&str; 5] = [
    "--multitenancy",
    "--sync=os",
    "--future-limit=0",
    "--self-scrape=off",
    "--enable-feature=promql-experimental-functions,promql-delayed-name-removal,promql-extended-range-selectors,\
     promql-binop-fill-modifiers,use-start-timestamps",
];

pub(super) fn run(ci: &Ci) -> Result<Tally> {
    let Some(kit) = kits::find_kit(ci, KIT, "run.py") else { return Ok(kits::no_kit(KIT)) };
    let log_dir = kits::log_dir(ci);
    let server = Server::start_with(&kits::binary_of(ci)?, &log_dir, KIT, &SERVER_FLAGS)?;
    let report = log_dir.join("promqltest.json");
    // A report of an earlier run must not pass for one of this.
    drop(std::fs::remove_file(&report));
    let scripts = ci.root.join("crates/promql/tests/promqltest");
    let mut args = vec![server.url(), "--tenant-header".to_owned(), TENANT_HEADER.to_owned()];
    args.extend(["--json".to_owned(), report.display().to_string(), "--files".to_owned()]);
    args.extend(SCRIPT_DIRS.map(|dir| scripts.join(dir).display().to_string()));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let counted = kits::python(ci, &kit, &args)?;
    if !report.is_file() {
        // Not run here, or ended before it could write: the tally says which.
        return Ok(counted);
    }
    let tally = judge(&read(&report)?, NOT_YET);
    if tally.failed_count > 0 {
        server.print_log_tail();
    }
    Ok(tally)
}

/// What became of one script.
struct Script {
    name: String,
    passed_count: u64,
    total_count: u64,
    /// Refused writes and failed evals: kind and reason.
    failures: Vec<(String, String)>,
}

fn read(report: &Path) -> Result<Vec<Script>> {
    let json: Value = serde_json::from_str(&std::fs::read_to_string(report)?)?;
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let script = |one: &Value| -> Option<Script> {
        let failure = |failure: &Value| (text(&failure["kind"]), text(&failure["why"]));
        Some(Script {
            name: one["file"].as_str()?.to_owned(),
            passed_count: one["passed"].as_u64()?,
            total_count: one["total"].as_u64()?,
            failures: one["failures"].as_array()?.iter().map(failure).collect(),
        })
    };
    let scripts = json.as_array().and_then(|list| list.iter().map(script).collect());
    scripts.context("the report of the kit promqltest is not of the expected form")
}

/// Counts evals; a script that is `not_yet` to pass counts its failures as skipped if storage refused its samples.
fn judge(scripts: &[Script], not_yet: &[&str]) -> Tally {
    let mut sum = Tally::default();
    for script in scripts {
        let failed_count = script.total_count.saturating_sub(script.passed_count);
        let listed = not_yet.contains(&script.name.as_str());
        let refused = |(kind, why): &(String, String)| kind == "load" && why.contains(REFUSAL);
        // A write that fails is no eval; alone it must not pass unseen.
        let loads_failed =
            script.failures.iter().filter(|failure| failure.0 == "load" && !refused(failure)).count();
        let mut tally = Tally { passed_count: script.passed_count, ..Tally::default() };
        tally.failed_count = loads_failed as u64;
        if !listed {
            tally.failed_count += failed_count + script.failures.iter().filter(|f| refused(f)).count() as u64;
        } else if script.failures.is_empty() {
            tally.failed_count += 1;
            tally.notes.push(format!("{} passes: take it off the list NOT_YET", script.name));
        } else if script.failures.iter().any(refused) {
            tally.skipped_count = failed_count;
        } else {
            tally.failed_count += failed_count;
            tally.notes.push(format!("{} fails for another reason than storage", script.name));
        }
        sum.add(&tally);
    }
    let missing = not_yet.iter().filter(|name| !scripts.iter().any(|script| script.name == **name));
    for name in missing {
        sum.add(&Tally::failed(format!("there is no {name}: take it off the list NOT_YET")));
    }
    if sum.skipped_count > 0 {
        sum.notes.push(format!("{} evals wait for native histograms in storage", sum.skipped_count));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::{REFUSAL, Script, judge};

    fn script(passed_count: u64, failures: &[(&str, &str)]) -> Script {
        let failures = failures.iter().map(|(kind, why)| ((*kind).to_owned(), (*why).to_owned())).collect();
        Script { name: "a.test".to_owned(), passed_count, total_count: 5, failures }
    }

    #[track_caller]
    fn check(script: Script, not_yet: &[&str], want: (u64, u64, u64)) {
        let tally = judge(&[script], not_yet);
        assert_eq!((tally.passed_count, tally.failed_count, tally.skipped_count), want, "{:?}", tally.notes);
    }

    #[test]
    fn only_a_listed_script_that_storage_refuses_may_fail() {
        let refused = ("load", REFUSAL);
        check(script(5, &[]), &[], (5, 0, 0));
        check(script(3, &[("value", "1"), ("value", "2")]), &[], (3, 2, 0));
        check(script(5, &[("load", "HTTP 500")]), &[], (5, 1, 0));
        check(script(4, &[refused, ("missing", "x")]), &["a.test"], (4, 0, 1));
        check(script(4, &[refused, ("missing", "x")]), &[], (4, 2, 0));
        check(script(4, &[("missing", "x")]), &["a.test"], (4, 1, 0));
    }

    #[test]
    fn the_list_shrinks() {
        check(script(5, &[]), &["a.test"], (5, 1, 0));
        check(script(5, &[]), &["b.test"], (5, 1, 0));
    }
}
