//! Benchmark `carbon`: plaintext lines over TCP, sent to each server, then `kill -9`.
//!
//! Invariants: a fresh process over an empty directory for every row and server; the CPU time of a pass ends
//! when the server is idle; points are counted after the restart, of carbon in its files.
//! Not here: interpretation of the figures (BENCHMARKS.md).

mod load;
mod rows;

use std::time::{Duration, Instant};

use anyhow::Result;
use chronolith_base::{Clock, SystemClock};

use crate::driver::{Benchmark, Run, Summary};
use crate::options::{Servers, chosen};
use crate::proc::Stopwatch;
use crate::report::{Figure, MIB};
use crate::server::{Kind, Server, Setup};
use crate::{carbon_cache, http, proc};
use load::{Load, STEP_S};
use rows::{Naming, Row};

/// Servers that take carbon lines.
const KINDS: [Kind; 3] = [Kind::Chronolith, Kind::VictoriaMetrics, Kind::Carbon];
/// Series and rounds per pass of a row of `--quick`.
const QUICK_SERIES: usize = 2_000;
const QUICK_ROUNDS: usize = 10;
/// A server that used less than [`IDLE_CPU_SECONDS`] in each of two such periods is idle.
const IDLE_POLL: Duration = Duration::from_millis(500);
const IDLE_CPU_SECONDS: f64 = 0.02;
const IDLE_WAIT: Duration = Duration::from_secs(60);
/// Series and rounds per pass of carbon, which takes a hundredth of the rate.
const CARBON_SERIES: usize = 20_000;
const CARBON_ROUNDS: usize = 10;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    only: Servers,
    /// Rows (default: all): untagged, tagged, reversed-5, reversed-50, reversed-500.
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// Further flags of this repository's server, separated by spaces.
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    flags: String,
    /// 2,000 series and 21 rounds per row: shows that the benchmark works.
    #[arg(long)]
    quick: bool,
}

/// One pass over rounds.
struct Pass {
    point_count: u64,
    wall_seconds: f64,
    cpu_seconds: f64,
    rss_bytes: u64,
}

impl Pass {
    fn per_second(&self) -> f64 {
        self.point_count as f64 / self.wall_seconds
    }

    fn cpu_per_million(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.point_count as f64
    }
}

/// Figures of one row and server.
struct Measured {
    series_count: usize,
    idle_rss_bytes: u64,
    /// The cold pass, which creates the series, and two warm ones.
    passes: [Pass; 3],
    peak_rss_bytes: u64,
    disk_bytes: u64,
    restart_seconds: f64,
    /// Points that the server read before it was killed and that are not there.
    missing_count: i64,
}

impl Benchmark for Options {
    fn servers(&self) -> Result<Vec<Kind>> {
        self.only.of(&KINDS)
    }

    fn measure(&self, run: &mut Run) -> Result<()> {
        run.note("client on the same machine; one row is one fresh server, killed after its last line");
        run.note(format!("carbon: {CARBON_SERIES} series and {CARBON_ROUNDS} rounds per pass"));
        for row in chosen(&self.rows, rows::all(), |row| row.name)? {
            let line_port = http::free_port()?;
            let setup = |kind| self.setup(&row, kind, line_port);
            let measured = run.measure_servers(row.name, 1, setup, |server| {
                let line_port = if server.kind() == Kind::Carbon { server.port } else { line_port };
                measure(server, line_port, &sized(&row, server.kind(), self))
            });
            run.table(measured.table(title(&row), &run.kinds(), &FIGURES));
            if let Some(own) = measured.first(Kind::Chronolith) {
                add_targets(&row, own, run);
            }
        }
        Ok(())
    }
}

