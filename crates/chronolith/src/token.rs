//! `chronolith token`: makes a token, and the hash that the access file has in its place.
//!
//! Invariant: the token is printed once and stored nowhere.
//! Not here: the access file (`service::access::file`).

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use chronolith_server::{hash_of_token, new_token};
use clap::{ArgMatches, Command};

use crate::query::print;

pub(crate) fn command() -> Command {
    Command::new("token").about("Tokens of principals (--access.file)").subcommand_required(true).subcommand(
        Command::new("new")
            .about("Print a new token, and its hash for the key token_sha256 of the access file"),
    )
}

pub(crate) fn run(_: &ArgMatches) -> Result<ExitCode> {
    let token = new_token().map_err(|error| anyhow!(error))?;
    let hash: String = hash_of_token(&token).iter().map(|byte| format!("{byte:02x}")).collect();
    print(&format!("token: {token}\ntoken_sha256: {hash}\n"));
    Ok(ExitCode::SUCCESS)
}
