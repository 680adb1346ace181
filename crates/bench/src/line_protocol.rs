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

use anyhow::Result;
use chronolith_base::{Clock, SystemClock};

use crate::driver::{Benchmark, Run, Summary};
use crate::latency::at;
use crate::options::{Servers, chosen};
use crate::report::{Figure, MIB};
use crate::server::{Kind, Server, Setup};
use crate::{influx, proc};
use body::DATABASE;
use load::{Load, Ran};
use rows::{Fields, Row};

/// Values and series of a row of `--quick`.
const QUICK_VALUES: u64 = 200_000;
const QUICK_SERIES: usize = 20_000;
const QUICK_SETTLE: Duration = Duration::from_secs(3);
/// Servers that take line protocol.
const KINDS: [Kind; 4] = [Kind::Chronolith, Kind::VictoriaMetrics, Kind::InfluxInmem, Kind::InfluxTsi1];

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    only: Servers,
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

impl Benchmark for Options {
    fn servers(&self) -> Result<Vec<Kind>> {
        self.only.of(&KINDS)
    }

    fn measure(&self, run: &mut Run) -> Result<()> {
        run.note("client on the same machine; one row is one fresh server, killed after the load");
        for mut row in chosen(&self.rows, rows::all(), |row| &row.name)? {
            if self.quick {
                row.series_count = row.series_count.min(QUICK_SERIES);
            }
            let own_flags = || self.flags.split_whitespace();
            let setup = |_| Some(Setup::new(row.series_count).own_flags(own_flags()));
            let measured = run.measure_servers(&row.name, 1, setup, |server| measure(server, &row, self));
            run.table(measured.table(title(&row), &run.kinds(), &FIGURES));
            if let Some(own) = measured.first(Kind::Chronolith) {
                add_targets(&row, own, run);
            }
        }
        Ok(())
    }
}

fn measure(server: &mut Server, row: &Row, options: &Options) -> Result<Measured> {
    let value_count = match server.kind() {
        _ if options.quick => QUICK_VALUES,
        Kind::Chronolith => options.values,
        _ => options.peer_values,
    };
    let load = &Load::new(row, row.value_count(value_count), SystemClock::new().now_ms() * 1_000_000);
    if server.kind() != Kind::VictoriaMetrics {
        influx::create_database(server.port, DATABASE)?;
    }
    let path = format!("/write?db={DATABASE}&precision=ns");
    let ran = load.run(server.port, &path, server.pid())?;
    let peak_rss_bytes = server.memory()?.peak_bytes;
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

impl Summary for Measured {
    fn summary(&self) -> String {
        format!(
            "{:.0} values/s, {:.0} per CPU second, p99 {:.0} ms, {} errors, {} missing, restart {:.2} s",
            self.ran.per_second(),
            self.ran.per_cpu_second(),
            at(&self.ran.ack_ms, 0.99),
            self.ran.error_count,
            self.missing_count,
            self.restart_seconds,
        )
    }
}

const FIGURES: [Figure<Measured>; 14] = [
    ("values acknowledged, million", 2, |m| m.ran.acked_count as f64 / 1e6),
    ("values/s", 0, |m| m.ran.per_second()),
    ("values per server CPU second", 0, |m| m.ran.per_cpu_second()),
    ("client CPU per million values, s", 3, |m| m.ran.client.cpu.total() * 1e6 / m.ran.acked_count as f64),
    ("latency p50, ms", 1, |m| at(&m.ran.ack_ms, 0.5)),
    ("latency p99, ms", 1, |m| at(&m.ran.ack_ms, 0.99)),
    ("latency max, ms", 1, |m| at(&m.ran.ack_ms, 1.0)),
    ("failed requests", 0, |m| m.ran.error_count as f64),
    ("peak RSS, MiB", 0, |m| m.peak_rss_bytes as f64 / MIB),
    ("disk at the kill, bytes per value", 2, |m| m.disk_bytes as f64 / m.ran.acked_count as f64),
    ("disk settled, bytes per stored value", 2, |m| m.settled_disk_bytes as f64 / m.stored_count as f64),
    ("restart to first answer, s", 2, |m| m.restart_seconds),
    ("acknowledged values missing", 0, |m| m.missing_count as f64),
    ("values stored, million", 2, |m| m.stored_count as f64 / 1e6),
];

fn title(row: &Row) -> String {
    let line_bytes = Load::new(row, 1, i64::MAX / 4).line_bytes();
    let rate = row.rate.map_or_else(|| "closed loop".to_owned(), |rate| format!("{rate} values/s"));
    format!(
        "{}: {} series, {} lines of {line_bytes:.1} B per request, {} values per line, {} writers, {rate}",
        row.name,
        row.series_count,
        row.batch,
        row.fields.count(),
        row.writers,
    )
}

/// Adds the targets of this repository's server.
fn add_targets(row: &Row, one: &Measured, run: &mut Run) {
    let what = |what: &str| format!("{}: {what}", row.name);
    run.at_most(what("failed requests"), one.ran.error_count as f64, 0.0);
    run.at_most(what("acknowledged values missing"), one.missing_count.unsigned_abs() as f64, 0.0);
    run.at_most(what("restart, s"), one.restart_seconds, 1.0);
    let p99 = at(&one.ran.ack_ms, 0.99);
    if row.rate.is_some() {
        run.at_most(what("p99, ms"), p99, 20.0);
        return;
    }
    if row.fields == Fields::OneFloat && !row.is_gzip && row.series_count <= 100_000 {
        run.at_least(what("values per CPU second"), one.ran.per_cpu_second(), 2e6);
        run.at_most(what("peak RSS, MiB"), one.peak_rss_bytes as f64 / MIB, 400.0);
        let in_flight = (row.writers * row.batch) as f64;
        let mean_ms = in_flight / one.ran.per_second() * 1e3;
        run.at_most(what("p99 by the mean that throughput implies"), p99 / mean_ms, 1.5);
        if in_flight <= 1e6 {
            run.at_most(what("p99, ms"), p99, 500.0);
        }
    }
}
