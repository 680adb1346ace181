//! Case `churn`: series that come and go: memory while they do and after they are idle, and latency.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::case::Options;
use super::lines::now_ns;
use crate::driver::Run;
use crate::http::WriteConnection;
use crate::influx::execute;
use crate::latency::{at, timed};
use crate::report::{MIB, Table};
use crate::server::{Kind, Server, Setup};

const SERIES_COUNT: u64 = 5_000_000;
/// Series that start together.
const BATCH: u64 = 5_000;
/// Requests of a batch of series, a step apart each.
const STEP_COUNT: i64 = 3;
const STEP_NS: i64 = 1_000_000_000;
const IDLE_AFTER: Duration = Duration::from_secs(60);
/// Longest wait for the memory after the last series.
const IDLE_WAIT: Duration = Duration::from_secs(420);

pub(super) fn measure(options: &Options, run: &mut Run) -> Result<()> {
    let batch_count = options.sized(SERIES_COUNT) / BATCH;
    let minutes = if options.quick { 0 } else { options.churn_minutes };
    let idle_after = format!("{}s", IDLE_AFTER.as_secs());
    let setup = Setup::new(1).own_flags(["--idle-after", &idle_after]);
    let server = run.start(Kind::Chronolith, setup)?;
    execute(server.port, "CREATE DATABASE churn")?;
    let mut connection = WriteConnection::open_with(server.port, "/write?db=churn", "")?;
    let mut load = Churn { start: Instant::now(), latencies_ms: Vec::new() };
    load.send(&mut connection, 0)?;
    let before_bytes = server.memory()?.now_bytes;
    let pause = Duration::from_mins(minutes) / u32::try_from(batch_count)?;
    for batch in 1..batch_count {
        let due = pause * u32::try_from(batch)?;
        std::thread::sleep(due.saturating_sub(load.start.elapsed()));
        load.send(&mut connection, batch)?;
    }
    let loaded_seconds = load.start.elapsed().as_secs_f64();
    let peak_bytes = server.memory()?.peak_bytes;
    let (idle_seconds, idle_bytes) = wait_until_idle(&server, before_bytes, options)?;
    let parts = load.latencies_ms.len() / 4;
    let first = at(&load.latencies_ms[..parts.max(1)], 0.99);
    let last = at(&load.latencies_ms[load.latencies_ms.len() - parts.max(1)..], 0.99);
    let title = format!("churn: {} series in {loaded_seconds:.0} s", batch_count * BATCH);
    let mut table = Table::new(title, ["chronolith"]);
    table.row("memory at the start, MiB", 1, [before_bytes as f64 / MIB]);
    table.row("peak RSS, MiB", 1, [peak_bytes as f64 / MIB]);
    table.row("memory after they are idle, MiB", 1, [idle_bytes as f64 / MIB]);
    table.row("seconds until then", 0, [idle_seconds]);
    table.row("p99 of the first quarter of requests, ms", 1, [first]);
    table.row("p99 of the last quarter of requests, ms", 1, [last]);
    let grown_mib = (idle_bytes as f64 - before_bytes as f64) / MIB;
    run.table(table);
    run.at_most("churn: memory above the start, MiB", grown_mib, 20.0);
    run.at_most("churn: p99 of the last quarter by the first", last / first, 1.5);
    Ok(())
}

struct Churn {
    start: Instant,
    latencies_ms: Vec<f64>,
}

impl Churn {
    /// Sends the samples of one batch of series.
    fn send(&mut self, connection: &mut WriteConnection, batch: u64) -> Result<()> {
        for step in 0..STEP_COUNT {
            let time = now_ns() - (STEP_COUNT - step) * STEP_NS;
            let line = |idx: u64| {
                let number = batch * BATCH + idx;
                format!("m,pod=p{number},zone=z{} v={}.5 {time}\n", number % 10, number % 1000)
            };
            let body: String = (0..BATCH).map(line).collect();
            timed(&mut self.latencies_ms, || connection.post(body.as_bytes()))?;
        }
        Ok(())
    }
}

/// Returns when the memory is back, and how much it is; the last reading if it does not come back.
fn wait_until_idle(server: &Server, before_bytes: u64, options: &Options) -> Result<(f64, u64)> {
    let start = Instant::now();
    let wait = if options.quick { Duration::from_secs(5) } else { IDLE_WAIT };
    loop {
        let now_bytes = server.memory()?.now_bytes;
        if now_bytes <= before_bytes + 20 * (1 << 20) || start.elapsed() >= wait {
            return Ok((start.elapsed().as_secs_f64(), now_bytes));
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}
