//! Case `mean`: a week of 100 hosts, averaged per minute and host, next to InfluxDB.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::Value;

use super::case::{Case, Options};
use super::lines::{now_ns, query};
use crate::influx::{Index, LineWriter, execute};
use crate::report::{Bound, Table, Target, median};
use crate::server::{Kind, Server};

/// The server to compare with.
pub(super) const PEER: Kind = Kind::Influx(Index::Tsi1);
const HOST_COUNT: u64 = 100;
const STEP_NS: i64 = 10_000_000_000;
const STEP_COUNT: u64 = 7 * 24 * 360;
const RUN_COUNT: usize = 5;
/// Both servers write files for a while after the load.
const SETTLE: Duration = Duration::from_secs(30);

/// Time and answer of the statement.
struct Measured {
    seconds: f64,
    answer: Value,
}

pub(super) fn run(options: &Options) -> Result<Case> {
    let end_ns = now_ns() / 3_600_000_000_000 * 3_600_000_000_000;
    let own = measure(Kind::Chronolith, options, end_ns)?;
    let peer = measure(PEER, options, end_ns)?;
    let windows = compare(&own.answer, &peer.answer)?;
    let title = format!("mean: GROUP BY time(1m), host over {HOST_COUNT} hosts and {windows} windows");
    let mut table = Table::new(title, ["chronolith", PEER.name()]);
    table.row("time, ms, median of 5", 1, [own.seconds * 1e3, peer.seconds * 1e3]);
    let ratio = own.seconds / peer.seconds;
    Ok(Case { table, targets: vec![Target::new("mean: time by InfluxDB's", ratio, Bound::AtMost(0.1))] })
}

fn measure(kind: Kind, options: &Options, end_ns: i64) -> Result<Measured> {
    let step_count = options.sized(STEP_COUNT) as i64;
    let server = Server::start(kind, &options.data, 1)?;
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
    let mut seconds = Vec::new();
    let mut answer = String::new();
    for _ in 0..RUN_COUNT {
        let start = Instant::now();
        answer = query(server.port, "week", &statement)?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    Ok(Measured { seconds: median(seconds), answer: serde_json::from_str(&answer)? })
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
