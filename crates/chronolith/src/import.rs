//! `chronolith import`: brings data of other systems here; `import prometheus` reads a Prometheus data
//! directory into a data directory of ours.
//! Invariants: the data directory is locked meanwhile; exit code 1 if something of the source was lost to
//! damage.
//! Not here: reading the source (`chronolith-import`), InfluxDB (`influx`), Graphite (`whisper`,
//! `graphite_events`, `graphite_tags`).

mod graphite_events;
mod graphite_json;
mod graphite_tags;
pub(crate) mod influx;
mod influx_data;
mod server;
mod target;
mod whisper;
mod whisper_args;
mod whisper_data;
mod whisper_report;
mod whisper_server;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use chronolith_base::Env;
use chronolith_import::{HeadCounts, ImportOptions, ImportReport};
use chronolith_model::BlockEncoding;
use clap::{Arg, ArgMatches, Command};

pub(crate) use target::{data_dir_arg, place, tenant_arg};

use crate::args::value;
use crate::progress::{Bar, WithoutTerminal, bytes_line};
use crate::query::print;

pub(crate) fn command() -> Command {
    let about = "Read a stopped or copied Prometheus data directory: blocks, m-mapped chunks, checkpoint, log, \
                 out-of-order log";
    Command::new("import")
        .about("Import data of another system")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("prometheus")
                .about(about)
                .arg(Arg::new("dir").required(true).value_name("DIR").help("Data directory of Prometheus"))
                .arg(data_dir_arg())
                .arg(tenant_arg())
                .arg(
                    Arg::new("block-encoding")
                        .long("block-encoding")
                        .value_name("ENCODING")
                        .default_value("dense")
                        .value_parser(["dense", "prometheus"])
                        .help("Encoding of the blocks made from the head; blocks are copied unchanged"),
                ),
        )
        .subcommand(influx::command())
        .subcommand(whisper::command())
        .subcommand(graphite_events::command())
        .subcommand(graphite_tags::command())
}

pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    match matches.subcommand() {
        Some(("prometheus", matches)) => prometheus(matches),
        Some(("influx", matches)) => influx::run(matches),
        Some(("whisper", matches)) => whisper::run(matches),
        Some(("graphite-events", matches)) => graphite_events::run(matches),
        Some(("graphite-tags", matches)) => graphite_tags::run(matches),
        _ => Ok(ExitCode::from(2)),
    }
}

fn prometheus(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let env = Env::real();
    let (data_dir, tenant) = place(matches)?;
    env.disk.create_dir_all(&data_dir).with_context(|| format!("creating {}", data_dir.display()))?;
    let _lock = chronolith_tsdb::lock_data_dir(&env, &data_dir)?;
    let encoding = match value(matches, "block-encoding") {
        Some("prometheus") => BlockEncoding::Prometheus,
        _ => BlockEncoding::Dense,
    };
    let options = ImportOptions {
        source: PathBuf::from(value(matches, "dir").unwrap_or_default()),
        blocks_dir: chronolith_tsdb::tenant_dir(&data_dir, &tenant),
        state_path: data_dir.join("import").join(format!("{tenant}.json")),
        encoding,
    };
    let mut bar = Bar::new(&env, WithoutTerminal::Silent);
    let mut draw = |progress| bar.draw(|seconds| bytes_line(progress, seconds));
    let report = chronolith_import::run(&env, &options, &mut draw);
    bar.clear();
    let report = report.with_context(|| format!("importing {}", options.source.display()))?;
    print(&show(&options.source, &report));
    Ok(if report.damages.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The report for people: what came in, then what was left out and why, then damage.
fn show(source: &Path, report: &ImportReport) -> String {
    let mut out = String::new();
    for note in &report.notes {
        out.push_str(&format!("note: {note}\n"));
    }
    for damage in &report.damages {
        let path = damage.path.display();
        out.push_str(&format!("lost: {path}: offset {}: {}\n", damage.offset, damage.what));
    }
    if report.damages_unnamed > 0 {
        out.push_str(&format!("lost: damage at {} further offsets\n", report.damages_unnamed));
    }
    out.push_str(&format!(
        "imported {}: {} blocks with {} samples copied",
        source.display(),
        report.blocks_copied.len(),
        report.block_samples
    ));
    if report.blocks_present > 0 {
        out.push_str(&format!(" ({} were imported already)", report.blocks_present));
    }
    if report.head_present {
        out.push_str("; the head was imported already\n");
    } else {
        let HeadCounts { series, samples, records, tombstones, .. } = report.head;
        let blocks = report.head_blocks.len();
        out.push_str(&format!(
            "; head: {samples} samples of {series} series out of {records} records, in {blocks} blocks, {tombstones} deletions\n"
        ));
    }
    for (count, what) in left_out(report) {
        if count > 0 {
            out.push_str(&format!("left out: {count} {what}\n"));
        }
    }
    out
}

fn left_out(report: &ImportReport) -> [(u64, &'static str); 14] {
    let head = &report.head;
    [
        (report.blocks_replaced, "blocks that the source has compacted into another block"),
        (head.skipped.in_block, "WAL samples older than the newest block, which has them"),
        (head.skipped.mapped, "WAL samples that m-mapped chunks have"),
        (head.skipped.repeated, "duplicates: samples stored already with the same value"),
        (head.skipped.conflicting, "conflicts: another value is stored at the timestamp and stays"),
        (head.skipped.unknown_series, "samples of series that no record names"),
        (head.skipped.out_of_bounds, "samples whose timestamp cannot be stored"),
        (head.skipped.dropped_series, "samples of series that Prometheus had written to a block and dropped"),
        (head.skipped.invalid_histograms, "invalid native histograms"),
        (head.exemplars, "exemplars: they are kept in memory only"),
        (head.metadata, "metadata entries: senders repeat theirs"),
        (head.rejected_series, "series whose labels cannot be stored"),
        (head.unknown_records, "records of a kind that this version does not know"),
        (head.unknown_chunks + head.unknown_series_chunks, "m-mapped chunks of unknown encoding or series"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_names_all_that_is_left_out() {
        let mut report = ImportReport::default();
        let clean = show(Path::new("p"), &report);
        assert!(!clean.contains("left out"), "{clean}");
        report.head.skipped.invalid_histograms = 3;
        report.head.skipped.conflicting = 1;
        let text = show(Path::new("p"), &report);
        assert!(
            text.contains("left out: 3 invalid native histograms") && text.contains("left out: 1 conflicts")
        );
    }
}
