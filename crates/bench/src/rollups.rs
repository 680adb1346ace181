//! Benchmark `rollups`: a year of points every 10 s, panels of `/render` over it before and after the blocks
//! have roll-ups.
//!
//! Invariants: the blocks are written directly, as wide as compaction makes them, so that only roll-ups are
//! left to do; an answer before and after must be the same; the roll-up of a block begins within seconds of
//! the start, so the answers before may use some.
//! Not here: interpretation of the figures (BENCHMARKS.md).

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use chronolith_base::{Clock, Env, SystemClock};
use chronolith_block::{BlockSource, BlockWriter};
use chronolith_model::databases::CatalogChange;
use chronolith_model::{Labels, TenantId, TimeRange};
use chronolith_tsdb::CatalogEditor;

use crate::driver::{Benchmark, Run};
use crate::latency::{largest, median, timed};
use crate::report::{MIB, Table};
use crate::server::{Kind, Server, Setup};
use crate::workers::in_parallel;
use crate::{http, proc};

const STEP_MS: i64 = 10_000;
/// Width of a block: what compaction leaves as it is.
const BLOCK_MS: i64 = 27 * 24 * 3_600_000;
const DAY_S: i64 = 24 * 3600;
/// Distance of the last block from the clock: windows before it are closed.
const AGE_MS: i64 = 6 * 3_600_000;
const SCHEMAS: &str = "[all]\npattern = .*\nretentions = 10s:2w,1m:9w,1h:10y\n";
/// Panels that ask for no method get the first one.
const AGGREGATION: &str =
    "[all]\npattern = .*\nxFilesFactor = 0\naggregationMethod = avg,min,max,last,count\n";
const READY_WAIT: Duration = Duration::from_secs(120);
const ROLLUP_WAIT: Duration = Duration::from_secs(1800);
const POLL: Duration = Duration::from_millis(500);
/// Longest answers that a panel may have.
const POINTS: usize = 800;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Series; a panel has a tenth of them.
    #[arg(long, default_value_t = 1000)]
    series: usize,
    /// Days of points.
    #[arg(long, default_value_t = 365)]
    days: i64,
    /// Timed answers of each panel, after one to warm up.
    #[arg(long, default_value_t = 10)]
    rounds: usize,
}

/// A question to `/render`.
struct Panel {
    name: &'static str,
    target: &'static str,
    days: i64,
    /// Answer time in milliseconds at most, at full size.
    must_ms: Option<f64>,
}

const PANELS: [Panel; 5] = [
    Panel {
        name: "year, a tenth of the series, 800 points",
        target: "load.h0*.value",
        days: 365,
        must_ms: Some(50.0),
    },
    Panel { name: "year, sum of all", target: "sumSeries(load.*.value)", days: 365, must_ms: Some(200.0) },
    Panel {
        name: "year, largest of each day of a tenth",
        target: "summarize(load.h0*.value,'1d','max')",
        days: 365,
        must_ms: None,
    },
    Panel { name: "30 days, a tenth, 800 points", target: "load.h0*.value", days: 30, must_ms: None },
    Panel {
        name: "24 h of raw points, sum of all",
        target: "sumSeries(load.*.value)",
        days: 1,
        must_ms: None,
    },
];

/// Times of a panel in milliseconds.
struct Timed {
    first_ms: f64,
    median_ms: f64,
    max_ms: f64,
}

impl Benchmark for Options {
    fn servers(&self) -> Result<Vec<Kind>> {
        Ok(vec![Kind::Chronolith])
    }

    fn measure(&self, run: &mut Run) -> Result<()> {
        ensure!(self.series >= 10 && self.days > 0 && self.rounds > 0, "at least 10 series, a day, a round");
        let measured = run.with_directory(None, |run, rules| {
            std::fs::write(rules.join("schemas.conf"), SCHEMAS)?;
            std::fs::write(rules.join("aggregation.conf"), AGGREGATION)?;
            let flag = |name: &str| {
                let path = rules.join(format!("{name}.conf"));
                [format!("--graphite.{name}"), path.display().to_string()]
            };
            let setup = Setup::new(0).own_flags(flag("schemas")).own_flags(flag("aggregation"));
            run.measure_server(Kind::Chronolith, setup, |server| measure(server, self))
        });
        if let Some(measured) = run.keep("rollups", measured) {
            report(self, &measured, run);
        }
        Ok(())
    }
}

/// Answers before and after the blocks have roll-ups.
struct Measured {
    written: Written,
    before: Vec<(Timed, String)>,
    after: Vec<(Timed, String)>,
    /// Time that the roll-ups took.
    rolled_up: Duration,
    sizes: Sizes,
    peak_bytes: u64,
}

