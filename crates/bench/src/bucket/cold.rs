//! Queries over a bucket that is far away: cold, warm, and the same query over local blocks.
//!
//! Invariants: each cold run is a process of its own; its answer equals the answer of the server with local
//! blocks; requests are counted that the proxy saw between the query and its answer.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::gateway::read_only_flags;
use super::proxy::{Proxy, Seen, waves};
use crate::http::{QueryConnection, query_path};
use crate::report::{Bound, Report, Table, Target, median};
use crate::server::{Kind, Server, Setup};

/// Pairs of warm queries, local and over the bucket.
const WARM_PAIRS: usize = 40;

/// A query and its expectations.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) tenant: &'static str,
    pub(super) query: String,
    pub(super) time_ms: i64,
    /// True if the catalogue is read before the query.
    pub(super) knows_catalogue: bool,
    pub(super) bounds: CaseBounds,
}

/// Most requests, rounds and ms of a cold query; infinite where nothing is asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct CaseBounds {
    pub(super) gets: f64,
    pub(super) rounds: f64,
    pub(super) ms: f64,
    /// Bound of warm over local time.
    pub(super) warm_ratio: f64,
}

impl CaseBounds {
    pub(super) const NONE: CaseBounds = CaseBounds {
        gets: f64::INFINITY,
        rounds: f64::INFINITY,
        ms: f64::INFINITY,
        warm_ratio: f64::INFINITY,
    };
}

/// Figures of one cold run.
struct Cold {
    ms: f64,
    seen: Vec<Seen>,
    warm_requests: usize,
    warm_ms: f64,
    local_ms: f64,
}

/// Measures all cases `repeats` times; medians go to `report`.
pub(super) fn measure(
    cases: &[Case],
    proxy: &Proxy,
    local: &Server,
    parent: &Path,
    repeats: usize,
    report: &mut Report,
) -> Result<()> {
    let columns =
        ["cold ms", "GETs", "LISTs", "rounds", "MB", "warm ms", "warm GETs", "local ms", "warm / local"];
    let mut table = Table::new("Queries", columns);
    for case in cases {
        let runs = (0..repeats).map(|_| run(case, proxy, local, parent)).collect::<Result<Vec<Cold>>>()?;
        add(case, &runs, &mut table, report);
    }
    report.tables.insert(0, table);
    Ok(())
}

fn run(case: &Case, proxy: &Proxy, local: &Server, parent: &Path) -> Result<Cold> {
    let setup = Setup { flags: read_only_flags(proxy.port), ..Setup::default() };
    let mut server = Server::start_with(Kind::Chronolith, parent, setup)?;
    let path = query_path(&case.query, case.time_ms);
    let mut of_bucket = QueryConnection::open_as(server.port, case.tenant)?;
    if case.knows_catalogue {
        // Before all blocks: it reads the catalogue and no block.
        ok(of_bucket.get(&query_path("bench", 1_000_000))?)?;
    }
    proxy.take();
    let start = Instant::now();
    let answer = of_bucket.get(&path)?;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    let seen = proxy.take();
    let mut of_local = QueryConnection::open_as(local.port, case.tenant)?;
    let expected = ok(of_local.get(&path)?)?;
    let answer = ok(answer)?;
    ensure!(answer["data"] == expected["data"], "{}: {answer:.300} is not {expected:.300}", case.name);
    let results = answer["data"]["result"].as_array().context("no result")?;
    ensure!(!results.is_empty(), "{}: an empty answer", case.name);
    let mut warm = Vec::new();
    let mut here = Vec::new();
    for _ in 0..WARM_PAIRS {
        for (connection, times) in [(&mut of_bucket, &mut warm), (&mut of_local, &mut here)] {
            let start = Instant::now();
            ok(connection.get(&path)?)?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    server.check_alive()?;
    // The list of blocks is refreshed in the background.
    let warm_requests = proxy.take().iter().filter(|seen| !seen.what.contains("/catalog/")).count();
    Ok(Cold { ms, seen, warm_requests, warm_ms: median(warm), local_ms: median(here) })
}

/// The answer of a query that succeeded.
pub(super) fn ok(answer: (u16, String)) -> Result<Value> {
    let (status, body) = answer;
    ensure!(status == 200, "HTTP {status}: {body:.300}");
    Ok(serde_json::from_str(&body)?)
}

fn add(case: &Case, runs: &[Cold], table: &mut Table, report: &mut Report) {
    let of = |value: fn(&Cold) -> f64| median(runs.iter().map(value).collect());
    let ms = of(|run| run.ms);
    let gets = of(|run| run.seen.iter().filter(|seen| !is_list(seen)).count() as f64);
    let lists = of(|run| run.seen.iter().filter(|seen| is_list(seen)).count() as f64);
    let rounds = of(|run| waves(&run.seen).len() as f64);
    let megabytes = of(|run| run.seen.iter().map(|seen| seen.bytes).sum::<u64>() as f64 / 1e6);
    let warm_requests = of(|run| run.warm_requests as f64);
    let warm_ms = of(|run| run.warm_ms);
    let local_ms = of(|run| run.local_ms);
    let ratio = of(|run| run.warm_ms / run.local_ms);
    table.row(case.name, 2, [ms, gets, lists, rounds, megabytes, warm_ms, warm_requests, local_ms, ratio]);
    if let Some(run) = runs.first() {
        report.notes.push(format!("{}: {}", case.name, described(&run.seen)));
    }
    let bounds = case.bounds;
    let mut target = |what: &str, found: f64, most: f64| {
        if most.is_finite() {
            report.targets.push(Target::new(format!("{}: {what}", case.name), found, Bound::AtMost(most)));
        }
    };
    target("GETs", gets, bounds.gets);
    target("rounds", rounds, bounds.rounds);
    target("cold ms", ms, bounds.ms);
    target(
        "requests of warm queries",
        warm_requests,
        if bounds.ms.is_finite() { 0.0 } else { f64::INFINITY },
    );
    target("warm / local", ratio, bounds.warm_ratio);
}

/// Requests by wave, for the report.
fn described(seen: &[Seen]) -> String {
    let origin = seen.first().map(|first| first.start);
    let wave = |wave: &[Seen]| {
        let bytes = wave.iter().map(|seen| seen.bytes).sum::<u64>();
        let requests = wave.iter().map(short).collect::<Vec<&str>>().join(", ");
        let start = wave.first().zip(origin).map_or(0, |(first, origin)| (first.start - origin).as_millis());
        let end = wave.iter().map(|seen| seen.end).max().zip(origin);
        let end = end.map_or(0, |(end, origin)| (end - origin).as_millis());
        format!("{} requests of {bytes} bytes from {start} to {end} ms ({requests})", wave.len())
    };
    waves(seen).into_iter().map(wave).collect::<Vec<String>>().join("; ")
}

/// Returns true if the request lists objects.
fn is_list(seen: &Seen) -> bool {
    seen.what.contains("list-type=2")
}

/// File and range of a request.
fn short(seen: &Seen) -> &str {
    seen.what.rsplit_once('/').map_or(seen.what.as_str(), |(_, file)| file)
}
