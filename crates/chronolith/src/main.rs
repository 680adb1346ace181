//! The binary: `chronolith serve` and the tools. Invariant: every failure is reported with what to do, and
//! ends in exit code 1, or in 2 for arguments and roles that cannot be. Not here: the server
//! (`chronolith-server`).

#[cfg(feature = "jemalloc")]
mod allocator;
mod args;
mod block;
mod bucket;
mod check;
mod client;
mod cluster;
mod credentials;
mod export;
mod foreign_dir;
mod graphite;
mod import;
mod influx;
mod licences;
mod listeners;
mod locked_dir;
mod log;
mod progress;
mod query;
mod rules;
mod serve;
mod settings;
mod table;
mod tenants;
mod token;
mod version;
mod wal;

use std::process::ExitCode;

use clap::{Arg, Command};

fn main() -> ExitCode {
    let arguments = command().try_get_matches().unwrap_or_else(|error| settings::suggest(error).exit());
    let result = match arguments.subcommand() {
        Some(("serve", matches)) => serve::run(matches),
        Some(("check", matches)) => check::run(matches),
        Some(("query", matches)) => query::run(matches),
        Some(("import", matches)) => import::run(matches),
        Some(("export", matches)) => export::run(matches),
        Some(("block", matches)) => block::run(matches),
        Some(("bucket", matches)) => bucket::run(matches),
        Some(("cluster", matches)) => cluster::run(matches),
        Some(("wal", matches)) => wal::run(matches),
        Some(("graphite", matches)) => graphite::run(matches),
        Some(("rules", matches)) => rules::run(matches),
        Some(("tenants", matches)) => tenants::run(matches),
        Some(("token", matches)) => token::run(matches),
        Some(("licences", _)) => {
            query::print(&licences::text());
            Ok(ExitCode::SUCCESS)
        }
        Some(("version", _)) => {
            query::print(&format!("chronolith {}\n", version::text()));
            Ok(ExitCode::SUCCESS)
        }
        _ => Ok(ExitCode::from(2)),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            log::print(&format!("chronolith: {error:#}"));
            let of_settings = error.downcast_ref::<settings::SettingsError>();
            of_settings.map_or(ExitCode::FAILURE, |error| ExitCode::from(error.exit_code()))
        }
    }
}

const ABOUT: &str = "\
Time series database in one process, for clients of Prometheus, InfluxDB 1.x and Graphite

  in   Prometheus remote write 1.0 and 2.0, InfluxDB line protocol, carbon lines and pickle
  out  PromQL, InfluxQL, Graphite's render API, remote read, federation, a web interface
  on   local disk and, with --bucket, in S3, GCS or Azure, as blocks of Mimir or Thanos";

const AFTER_HELP: &str = "\
Start a server with its data in ./data and open http://127.0.0.1:9595/:

  chronolith serve --data-dir ./data";

fn command() -> Command {
    Command::new("chronolith")
        .about(ABOUT)
        .after_help(AFTER_HELP)
        .version(version::text())
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(settings::add_flags(serve_command()))
        .subcommand(check::command())
        .subcommand(query_command())
        .subcommand(import::command())
        .subcommand(export::command())
        .subcommand(block::command())
        .subcommand(bucket::command())
        .subcommand(cluster::command())
        .subcommand(wal::command())
        .subcommand(graphite::command())
        .subcommand(rules::command())
        .subcommand(tenants::command())
        .subcommand(token::command())
        .subcommand(Command::new("licences").about("Print the licences of embedded files"))
        .subcommand(Command::new("version").about("Print the version"))
}

fn serve_command() -> Command {
    let about = "Run the server: it stores what clients write and answers their queries";
    Command::new("serve").about(about).after_help(
        "A setting is a flag, an environment variable or a key of the YAML file of --config, in this order.\n\
         Some limits that are rarely changed are not listed here: docs/reference/settings.md has all.",
    )
}

fn query_command() -> Command {
    let option = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help).allow_hyphen_values(true)
    };
    let command = Command::new("query")
        .about("Query a running server")
        .arg(Arg::new("url").required(true).value_name("URL").help("Such as http://127.0.0.1:9595"))
        .arg(Arg::new("expr").required(true).value_name("EXPR").help("PromQL").allow_hyphen_values(true))
        .arg(option("time", "TIME", "Timestamp of an instant query: seconds or RFC 3339; default: now"))
        .arg(option("start", "TIME", "Start of a range query"))
        .arg(option("end", "TIME", "End of a range query; default: now").requires("start"))
        .arg(option("step", "STEP", "Interval between steps, such as 15s; default: 1m").requires("start"))
        .arg(option("tenant", "ID", "Sent as X-Scope-OrgID"))
        .arg(
            Arg::new("json")
                .long("json")
                .action(clap::ArgAction::SetTrue)
                .help("Print the response of the server unchanged"),
        );
    credentials::add_arguments(command)
}

#[cfg(test)]
mod tests {
    #[test]
    fn flags_do_not_clash() {
        super::command().debug_assert();
    }
}
