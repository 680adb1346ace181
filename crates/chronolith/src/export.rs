//! `chronolith export blocks`: writes what a data directory holds as blocks that Prometheus, Thanos and Mimir
//! read.
//! Invariants: samples of blocks and head are merged as a query merges them; the data directory keeps its
//! content.
//! Not here: writing a block (`chronolith-block`).

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use chronolith_base::Env;
use chronolith_block::{BlockSource, BlockWriter};
use chronolith_format::block::meta::{BlockMeta, Ulid};
use chronolith_format::chunk::kinds;
use chronolith_model::{Columns, ReadContext, Selector, TenantId, TimeRange};
use chronolith_tsdb::{ReplayProgress, Tsdb, TsdbOptions};
use clap::{Arg, ArgMatches, Command};

use crate::args::value;
use crate::import::{data_dir_arg, place, tenant_arg};
use crate::query::print;

/// Range of an exported block.
const RANGE_MS: i64 = 2 * 3_600_000;

pub(crate) fn command() -> Command {
    let time = |name: &'static str, help: &'static str| {
        let parser = clap::value_parser!(i64);
        Arg::new(name).long(name).value_name("MS").value_parser(parser).allow_hyphen_values(true).help(help)
    };
    Command::new("export")
        .about("Export data of a stopped server for another system")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("blocks")
                .about("Write blocks of two hours each")
                .arg(
                    Arg::new("encoding")
                        .long("encoding")
                        .value_name("ENCODING")
                        .default_value("prometheus")
                        .value_parser(["prometheus"])
                        .help("Encoding of the chunks"),
                )
                .arg(Arg::new("out").long("out").required(true).value_name("DIR").help("Output directory"))
                .arg(data_dir_arg())
                .arg(tenant_arg())
                .arg(time("min-time", "First time, in milliseconds since 1970"))
                .arg(time("max-time", "Last time, in milliseconds since 1970")),
        )
}

pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let Some(("blocks", matches)) = matches.subcommand() else { return Ok(ExitCode::from(2)) };
    let (data_dir, tenant) = place(matches)?;
    let out = PathBuf::from(value(matches, "out").unwrap_or_default());
    let first = matches.get_one::<i64>("min-time").copied().unwrap_or(TimeRange::ALL.start);
    let last = matches.get_one::<i64>("max-time").copied().unwrap_or(TimeRange::ALL.end - 1);
    let env = Env::real();
    anyhow::ensure!(env.disk.exists(&data_dir), "no data directory at {}", data_dir.display());
    let tsdb = Tsdb::open(env.clone(), TsdbOptions::new(data_dir), Arc::new(ReplayProgress::default()))?;
    let wanted = TimeRange::inclusive(first.max(TimeRange::ALL.start), last.min(TimeRange::ALL.end - 1));
    let export = Export { env, tsdb, tenant, out, wanted };
    let blocks = export.run()?;
    print(&blocks.iter().map(line).collect::<String>());
    print(&format!(
        "exported {} samples in {} blocks\n",
        blocks.iter().map(|meta| meta.stats.num_samples).sum::<u64>(),
        blocks.len()
    ));
    Ok(ExitCode::SUCCESS)
}

fn line(meta: &BlockMeta) -> String {
    let series = meta.stats.num_series;
    let samples = meta.stats.num_samples;
    format!("{} {}..{}: {series} series, {samples} samples\n", meta.ulid, meta.min_time, meta.max_time)
}

struct Export {
    env: Env,
    tsdb: Arc<Tsdb>,
    tenant: TenantId,
    out: PathBuf,
    wanted: TimeRange,
}

impl Export {
    fn run(&self) -> anyhow::Result<Vec<BlockMeta>> {
        let mut written = Vec::new();
        let mut newest: Option<Ulid> = None;
        let mut at = self.wanted.start;
        // The next sample at or after the end of the last range says which range comes next.
        while let Some(first) = self.first_time(at)? {
            let range = TimeRange::window_of(first, RANGE_MS);
            let meta =
                self.write(range, newest).with_context(|| format!("writing {}", self.out.display()))?;
            if let Some(meta) = meta {
                newest = Some(meta.ulid);
                written.push(meta);
            }
            at = range.end;
        }
        Ok(written)
    }

    /// Time of the first sample from `start` on.
    fn first_time(&self, start: i64) -> anyhow::Result<Option<i64>> {
        let Some(range) = self.tsdb.times(&self.tenant, TimeRange::new(start, self.wanted.end)) else {
            return Ok(None);
        };
        Ok(Some(range.start.max(start)))
    }

    fn write(&self, range: TimeRange, newest: Option<Ulid>) -> anyhow::Result<Option<BlockMeta>> {
        let part = TimeRange::new(range.start.max(self.wanted.start), range.end.min(self.wanted.end));
        let ctx = ReadContext::unlimited(self.env.clock.clone());
        let queryable = self.tsdb.queryable(&self.tenant);
        let mut batches = queryable.select(&Selector { matchers: &[], range: part }, &ctx)?;
        let mut writer = BlockWriter::create_after(&self.env, &self.out, newest)?;
        let mut columns = Columns::default();
        let mut more = true;
        while more {
            let mut batch = Vec::new();
            more = batches.next_batch(&mut batch)?;
            for series in batch {
                columns.clear();
                series.samples.read(part, &mut columns)?;
                let mut chunks = Vec::new();
                kinds::encode(&columns, &mut chunks);
                writer.add(&series.labels, &chunks)?;
            }
        }
        Ok(writer.finish(BlockSource::head(range))?)
    }
}
