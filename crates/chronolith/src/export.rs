//! `chronolith export`: writes what the data directory of a stopped server, or a running server, holds for
//! another system.

mod blocks;
mod influx;
mod whisper;

use std::process::ExitCode;

use clap::{ArgMatches, Command};

pub(crate) fn command() -> Command {
    Command::new("export")
        .about("Export data for another system")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(blocks::command())
        .subcommand(influx::command())
        .subcommand(whisper::command())
}

pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    match matches.subcommand() {
        Some(("blocks", matches)) => blocks::run(matches),
        Some(("influx", matches)) => influx::run(matches),
        Some(("whisper", matches)) => whisper::run(matches),
        _ => Ok(ExitCode::from(2)),
    }
}