fn measure(server: &mut Server, options: &Options) -> Result<Measured> {
    server.stop()?;
    let end_ms = SystemClock::new().now_ms() - AGE_MS;
    let end_ms = end_ms - end_ms.rem_euclid(7_200_000);
    let start = Instant::now();
    let written = write_blocks(&server.data_dir(), options, end_ms)?;
    let seconds = start.elapsed().as_secs_f64();
    println!("{} blocks, {} points written in {seconds:.0} s", written.blocks, written.points);
    server.start_again(READY_WAIT)?;
    let before = ask(server, options, 1, end_ms)?;
    let rolled_up = wait_for_rollups(server, written.blocks)?;
    // Answers before count the time of blocks that are open already; these start with closed ones.
    server.stop()?;
    server.start_again(READY_WAIT)?;
    let after = ask(server, options, options.rounds, end_ms)?;
    for (panel, (first, second)) in PANELS.iter().zip(before.iter().zip(&after)) {
        ensure!(first.1 == second.1, "{}: the answers differ", panel.name);
    }
    let sizes = Sizes::of(&store_dir(&server.data_dir())?)?;
    Ok(Measured { written, before, after, rolled_up, sizes, peak_bytes: server.memory()?.peak_bytes })
}

fn report(options: &Options, measured: &Measured, run: &mut Run) {
    let Measured { written, before, after, sizes, .. } = measured;
    let Options { series, days, .. } = options;
    run.note(format!("{series} series, {days} days, a point every 10 s: {} points", written.points));
    run.note("archives of 1 min and 1 h: avg (sum and count), min, max, last, count");
    run.note("answers with and without roll-ups compared, equal");
    let mut panels = Table::new("answers of /render, ms", ["without, first", "first", "median", "max"]);
    for (panel, (without, with)) in PANELS.iter().zip(before.iter().zip(after)) {
        let timed = &with.0;
        panels.row(panel.name, 1, [without.0.first_ms, timed.first_ms, timed.median_ms, timed.max_ms]);
        if let Some(must_ms) = panel.must_ms.filter(|_| *series >= 1000 && *days >= 365) {
            run.at_most(format!("{}, median ms", panel.name), timed.median_ms, must_ms);
        }
    }
    let part = sizes.hour_bytes as f64 / sizes.block_bytes as f64 * 100.0;
    let seconds = measured.rolled_up.as_secs_f64();
    let mut table = Table::new("roll-ups", ["chronolith"]);
    table.row("blocks, MiB", 1, [sizes.block_bytes as f64 / MIB]);
    table.row("1 h archive, MiB", 2, [sizes.hour_bytes as f64 / MIB]);
    table.row("1 h archive, % of blocks", 2, [part]);
    table.row("all archives, MiB", 1, [sizes.rollup_bytes as f64 / MIB]);
    table.row("time until all blocks had roll-ups, s", 1, [seconds]);
    table.row("points rolled up per second", 0, [written.points as f64 / seconds]);
    table.row("peak RSS of the server, MiB", 0, [measured.peak_bytes as f64 / MIB]);
    run.at_most("1 h archive, % of blocks", part, 3.0);
    run.table(panels);
    run.table(table);
}

/// Asks for each panel; returns its times, and the answer.
fn ask(server: &Server, options: &Options, rounds: usize, end_ms: i64) -> Result<Vec<(Timed, String)>> {
    let until_s = end_ms / 1000 - 1;
    let answers = PANELS.iter().map(|panel| {
        let from_s = until_s - panel.days.min(options.days) * DAY_S;
        let target = panel.target.replace('\'', "%27");
        let path = format!(
            "/render?format=json&maxDataPoints={POINTS}&from={from_s}&until={until_s}&target={target}"
        );
        let mut times = Vec::new();
        let mut answer = String::new();
        for _ in 0..=rounds {
            let (status, body) = timed(&mut times, || http::get(server.port, &path))?;
            ensure!(status == 200, "{}: {status} {body}", panel.name);
            answer = body;
        }
        ensure!(answer.contains("datapoints") && answer.len() > 1000, "{}: an empty answer", panel.name);
        let first_ms = times.remove(0);
        let median_ms = median(&times);
        println!("{}: first {first_ms:.1} ms, then {median_ms:.1} ms", panel.name);
        Ok((Timed { first_ms, median_ms, max_ms: largest(&times) }, answer))
    });
    answers.collect()
}

