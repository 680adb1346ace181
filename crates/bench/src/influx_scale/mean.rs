//! Case `mean`: a week of 100 hosts, averaged per minute and host, next to InfluxDB.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::case::Options;
use super::lines::{now_ns, query};
use crate::driver::Run;
use crate::influx::{LineWriter, execute};
use crate::latency::{median, timed};
use crate::report::Table;
use crate::server::{Kind, Setup};

/// The server to compare with.
pub(super) const PEER: Kind = Kind::InfluxTsi1;
const HOST_COUNT: u64 = 100;
const STEP_NS: i64 = 10_000_000_000;
const STEP_COUNT: u64 = 7 * 24 * 360;
const RUN_COUNT: usize = 5;
/// Both servers write files for a while after the load.
const SETTLE: Duration = Duration::from_secs(30);

/// Time and answer of the statement.
struct Measured {
    ms: f64,
    answer: Value,
}

pub(super) fn measure(options: &Options, run: &mut Run) -> Result<()> {
    let end_ns = now_ns() / 3_600_000_000_000 * 3_600_000_000_000;
    let own = measure_server(Kind::Chronolith, options, end_ns, run)?;
    let peer = measure_server(PEER, options, end_ns, run)?;
    let windows = compare(&own.answer, &peer.answer)?;
    let title = format!("mean: GROUP BY time(1m), host over {HOST_COUNT} hosts and {windows} windows");
    let mut table = Table::new(title, ["chronolith", PEER.name()]);
    table.row("time, ms, median of 5", 1, [own.ms, peer.ms]);
    run.table(table);
    run.at_most("mean: time by InfluxDB's", own.ms / peer.ms, 0.1);
    Ok(())
}

fn measure_server(kind: Kind, options: &Options, end_ns: i64, run: &Run) -> Result<Measured> {
    let step_count = options.sized(STEP_COUNT) as i64;
    let server = run.start(kind, Setup::new(1))?;
    execute(server.port, "CREATE DATABASE week")?;
    let mut writer = LineWriter::open(server.port, "week")?;
    for step in 0..step_count {
        let time = end_ns - (step_count - step) * STEP_NS;
        for host in 0..HOST_COUNT {
            let value = crate::traffic::mix(host << 32 | step.unsigned_abs()) % 10_000;
            writer.line(format_args!(
                "cpu,host=h{host:02} usage={}.{:02} {time}",
                value / 100,
                value % 100
            ))?;
        }
    }
    writer.flush()?;
    if !options.quick {
        std::thread::sleep(SETTLE);
    }
    let start_ns = end_ns - step_count * STEP_NS;
    let range = format!("time >= {start_ns} AND time < {end_ns}");
    let statement = format!("SELECT mean(usage) FROM cpu WHERE {range} GROUP BY time(1m), host");
    let mut list_ms = Vec::new();
    let mut answer = String::new();
    for _ in 0..RUN_COUNT {
        answer = timed(&mut list_ms, || query(server.port, "week", &statement))?;
    }
    Ok(Measured { ms: median(&list_ms), answer: serde_json::from_str(&answer)? })
}

/// Returns the number of windows, if both answers have the same within the rounding of a sum.
fn compare(own: &Value, peer: &Value) -> Result<usize> {
    let series = |answer: &Value| answer["results"][0]["series"].as_array().cloned().unwrap_or_default();
    let own = series(own);
    let peer = series(peer);
    ensure!(own.len() == peer.len() && !own.is_empty(), "{} series and {}", own.len(), peer.len());
    let mut count = 0;
    for (a, b) in own.iter().zip(&peer) {
        ensure!(a["tags"] == b["tags"], "{} and {}", a["tags"], b["tags"]);
        let rows = |one: &Value| one["values"].as_array().cloned().unwrap_or_default();
        let rows_a = rows(a);
        let rows_b = rows(b);
        ensure!(rows_a.len() == rows_b.len(), "{} windows and {}", rows_a.len(), rows_b.len());
        for (x, y) in rows_a.iter().zip(&rows_b) {
            let number = |row: &Value| row[1].as_f64().unwrap_or(f64::NAN);
            let is_near = (number(x) - number(y)).abs() <= 1e-9 * number(y).abs();
            ensure!(x[0] == y[0] && is_near, "{x} and {y}");
        }
        count += rows_a.len();
    }
    Ok(count)
}
