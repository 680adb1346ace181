//! `chronolith bucket`: lists, verifies, downloads, uploads, copies and removes the blocks in a bucket, and
//! repairs its catalogues.
//!
//! Invariants: only `upload`, `copy`, `gc` and `repair` change a bucket; results go to standard output,
//! progress and errors to standard error. Requests have the settings of the server.
//! Not here: requests (`chronolith-bucket`), content of blocks (`chronolith-block`).

mod blocks;
mod context;
mod copy;
mod download;
mod fetch;
mod gc;
mod inspect;
mod ls;
mod repair;
mod upload;
mod verify;

#[cfg(test)]
mod tests;

use std::process::ExitCode;

use anyhow::Context as _;
use chronolith_base::Env;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::query::print;
use crate::settings::{ToolSettings, add_tool_flags};
use context::{Bucket, Outcome};

pub(crate) fn command() -> Command {
    Command::new("bucket")
        .about(
            "List, verify, download, upload, copy and remove blocks in a bucket, and repair its catalogues",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(tool(ls::command()))
        .subcommand(tool(verify::command()))
        .subcommand(tool(download::command()))
        .subcommand(tool(upload::command()))
        .subcommand(tool(copy::command()))
        .subcommand(tool(inspect::command()))
        .subcommand(tool(gc::command()))
        .subcommand(tool(repair::command()))
}

/// Adds the arguments that all tools have.
fn tool(command: Command) -> Command {
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print the result as JSON");
    add_tool_flags(command.arg(json), ToolSettings::Bucket)
}

pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let outcome = outcome_of(&Env::real(), matches)?;
    print(&outcome.text);
    Ok(if outcome.is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn outcome_of(env: &Env, matches: &ArgMatches) -> anyhow::Result<Outcome> {
    let (tool, matches) = matches.subcommand().context("expected a subcommand")?;
    let bucket = Bucket::open(env, matches)?;
    match tool {
        "ls" => ls::run(&bucket, matches),
        "verify" => verify::run(&bucket, matches),
        "download" => download::run(&bucket, matches),
        "copy" => copy::run(&bucket, matches),
        "upload" => upload::run(&bucket, matches),
        "gc" => gc::run(&bucket, matches),
        "repair" => repair::run(&bucket, matches),
        _ => inspect::run(&bucket, matches),
    }
}
