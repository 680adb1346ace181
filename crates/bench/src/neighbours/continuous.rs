//! Load `continuous-queries`: one tenant with many databases, in each of which several continuous queries
//! compute the last hour again every second.
//!
//! Invariants: all queries are due at any time, as `RESAMPLE EVERY 1s` makes them; runs are
//! counted by the server, and the benchmark fails if they leave it idle or if one of them fails.

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::influx::{LineWriter, execute_as};
use crate::server::Server;
use crate::traffic::{STEP_MS, mix};

/// Values of the tag by which the queries group.
const RACK_COUNT: usize = 20;
/// Part of the time in which a continuous query has to run for the load to count as one.
const BUSY_MIN: f64 = 0.5;
const NS_PER_MS: i64 = 1_000_000;

/// Size of the load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) tenant: &'static str,
    pub(super) databases: usize,
    /// Continuous queries of each database.
    pub(super) queries: usize,
    /// Series of each database, all of which every query reads.
    pub(super) series: usize,
    /// Points of each series in the last hour.
    pub(super) steps: usize,
}

/// Writes the history of each database. No query exists before it is complete.
pub(super) fn send_history(server: &Server, shape: Shape, start_ms: i64) -> Result<()> {
    for database in 0..shape.databases {
        let name = database_name(database);
        execute_as(server.port, shape.tenant, &format!("CREATE DATABASE {name}"))?;
        let mut writer = LineWriter::open_as(server.port, &name, shape.tenant)?;
        for step in 0..shape.steps {
            let time_ns = (start_ms + step as i64 * STEP_MS) * NS_PER_MS;
            for host in 0..shape.series {
                let usage = mix((host << 32 | step) as u64) % 10_000;
                let rack = host % RACK_COUNT;
                writer.line(format_args!("cpu,host=h{host},rack=r{rack} usage={usage} {time_ns}"))?;
            }
        }
        writer.flush()?;
    }
    Ok(())
}

/// Creates all continuous queries; the server begins to run them within a second.
pub(super) fn create_queries(server: &Server, shape: Shape) -> Result<()> {
    for database in (0..shape.databases).map(database_name) {
        for query in 0..shape.queries {
            let statement = create_statement(&database, query);
            execute_as(server.port, shape.tenant, &statement)?;
        }
    }
    Ok(())
}

fn database_name(idx: usize) -> String {
    format!("loud{idx}")
}

fn create_statement(database: &str, query: usize) -> String {
    format!(
        "CREATE CONTINUOUS QUERY q{query} ON {database} RESAMPLE EVERY 1s FOR 1h BEGIN \
         SELECT mean(usage) AS mean, max(usage) AS max INTO rack{query} FROM cpu GROUP BY time(1m), rack END"
    )
}

/// Counters of the server at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Runs {
    begun: f64,
    failed: f64,
    /// Seconds of all runs.
    busy_s: f64,
    at: Instant,
}

impl Runs {
    pub(super) fn so_far(server: &Server) -> Result<Runs> {
        Ok(Runs {
            begun: server.metric("continuous_query_runs")?,
            failed: server.metric("continuous_query_failures")?,
            busy_s: server.metric("query_duration_seconds_sum{kind=\"influxql\"}")?,
            at: Instant::now(),
        })
    }

    /// Prints the runs since `before` and checks that they took most of the time and that none failed.
    pub(super) fn check_since(self, before: Runs, shape: Shape) -> Result<()> {
        let begun = self.begun - before.begun;
        let failed = self.failed - before.failed;
        let busy = (self.busy_s - before.busy_s) / self.at.duration_since(before.at).as_secs_f64();
        let count = shape.databases * shape.queries;
        let points = shape.series * shape.steps;
        println!(
            "{count} continuous queries: {begun:.0} runs of {points} points each, {failed:.0} failed, one ran \
             {:.0} % of the time",
            busy * 100.0
        );
        ensure!(begun > 0.0, "no continuous query ran next to the small tenant");
        ensure!(failed == 0.0, "{failed:.0} runs of continuous queries failed");
        ensure!(busy >= BUSY_MIN, "continuous queries left the server idle: more --databases or --series");
        Ok(())
    }
}
