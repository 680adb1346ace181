//! Benchmark `rollups`: a year of points every 10 s, panels of `/render` over it before and after the blocks
//! have roll-ups.
//!
//! Invariants: the blocks are written directly, as wide as compaction makes them, so that only roll-ups are
//! left to do; an answer before and after must be the same; the roll-up of a block begins within seconds of
//! the start, so the answers before may use some.
//! Not here: interpretation of the figures (BENCHMARKS.md).

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use chronolith_base::{Clock, Env, SystemClock};
use chronolith_block::{BlockSource, BlockWriter};
use chronolith_model::databases::CatalogChange;
use chronolith_model::{Labels, TenantId, TimeRange};
use chronolith_tsdb::CatalogEditor;

use crate::options::{DataDirectory, ReportDirectory};
use crate::report::{Bound, Failures, Report, Table, Target, median};
use crate::server::{Kind, Server, Setup};
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
const ROLLUP_WAIT: Duration = Duration::from_secs(1800);
const POLL: Duration = Duration::from_millis(500);
const MIB: f64 = 1_048_576.0;
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
    #[command(flatten)]
    out: ReportDirectory,
    #[command(flatten)]
    data: DataDirectory,
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

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(
        options.series >= 10 && options.days > 0 && options.rounds > 0,
        "at least 10 series, a day, a round"
    );
    let kind = Kind::Chronolith;
    println!("{}: {}", kind.name(), kind.version()?);
    let mut failures = Failures::default();
    if let Some(report) = failures.keep("rollups".to_owned(), measure(kind, options)) {
        report.write(&options.out)?;
    }
    failures.end()
}

fn measure(kind: Kind, options: &Options) -> Result<Report> {
    let rules = tempfile_dir(&options.data)?;
    std::fs::write(rules.join("schemas.conf"), SCHEMAS)?;
    std::fs::write(rules.join("aggregation.conf"), AGGREGATION)?;
    let flag =
        |name: &str, file: &str| [format!("--graphite.{name}"), rules.join(file).display().to_string()];
    let flags = [flag("schemas", "schemas.conf"), flag("aggregation", "aggregation.conf")].concat();
    let mut server = Server::start_with(kind, &options.data, Setup { flags, ..Setup::default() })?;
    server.stop()?;
    let end_ms = SystemClock::new().now_ms() - AGE_MS;
    let end_ms = end_ms - end_ms.rem_euclid(7_200_000);
    let start = Instant::now();
    let written = write_blocks(&server.data_dir(), options, end_ms)?;
    println!(
        "{} blocks, {} points written in {:.0} s",
        written.blocks,
        written.points,
        start.elapsed().as_secs_f64()
    );
    let result = measure_server(&mut server, options, &written, end_ms)
        .with_context(|| format!("the log of the server ends with:\n{}", server.log_tail()));
    std::fs::remove_dir_all(&rules)?;
    result
}

