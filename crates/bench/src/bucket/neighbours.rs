//! A tenant with a dashboard over a bucket, alone and next to a tenant with regexes over a year of
//! everything.
//!
//! Invariants: answers of the dashboard are compared; memory is sampled every 50 ms.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::gateway::{Gateway, read_only_flags};
use crate::driver::Run;
use crate::http::{QueryConnection, ok, query_path, range_path};
use crate::latency::{at, repeat};
use crate::report::{MIB, Table};
use crate::server::{Kind, Server, Setup};

const MEMORY_MIB: f64 = 256.0;
/// Memory that the process may have in addition to `bucket.memory`.
const MEMORY_REST_MIB: f64 = 128.0;
const SLOWDOWN_MAX: f64 = 1.5;
/// Between two queries of the dashboard.
const PAUSE: Duration = Duration::from_millis(20);

/// Queries of both tenants.
pub(super) struct Neighbours<'a> {
    pub(super) dashboard_tenant: &'a str,
    pub(super) dashboard_query: &'a str,
    pub(super) greedy_tenant: &'a str,
    pub(super) greedy_query: &'a str,
    /// Start, end (ms) and step (s) of the greedy query.
    pub(super) greedy_range: (i64, i64, i64),
    pub(super) end_ms: i64,
    pub(super) phase: Duration,
}

impl Neighbours<'_> {
    pub(super) fn measure(&self, gateway: &Gateway, parent: &Path, run: &mut Run) -> Result<()> {
        let setup = Setup::new(0).own_flags(read_only_flags(gateway.port));
        let server = Server::start(Kind::Chronolith, parent, setup)?;
        self.dashboard(&server, Duration::from_secs(2))?;
        let peak_mib = || -> Result<f64> { Ok(server.memory()?.peak_bytes as f64 / MIB) };
        let cells = |ms: &[f64], peak_mib| [ms.len() as f64, at(ms, 0.5), at(ms, 0.99), peak_mib];
        let mut table =
            Table::new("Dashboard of one tenant", ["queries", "p50 ms", "p99 ms", "peak RSS MiB"]);
        let alone = self.dashboard(&server, self.phase)?;
        table.row("alone", 2, cells(&alone, peak_mib()?));
        let stop = AtomicBool::new(false);
        let answered = AtomicU64::new(0);
        let together = std::thread::scope(|scope| {
            let greedy = scope.spawn(|| self.greedy(&server, &stop, &answered));
            std::thread::sleep(Duration::from_secs(1));
            let together = self.dashboard(&server, self.phase);
            stop.store(true, Ordering::Relaxed);
            greedy.join().expect("the greedy client panicked")?;
            together
        })?;
        let peak_mib = peak_mib()?;
        table.row("next to the other", 2, cells(&together, peak_mib));
        run.table(table);
        let answered = answered.load(Ordering::Relaxed);
        run.note(format!("the other tenant: {answered} answers to `{}` over a year", self.greedy_query));
        let ratio = at(&together, 0.99) / at(&alone, 0.99);
        run.at_most("neighbours: p99 next to a regex over a year, over that of alone", ratio, SLOWDOWN_MAX);
        run.at_most("neighbours: peak RSS, MiB", peak_mib, MEMORY_MIB + MEMORY_REST_MIB);
        Ok(())
    }

    /// Latencies of the dashboard, ms.
    fn dashboard(&self, server: &Server, time: Duration) -> Result<Vec<f64>> {
        let mut connection = QueryConnection::open_as(server.port, self.dashboard_tenant)?;
        let path = query_path(self.dashboard_query, self.end_ms - 1);
        let expected = ok(connection.get(&path)?)?;
        let end = Instant::now() + time;
        repeat(
            PAUSE,
            || Instant::now() >= end,
            || {
                let answer = ok(connection.get(&path)?)?;
                ensure!(answer["data"] == expected["data"], "an answer of the dashboard changed");
                Ok(())
            },
        )
    }

    /// Asks until `stop`. An answer may be the refusal of a query that exceeds a limit.
    fn greedy(&self, server: &Server, stop: &AtomicBool, answered: &AtomicU64) -> Result<()> {
        let mut connection = QueryConnection::open_as(server.port, self.greedy_tenant)?;
        while !stop.load(Ordering::Relaxed) {
            let (status, body) = connection.get(&range_path(self.greedy_query, self.greedy_range))?;
            ensure!(status == 200, "the greedy query: HTTP {status}: {body:.300}");
            answered.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}
