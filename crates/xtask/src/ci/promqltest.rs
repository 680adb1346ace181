//! Prometheus's PromQL scripts and ours, asked over HTTP by the kit `promqltest`.
//!
//! Invariants: every eval of every script passes, and every load is taken: by remote write 1.0 or 2.0.
//! Not here: the same scripts in process (`crates/promql/tests/it/promqltest`).

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use super::checkout::Checkout;
use super::kits;
use super::tally::Tally;
use crate::process::Server;

const KIT: &str = "promqltest";
const OWN_SCRIPTS: &str = "crates/promql/tests/it/promqltest/own";
/// Prometheus's scripts are not ours to keep: they lie next to the checkout, or where this variable says.
const PROMETHEUS_SCRIPTS: &str = "PROMQLTEST_DIR";
const PROMETHEUS_SCRIPTS_BESIDE: &str = "../shared/promqltest";
const TENANT_HEADER: &str = "X-Scope-OrgID";
/// Every experimental part that a script uses; Prometheus runs them without types in labels. Scripts begin at
/// 1970 and are loaded faster than disks sync.
const SERVER_FLAGS: [&str; 5] = [
    "--multitenancy",
    "--sync=os",
    "--future-limit=0",
    "--self-scrape=off",
    "--enable-feature=promql-experimental-functions,promql-delayed-name-removal,promql-binop-fill-modifiers,\
     use-start-timestamps,promql-unquoted-utf8-names",
];

pub(super) fn run(ci: &Checkout) -> Result<Tally> {
    let Some(kit) = kits::find_kit(ci, KIT, "run.py") else { return Ok(kits::no_kit(KIT)) };
    let mut tally = Tally::default();
    // Scripts, and the version of remote write that loads them: start times need the second.
    let mut runs = vec![(ci.root.join(OWN_SCRIPTS), "2")];
    match prometheus_scripts(&ci.root) {
        Some(dir) => runs.push((dir, "1")),
        None => tally.add(&Tally::not_run(&format!(
            "Prometheus's .test files are not in this repository ({PROMETHEUS_SCRIPTS}=DIR names a folder of them)"
        ))),
    }
    for (dir, version) in runs {
        // Each run of the kit names its tenants alike, so each has a server of its own.
        let name = format!("{KIT}-{version}");
        let server = Server::start_with(&kits::binary_of(ci)?, &kits::log_dir(ci), &name, &SERVER_FLAGS)?;
        let of_dir = run_kit(ci, &kit, &server, version, &dir)?;
        if of_dir.failed_count > 0 {
            server.print_log_tail();
        }
        tally.add(&of_dir);
    }
    Ok(tally)
}

/// Folder with Prometheus's scripts, absolute; `None` if this machine has none.
pub(super) fn prometheus_scripts(root: &Path) -> Option<PathBuf> {
    let named = std::env::var_os(PROMETHEUS_SCRIPTS).map(PathBuf::from);
    named.unwrap_or_else(|| root.join(PROMETHEUS_SCRIPTS_BESIDE)).canonicalize().ok()
}

/// Runs the kit over the scripts of `dir`, loaded by this version of remote write.
fn run_kit(ci: &Checkout, kit: &Path, server: &Server, version: &str, dir: &Path) -> Result<Tally> {
    let report = kits::log_dir(ci).join(format!("promqltest-{version}.json"));
    // A report of an earlier run must not pass for one of this.
    drop(std::fs::remove_file(&report));
    let mut args = vec![server.url(), "--tenant-header".to_owned(), TENANT_HEADER.to_owned()];
    args.extend(["--proto", version, "--json"].map(str::to_owned));
    args.extend([report.display().to_string(), "--files".to_owned(), dir.display().to_string()]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let counted = kits::python(ci, kit, &args)?;
    if !report.is_file() {
        // Not run here, or ended before it could write: the tally says which.
        return Ok(counted);
    }
    Ok(judge(&read(&report)?))
}

/// Results of one script.
struct Script {
    passed_count: u64,
    total_count: u64,
    /// Loads that were refused.
    load_failed_count: u64,
}

fn read(report: &Path) -> Result<Vec<Script>> {
    let json: Value = serde_json::from_str(&std::fs::read_to_string(report)?)?;
    let script = |one: &Value| -> Option<Script> {
        let is_load = |failure: &&Value| failure["kind"].as_str() == Some("load");
        Some(Script {
            passed_count: one["passed"].as_u64()?,
            total_count: one["total"].as_u64()?,
            load_failed_count: one["failures"].as_array()?.iter().filter(is_load).count() as u64,
        })
    };
    let scripts = json.as_array().and_then(|list| list.iter().map(script).collect());
    scripts.context("the report of the kit promqltest is not of the expected form")
}

/// Counts evals. A load that fails is none; alone it must not pass unseen. Nor must a run without scripts.
fn judge(scripts: &[Script]) -> Tally {
    if scripts.is_empty() {
        return Tally::failed("the kit promqltest found no script".to_owned());
    }
    let mut sum = Tally::default();
    for script in scripts {
        sum.passed_count += script.passed_count;
        sum.failed_count += script.total_count.saturating_sub(script.passed_count) + script.load_failed_count;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::{Script, judge};

    #[track_caller]
    fn check(scripts: &[(u64, u64)], want: (u64, u64)) {
        let script =
            |&(passed_count, load_failed_count)| Script { passed_count, total_count: 5, load_failed_count };
        let tally = judge(&scripts.iter().map(script).collect::<Vec<_>>());
        assert_eq!((tally.passed_count, tally.failed_count, tally.skipped_count), (want.0, want.1, 0));
    }

    #[test]
    fn what_does_not_pass_fails() {
        check(&[(5, 0)], (5, 0));
        check(&[(3, 0), (5, 0)], (8, 2));
        check(&[(5, 1)], (5, 1));
        check(&[], (0, 1));
    }
}
