//! Benchmark `line-protocol`: the published load of InfluxDB, sent to each server, then `kill -9`.
//!
//! Invariants: a fresh process over an empty directory for every row and server; values are counted by a
//! query after the restart; bodies have their size before the clock starts.
//! Not here: interpretation of the figures (BENCHMARKS.md).

mod after;
mod body;
mod load;
mod rows;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use chronolith_base::{Clock, SystemClock};

use crate::influx::{self, Index};
use crate::options::{DataDirectory, ReportDirectory};
use crate::proc;
use crate::report::{Bound, Failures, Report, Table, Target};
use crate::server::{Kind, Server, Setup};
use body::DATABASE;
use load::{Load, Ran};
use rows::{Fields, Row};

/// Values and series of a row of `--quick`.
const QUICK_VALUES: u64 = 200_000;
const QUICK_SERIES: usize = 20_000;
const QUICK_SETTLE: Duration = Duration::from_secs(3);
const MIB: f64 = 1_048_576.0;

/// Servers that take line protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Taker {
    /// This repository's release build.
    Chronolith,
    /// VictoriaMetrics, single node.
    VictoriaMetrics,
    /// InfluxDB with the index in memory.
    InfluxInmem,
    /// InfluxDB with the index on disk.
    InfluxTsi1,
}

impl Taker {
    const ALL: [Taker; 4] =
        [Taker::Chronolith, Taker::VictoriaMetrics, Taker::InfluxInmem, Taker::InfluxTsi1];

    fn kind(self) -> Kind {
        match self {
            Taker::Chronolith => Kind::Chronolith,
            Taker::VictoriaMetrics => Kind::VictoriaMetrics,
            Taker::InfluxInmem => Kind::Influx(Index::Inmem),
            Taker::InfluxTsi1 => Kind::Influx(Index::Tsi1),
        }
    }
}

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Servers to measure (default: all four).
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Taker>,
    /// Rows (default: all): 5k-50 to 10k-200, open-loop, gzip, ten-fields, integer-text, 1m-series.
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// Values of a row for this repository's server.
    #[arg(long, default_value_t = 500_000_000)]
    values: u64,
    /// Values of a row for each other server.
    #[arg(long, default_value_t = 50_000_000)]
    peer_values: u64,
    /// Longest time until the disk is settled.
    #[arg(long, default_value_t = 180)]
    settle_seconds: u64,
    /// Further flags of this repository's server, separated by spaces.
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    flags: String,
    /// 200 000 values and 20 000 series per row: shows that the benchmark works.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    out: ReportDirectory,
    #[command(flatten)]
    data: DataDirectory,
}

/// Figures of one row and server.
struct Measured {
    ran: Ran,
    peak_rss_bytes: u64,
    disk_bytes: u64,
    restart_seconds: f64,
    /// Acknowledged values that are not there; below zero if values are there whose request failed.
    missing_count: i64,
    stored_count: u64,
    settled_disk_bytes: u64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let takers = if options.only.is_empty() { Taker::ALL.to_vec() } else { options.only.clone() };
    let all = rows::all();
    for name in &options.rows {
        ensure!(all.iter().any(|row| row.name == *name), "no row {name}; see --help");
    }
    let chosen = all.into_iter().filter(|row| options.rows.is_empty() || options.rows.contains(&row.name));
    let chosen: Vec<Row> = chosen.map(|row| if options.quick { quick(row) } else { row }).collect();
    for taker in &takers {
        println!("{}: {}", taker.kind().name(), taker.kind().version()?);
    }
    let kinds: Vec<Kind> = takers.iter().map(|taker| taker.kind()).collect();
    let mut report = Report {
        name: "line-protocol".to_owned(),
        kinds: kinds.clone(),
        notes: vec!["client on the same machine; one row is one fresh server, killed after the load".into()],
        tables: Vec::new(),
        targets: Vec::new(),
    };
    let mut failures = Failures::default();
    for row in &chosen {
        let mut measured = Vec::new();
        for kind in &kinds {
            let title = format!("{} {}", row.name, kind.name());
            let done = failures.keep(title, measure(*kind, row, options));
            if let Some(one) = &done {
                println!("{} {}: {}", row.name, kind.name(), one.summary());
                add_targets(&mut report.targets, *kind, row, one);
            }
            measured.push(done);
        }
        report.tables.push(table(row, &kinds, &measured));
    }
    report.write(&options.out)?;
    failures.end()
}

fn quick(row: Row) -> Row {
    Row { series_count: row.series_count.min(QUICK_SERIES), ..row }
}

fn measure(kind: Kind, row: &Row, options: &Options) -> Result<Measured> {
    let value_count = match kind {
        _ if options.quick => QUICK_VALUES,
        Kind::Chronolith => options.values,
        _ => options.peer_values,
    };
    let load = Load::new(row, row.value_count(value_count), SystemClock::new().now_ms() * 1_000_000);
    let own_flags = options.flags.split_whitespace().map(str::to_owned);
    let flags = if kind == Kind::Chronolith { own_flags.collect() } else { Vec::new() };
    let setup = Setup { series_count: row.series_count, flags, ..Setup::default() };
    let mut server = Server::start_with(kind, &options.data, setup)?;
    measure_server(&mut server, row, &load, options)
        .with_context(|| format!("{}; its log ends with:\n{}", kind.name(), server.log_tail()))
}

