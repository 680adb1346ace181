//! `chronolith import whisper`: flags, and which target they name: a running server (`--to`), the data
//! directory of a stopped one (`--data-dir`), or none (`--dry-run`).
//!
//! Invariant: the exit code is 0 if all points of all files are in the target, 1 if something was lost or
//! differs, 2 for wrong flags.
//! Not here: the targets (`whisper_data`, `whisper_server`), reading files (`chronolith-import`).

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use chronolith_base::{Env, utc};
use chronolith_import::whisper::{self, Comparison, Rules, TimeSelection, WhisperReport, WhisperSource};
use chronolith_ingest::carbon::{AggregationRules, Note, Schemas};
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::whisper_args::WhisperArgs;
use super::{whisper_data, whisper_report, whisper_server};
use crate::args::value;
use crate::progress::{Bar, WithoutTerminal, cells};
use crate::query::print;

pub(super) fn command() -> Command {
    let about = "Copy the files of carbon into a running server, or into the data directory of a stopped one; \
                 carbon may write on meanwhile";
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    Command::new("whisper")
        .about(about)
        .arg(
            Arg::new("dir")
                .required(true)
                .value_name("DIR")
                .help("Directory of the files, as /var/lib/graphite/whisper"),
        )
        .arg(option("to", "URL", "Server to write to").default_value("http://127.0.0.1:9595"))
        .arg(option("data-dir", "DIR", "Write into the data directory of a stopped server instead"))
        .arg(option("tenant", "ID", "Tenant to write to"))
        .arg(option("schemas", "FILE", "storage-schemas.conf to compare the archives of files with"))
        .arg(option("aggregation", "FILE", "storage-aggregation.conf to compare the methods of files with"))
        .arg(option("start", "TIME", "First time: RFC 3339 or seconds").allow_hyphen_values(true))
        .arg(option("end", "TIME", "Last time: RFC 3339 or seconds").allow_hyphen_values(true))
        .arg(option("state", "FILE", "With --to: record of what is done, for a run that continues"))
        .arg(
            option(
                "concurrency",
                "COUNT",
                "Requests at a time, default 4; with --data-dir parts of the files, default cores",
            )
            .value_parser(clap::value_parser!(u64).range(1..=64)),
        )
        .arg(flag("skip-compare", "Do not compare points at the end"))
        .arg(flag("dry-run", "Read all files and write nothing"))
}

fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

pub(super) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let env = Env::real();
    let args = args(&env, matches)?;
    let report = if matches.get_flag("dry-run") {
        inspect(&env, args)
    } else if let Some(data_dir) = value(matches, "data-dir") {
        whisper_data::import(&env, args, Path::new(data_dir), value(matches, "tenant"))?
    } else {
        whisper_server::import(&env, args, matches)?
    };
    let dir = value(matches, "dir").unwrap_or_default();
    print(&whisper_report::show(dir, &report));
    Ok(if report.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn args(env: &Env, matches: &ArgMatches) -> anyhow::Result<WhisperArgs> {
    let dir = PathBuf::from(value(matches, "dir").unwrap_or_default());
    let time = |name: &str| value(matches, name).map(parse_time).transpose().context(format!("--{name}"));
    let selection = TimeSelection {
        first_s: time("start")?.unwrap_or(TimeSelection::ALL.first_s),
        last_s: time("end")?.unwrap_or(TimeSelection::ALL.last_s),
    };
    let rules = Rules {
        schemas: parsed(env, value(matches, "schemas"), Schemas::parse)?,
        aggregations: parsed(env, value(matches, "aggregation"), AggregationRules::parse)?,
    };
    let mut listed = WhisperReport::default();
    let source = WhisperSource::list(env, &dir, &mut listed)?;
    let comparison = if matches.get_flag("skip-compare") { Comparison::Skipped } else { Comparison::All };
    let concurrency = matches.get_one::<u64>("concurrency").copied();
    Ok(WhisperArgs { source, selection, rules, comparison, concurrency, listed })
}

/// Parses seconds since 1970 or RFC 3339.
fn parse_time(text: &str) -> anyhow::Result<i64> {
    if let Ok(time_s) = text.parse() {
        return Ok(time_s);
    }
    let time_ms = utc::parse_rfc3339_ms(text);
    Ok(time_ms.with_context(|| format!("not a time in RFC 3339 or seconds: {text:?}"))?.div_euclid(1000))
}

/// Reads a configuration file and prints the notes about it.
fn parsed<T, E: std::error::Error + Send + Sync + 'static>(
    env: &Env,
    path: Option<&str>,
    parse: impl Fn(&str) -> Result<(T, Vec<Note>), E>,
) -> anyhow::Result<Option<T>> {
    let Some(path) = path else { return Ok(None) };
    let bytes = env.disk.read(Path::new(path)).with_context(|| format!("reading {path}"))?;
    let text = String::from_utf8(bytes).with_context(|| format!("reading {path}"))?;
    let (rules, notes) = parse(&text).with_context(|| path.to_owned())?;
    for Note { line, what } in notes {
        print(&format!("note: {path}: line {line}: {what}\n"));
    }
    Ok(Some(rules))
}

/// Prints a line per file.
fn inspect(env: &Env, args: WhisperArgs) -> WhisperReport {
    let WhisperArgs { source, selection, rules, listed, .. } = args;
    let mut bar = Bar::new(env, WithoutTerminal::Log);
    let total = source.byte_count();
    let mut done = 0;
    let mut lines = String::new();
    let mut report = whisper::inspect(env, &source, selection, &rules, &mut |file, header, points| {
        done += file.len;
        lines.push_str(&whisper_report::file_line(&file.path, header, points));
        if lines.len() > LINES_BYTES {
            bar.clear();
            print(&std::mem::take(&mut lines));
        }
        bar.draw(|seconds| format!("{}  {} MB, {seconds} s", cells(done, total), done >> 20));
    });
    bar.clear();
    print(&lines);
    report.add(listed);
    report
}

/// Bytes of lines that are printed at once.
const LINES_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests;
