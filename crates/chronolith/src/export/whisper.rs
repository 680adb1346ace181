//! `chronolith export whisper`: writes the Graphite store of a stopped server as files that carbon and
//! graphite-web read.
//!
//! Invariants: one file per series, and one series in memory at a time; files that exist are not replaced;
//! the data directory keeps its content.
//! Not here: archives of a file (`chronolith-import`), names of files (`path`).

mod path;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use chronolith_base::Env;
use chronolith_import::whisper::FileLayout;
use chronolith_ingest::carbon::{
    AggregationMethod, AggregationRules, Archive, Schemas, X_FILES_FACTOR_DEFAULT, path_of_labels,
};
use chronolith_model::{Columns, ReadContext, Selector, TenantId, TimeRange};
use chronolith_tsdb::{ReplayProgress, Tsdb, TsdbOptions};
use clap::{Arg, ArgMatches, Command};

use crate::args::value;
use crate::import::{data_dir_arg, place, tenant_arg};
use crate::query::print;

/// Archive of paths without a rule: carbon's default.
const DEFAULT_ARCHIVES: [Archive; 1] = [Archive { step_s: 60, point_count: 10_080 }];

pub(super) fn command() -> Command {
    let option = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    Command::new("whisper")
        .about("Write Graphite series as whisper files")
        .arg(Arg::new("dir").required(true).value_name("DIR").help("Output directory"))
        .arg(data_dir_arg())
        .arg(tenant_arg())
        .arg(option("schemas", "FILE", "storage-schemas.conf with the archives of the files"))
        .arg(
            option("retentions", "LIST", "Archives of all files, as 10s:1d,1m:30d; default 1m:7d")
                .conflicts_with("schemas"),
        )
        .arg(option("aggregation", "FILE", "storage-aggregation.conf with the methods of the files"))
}