/// Waits until all blocks have roll-ups; returns the time that the jobs took.
fn wait_for_rollups(server: &mut Server, block_count: usize) -> Result<Duration> {
    let start = Instant::now();
    server.wait_for("the roll-up of all blocks", POLL, ROLLUP_WAIT, |server| {
        if server.metric("rollup_blocks").unwrap_or(0.0) < block_count as f64 {
            return Ok(None);
        }
        let busy = server.metric("maintenance_duration_seconds_total{kind=\"rollup\"}");
        Ok(Some(Duration::from_secs_f64(busy.unwrap_or(start.elapsed().as_secs_f64()))))
    })
}

/// Bytes of files of a store.
struct Sizes {
    block_bytes: u64,
    hour_bytes: u64,
    rollup_bytes: u64,
}

impl Sizes {
    fn of(store_dir: &Path) -> Result<Sizes> {
        let mut sizes = Sizes { block_bytes: 0, hour_bytes: 0, rollup_bytes: 0 };
        for block in std::fs::read_dir(store_dir)? {
            let dir = block?.path();
            let rollups = dir.join("rollups");
            let of_rollups = proc::disk_bytes(&rollups);
            sizes.rollup_bytes += of_rollups;
            sizes.block_bytes += proc::disk_bytes(&dir) - of_rollups;
            sizes.hour_bytes += std::fs::metadata(rollups.join("3600000-10000"))?.len();
        }
        Ok(sizes)
    }
}

/// Returns the directory of the blocks of the Graphite store; creates the store if there is none.
fn store_dir(data_dir: &Path) -> Result<PathBuf> {
    let (editor, _) = CatalogEditor::open(&Env::real(), data_dir)?;
    let tenant = TenantId::anonymous();
    editor.change(&tenant, &CatalogChange::CreateGraphiteStore)?;
    let catalog = editor.catalog();
    let policy = catalog.of(&tenant).and_then(|own| own.graphite.as_ref());
    Ok(chronolith_tsdb::tenant_dir(data_dir, &policy.context("the store was not created")?.store))
}

/// Blocks that were written.
struct Written {
    blocks: usize,
    points: u64,
}

/// Writes the points as blocks, one per aligned range, on all cores.
fn write_blocks(data_dir: &Path, options: &Options, end_ms: i64) -> Result<Written> {
    let dir = store_dir(data_dir)?;
    let all = TimeRange::new(end_ms - options.days * DAY_S * 1000, end_ms);
    let first = all.start - all.start.rem_euclid(BLOCK_MS);
    let starts: Vec<i64> =
        (0..).map(|at| first + at * BLOCK_MS).take_while(|start| *start < all.end).collect();
    let threads = std::thread::available_parallelism()?.get();
    let points = in_parallel(0..threads, |thread, _| -> Result<u64> {
        let own = starts.iter().skip(thread).step_by(threads);
        own.map(|start| {
            let range = TimeRange::new((*start).max(all.start), (start + BLOCK_MS).min(all.end));
            write_block(&dir, options.series, range)
        })
        .sum()
    })?;
    Ok(Written { blocks: starts.len(), points: points.iter().sum() })
}

fn write_block(dir: &Path, series_count: usize, range: TimeRange) -> Result<u64> {
    let mut writer = BlockWriter::create(&Env::real(), dir)?;
    let times: Vec<i64> = (range.start..range.end).step_by(STEP_MS as usize).collect();
    let mut values = Vec::with_capacity(times.len());
    for series in 0..series_count {
        let name = format!("load.h{series:03}.value");
        values.clear();
        let mut walk = Walk::new(series as u64 ^ range.start.cast_unsigned());
        values.extend(times.iter().map(|_| walk.next_value(series)));
        writer.add_samples(&Labels::from_pairs([("__name__", name.as_str())]), &times, &values)?;
    }
    let source = BlockSource { level: 5, ..BlockSource::head(range) };
    writer.finish(source)?;
    Ok((times.len() * series_count) as u64)
}

/// Values of a series: gauges with one decimal that walk by up to 3, and every second series a counter of
/// whole numbers.
struct Walk {
    state: u64,
    value: i64,
}

impl Walk {
    fn new(seed: u64) -> Walk {
        Walk { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, value: 5000 }
    }

    fn next_value(&mut self, series: usize) -> f64 {
        // Xorshift by Marsaglia.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let random = (self.state >> 33) as i64;
        if series.is_multiple_of(2) {
            self.value = (self.value + random % 61 - 30).clamp(0, 10_000);
            self.value as f64 / 10.0
        } else {
            self.value += random % 50;
            self.value as f64
        }
    }
}
