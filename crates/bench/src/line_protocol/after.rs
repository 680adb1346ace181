//! After the load: kill, restart, count of the values that are there, and disk once nothing changes.
//!
//! Invariant: the time of the restart runs from before exec to the first answered query.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::body::{DATABASE, MEASUREMENT, STEP_NS};
use super::load::Load;
use super::rows::Row;
use crate::server::{Kind, Server};
use crate::{http, influx, proc};

const POLL: Duration = Duration::from_millis(5);
const ANSWER_WAIT: Duration = Duration::from_secs(600);
/// Files that have not changed for this long are settled.
const QUIET: Duration = Duration::from_secs(15);
/// Lets InfluxDB write its cache and compact as soon as nothing is written.
const SETTLE_CONFIG: &str =
    "cache-snapshot-write-cold-duration = \"5s\"\ncompact-full-write-cold-duration = \"10s\"";

/// Ends the server as `kill -9` does and starts it again; returns the seconds until it answers a query.
pub(super) fn kill_and_restart(server: &mut Server, row: &Row, load: &Load) -> Result<f64> {
    server.kill()?;
    let start = server.exec_again()?;
    server.wait_for("an answer", POLL, ANSWER_WAIT, |server| {
        Ok(newest_value(server, row, load).is_ok().then(|| start.elapsed().as_secs_f64()))
    })
}

/// Asks for the newest value of one series, which is there or not.
fn newest_value(server: &Server, row: &Row, load: &Load) -> Result<Option<f64>> {
    let field = row.fields.counted();
    if server.kind() == Kind::VictoriaMetrics {
        let series = format!("{MEASUREMENT}_{field}{{tag0=\"value0\",tag1=\"value0\",tag2=\"value0\"}}");
        let query = format!("last_over_time({series}[1d]) or vector(0)");
        return http::query_number(server.port, &query, load.end_ns() / 1_000_000).map(Some);
    }
    let tags = "tag0 = 'value0' AND tag1 = 'value0' AND tag2 = 'value0'";
    let statement = format!("SELECT last({field}) FROM {MEASUREMENT} WHERE {tags}");
    influx::query_number(server.port, DATABASE, &statement)
}

/// Counts the values of the field that every line has.
pub(super) fn line_count(server: &Server, row: &Row, load: &Load) -> Result<u64> {
    let field = row.fields.counted();
    let count = if server.kind() == Kind::VictoriaMetrics {
        // The step before the first is outside for servers that include the start of a range, and for others.
        let range_s = load.step_count() as i64 * STEP_NS / 1_000_000_000;
        let query = format!("sum(count_over_time({MEASUREMENT}_{field}[{range_s}s])) or vector(0)");
        http::query_number(server.port, &query, load.end_ns() / 1_000_000)?
    } else {
        let statement = format!("SELECT count({field}) FROM {MEASUREMENT}");
        influx::query_number(server.port, DATABASE, &statement)?.unwrap_or(0.0)
    };
    Ok(count as u64)
}

/// Waits until files do not change, at most `limit`; returns the bytes on disk.
pub(super) fn settled_bytes(server: &mut Server, limit: Duration) -> Result<u64> {
    match server.kind() {
        Kind::InfluxInmem | Kind::InfluxTsi1 => server.restart_with_config(SETTLE_CONFIG)?,
        Kind::VictoriaMetrics => {
            http::get(server.port, "/internal/force_merge")?;
        }
        Kind::Chronolith | Kind::Prometheus | Kind::Carbon => {}
    }
    let start = Instant::now();
    let mut bytes = 0;
    let mut quiet_since = start;
    while start.elapsed() < limit && quiet_since.elapsed() < QUIET {
        std::thread::sleep(Duration::from_secs(1));
        server.check_alive()?;
        let now = proc::disk_bytes(&server.data_dir());
        if now != bytes {
            bytes = now;
            quiet_since = Instant::now();
        }
    }
    Ok(bytes)
}