pub(super) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let (data_dir, tenant) = place(matches)?;
    let env = Env::real();
    let rules = Rules::read(&env, matches)?;
    anyhow::ensure!(env.disk.exists(&data_dir), "no data directory at {}", data_dir.display());
    let out_dir = PathBuf::from(value(matches, "dir").unwrap_or_default());
    let tsdb = Tsdb::open(env.clone(), TsdbOptions::new(data_dir), Arc::new(ReplayProgress::default()))?;
    let own = tsdb.databases().of(&tenant).and_then(|own| Some(own.graphite.as_ref()?.store.clone()));
    let store = own.with_context(|| format!("tenant {tenant} has no Graphite series"))?;
    let mut export = Export { env, out_dir, rules, counts: Counts::default() };
    export.write(&tsdb, &store)?;
    print(&export.counts.show(&export.out_dir));
    Ok(if export.counts.left_out.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Rules that name the layout of a file.
struct Rules {
    schemas: Schemas,
    aggregations: AggregationRules,
}

impl Rules {
    fn read(env: &Env, matches: &ArgMatches) -> anyhow::Result<Rules> {
        let text = |path: &str| -> anyhow::Result<String> {
            let bytes = env.disk.read(Path::new(path)).with_context(|| format!("reading {path}"))?;
            String::from_utf8(bytes).with_context(|| format!("reading {path}"))
        };
        let (name, schemas) = match (value(matches, "schemas"), value(matches, "retentions")) {
            (Some(path), _) => (path, text(path)?),
            (None, Some(list)) => {
                anyhow::ensure!(!list.contains(['\n', '\r']), "--retentions: expected one line");
                ("--retentions", format!("[all]\npattern = .*\nretentions = {list}\n"))
            }
            (None, None) => ("", String::new()),
        };
        let (schemas, notes) = Schemas::parse(&schemas).with_context(|| name.to_owned())?;
        for note in &notes {
            print(&format!("note: {name}: line {}: {}\n", note.line, note.what));
        }
        anyhow::ensure!(
            !schemas.rules().is_empty() || value(matches, "retentions").is_none(),
            "--retentions: no archives that whisper can have"
        );
        let aggregations = match value(matches, "aggregation") {
            Some(path) => AggregationRules::parse(&text(path)?).with_context(|| path.to_owned())?.0,
            None => AggregationRules::default(),
        };
        Ok(Rules { schemas, aggregations })
    }

    fn layout(&self, path: &str) -> FileLayout {
        let archives = self.schemas.match_path(path).map_or(&DEFAULT_ARCHIVES[..], |rule| rule.archives());
        let rule = self.aggregations.match_path(path);
        let method = rule.and_then(|rule| rule.methods().first().copied());
        FileLayout {
            archives: archives.to_vec(),
            method: method.unwrap_or(AggregationMethod::Average),
            x_files_factor: rule.map_or(X_FILES_FACTOR_DEFAULT, |rule| rule.x_files_factor()),
        }
    }
}

#[derive(Default)]
struct Counts {
    files: u64,
    points: u64,
    too_old: u64,
    /// Series by the reason why they have no file, with one of them.
    left_out: BTreeMap<String, (u64, String)>,
}

impl Counts {
    fn show(&self, out_dir: &Path) -> String {
        let Counts { files, points, too_old, left_out } = self;
        let mut out = format!("exported {points} points to {files} files below {}\n", out_dir.display());
        if *too_old > 0 {
            out.push_str(&format!("left out: {too_old} points that are older than the archives keep\n"));
        }
        for (reason, (count, example)) in left_out {
            out.push_str(&format!("left out: {count} series: {reason}: {example:?}\n"));
        }
        out
    }

    fn leave_out(&mut self, path: &str, reason: &str) {
        let entry = self.left_out.entry(reason.to_owned()).or_insert_with(|| (0, path.to_owned()));
        entry.0 += 1;
    }
}

struct Export {
    env: Env,
    out_dir: PathBuf,
    rules: Rules,
    counts: Counts,
}

impl Export {
    fn write(&mut self, tsdb: &Tsdb, store: &TenantId) -> anyhow::Result<()> {
        let ctx = ReadContext::unlimited(self.env.clock.clone());
        let source = tsdb.queryable(store);
        let mut batches = source.select(&Selector { matchers: &[], range: TimeRange::ALL }, &ctx)?;
        let mut batch = Vec::new();
        let mut columns = Columns::default();
        let mut has_more = true;
        while has_more {
            has_more = batches.next_batch(&mut batch)?;
            for series in batch.drain(..) {
                columns.clear();
                series.samples.read(TimeRange::ALL, &mut columns)?;
                self.write_file(&path_of_labels(&series.labels), &columns)?;
            }
        }
        Ok(())
    }

    fn write_file(&mut self, series_path: &str, columns: &Columns) -> anyhow::Result<()> {
        let relative = match path::file_of(series_path) {
            Ok(relative) => relative,
            Err(reason) => {
                self.counts.leave_out(series_path, reason);
                return Ok(());
            }
        };
        let layout = self.rules.layout(series_path);
        let now_s = self.env.clock.now_ms().div_euclid(1000);
        let Some((bytes, too_old)) = layout.build(&columns.times, &columns.values, now_s) else {
            let reason = format!("whisper has no method {}", layout.method);
            self.counts.leave_out(series_path, &reason);
            return Ok(());
        };
        // `relative` has no empty, absolute or `..` part.
        let file_path = self.out_dir.join(relative);
        let context = || format!("writing {}", file_path.display());
        if self.env.disk.exists(&file_path) {
            self.counts.leave_out(series_path, "the file exists");
            return Ok(());
        }
        if let Some(dir) = file_path.parent() {
            self.env.disk.create_dir_all(dir).with_context(context)?;
        }
        let file = self.env.disk.create(&file_path).with_context(context)?;
        file.write_at(&bytes, 0).with_context(context)?;
        self.counts.files += 1;
        self.counts.points += columns.times.len() as u64 - too_old;
        self.counts.too_old += too_old;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
