//! `chronolith export blocks`: writes what a data directory holds as blocks that Prometheus, Thanos and Mimir
//! read.
//! Invariants: samples of blocks and head are merged as a query merges them; the data directory keeps its
//! content; values that a float does not hold exactly are left out and named.
//! Not here: writing a block (`chronolith-block`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use chronolith_base::Env;
use chronolith_base::hash::{HashMap, HashSet};
use chronolith_block::{BlockSource, BlockWriter};
use chronolith_format::block::meta::{BlockMeta, Ulid};
use chronolith_format::chunk::kinds;
use chronolith_model::query::{TypedColumns, TypedValues};
use chronolith_model::{
    Columns, KIND_LABEL, Labels, Matcher, ReadContext, Selector, StoreId, TenantId, TimeRange, WordKind,
};
use chronolith_tsdb::Tsdb;
use clap::{Arg, ArgMatches, Command};

use crate::args::value;
use crate::import::{data_dir_arg, place, tenant_arg};
use crate::locked_dir;
use crate::query::print;

/// Range of an exported block.
const RANGE_MS: i64 = 2 * 3_600_000;

pub(super) fn command() -> Command {
    let time = |name: &'static str, help: &'static str| {
        let parser = clap::value_parser!(i64);
        Arg::new(name).long(name).value_name("MS").value_parser(parser).allow_hyphen_values(true).help(help)
    };
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
        .arg(time("max-time", "Last time, in milliseconds since 1970"))
}

pub(super) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let (data_dir, tenant) = place(matches)?;
    let out = PathBuf::from(value(matches, "out").unwrap_or_default());
    let first = matches.get_one::<i64>("min-time").copied().unwrap_or(TimeRange::ALL.start);
    let last = matches.get_one::<i64>("max-time").copied().unwrap_or(TimeRange::ALL.end - 1);
    let env = Env::real();
    anyhow::ensure!(env.disk.exists(&data_dir), "no data directory at {}", data_dir.display());
    let tsdb = locked_dir::open_to_read(&env, data_dir)?;
    let wanted = TimeRange::inclusive(first.max(TimeRange::ALL.start), last.min(TimeRange::ALL.end - 1));
    let export = Export { env, tsdb, tenant, out, wanted };
    let (blocks, left_out) = export.run()?;
    print(&blocks.iter().map(line).collect::<String>());
    print(&format!(
        "exported {} samples in {} blocks\n",
        blocks.iter().map(|meta| meta.stats.num_samples).sum::<u64>(),
        blocks.len()
    ));
    print(&left_out.iter().map(|(labels, count)| left_out_line(labels, *count)).collect::<String>());
    Ok(ExitCode::SUCCESS)
}

fn line(meta: &BlockMeta) -> String {
    let series = meta.stats.num_series;
    let samples = meta.stats.num_samples;
    format!("{} {}..{}: {series} series, {samples} samples\n", meta.ulid, meta.min_time, meta.max_time)
}

/// Samples of one series that Prometheus cannot hold.
type LeftOut = BTreeMap<Labels, u64>;

fn left_out_line(labels: &Labels, count: u64) -> String {
    let what = match WordKind::of(labels) {
        WordKind::Text => "texts",
        _ => "integers that no float holds exactly",
    };
    format!("left out: {labels}: {count} {what}\n")
}

struct Export {
    env: Env,
    tsdb: Arc<Tsdb>,
    tenant: TenantId,
    out: PathBuf,
    wanted: TimeRange,
}

impl Export {
    fn run(&self) -> anyhow::Result<(Vec<BlockMeta>, LeftOut)> {
        let mut written = Vec::new();
        let mut left_out = LeftOut::new();
        let mut newest: Option<Ulid> = None;
        let mut at = self.wanted.start;
        // The next sample at or after the end of the last range says which range comes next.
        while let Some(first) = self.first_time(at)? {
            let range = TimeRange::window_of(first, RANGE_MS);
            let meta = self
                .write(range, newest, &mut left_out)
                .with_context(|| format!("writing {}", self.out.display()))?;
            if let Some(meta) = meta {
                newest = Some(meta.ulid);
                written.push(meta);
            }
            at = range.end;
        }
        Ok((written, left_out))
    }

