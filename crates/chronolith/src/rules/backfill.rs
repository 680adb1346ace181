//! `chronolith rules backfill`: history of recording rules, on a running server or in a data directory.
//!
//! Invariants: the position after a chunk is in the progress file within a second, so the same command goes
//! on after an interruption; the file is removed at the end. 0 means that everything is recorded, 1 that the
//! backfill failed, was refused, or that samples were refused.
//! Not here: evaluation (`chronolith-service`), HTTP (`client`).

mod directory;
mod progress_file;
mod report;
mod server;
mod wanted;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use chronolith_base::Env;
use chronolith_base::utc::parse_rfc3339_ms;
use clap::{Arg, ArgAction, ArgMatches, Command};
use sha2::{Digest as _, Sha256};

use self::progress_file::ProgressFile;
use self::report::Reporter;
use self::wanted::Wanted;
use super::options::files;
use crate::args::value;
use crate::credentials;

pub(super) fn command() -> Command {
    let option = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let files = Arg::new("files").value_name("FILE").action(ArgAction::Append).num_args(1..).required(true);
    let command = Command::new("backfill")
        .about("Record what recording rules would have recorded over a range of past time")
        .arg(files.help("Rule files; the path decides the times of rounds, so name it as the server does"))
        .arg(
            option("url", "URL", "Running server with --web.enable-admin-api")
                .required_unless_present("data-dir"),
        )
        .arg(option("data-dir", "DIR", "Data directory of a stopped server").conflicts_with("url"))
        .arg(option("config", "FILE", "Settings file of that server").requires("data-dir"))
        .arg(option("start", "TIME", "First time: seconds or RFC 3339").required(true))
        .arg(option("end", "TIME", "Last time; default: now"))
        .arg(
            option("group", "NAME", "Group to evaluate; may be repeated; default: all")
                .action(ArgAction::Append),
        )
        .arg(option("tenant", "ID", "Tenant whose series the rules read and write"))
        .arg(option("as", "PATH", "Path of the file on the server, if it is another one; with one FILE"))
        .arg(option(
            "progress-file",
            "FILE",
            "Default: chronolith-backfill-HASH.json in the current directory",
        ))
        .arg(
            Arg::new("dry-run")
                .long("dry-run")
                .action(ArgAction::SetTrue)
                .help("Count series and samples, store nothing"),
        );
    credentials::add_arguments(command)
}

pub(super) fn run(matches: &ArgMatches, env: &Env) -> anyhow::Result<ExitCode> {
    let files = read_files(matches, env)?;
    let path = progress_path(matches, &files);
    let now_ms = env.clock.now_ms();
    let stored = ProgressFile::read(env, &path, hash_of(matches, &files))?;
    let range_ms = match &stored {
        // "Now" is the time of the first run.
        Some(stored) => stored.range_ms,
        None => {
            let start_ms = time_ms(value(matches, "start").unwrap_or_default()).context("--start")?;
            let end = value(matches, "end").map(time_ms).transpose().context("--end")?;
            (start_ms, end.unwrap_or(now_ms))
        }
    };
    let wanted = Wanted {
        range_ms,
        tenant: value(matches, "tenant"),
        group_names: matches.get_many::<String>("group").into_iter().flatten().map(String::as_str).collect(),
        is_dry_run: matches.get_flag("dry-run"),
        files,
    };
    let resumed = stored.unwrap_or_else(|| ProgressFile::new(hash_of(matches, &wanted.files), range_ms));
    let mut reporter = Reporter::new(env, path, resumed, wanted.is_dry_run);
    let outcome = match value(matches, "data-dir") {
        Some(dir) => {
            directory::run(env, PathBuf::from(dir), value(matches, "config"), &wanted, &mut reporter)
        }
        None => {
            let authorization = credentials::authorization(matches)?;
            let url = value(matches, "url").unwrap_or_default();
            server::run(url, authorization.as_deref(), &wanted, &mut reporter)
        }
    };
    reporter.end(outcome)
}

/// # Errors
/// A file that cannot be read.
fn read_files(matches: &ArgMatches, env: &Env) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let renamed = value(matches, "as");
    let names: Vec<&str> = files(matches).collect();
    anyhow::ensure!(renamed.is_none() || names.len() == 1, "--as is for one FILE");
    let read = |name: &&str| {
        let bytes = env.disk.read(Path::new(name)).with_context(|| format!("reading {name}"))?;
        Ok((renamed.unwrap_or(name).to_owned(), bytes))
    };
    names.iter().map(read).collect()
}

/// Hash of all that decides the backfill: the same command goes on with it.
fn hash_of(matches: &ArgMatches, files: &[(String, Vec<u8>)]) -> String {
    let mut hash = Sha256::new();
    let mut add = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    for name in ["url", "data-dir", "start", "end", "tenant"] {
        add(value(matches, name).unwrap_or_default().as_bytes());
    }
    add(&[u8::from(matches.get_flag("dry-run"))]);
    for name in matches.get_many::<String>("group").into_iter().flatten() {
        add(name.as_bytes());
    }
    for (name, bytes) in files {
        add(name.as_bytes());
        add(bytes);
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn progress_path(matches: &ArgMatches, files: &[(String, Vec<u8>)]) -> PathBuf {
    let default = || format!("chronolith-backfill-{}.json", hash_of(matches, files));
    // A path without a directory has none that could be synced.
    Path::new(".").join(value(matches, "progress-file").map_or_else(default, str::to_owned))
}

/// A time in the forms of the API, in milliseconds.
fn time_ms(text: &str) -> anyhow::Result<i64> {
    if let Ok(seconds) = text.parse::<f64>() {
        let ms = (seconds * 1000.0).round();
        // Times of stored samples are far below.
        anyhow::ensure!(ms.abs() < 1e17, "{text:?} is no time");
        return Ok(ms as i64);
    }
    parse_rfc3339_ms(text).with_context(|| format!("expected seconds or RFC 3339, found {text:?}"))
}

#[cfg(test)]
mod tests;
