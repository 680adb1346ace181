//! `chronolith graphite explain`: the rules that apply to paths, read from Graphite's files.
//!
//! Invariant: files and code are the same as in a server; no server is asked.
//! Not here: matching (`ingest::carbon`).

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use chronolith_base::{Disk, Env};
use chronolith_ingest::carbon::{AggregationRules, ConfigError, Note, RewriteRules, Schemas, explain};
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::args::value;
use crate::log;
use crate::query::print;

pub(crate) fn command() -> Command {
    let file =
        |name: &'static str, help: &'static str| Arg::new(name).long(name).value_name("FILE").help(help);
    let paths = Arg::new("path").required(true).value_name("PATH").action(ArgAction::Append).num_args(1..);
    let explain = Command::new("explain")
        .about("Print rewrite, schema, archives, reorder buffer and methods of paths")
        .arg(paths.help("Path as sent, with its tags and the prefix of its listener"))
        .arg(file("graphite.schemas", "storage-schemas.conf"))
        .arg(file("graphite.aggregation", "storage-aggregation.conf"))
        .arg(file("graphite.rewrites", "Rewrite rules"));
    Command::new("graphite")
        .about("Graphite's rules of paths")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(explain)
}

pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let Some((_, matches)) = matches.subcommand() else { return Ok(ExitCode::from(2)) };
    let env = Env::real();
    let schemas = read(&*env.disk, value(matches, "graphite.schemas"), Schemas::parse)?;
    let aggregations = read(&*env.disk, value(matches, "graphite.aggregation"), AggregationRules::parse)?;
    let rewrites = read(&*env.disk, value(matches, "graphite.rewrites"), RewriteRules::parse)?;
    let paths = matches.get_many::<String>("path").into_iter().flatten();
    let texts: Vec<String> =
        paths.map(|path| explain(path, &rewrites, &schemas, &aggregations).to_string()).collect();
    print(&texts.join("\n"));
    Ok(ExitCode::SUCCESS)
}

/// Reads a file of rules; none is the same as an empty one. Notes go to the standard error.
fn read<T: Default>(
    disk: &dyn Disk,
    path: Option<&str>,
    parse: impl FnOnce(&str) -> Result<(T, Vec<Note>), ConfigError>,
) -> anyhow::Result<T> {
    let Some(path) = path else { return Ok(T::default()) };
    let bytes = disk.read(Path::new(path)).with_context(|| path.to_owned())?;
    let text = String::from_utf8(bytes).with_context(|| path.to_owned())?;
    let (rules, notes) = parse(&text).with_context(|| path.to_owned())?;
    notes.iter().for_each(|note| log::print(&format!("{path}: line {}: {}", note.line, note.what)));
    Ok(rules)
}
