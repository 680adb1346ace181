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
use chronolith_model::{BlockEncoding, StoreId};
use clap::{Arg, ArgAction, ArgMatches, Command};

pub(crate) use target::{data_dir_arg, place, tenant_arg};

use crate::args::value;
use crate::locked_dir::lock_to_write;
use crate::progress::{Bar, WithoutTerminal, bytes_line};
use crate::query::print;

/// File in the data directory of Prometheus that it locks (`flock`) while it runs.
const PROMETHEUS_LOCK_FILE: &str = "lock";

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
                )
                .arg(Arg::new("force").long("force").action(ArgAction::SetTrue).help(
                    "Import the directory of a running Prometheus, too, although it changes meanwhile",
                )),
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
    let source = PathBuf::from(value(matches, "dir").unwrap_or_default());
    if !matches.get_flag("force") {
        refuse_running(&env, &source)?;
    }
    let _lock = lock_to_write(&env, &data_dir)?;
    let encoding = match value(matches, "block-encoding") {
        Some("prometheus") => BlockEncoding::Prometheus,
        _ => BlockEncoding::Dense,
    };
    let options = ImportOptions {
        source,
        blocks_dir: chronolith_tsdb::tenant_dir(&data_dir, &StoreId::from(&tenant)),
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

/// Refuses the directory of a running Prometheus: its head has samples that no file has, and its compaction
/// removes blocks while they are copied.
fn refuse_running(env: &Env, source: &Path) -> anyhow::Result<()> {
    let lock = source.join(PROMETHEUS_LOCK_FILE);
    if env.disk.is_locked(&lock).with_context(|| format!("reading {}", lock.display()))? {
        anyhow::bail!(
            "{} is used by a running Prometheus, which holds its lock file\n  stop it; or import a snapshot of it \
             (with --web.enable-admin-api: curl -X POST http://HOST:9090/api/v1/admin/tsdb/snapshot makes \
             DIR/snapshots/NAME); or import it with --force, perhaps without the samples of the last minutes, \
             and import it again once Prometheus is stopped",
            source.display()
        );
    }
    Ok(())
}

/// The report for people: imported samples, then samples left out and the reasons, then damage.
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
    for (count, what) in stored_elsewhere(report) {
        if count > 0 {
            out.push_str(&format!("skipped without loss: {count} {what}\n"));
        }
    }
    for (count, what) in not_imported(&report.head) {
        if count > 0 {
            out.push_str(&format!("not imported: {count} {what}\n"));
        }
    }
    out
}

/// Entries of the source that its other entries, or Prometheus itself, make superfluous.
fn stored_elsewhere(report: &ImportReport) -> [(u64, &'static str); 7] {
    let HeadCounts { skipped, metadata, .. } = &report.head;
    [
        (report.blocks_replaced, "blocks, which the source has compacted into another block"),
        (skipped.in_block, "WAL samples, which the blocks of the source hold"),
        (skipped.mapped, "WAL samples, which m-mapped chunks hold"),
        (skipped.repeated, "WAL samples that repeat a timestamp with the same value"),
        (
            skipped.dropped_series,
            "WAL samples of series that Prometheus has written to a block and removed from its head",
        ),
        (
            skipped.unknown_series,
            "WAL samples whose series Prometheus has removed from its head; a start of Prometheus skips them, too",
        ),
        (*metadata, "metadata entries, which senders repeat"),
    ]
}

/// Entries of the head whose content is nowhere in the data directory.
fn not_imported(head: &HeadCounts) -> [(u64, String); 7] {
    let types: Vec<String> = head.unknown_record_types.iter().map(u8::to_string).collect();
    let text = str::to_owned;
    [
        (
            head.skipped.conflicting,
            text("samples, since an earlier sample of the WAL has their timestamp and another value"),
        ),
        (head.skipped.out_of_bounds, text("samples, since their timestamp cannot be stored")),
        (head.skipped.invalid_histograms, text("native histograms, since they are invalid")),
        (head.exemplars, text("exemplars: Chronolith keeps exemplars in memory, from remote write")),
        (head.rejected_series, text("series, since their labels are invalid")),
        (
            head.unknown_records,
            format!("WAL records of the types {}, which this version does not know", types.join(", ")),
        ),
        (
            head.unknown_chunks + head.unknown_series_chunks,
            text("m-mapped chunks of an unknown encoding or series; the WAL usually has their samples"),
        ),
    ]
}

#[cfg(test)]
mod tests;