fn measure_server(server: &mut Server, row: &Row, load: &Load, options: &Options) -> Result<Measured> {
    if server.kind() != Kind::VictoriaMetrics {
        influx::create_database(server.port, DATABASE)?;
    }
    let path = format!("/write?db={DATABASE}&precision=ns");
    let ran = load.run(server.port, &path, server.pid())?;
    let peak_rss_bytes = proc::memory(server.pid())?.peak_bytes;
    let disk_bytes = proc::disk_bytes(&server.data_dir());
    let restart_seconds = after::kill_and_restart(server, row, load)?;
    let stored_count = after::line_count(server, row, load)? * row.fields.count() as u64;
    let settle = if options.quick { QUICK_SETTLE } else { Duration::from_secs(options.settle_seconds) };
    let settled_disk_bytes = after::settled_bytes(server, settle)?;
    Ok(Measured {
        missing_count: ran.acked_count.cast_signed() - stored_count.cast_signed(),
        ran,
        peak_rss_bytes,
        disk_bytes,
        restart_seconds,
        stored_count,
        settled_disk_bytes,
    })
}

impl Measured {
    fn summary(&self) -> String {
        format!(
            "{:.0} values/s, {:.0} per CPU second, p99 {:.0} ms, {} errors, {} missing, restart {:.2} s",
            self.ran.per_second(),
            self.ran.per_cpu_second(),
            self.ran.ack_ms(0.99),
            self.ran.error_count,
            self.missing_count,
            self.restart_seconds,
        )
    }
}

/// A line of a table: title, decimals, value.
struct Figure {
    title: &'static str,
    decimals: usize,
    of: fn(&Measured) -> f64,
}

const fn figure(title: &'static str, decimals: usize, of: fn(&Measured) -> f64) -> Figure {
    Figure { title, decimals, of }
}

const FIGURES: [Figure; 14] = [
    figure("values acknowledged, million", 2, |m| m.ran.acked_count as f64 / 1e6),
    figure("values/s", 0, |m| m.ran.per_second()),
    figure("values per server CPU second", 0, |m| m.ran.per_cpu_second()),
    figure("client CPU per million values, s", 3, |m| {
        m.ran.client_cpu.total() * 1e6 / m.ran.acked_count as f64
    }),
    figure("latency p50, ms", 1, |m| m.ran.ack_ms(0.5)),
    figure("latency p99, ms", 1, |m| m.ran.ack_ms(0.99)),
    figure("latency max, ms", 1, |m| m.ran.ack_ms(1.0)),
    figure("failed requests", 0, |m| m.ran.error_count as f64),
    figure("peak RSS, MiB", 0, |m| m.peak_rss_bytes as f64 / MIB),
    figure("disk at the kill, bytes per value", 2, |m| m.disk_bytes as f64 / m.ran.acked_count as f64),
    figure("disk settled, bytes per stored value", 2, |m| {
        m.settled_disk_bytes as f64 / m.stored_count as f64
    }),
    figure("restart to first answer, s", 2, |m| m.restart_seconds),
    figure("acknowledged values missing", 0, |m| m.missing_count as f64),
    figure("values stored, million", 2, |m| m.stored_count as f64 / 1e6),
];

fn table(row: &Row, kinds: &[Kind], measured: &[Option<Measured>]) -> Table {
    let line_bytes = Load::new(row, 1, i64::MAX / 4).line_bytes();
    let rate = row.rate.map_or_else(|| "closed loop".to_owned(), |rate| format!("{rate} values/s"));
    let title = format!(
        "{}: {} series, {} lines of {line_bytes:.1} B per request, {} values per line, {} writers, {rate}",
        row.name,
        row.series_count,
        row.batch,
        row.fields.count(),
        row.writers,
    );
    let mut out = Table::new(title, kinds.iter().map(|kind| kind.name()));
    for Figure { title, decimals, of } in FIGURES {
        out.row(title, decimals, measured.iter().map(|one| one.as_ref().map_or(f64::NAN, of)));
    }
    out
}

/// Adds the targets of this repository's server.
fn add_targets(targets: &mut Vec<Target>, kind: Kind, row: &Row, one: &Measured) {
    if kind != Kind::Chronolith {
        return;
    }
    let mut add = |what: &str, found: f64, bound: Bound| {
        targets.push(Target::new(format!("{}: {what}", row.name), found, bound));
    };
    add("failed requests", one.ran.error_count as f64, Bound::AtMost(0.0));
    add("acknowledged values missing", one.missing_count.unsigned_abs() as f64, Bound::AtMost(0.0));
    add("restart, s", one.restart_seconds, Bound::AtMost(1.0));
    let p99 = one.ran.ack_ms(0.99);
    if row.rate.is_some() {
        add("p99, ms", p99, Bound::AtMost(20.0));
        return;
    }
    if row.fields == Fields::OneFloat && !row.is_gzip && row.series_count <= 100_000 {
        add("values per CPU second", one.ran.per_cpu_second(), Bound::AtLeast(2e6));
        add("peak RSS, MiB", one.peak_rss_bytes as f64 / MIB, Bound::AtMost(400.0));
        let in_flight = (row.writers * row.batch) as f64;
        let mean_ms = in_flight / one.ran.per_second() * 1e3;
        add("p99 by the mean that throughput implies", p99 / mean_ms, Bound::AtMost(1.5));
        if in_flight <= 1e6 {
            add("p99, ms", p99, Bound::AtMost(500.0));
        }
    }
}
