//! `chronolith block dump`: all samples of blocks, one line each as `promtool tsdb dump` prints them:
//! `{labels} value timestamp`.
//!
//! Invariants: series in order of labels, samples in order of time, block after block; deleted samples are
//! left out. Timestamps have the unit of the block: milliseconds, or nanoseconds of blocks that say so.
//! Not here: samples of one series in several blocks as one (a query merges them).

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use chronolith_base::Env;
use chronolith_block::Block;
use chronolith_model::query::{ColumnType, TypedColumns};
use chronolith_model::quote::write_quoted;
use chronolith_model::{Columns, Labels, Matcher, Queryable, ReadContext, SampleSource, Selector, TimeRange};
use chronolith_promql::parser::parse_metric_selector;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Map, Value, json};

use super::value_text::{float_text, histogram_text, typed_text};
use crate::progress::{Bar, WithoutTerminal, cells};

pub(super) fn command() -> Command {
    let time = |name: &'static str, alias: &'static str, help: &'static str| {
        let parser = clap::value_parser!(i64);
        Arg::new(name)
            .long(name)
            .visible_alias(alias)
            .value_name("MS")
            .value_parser(parser)
            .allow_hyphen_values(true)
            .help(help)
    };
    Command::new("dump")
        .about("Print all samples, as promtool tsdb dump does; with --json a line per series")
        .arg(
            Arg::new("match")
                .long("match")
                .value_name("SELECTOR")
                .action(ArgAction::Append)
                .help("Series to print, such as 'up{job=\"a\"}'; may be repeated; default: all"),
        )
        .arg(time("min-time", "start", "First time, in milliseconds since 1970"))
        .arg(time("max-time", "end", "Last time, in milliseconds since 1970"))
}

/// Series and times to print.
struct Wanted {
    /// Any of them selects a series; all series if there are none.
    selectors: Vec<Vec<Matcher>>,
    /// In milliseconds since 1970.
    range: TimeRange,
    is_json: bool,
}

impl Wanted {
    fn parse(matches: &ArgMatches) -> anyhow::Result<Wanted> {
        let selectors = matches.get_many::<String>("match").into_iter().flatten();
        let parse = |text: &String| {
            parse_metric_selector(text).map_err(|error| anyhow::anyhow!("--match {text:?}: {error}"))
        };
        let first = matches.get_one::<i64>("min-time").copied().unwrap_or(TimeRange::ALL.start);
        let last = matches.get_one::<i64>("max-time").copied().unwrap_or(TimeRange::ALL.end - 1);
        anyhow::ensure!(first <= last, "--min-time {first} is after --max-time {last}");
        Ok(Wanted {
            selectors: selectors.map(parse).collect::<anyhow::Result<_>>()?,
            range: TimeRange::inclusive(first, last),
            is_json: matches.get_flag("json"),
        })
    }

    /// The range in the unit of `block`.
    fn range_in(&self, block: &Block) -> TimeRange {
        block.meta().time_unit().range_from_ms(self.range)
    }

    /// The matchers for the index: none of several selectors, which are applied to the labels of each series.
    fn index_matchers(&self) -> &[Matcher] {
        match self.selectors.as_slice() {
            [only] => only,
            _ => &[],
        }
    }

    fn selects(&self, labels: &Labels) -> bool {
        self.selectors.len() < 2
            || self.selectors.iter().any(|all| all.iter().all(|matcher| matcher.matches_labels(labels)))
    }
}

pub(super) fn run(
    env: &Env,
    dirs: &[PathBuf],
    matches: &ArgMatches,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let wanted = Wanted::parse(matches)?;
    let mut blocks = Vec::new();
    for dir in dirs {
        blocks.push(Block::open(env, dir).with_context(|| format!("opening {}", dir.display()))?);
    }
    blocks.sort_by_key(|block| (block.range().start, block.meta().ulid));
    let total: u64 = blocks.iter().map(|block| block.meta().stats.num_series).sum();
    let mut bar = Bar::new(env, WithoutTerminal::Log);
    let mut done = 0;
    for block in &blocks {
        dump_block(env, block, &wanted, out, &mut |count| {
            done += count;
            bar.draw(|seconds| format!("{}  {done} of {total} series, {seconds} s", cells(done, total)));
        })
        .with_context(|| format!("reading {}", block.dir().display()))?;
    }
    bar.clear();
    Ok(ExitCode::SUCCESS)
}

fn dump_block(
    env: &Env,
    block: &Block,
    wanted: &Wanted,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64),
) -> anyhow::Result<()> {
    let ctx = ReadContext::unlimited(env.clock.clone());
    let range = wanted.range_in(block);
    let selector = Selector { matchers: wanted.index_matchers(), range };
    let mut batches = block.select(&selector, &ctx)?;
    let mut batch = Vec::new();
    let mut has_more = true;
    while has_more {
        has_more = batches.next_batch(&mut batch)?;
        progress(batch.len() as u64);
        for series in batch.drain(..).filter(|series| wanted.selects(&series.labels)) {
            let samples = samples_text(&*series.samples, range)?;
            if samples.is_empty() {
                continue;
            }
            if wanted.is_json {
                writeln!(out, "{}", series_json(&series.labels, &samples))?;
                continue;
            }
            let labels = labels_text(&series.labels);
            for (time, value) in &samples {
                writeln!(out, "{labels} {value} {time}")?;
            }
        }
    }
    Ok(())
}

/// Reads the samples in `range` with their values as text.
fn samples_text(samples: &dyn SampleSource, range: TimeRange) -> anyhow::Result<Vec<(i64, String)>> {
    let column_type = samples.column_type();
    if matches!(column_type, ColumnType::Integer | ColumnType::Unsigned | ColumnType::Text) {
        let mut columns = TypedColumns::new(column_type);
        samples.read_typed(range, &mut columns)?;
        let text = |(idx, &time): (usize, &i64)| (time, typed_text(&columns.values, idx));
        return Ok(columns.times.iter().enumerate().map(text).collect());
    }
    let mut columns = Columns::default();
    samples.read(range, &mut columns)?;
    let mut histograms = columns.histograms.iter().peekable();
    let both = columns.times.iter().zip(&columns.values).enumerate();
    let text = both.map(|(idx, (&time, &value))| {
        match histograms.next_if(|(histogram_idx, _)| *histogram_idx as usize == idx) {
            Some((_, histogram)) => (time, histogram_text(histogram)),
            None => (time, float_text(value)),
        }
    });
    Ok(text.collect())
}

/// Labels with all names in braces, as Prometheus's `Labels.String` prints them.
fn labels_text(labels: &Labels) -> String {
    let mut text = String::from("{");
    for (idx, (name, value)) in labels.iter().enumerate() {
        if idx > 0 {
            text.push_str(", ");
        }
        if chronolith_model::labels::is_legacy_label_name(name) {
            text.push_str(name);
        } else {
            // A string takes everything.
            let _ = write_quoted(&mut text, name);
        }
        text.push('=');
        let _ = write_quoted(&mut text, value);
    }
    text.push('}');
    text
}

fn series_json(labels: &Labels, samples: &[(i64, String)]) -> Value {
    let metric: Map<String, Value> =
        labels.iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect();
    let values: Vec<Value> = samples.iter().map(|(time, value)| json!([time, value])).collect();
    json!({ "metric": metric, "values": values })
}
