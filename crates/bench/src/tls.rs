//! Benchmark `tls`: CPU of the server for writes and small queries over TLS next to plain HTTP, latency next
//! to hostile clients, and certificates that are exchanged under load.
//!
//! Invariants: both servers take the same bodies and requests in the same run and take turns, round by
//! round; connections are kept, as agents and dashboards keep them; queries ask for gzip.
//! Not here: cost of a full handshake alone; peers, which are other programs with other costs of HTTP.

mod certificate;
mod flood;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use chronolith_base::{Clock as _, SystemClock};

use crate::driver::{Benchmark, Run};
use crate::http::query_path;
use crate::latency::{at, timed};
use crate::proc::{self, Stopwatch};
use crate::report::{MIB, Table};
use crate::server::{Kind, Server, Setup};
use crate::traffic::{STEP_MS, SeriesBody};
use certificate::{Authority, Client};
use flood::Attack;

const COST_MAX: f64 = 1.1;
const SLOWDOWN_MAX: f64 = 2.0;
/// Series of the small queries, and of one request of writes.
const BATCH_SERIES: usize = 2000;
/// Between two small queries while handshakes or certificates are tried.
const PAUSE: Duration = Duration::from_millis(5);
const READY_WAIT: Duration = Duration::from_secs(30);
/// The server looks at the files of its certificate each second.
const EXCHANGE_EVERY: Duration = Duration::from_millis(1050);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds of each server.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Requests of 2,000 samples per round.
    #[arg(long, default_value_t = 300)]
    writes: usize,
    /// Small queries per round.
    #[arg(long, default_value_t = 4000)]
    queries: usize,
    /// Handshakes that do not go on.
    #[arg(long, default_value_t = 10_000)]
    half_open: usize,
    /// Connections of each of the other kinds of hostile clients.
    #[arg(long, default_value_t = 1000)]
    attacks: usize,
    /// Length of the phases without and with hostile clients, in seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Certificates that are exchanged under load, one per second.
    #[arg(long, default_value_t = 100)]
    exchanges: usize,
}

/// A server and how to reach it.
struct Side {
    server: Server,
    client: Client,
    /// CPU microseconds of the server per sample and per query, one per round.
    write_us: Vec<f64>,
    query_us: Vec<f64>,
}

impl Benchmark for Options {
    fn servers(&self) -> Result<Vec<Kind>> {
        Ok(vec![Kind::Chronolith])
    }

    fn measure(&self, run: &mut Run) -> Result<()> {
        ensure!(self.rounds > 0 && self.writes > 0 && self.queries > 0, "all counts must be above 0");
        run.with_directory(None, |run, dir| {
            let authority = Authority::new(dir)?;
            let flag = format!("--web.config.file={}", authority.web_config().display());
            let setup = Setup::new(BATCH_SERIES).own_flags(["--self-scrape=off"]);
            let plain = run.start(Kind::Chronolith, setup.clone())?;
            let tls = run.start(Kind::Chronolith, setup.own_flags([flag]).speaks_tls())?;
            let mut plain = Side::new(plain, Client { tls: None })?;
            let mut tls = Side::new(tls, authority.client()?)?;
            self.measure_cost(run, &mut plain, &mut tls)?;
            for (attack, count) in [
                (Attack::HalfOpen, self.half_open),
                (Attack::RapidReset, self.attacks),
                (Attack::HugeHeaders, self.attacks),
            ] {
                let measured = self.measure_attack(run, &tls, attack, count);
                run.keep(attack.name(), measured);
            }
            let exchanges = self.measure_exchanges(run, &tls, &authority);
            run.keep("certificates", exchanges);
            Ok(())
        })
    }
}

impl Options {
    fn measure_cost(&self, run: &mut Run, plain: &mut Side, tls: &mut Side) -> Result<()> {
        for round in 0..self.rounds {
            // The first of a round may find another frequency of the cores than the second.
            let sides = if round % 2 == 0 { [&mut *plain, &mut *tls] } else { [&mut *tls, &mut *plain] };
            for side in sides {
                side.measure_round(round, self)?;
            }
            println!(
                "round {}: writes {:.3} and {:.3} us per sample, queries {:.1} and {:.1} us",
                round + 1,
                plain.write_us[round],
                tls.write_us[round],
                plain.query_us[round],
                tls.query_us[round]
            );
        }
        let mut table = Table::new("CPU of the server, us", ["plain", "TLS"]);
        table.rounds("per sample written", 3, vec![plain.write_us.clone(), tls.write_us.clone()]);
        table.rounds("per small query", 1, vec![plain.query_us.clone(), tls.query_us.clone()]);
        run.table(table);
        run.at_most("CPU of writes, TLS / plain", ratio(&tls.write_us, &plain.write_us), COST_MAX);
        run.at_most("CPU of small queries, TLS / plain", ratio(&tls.query_us, &plain.query_us), COST_MAX);
        Ok(())
    }

    /// Measures latencies of small queries on a kept connection, without and with hostile clients.
    fn measure_attack(&self, run: &mut Run, side: &Side, attack: Attack, count: usize) -> Result<()> {
        let during = Duration::from_secs(self.seconds);
        let port = side.server.port;
        let alone = side.query_for(during)?;
        proc::reset_peak(side.server.pid())?;
        let before = side.server.memory()?.now_bytes;
        let stop = AtomicBool::new(false);
        let (together, opened) = std::thread::scope(|scope| -> Result<_> {
            let flood = scope.spawn(|| attack.run(&side.client, port, count, during, &stop));
            let together = side.query_for(during);
            stop.store(true, Ordering::Relaxed);
            let opened = flood.join().ok().context("the flood panicked")??;
            Ok((together?, opened))
        })?;
        let grown = side.server.memory()?.peak_bytes.saturating_sub(before) as f64 / MIB;
        let name = attack.name();
        let mut table = Table::new(format!("small queries next to {name}"), ["alone", "together"]);
        for (label, quantile) in [("p50, ms", 0.5), ("p99, ms", 0.99), ("p99.9, ms", 0.999)] {
            table.row(label, 2, [at(&alone, quantile), at(&together, quantile)]);
        }
        table.row("connections of these clients", 0, [0.0, opened as f64]);
        table.row("peak of resident memory, more MiB", 1, [0.0, grown]);
        run.table(table);
        let slowdown = at(&together, 0.99) / at(&alone, 0.99);
        run.at_most(format!("p99 next to {name} / alone"), slowdown, SLOWDOWN_MAX);
        Ok(())
    }

