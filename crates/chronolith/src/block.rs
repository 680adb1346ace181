//! `chronolith block verify|dump|analyze`: content of blocks in local directories, ours or of Prometheus.
//!
//! Invariants: no file is changed; results go to standard output, progress and errors to standard error.
//! Not here: blocks in a bucket (`bucket`; `bucket download` fetches them), content of blocks
//! (`chronolith-block`).

mod analyze;
mod dirs;
mod dump;
mod value_text;
mod verify;

#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context as _;
use chronolith_base::Env;
use clap::{Arg, ArgAction, ArgMatches, Command};

pub(crate) fn command() -> Command {
    Command::new("block")
        .about("Verify, dump and analyze blocks in local directories")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(tool(verify::command()))
        .subcommand(tool(dump::command()))
        .subcommand(tool(analyze::command()))
}

/// Adds the arguments that all tools have.
fn tool(command: Command) -> Command {
    let dirs = "Directory of a block, or one that has blocks, such as Prometheus's data directory";
    command
        .arg(Arg::new("dir").value_name("DIR").required(true).num_args(1..).help(dirs))
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print the result as JSON"))
}

pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let code = run_tool(&Env::real(), matches, &mut out).and_then(|code| {
        out.flush().context("writing to standard output")?;
        Ok(code)
    });
    match code {
        // The reader of a pipe has seen enough.
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        code => code,
    }
}

fn run_tool(env: &Env, matches: &ArgMatches, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let (tool, matches) = matches.subcommand().context("expected a subcommand")?;
    let dirs = dirs::block_dirs(env, matches.get_many::<String>("dir").into_iter().flatten())?;
    match tool {
        "verify" => verify::run(env, &dirs, matches, out),
        "dump" => dump::run(env, &dirs, matches, out),
        _ => analyze::run(env, &dirs, matches, out),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
