//! `chronolith cluster`: partitions of a cluster, the state of its processes, and a check of its log against
//! its bucket.
//!
//! Invariants: only `partitions add` and `partitions drain` change something, the partition map of the
//! bucket; results go to standard output, progress and errors to standard error. Exit code 1 if something is
//! missing or lost.
//! Not here: rules of the map and the check itself (`chronolith-cluster`), calls to owners
//! (`chronolith-server`).

mod context;
mod deletions;
mod owners;
mod partitions;
mod status;
mod verify;

use std::process::ExitCode;

use anyhow::Context as _;
use chronolith_base::Env;
use clap::{ArgMatches, Command};

use crate::query::print;
use context::with_json;

pub(crate) fn command() -> Command {
    Command::new("cluster")
        .about("Partitions and processes of a cluster, and a check of its log against its bucket")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(partitions::command())
        .subcommand(with_json(status::command()))
        .subcommand(with_json(verify::command()))
}

pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let env = Env::real();
    let (tool, matches) = matches.subcommand().context("expected a subcommand")?;
    let outcome = match tool {
        "partitions" => partitions::run(&env, matches),
        "status" => status::run(&env, matches),
        _ => verify::run(&env, matches),
    }?;
    print(&outcome.text);
    Ok(if outcome.is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