impl Options {
    fn setup(&self, row: &Row, kind: Kind, line_port: u16) -> Option<Setup> {
        // carbon of Debian is run without a database of tags.
        if kind == Kind::Carbon && row.naming == Naming::Tagged {
            return None;
        }
        let row = sized(row, kind, self);
        let address = format!("127.0.0.1:{line_port}");
        // carbon keeps the points of an hour before the first round too.
        let config = format!("{STEP_S}s:{}", row.round_count() + 3600 / STEP_S as usize);
        let setup = Setup::new(row.series_count)
            .own_flags(["--carbon.listen", &*address])
            // Names of series are all that differs, and counts per series have none.
            .own_flags(["--enable-feature", "promql-delayed-name-removal"])
            .own_flags(self.flags.split_whitespace())
            .flags(Kind::VictoriaMetrics, [format!("-graphiteListenAddr={address}")])
            .config(config);
        Some(setup)
    }
}

/// Returns the row in the size that a server gets.
fn sized(row: &Row, kind: Kind, options: &Options) -> Row {
    let cut = |series: usize, rounds: usize| Row {
        series_count: row.series_count.min(series),
        pass_rounds: row.pass_rounds.min(rounds),
        ..row.clone()
    };
    match kind {
        _ if options.quick => cut(QUICK_SERIES, QUICK_ROUNDS),
        Kind::Carbon => cut(CARBON_SERIES, CARBON_ROUNDS),
        _ => row.clone(),
    }
}

fn measure(server: &mut Server, line_port: u16, row: &Row) -> Result<Measured> {
    let load = &Load::new(row, SystemClock::new().now_ms() / 1000);
    wait_idle(server)?;
    let idle_rss_bytes = server.memory()?.now_bytes;
    let warm_end = 1 + row.pass_rounds;
    let cold = pass(server, line_port, load, 0..1, Settle::Idle)?;
    let first = pass(server, line_port, load, 1..warm_end, Settle::Idle)?;
    let second = pass(server, line_port, load, warm_end..row.round_count(), Settle::No)?;
    let peak_rss_bytes = server.memory()?.peak_bytes;
    server.kill()?;
    let disk_bytes = proc::disk_bytes(&server.data_dir());
    let sent = (load.series_count() * row.round_count()) as u64;
    let counted = restart_and_count(server, row, load)?;
    Ok(Measured {
        series_count: row.series_count,
        idle_rss_bytes,
        passes: [cold, first, second],
        peak_rss_bytes,
        disk_bytes,
        restart_seconds: counted.restart_seconds,
        missing_count: sent.cast_signed() - counted.point_count.cast_signed(),
    })
}

/// End of the CPU time of a pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Settle {
    /// The server is idle.
    Idle,
    /// The connections are closed; the server is killed at once.
    No,
}

fn pass(
    server: &mut Server,
    line_port: u16,
    load: &Load,
    rounds: std::ops::Range<usize>,
    settle: Settle,
) -> Result<Pass> {
    let point_count = (rounds.len() * load.series_count()) as u64;
    let stopwatch = Stopwatch::start(server.pid())?;
    let wall_seconds = load.send(line_port, rounds)?;
    if settle == Settle::Idle {
        wait_idle(server)?;
    }
    server.check_alive()?;
    let cpu_seconds = stopwatch.spent()?.cpu.total();
    Ok(Pass { point_count, wall_seconds, cpu_seconds, rss_bytes: server.memory()?.now_bytes })
}

fn wait_idle(server: &mut Server) -> Result<()> {
    let start = Instant::now();
    let mut idle_count = 0;
    let mut last = server.cpu()?;
    while start.elapsed() < IDLE_WAIT && idle_count < 2 {
        std::thread::sleep(IDLE_POLL);
        server.check_alive()?;
        let now = server.cpu()?;
        idle_count = if now.since(last).total() < IDLE_CPU_SECONDS { idle_count + 1 } else { 0 };
        last = now;
    }
    Ok(())
}

/// A restart and the points that are there after it.
struct Counted {
    restart_seconds: f64,
    point_count: u64,
}