    /// Sends requests on kept and on new connections while the certificate changes; all have to succeed.
    fn measure_exchanges(&self, run: &mut Run, side: &Side, authority: &Authority) -> Result<()> {
        let stop = AtomicBool::new(false);
        let requests = std::thread::scope(|scope| -> Result<usize> {
            let kept = scope.spawn(|| side.query_until(&stop, false));
            let new = scope.spawn(|| side.query_until(&stop, true));
            let exchanged = (0..self.exchanges).try_for_each(|_| {
                std::thread::sleep(EXCHANGE_EVERY);
                authority.exchange()
            });
            std::thread::sleep(EXCHANGE_EVERY);
            stop.store(true, Ordering::Relaxed);
            exchanged?;
            let kept = kept.join().ok().context("a client panicked")??;
            Ok(kept + new.join().ok().context("a client panicked")??)
        })?;
        let (status, text) = side.client.queries(side.server.port)?.get("/metrics")?;
        ensure!(status == 200, "/metrics: HTTP {status}");
        let certificates =
            text.lines().find(|line| line.starts_with("chronolith_web_config_last_read_success"));
        run.note(format!(
            "{} certificates exchanged, {requests} requests, 0 failed; {}",
            self.exchanges,
            certificates.unwrap_or("no metric of the file")
        ));
        Ok(())
    }
}

impl Side {
    fn new(server: Server, client: Client) -> Result<Side> {
        let mut side = Side { server, client, write_us: Vec::new(), query_us: Vec::new() };
        let client = side.client.clone();
        side.server.wait_for("an answer", PAUSE, READY_WAIT, |server| {
            let answer = client.queries(server.port).and_then(|mut queries| queries.get("/-/ready"));
            Ok(answer.is_ok_and(|(status, _)| status == 200).then_some(()))
        })?;
        let mut writes = side.client.writes(side.server.port)?;
        writes.post(SeriesBody::new(0..BATCH_SERIES).step(now_ms() - STEP_MS))?;
        Ok(side)
    }

    /// Sends the writes and queries of one round.
    fn measure_round(&mut self, round: usize, options: &Options) -> Result<()> {
        let mut writes = self.client.writes(self.server.port)?;
        let first = (round + 1) * BATCH_SERIES;
        let mut series = SeriesBody::new(first..first + BATCH_SERIES);
        let start_ms = now_ms() - options.writes as i64 * STEP_MS;
        let stopwatch = Stopwatch::start(self.server.pid())?;
        for step in 0..options.writes {
            writes.post(series.step(start_ms + step as i64 * STEP_MS))?;
        }
        let spent = stopwatch.spent()?.cpu.total();
        self.write_us.push(spent * 1e6 / (options.writes * BATCH_SERIES) as f64);
        let mut queries = self.client.queries(self.server.port)?;
        let path = small_query();
        let stopwatch = Stopwatch::start(self.server.pid())?;
        for _ in 0..options.queries {
            let received = queries.fetch(&path)?;
            ensure!(received.status == 200, "HTTP {}", received.status);
        }
        let spent = stopwatch.spent()?.cpu.total();
        self.query_us.push(spent * 1e6 / options.queries as f64);
        Ok(())
    }

    /// Latencies in milliseconds of small queries on one connection, for `during`.
    fn query_for(&self, during: Duration) -> Result<Vec<f64>> {
        let mut queries = self.client.queries(self.server.port)?;
        let path = small_query();
        let end = Instant::now() + during;
        let mut times = Vec::new();
        while Instant::now() < end {
            let (status, body) = timed(&mut times, || queries.get(&path))?;
            ensure!(status == 200, "HTTP {status}: {body:.300}");
            std::thread::sleep(PAUSE);
        }
        Ok(times)
    }

    /// Small queries until `stop`, each over a new connection or all over one; returns their number. The
    /// first that fails ends it.
    fn query_until(&self, stop: &AtomicBool, is_new_each: bool) -> Result<usize> {
        let mut queries = self.client.queries(self.server.port)?;
        let path = small_query();
        let mut count = 0;
        while !stop.load(Ordering::Relaxed) {
            if is_new_each {
                queries = self.client.queries(self.server.port)?;
            }
            let (status, body) = queries.get(&path).with_context(|| format!("after {count} requests"))?;
            ensure!(status == 200, "HTTP {status}: {body:.300}");
            count += 1;
            std::thread::sleep(PAUSE);
        }
        Ok(count)
    }
}

/// A panel with one number, over 40 series.
fn small_query() -> String {
    query_path("sum(node_cpu_seconds_0_total)", now_ms())
}

fn now_ms() -> i64 {
    SystemClock::new().now_ms() / STEP_MS * STEP_MS
}

/// Ratio of the sums of all rounds: the clock of a process has ticks of 10 ms, too coarse for one round.
fn ratio(of: &[f64], to: &[f64]) -> f64 {
    of.iter().sum::<f64>() / to.iter().sum::<f64>()
}
