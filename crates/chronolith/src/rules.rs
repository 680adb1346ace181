//! `chronolith rules check|test|backfill`: rule files and their unit tests, with promtool's formats and exit
//! codes, and history of recording rules.
//!
//! Invariants: `check` and `test` write nothing but the file of `--junit`; exit code 1 for a fault, 3 for a
//! finding of a lint with `--lint-fatal`.
//! Not here: rule files, test files and rounds (`chronolith-rules`).

mod backfill;
mod check;
mod coverage;
mod junit;
mod options;
mod storage;
#[cfg(test)]
mod tests;
mod unit_test;

use std::process::ExitCode;

use anyhow::Context as _;
use chronolith_base::Env;
use clap::{ArgMatches, Command};

use self::options::tool;

pub(crate) fn command() -> Command {
    Command::new("rules")
        .about("Check, test and backfill recording and alerting rules")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(tool(check::command()))
        .subcommand(tool(unit_test::command()))
        .subcommand(backfill::command())
}

pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let (tool, matches) = matches.subcommand().context("expected a subcommand")?;
    let env = Env::real();
    match tool {
        "check" => Ok(check::run(matches, &env)),
        "backfill" => backfill::run(matches, &env),
        _ => unit_test::run(matches, &env),
    }
}
