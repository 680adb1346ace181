//! `chronolith import influx`: flags, and which source they name: export files (`--path`), a running
//! InfluxDB 1.x (`--url`), or the directory of a stopped one (`--data`).
//!
//! Invariants: exactly one source is named; the exit code is 0 if all of it is in the target with equal
//! counts, 1 if something was refused or differs, 2 for wrong flags.
//! Not here: the sources (`influx::file`, `influx::copy`, `influx_data`).

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use chronolith_base::Env;
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command};

use super::influx_data;
use crate::args::value;
use crate::influx::catalog::DatabaseSelection;
use crate::influx::copy::{self, CopyOptions};
use crate::influx::file::{self, FileOptions};
use crate::influx::report::Report;
use crate::influx::server::{InfluxServer, PolicyName, ServerOptions};
use crate::influx::state::StateFile;
use crate::influx::time::{Period, parse_time};
use crate::progress::{Bar, WithoutTerminal};
use crate::query::print;

/// Sources of which a command names one.
const SOURCES: [&str; 3] = ["path", "url", "data"];

pub(super) fn command() -> Command {
    let about = "Copy the databases of InfluxDB 1.x: export files or a server into a running server, or a directory \
                 into the data directory of a stopped one";
    let command = Command::new("influx")
        .about(about)
        .group(ArgGroup::new("source").args(SOURCES).required(true))
        .arg(option("path", "FILE", "File of influx_inspect export or for influx -import, also with gzip"))
        .arg(option("url", "URL", "Running InfluxDB 1.x, such as http://127.0.0.1:8086"));
    influx_data::args(selection_args(target_args(command)))
}

fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

/// Flags of the server that is written to, and of the work itself.
fn target_args(command: Command) -> Command {
    let password = |name: &'static str, variable: &'static str, help: &'static str| {
        option(name, "PASSWORD", help).env(variable).hide_env_values(true)
    };
    command
        .arg(option("to", "URL", "Server to write to").default_value("http://127.0.0.1:9595"))
        .arg(option("to-user", "NAME", "User of the server to write to"))
        .arg(password("to-password", "CHRONOLITH_TO_PASSWORD", "Password of that user"))
        .arg(option("tenant", "ID", "Tenant to write to; sent as X-Scope-OrgID"))
        .arg(option("state", "FILE", "Record of what is done, for a run that continues"))
        .arg(
            option("concurrency", "COUNT", "Requests at a time")
                .default_value("4")
                .value_parser(clap::value_parser!(u64).range(1..=64)),
        )
        .arg(
            Arg::new("skip-compare")
                .long("skip-compare")
                .action(ArgAction::SetTrue)
                .help("Do not compare the counts of points at the end"),
        )
}

/// Flags that select a part of the source.
fn selection_args(command: Command) -> Command {
    command
        .arg(option("user", "NAME", "User of the InfluxDB that is read").requires("url"))
        .arg(
            option("password", "PASSWORD", "Password of that user")
                .env("CHRONOLITH_FROM_PASSWORD")
                .hide_env_values(true),
        )
        .arg(
            option("database", "NAME", "With --url: copy this database alone; may be given several times. With --path: database of points without a context")
                .action(ArgAction::Append),
        )
        .arg(option("policy", "NAME", "With --path: retention policy of points without a context"))
        .arg(option("start", "TIME", "First time: RFC 3339 or nanoseconds").allow_hyphen_values(true))
        .arg(option("end", "TIME", "Last time: RFC 3339 or nanoseconds").allow_hyphen_values(true))
        .arg(
            Arg::new("internal")
                .long("internal")
                .action(ArgAction::SetTrue)
                .help("Copy the database _internal too"),
        )
        .arg(
            option("passes", "COUNT", "Passes over a server that is written to meanwhile")
                .default_value("5")
                .value_parser(clap::value_parser!(u64).range(2..=100)),
        )
}

pub(super) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    if matches.contains_id("data") {
        return influx_data::run(matches);
    }
    let env = Env::real();
    let server = InfluxServer::new(&env, &target(matches))?;
    let mut bar = Bar::new(&env, WithoutTerminal::Log);
    let report = match matches.contains_id("url") {
        true => import_server(&env, &server, matches, &mut bar),
        false => import_file(&env, &server, matches, &mut bar),
    };
    bar.clear();
    let report = report?;
    print(&report.show());
    Ok(if report.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Address and credentials of the server to write to.
fn target(matches: &ArgMatches) -> ServerOptions {
    let text = |name: &str| value(matches, name).map(str::to_owned);
    ServerOptions {
        url: text("to").unwrap_or_default(),
        user: text("to-user"),
        password: text("to-password"),
        tenant: text("tenant"),
    }
}

fn import_file(
    env: &Env,
    server: &InfluxServer,
    matches: &ArgMatches,
    bar: &mut Bar,
) -> anyhow::Result<Report> {
    let path = PathBuf::from(value(matches, "path").unwrap_or_default());
    let source = file::identity(env, &path)?;
    let state = StateFile::new(env, value(matches, "state"), source, server.url().to_owned());
    let options = FileOptions {
        path,
        context: PolicyName {
            database: value(matches, "database").unwrap_or_default().to_owned(),
            policy: value(matches, "policy").unwrap_or_default().to_owned(),
        },
        concurrency: matches.get_one::<u64>("concurrency").copied().unwrap_or(1),
        compares: !matches.get_flag("skip-compare"),
    };
    file::import(env, server, &options, &state, bar)
}

fn import_server(
    env: &Env,
    server: &InfluxServer,
    matches: &ArgMatches,
    bar: &mut Bar,
) -> anyhow::Result<Report> {
    let text = |name: &str| value(matches, name).map(str::to_owned);
    let source = ServerOptions {
        url: text("url").unwrap_or_default(),
        user: text("user"),
        password: text("password"),
        tenant: None,
    };
    let time = |name: &str, default_ns: i64| {
        value(matches, name).map_or(Ok(default_ns), parse_time).with_context(|| format!("--{name}"))
    };
    let period =
        Period { first_ns: time("start", Period::ALL.first_ns)?, last_ns: time("end", Period::ALL.last_ns)? };
    let number = |name: &str| matches.get_one::<u64>(name).copied().unwrap_or(1);
    let names = matches.get_many::<String>("database").unwrap_or_default().cloned().collect();
    let options = CopyOptions {
        selection: DatabaseSelection { names, with_internal: matches.get_flag("internal") },
        period,
        concurrency: number("concurrency"),
        pass_count: number("passes"),
        compares: !matches.get_flag("skip-compare"),
    };
    let identity = format!("{} ({} - {})", source.url, period.first_ns, period.last_ns);
    let state = StateFile::new(env, value(matches, "state"), identity, server.url().to_owned());
    let from = InfluxServer::new(env, &source)?;
    copy::copy(env, &from, server, &options, &state, bar)
}
