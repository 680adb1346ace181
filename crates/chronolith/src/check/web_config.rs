//! `chronolith check web-config`: checks files of `--web.config.file`, with the exit codes of promtool.
//! Not here: the format of the files (`server`).

use std::path::Path;
use std::process::ExitCode;

use chronolith_base::Env;
use chronolith_server::check_web_config;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::log;
use crate::query::print;

pub(super) fn command() -> Command {
    let files = Arg::new("files").required(true).value_name("FILE").action(ArgAction::Append).num_args(1..);
    Command::new("web-config")
        .about(
            "Check web configuration files, with the certificates that they name; exit code 1 for a bad one",
        )
        .arg(files.help("Files of --web.config.file, as Prometheus has them"))
}

pub(super) fn run(matches: &ArgMatches, env: &Env) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for file in matches.get_many::<String>("files").into_iter().flatten() {
        match check_web_config(Path::new(file), &*env.disk) {
            Ok(()) => print(&format!("{file} SUCCESS\n")),
            Err(error) => {
                log::print(&format!("{file} FAILED: {error}"));
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}