    /// Time of the first sample from `start` on.
    fn first_time(&self, start: i64) -> anyhow::Result<Option<i64>> {
        let Some(range) =
            self.tsdb.reader().times(&StoreId::from(&self.tenant), TimeRange::new(start, self.wanted.end))
        else {
            return Ok(None);
        };
        Ok(Some(range.start.max(start)))
    }

    /// Counts the samples in `range` that no float holds exactly; returns the times of integers among them,
    /// by the labels that PromQL sees.
    fn inexact(
        &self,
        range: TimeRange,
        left_out: &mut LeftOut,
    ) -> anyhow::Result<HashMap<Labels, HashSet<i64>>> {
        let ctx = ReadContext::unlimited(self.env.clock.clone());
        let queryable = self.tsdb.reader().typed_queryable(&StoreId::from(&self.tenant));
        let mut inexact = HashMap::default();
        for kind in [WordKind::Integer, WordKind::Unsigned, WordKind::Text] {
            let matchers = [Matcher::equal(KIND_LABEL, kind.label_value())];
            let mut batches = queryable.select(&Selector { matchers: &matchers, range }, &ctx)?;
            let mut batch = Vec::new();
            let mut more = true;
            while more {
                more = batches.next_batch(&mut batch)?;
                for series in batch.drain(..) {
                    let mut columns = TypedColumns::new(series.samples.column_type());
                    series.samples.read_typed(range, &mut columns)?;
                    let times: HashSet<i64> = match &columns.values {
                        TypedValues::Integers(values) => times_where(&columns.times, values, |value| {
                            value as f64 as i128 != i128::from(value)
                        }),
                        TypedValues::Unsigned(values) => times_where(&columns.times, values, |value| {
                            value as f64 as i128 != i128::from(value)
                        }),
                        _ => columns.times.iter().copied().collect(),
                    };
                    if !times.is_empty() {
                        *left_out.entry(series.labels.clone()).or_insert(0) += times.len() as u64;
                        let visible = series.labels.filtered(|name| name != KIND_LABEL);
                        if kind != WordKind::Text {
                            inexact.insert(visible, times);
                        }
                    }
                }
            }
        }
        Ok(inexact)
    }

    fn write(
        &self,
        range: TimeRange,
        newest: Option<Ulid>,
        left_out: &mut LeftOut,
    ) -> anyhow::Result<Option<BlockMeta>> {
        let part = TimeRange::new(range.start.max(self.wanted.start), range.end.min(self.wanted.end));
        let ctx = ReadContext::unlimited(self.env.clock.clone());
        let inexact = self.inexact(part, left_out)?;
        let queryable = self.tsdb.reader().queryable(&self.tenant);
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
                if let Some(times) = inexact.get(&series.labels) {
                    let kept = |idx: &usize| !times.contains(&columns.times[*idx]);
                    let mut exact = Columns::default();
                    (0..columns.len()).filter(kept).for_each(|idx| exact.push_from(&columns, idx));
                    columns = exact;
                }
                let mut chunks = Vec::new();
                kinds::encode(&columns, &mut chunks);
                writer.add(&series.labels, &chunks)?;
            }
        }
        Ok(writer.finish(BlockSource::head(range))?)
    }
}

/// Returns the times of the values that `is_wanted` accepts.
fn times_where<T: Copy>(times: &[i64], values: &[T], is_wanted: impl Fn(T) -> bool) -> HashSet<i64> {
    let wanted = times.iter().zip(values).filter(|(_, value)| is_wanted(**value));
    wanted.map(|(&time, _)| time).collect()
}
