//! `chronolith import influx --data`: brings the data directory of a stopped InfluxDB 1.x into a data
//! directory of ours.
//! Invariants: the data directory is locked meanwhile; exit code 1 if something of the source was lost to
//! damage.
//! Not here: reading the source (`chronolith-import`).

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use chronolith_base::Env;
use chronolith_format::store_name;
use chronolith_import::influx::{
    self, InfluxPaths, InfluxReport, InfluxSource, KIND_NAMES, Meta, SourceShard, StoreTarget,
};
use chronolith_model::TenantId;
use chronolith_model::databases::TenantCatalog;
use chronolith_tsdb::CatalogEditor;
use clap::{Arg, ArgMatches, Command};

use super::target::data_dir_arg;
use crate::args::value;
use crate::locked_dir::lock_to_write;
use crate::progress::{Bar, WithoutTerminal, bytes_line};
use crate::query::print;

/// Tenant if none is named.
const DEFAULT_TENANT: &str = "anonymous";

/// Adds the flags of this source.
pub(super) fn args(command: Command) -> Command {
    let dir_arg = |name, help| Arg::new(name).long(name).value_name("DIR").help(help);
    command
        .arg(dir_arg(
            "data",
            "Directory of a stopped InfluxDB with meta, data and wal, or its data directory",
        ))
        .arg(dir_arg("wal-dir", "With --data: directory of the WAL, if it is elsewhere").requires("data"))
        .arg(dir_arg("meta-dir", "With --data: directory of meta.db, if it is elsewhere").requires("data"))
        .arg(data_dir_arg())
}

pub(super) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let env = Env::real();
    let data_dir = PathBuf::from(value(matches, "data-dir").unwrap_or_default());
    let tenant = TenantId::new(value(matches, "tenant").unwrap_or(DEFAULT_TENANT)).context("--tenant")?;
    let paths = paths_of(&env, matches);
    let mut source = InfluxSource::list(&env, &paths)?;
    if !env.disk.exists(&paths.wal_dir) {
        let note = format!("{}: no such directory, so no WAL is read", paths.wal_dir.display());
        source.notes.push(note);
    }
    env.disk.create_dir_all(&data_dir).with_context(|| format!("creating {}", data_dir.display()))?;
    let _lock = lock_to_write(&env, &data_dir)?;
    let mut notes = Vec::new();
    let catalog = bring_databases(&env, &data_dir, &tenant, &source.meta, &mut notes)?;
    source.notes.append(&mut notes);
    let target_of = |shard: &SourceShard| {
        let policies = &catalog.database(&shard.database)?.policies;
        let store = &policies.iter().find(|policy| policy.name == shard.policy)?.store;
        Some(StoreTarget {
            blocks_dir: chronolith_tsdb::tenant_dir(&data_dir, store),
            state_path: data_dir.join("import").join(format!("{}.json", store_name(store))),
        })
    };
    let mut bar = Bar::new(&env, WithoutTerminal::Log);
    let mut draw = |progress| bar.draw(|seconds| bytes_line(progress, seconds));
    let report = influx::run(&env, &source, &paths, &target_of, &mut draw);
    bar.clear();
    let report = report.context("importing from InfluxDB")?;
    print(&show(&paths.data_dir, &report));
    let is_whole = report.damages.is_empty();
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn paths_of(env: &Env, matches: &ArgMatches) -> InfluxPaths {
    let dir = PathBuf::from(value(matches, "data").unwrap_or_default());
    let mut paths = InfluxPaths::below(&dir);
    if !env.disk.exists(&paths.data_dir) {
        paths.data_dir = dir;
    }
    if let Some(wal_dir) = value(matches, "wal-dir") {
        paths.wal_dir = PathBuf::from(wal_dir);
    }
    if let Some(meta_dir) = value(matches, "meta-dir") {
        paths.meta_dir = PathBuf::from(meta_dir);
    }
    paths
}

/// Brings databases, policies, continuous queries and users into the catalogue and returns it.
fn bring_databases(
    env: &Env,
    data_dir: &Path,
    tenant: &TenantId,
    meta: &Meta,
    notes: &mut Vec<String>,
) -> anyhow::Result<TenantCatalog> {
    let (editor, mut repaired) = CatalogEditor::open(env, data_dir)?;
    notes.append(&mut repaired);
    let current = || editor.catalog().of(tenant).map(|own| TenantCatalog::clone(own)).unwrap_or_default();
    let (changes, mut of_meta) = meta.changes(&current());
    for change in &changes {
        if let Err(error) = editor.change(tenant, change) {
            notes.push(format!("{change:?} is refused: {error}"));
        }
    }
    notes.append(&mut of_meta);
    Ok(current())
}

