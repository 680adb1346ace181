//! `chronolith export whisper`: writes the Graphite series of a stopped or a running server as files that
//! carbon and graphite-web read.
//!
//! Invariants: one file per series, and one series in memory at a time and worker; files that exist are not
//! replaced; the data directory keeps its content.
//! Not here: archives of a file (`chronolith-import`), rules (`rules`), files (`files`), requests (`server`).

mod files;
mod path;
mod rules;
mod server;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use chronolith_base::Env;
use chronolith_ingest::carbon::path_of_labels;
use chronolith_model::{Columns, ReadContext, Selector, TimeRange};
use clap::{Arg, ArgMatches, Command};

use self::files::Files;
use self::rules::{Rules, default_layout};
use crate::args::value;
use crate::import::{data_dir_arg, place, tenant_arg};
use crate::locked_dir;
use crate::query::print;

pub(super) fn command() -> Command {
    let option = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    Command::new("whisper")
        .about("Write Graphite series as whisper files")
        .arg(Arg::new("dir").required(true).value_name("DIR").help("Output directory"))
        .arg(data_dir_arg())
        .arg(option("from", "URL", "Running server to read instead, whose rules name archives and methods"))
        .arg(tenant_arg())
        .arg(option("schemas", "FILE", "storage-schemas.conf with the archives of the files"))
        .arg(
            option("retentions", "LIST", "Archives of all files, as 10s:1d,1m:30d; default 1m:7d")
                .conflicts_with("schemas"),
        )
        .arg(option("aggregation", "FILE", "storage-aggregation.conf with the methods of the files"))
        .arg(
            option("concurrency", "COUNT", "With --from: requests at a time, default 4")
                .value_parser(clap::value_parser!(u64).range(1..=64)),
        )
}

pub(super) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let env = Env::real();
    let rules = Rules::read(&env, matches)?;
    let files = Files::new(&env, PathBuf::from(value(matches, "dir").unwrap_or_default()));
    match value(matches, "from") {
        Some(url) => {
            server::export(&env, url, &rules, &files, matches)?;
        }
        None => export_directory(&env, &rules, &files, matches)?,
    }
    print(&files.show());
    Ok(if files.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes the files of the series in the data directory that the flags name.
fn export_directory(env: &Env, rules: &Rules, files: &Files, matches: &ArgMatches) -> anyhow::Result<()> {
    let (data_dir, tenant) = place(matches)?;
    anyhow::ensure!(env.disk.exists(&data_dir), "no data directory at {}", data_dir.display());
    let tsdb = locked_dir::open_to_read(env, data_dir)?;
    let own =
        tsdb.databases().catalog().of(&tenant).and_then(|own| Some(own.graphite.as_ref()?.store.clone()));
    let store = own.with_context(|| format!("tenant {tenant} has no Graphite series"))?;
    let ctx = ReadContext::unlimited(env.clock.clone());
    let source = tsdb.reader().store_queryable(&store);
    let mut batches = source.select(&Selector { matchers: &[], range: TimeRange::ALL }, &ctx)?;
    let mut batch = Vec::new();
    let mut columns = Columns::default();
    let mut has_more = true;
    while has_more {
        has_more = batches.next_batch(&mut batch)?;
        for series in batch.drain(..) {
            let series_path = path_of_labels(&series.labels);
            let Some(file_path) = files.file_of(&series_path) else { continue };
            columns.clear();
            series.samples.read(TimeRange::ALL, &mut columns)?;
            let layout = rules.layout(&series_path, default_layout());
            files.write(&file_path, &series_path, &layout, &columns)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