fn restart_and_count(server: &mut Server, row: &Row, load: &Load) -> Result<Counted> {
    if server.kind() == Kind::Carbon {
        let point_count = carbon_cache::count_points(&server.data_dir(), load.time_s(0))?;
        return Ok(Counted { restart_seconds: f64::NAN, point_count });
    }
    let restart_seconds = server.start_again(Duration::from_secs(600))?;
    server.make_visible()?;
    let end_ms = load.time_s(row.round_count() - 1) * 1000;
    let range_s = row.round_count() as i64 * STEP_S;
    let query = format!("sum(count_over_time({{__name__=~\"load[.].+\"}}[{range_s}s])) or vector(0)");
    let point_count = http::query_number(server.port, &query, end_ms)? as u64;
    Ok(Counted { restart_seconds, point_count })
}

impl Summary for Measured {
    fn summary(&self) -> String {
        let [cold, first, second] = &self.passes;
        format!(
            "cold {:.0} series/s, warm {:.2} and {:.2} M points/s, {:.3} and {:.3} CPU s per M, {:.0} B per \
             series, {} missing",
            cold.per_second(),
            first.per_second() / 1e6,
            second.per_second() / 1e6,
            first.cpu_per_million(),
            second.cpu_per_million(),
            self.series_bytes(),
            self.missing_count,
        )
    }
}

impl Measured {
    /// Memory per series after each has a point.
    fn series_bytes(&self) -> f64 {
        let [cold, _, _] = &self.passes;
        (cold.rss_bytes as f64 - self.idle_rss_bytes as f64) / self.series_count as f64
    }

    /// CPU seconds per million points of both warm passes.
    fn warm_cpu_per_million(&self) -> f64 {
        let [_, first, second] = &self.passes;
        let points = first.point_count + second.point_count;
        (first.cpu_seconds + second.cpu_seconds) * 1e6 / points as f64
    }
}

const FIGURES: [Figure<Measured>; 12] = [
    ("series created per second, cold", 0, |m| m.passes[0].per_second()),
    ("points/s, first warm pass", 0, |m| m.passes[1].per_second()),
    ("points/s, second warm pass", 0, |m| m.passes[2].per_second()),
    ("CPU s per million points, cold", 3, |m| m.passes[0].cpu_per_million()),
    ("CPU s per million points, first warm pass", 3, |m| m.passes[1].cpu_per_million()),
    ("CPU s per million points, second warm pass, not settled", 3, |m| m.passes[2].cpu_per_million()),
    ("RSS idle, MiB", 0, |m| m.idle_rss_bytes as f64 / MIB),
    ("RSS after the cold pass, bytes per series", 0, Measured::series_bytes),
    ("peak RSS, MiB", 0, |m| m.peak_rss_bytes as f64 / MIB),
    ("disk at the kill, MiB", 1, |m| m.disk_bytes as f64 / MIB),
    ("restart, s", 2, |m| m.restart_seconds),
    ("points missing after kill -9", 0, |m| m.missing_count as f64),
];

fn title(row: &Row) -> String {
    let line_bytes = Load::new(row, 1_700_000_000).line_bytes();
    format!(
        "{}: {} series, lines of {line_bytes:.1} B, 1 + 2 x {} rounds, groups of {} reversed",
        row.name, row.series_count, row.pass_rounds, row.reversed
    )
}

/// Adds the targets of this repository's server.
fn add_targets(row: &Row, one: &Measured, run: &mut Run) {
    let what = |what: &str| format!("{}: {what}", row.name);
    run.at_most(what("points missing after kill -9"), one.missing_count.unsigned_abs() as f64, 0.0);
    run.at_most(what("CPU s per million points, warm"), one.warm_cpu_per_million(), 0.45);
    if row.series_count >= 100_000 {
        run.at_least(what("series created per second"), one.passes[0].per_second(), 300_000.0);
        run.at_most(what("bytes per series"), one.series_bytes(), 1500.0);
    }
}
