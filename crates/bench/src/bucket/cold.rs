//! Queries over a bucket that is far away: cold, warm, and the same query over local blocks.
//!
//! Invariants: each cold run is a process of its own; its answer equals the answer of the server with local
//! blocks; requests are counted that the proxy saw between the query and its answer.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::gateway::read_only_flags;
use super::proxy::{Proxy, Seen, waves};
use crate::driver::Run;
use crate::http::{QueryConnection, ok, query_path};
use crate::latency::{median, timed};
use crate::report::Table;
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

/// Measures all cases `repeats` times; medians go to the report.
pub(super) fn measure(
    cases: &[Case],
    proxy: &Proxy,
    local: &Server,
    parent: &Path,
    repeats: usize,
    run: &mut Run,
) -> Result<()> {
    let columns =
        ["cold ms", "GETs", "LISTs", "rounds", "MB", "warm ms", "warm GETs", "local ms", "warm / local"];
    let mut table = Table::new("Queries", columns);
    for case in cases {
        let runs = (0..repeats).map(|_| measure_once(case, proxy, local, parent));
        add(case, &runs.collect::<Result<Vec<Cold>>>()?, &mut table, run);
    }
    run.table(table);
    Ok(())
}

fn measure_once(case: &Case, proxy: &Proxy, local: &Server, parent: &Path) -> Result<Cold> {
    let setup = Setup::new(0).own_flags(read_only_flags(proxy.port));
    let mut server = Server::start(Kind::Chronolith, parent, setup)?;
    let path = query_path(&case.query, case.time_ms);
    let mut of_bucket = QueryConnection::open_as(server.port, case.tenant)?;
    if case.knows_catalogue {
        // Before all blocks: it reads the catalogue and no block.
        ok(of_bucket.get(&query_path("bench", 1_000_000))?)?;
    }
    proxy.take();
    let mut cold_ms = Vec::new();
    let answer = timed(&mut cold_ms, || of_bucket.get(&path))?;
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
            timed(times, || ok(connection.get(&path)?))?;
        }
    }
    server.check_alive()?;
    // The list of blocks is refreshed in the background.
    let warm_requests = proxy.take().iter().filter(|seen| !seen.what.contains("/catalog/")).count();
    Ok(Cold { ms: median(&cold_ms), seen, warm_requests, warm_ms: median(&warm), local_ms: median(&here) })
}

fn add(case: &Case, runs: &[Cold], table: &mut Table, run: &mut Run) {
    let of = |value: fn(&Cold) -> f64| median(&runs.iter().map(value).collect::<Vec<f64>>());
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
    if let Some(first) = runs.first() {
        run.note(format!("{}: {}", case.name, described(&first.seen)));
    }
    let bounds = case.bounds;
    let mut target = |what: &str, found: f64, most: f64| {
        if most.is_finite() {
            run.at_most(format!("{}: {what}", case.name), found, most);
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