fn tempfile_dir(parent: &Path) -> Result<PathBuf> {
    let dir = parent.join(format!("chronolith-bench-rules-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    Ok(dir)
}

fn measure_server(server: &mut Server, options: &Options, written: &Written, end_ms: i64) -> Result<Report> {
    server.exec_again()?;
    server.wait_ready_within(Duration::from_secs(120))?;
    let before = ask(server, options, 1, end_ms)?;
    let rolled_up = wait_for_rollups(server, written.blocks)?;
    // Answers before count the time of blocks that are open already; these start with closed ones.
    server.stop()?;
    server.exec_again()?;
    server.wait_ready_within(Duration::from_secs(120))?;
    let after = ask(server, options, options.rounds, end_ms)?;
    for (panel, (first, second)) in PANELS.iter().zip(before.iter().zip(&after)) {
        ensure!(first.1 == second.1, "{}: the answers differ", panel.name);
    }
    let sizes = Sizes::of(&store_dir(&server.data_dir())?)?;
    let rss_bytes = proc::memory(server.pid())?.peak_bytes;
    let mut report = Report {
        name: "rollups".to_owned(),
        kinds: vec![Kind::Chronolith],
        notes: vec![
            format!(
                "{} series, {} days, a point every 10 s: {} points",
                options.series, options.days, written.points
            ),
            "archives of 1 min and 1 h: avg (sum and count), min, max, last, count".into(),
            "answers with and without roll-ups compared, equal".into(),
        ],
        tables: Vec::new(),
        targets: Vec::new(),
    };
    let mut panels = Table::new("answers of /render, ms", ["without, first", "first", "median", "max"]);
    for (panel, (without, with)) in PANELS.iter().zip(before.iter().zip(&after)) {
        let timed = &with.0;
        panels.row(panel.name, 1, [without.0.first_ms, timed.first_ms, timed.median_ms, timed.max_ms]);
        if let Some(must_ms) = panel.must_ms.filter(|_| options.series >= 1000 && options.days >= 365) {
            let what = format!("{}, median ms", panel.name);
            report.targets.push(Target::new(what, timed.median_ms, Bound::AtMost(must_ms)));
        }
    }
    let part = sizes.hour_bytes as f64 / sizes.block_bytes as f64 * 100.0;
    let mut table = Table::new("roll-ups", ["chronolith"]);
    table.row("blocks, MiB", 1, [sizes.block_bytes as f64 / MIB]);
    table.row("1 h archive, MiB", 2, [sizes.hour_bytes as f64 / MIB]);
    table.row("1 h archive, % of blocks", 2, [part]);
    table.row("all archives, MiB", 1, [sizes.rollup_bytes as f64 / MIB]);
    table.row("time until all blocks had roll-ups, s", 1, [rolled_up.as_secs_f64()]);
    table.row("points rolled up per second", 0, [written.points as f64 / rolled_up.as_secs_f64()]);
    table.row("peak RSS of the server, MiB", 0, [rss_bytes as f64 / MIB]);
    report.targets.push(Target::new("1 h archive, % of blocks", part, Bound::AtMost(3.0)));
    report.tables = vec![panels, table];
    Ok(report)
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
            let start = Instant::now();
            let (status, body) = http::get(server.port, &path)?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
            ensure!(status == 200, "{}: {status} {body}", panel.name);
            answer = body;
        }
        ensure!(answer.contains("datapoints") && answer.len() > 1000, "{}: an empty answer", panel.name);
        let first_ms = times.remove(0);
        println!("{}: first {first_ms:.1} ms, then {:.1} ms", panel.name, median(times.clone()));
        let max_ms = times.iter().copied().fold(0.0, f64::max);
        Ok((Timed { first_ms, median_ms: median(times), max_ms }, answer))
    });
    answers.collect()
}

/// Waits until all blocks have roll-ups; returns the time that the jobs took.
fn wait_for_rollups(server: &mut Server, block_count: usize) -> Result<Duration> {
    let start = Instant::now();
    while start.elapsed() < ROLLUP_WAIT {
        server.check_alive()?;
        let (_, metrics) = http::get(server.port, "/metrics")?;
        let value = |name: &str| {
            let line = metrics.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        };
        let done = value("chronolith_rollup_blocks_total").unwrap_or(0.0);
        if done >= block_count as f64 {
            let busy = value("chronolith_maintenance_duration_seconds_total{kind=\"rollup\"}");
            return Ok(Duration::from_secs_f64(busy.unwrap_or(start.elapsed().as_secs_f64())));
        }
        std::thread::sleep(POLL);
    }
    anyhow::bail!("after {} s not all blocks have roll-ups", ROLLUP_WAIT.as_secs())
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
    let next = AtomicUsize::new(0);
    let write_all = || -> Result<u64> {
        let mut points = 0;
        while let Some(start) = starts.get(next.fetch_add(1, Ordering::Relaxed)) {
            let range = TimeRange::new((*start).max(all.start), (start + BLOCK_MS).min(all.end));
            points += write_block(&dir, options.series, range)?;
        }
        Ok(points)
    };
    let threads = std::thread::available_parallelism()?.get();
    let points = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(write_all)).collect();
        let results = running.into_iter().map(|thread| thread.join().expect("no panic"));
        results.sum::<Result<u64>>()
    })?;
    Ok(Written { blocks: starts.len(), points })
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