/// The report for people: points per field, then points left out and the reasons, then damage.
fn show(source: &Path, report: &InfluxReport) -> String {
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
    for ((database, policy), measurements) in &report.counts {
        for (measurement, fields) in measurements {
            for (field, of_kinds) in fields {
                for (kind, points) in KIND_NAMES.iter().zip(of_kinds).filter(|(_, points)| **points > 0) {
                    let name = format!("{database:?}.{policy:?}.{measurement:?} field {field:?} ({kind})");
                    out.push_str(&format!("{name}: {points} points\n"));
                }
            }
        }
    }
    let InfluxReport { shards, blocks, points, .. } = report;
    let source = source.display();
    out.push_str(&format!("imported {source}: {points} points of {shards} shards in {blocks} blocks"));
    if report.shards_present > 0 {
        out.push_str(&format!(" ({} shards were imported already)", report.shards_present));
    }
    out.push('\n');
    for (reject, series) in &report.rejected {
        let points = series.points;
        let count = series.series;
        let reason = reject.text();
        let example = &series.example;
        out.push_str(&format!("left out: {points} points of {count} series: {reason}: {example:?}\n"));
    }
    for (count, what) in left_out(report) {
        if count > 0 {
            out.push_str(&format!("left out: {count} {what}\n"));
        }
    }
    out
}

fn left_out(report: &InfluxReport) -> [(u64, &'static str); 4] {
    [
        (report.left_out.overwritten, "points that a later point of the same time replaces"),
        (report.left_out.deleted, "points that a tombstone deletes"),
        (report.left_out.out_of_bounds, "points whose time cannot be stored"),
        (report.left_out.long_texts, "texts longer than 16 MiB"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use chronolith_import::influx::{KeyReject, RejectedSeries};

    /// The files of a real InfluxDB 1.6.7: its databases, policies, query and users are in the catalogue, its
    /// points in the stores of the policies.
    #[test]
    fn a_data_directory_becomes_databases() {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../import/testdata/influxdb-1.6.7");
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().join("data");
        let data_dir_text = data_dir.to_str().unwrap();
        let args = ["influx", "--data", source, "--data-dir", data_dir_text, "--tenant", "t"];
        for _ in 0..2 {
            let command = super::args(Command::new("influx")).arg(Arg::new("tenant").long("tenant"));
            let code = run(&command.try_get_matches_from(args).unwrap()).unwrap();
            assert_eq!(code, ExitCode::SUCCESS);
        }
        let env = Env::real();
        let (editor, notes) = CatalogEditor::open(&env, &data_dir).unwrap();
        assert_eq!(notes, Vec::<String>::new());
        let own = editor.catalog().of(&TenantId::new("t").unwrap()).cloned().unwrap();
        let database = own.database("g").unwrap();
        let names: Vec<_> = database.policies.iter().map(|policy| policy.name.as_str()).collect();
        assert_eq!(
            (names.as_slice(), database.default_policy.as_str()),
            (&["autogen", "hour"][..], "autogen")
        );
        assert_eq!(database.continuous_queries.len(), 1);
        let users: Vec<_> = own.users.iter().map(|user| (user.name.as_str(), user.is_admin)).collect();
        assert_eq!(users, [("ada", true), ("bob", false)]);
        let counts = database.policies.iter().map(|policy| {
            let blocks_dir = chronolith_tsdb::tenant_dir(&data_dir, &policy.store);
            let (blocks, damaged) = chronolith_block::open_dir(&env, &blocks_dir);
            assert!(damaged.is_empty(), "{damaged:?}");
            blocks.iter().map(|block| block.meta().stats.num_samples).sum::<u64>()
        });
        assert_eq!(counts.collect::<Vec<_>>(), [328, 5]);
    }

    #[test]
    fn the_report_names_points_by_field_and_all_that_is_left_out() {
        let mut report = InfluxReport::default();
        let clean = show(Path::new("p"), &report);
        assert_eq!(clean, "imported p: 0 points of 0 shards in 0 blocks\n");
        let fields = [("v".to_owned(), [3, 0, 0, 0, 1])].into();
        report.counts.insert(("d".to_owned(), "autogen".to_owned()), [("cpu".to_owned(), fields)].into());
        report.left_out.deleted = 7;
        let example = "m\u{fffd}".to_owned();
        report.rejected.insert(KeyReject::InvalidUtf8, RejectedSeries { series: 1, points: 2, example });
        let text = show(Path::new("p"), &report);
        for line in [
            "\"d\".\"autogen\".\"cpu\" field \"v\" (float): 3 points",
            "\"d\".\"autogen\".\"cpu\" field \"v\" (string): 1 points",
            "left out: 7 points that a tombstone deletes",
            "left out: 2 points of 1 series: a name or tag value is not UTF-8: \"m\u{fffd}\"",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
