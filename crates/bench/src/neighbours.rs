//! Benchmark `neighbours`: latency of a small tenant (one dashboard, one writer), alone and next to greedy
//! ones: many clients of heavy queries and many writers, one tenant that sends millions of new series, one
//! whose continuous queries are always due, or one that sends new series and queries all of its history.
//!
//! Invariants: the run fails if a request of the small tenant is refused, or if its p99 next to the others is
//! more than [`SLOWDOWN_MAX`] times its p99 alone and [`SLOWDOWN_MS`] more; next to new series,
//! [`NEW_SERIES_SLOWDOWN_MAX`] times. Load `bomb` has targets of its own, and other servers.
//! Not here: clients with a machine of their own. With `--client-priority low` the greedy clients give way to
//! the server, as if they had one.

mod bomb;
mod continuous;
mod small_tenant;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use chronolith_base::{Clock, SystemClock};

pub(crate) use self::small_tenant::{ClientPriority, Latencies, is_refusal};
use self::small_tenant::{
    HISTORY_STEPS, LOAD_SERIES, LOUD, Phase, SMALL, SMALL_PAUSE, WARM_UP, dashboard, panels,
};
use crate::driver::{Benchmark, Run};
use crate::http::{QueryConnection, WriteConnection, range_path};
use crate::latency::{at, largest};
use crate::options::Servers;
use crate::proc::RunQueue;
use crate::report::{Figure, Table};
use crate::server::{Kind, Server, Setup};
use crate::traffic::{STEP_MS, SeriesBody};

const SLOWDOWN_MAX: f64 = 3.0;
const SLOWDOWN_MS: f64 = 10.0;
const NEW_SERIES_SLOWDOWN_MAX: f64 = 1.5;
/// Connections of the tenant that sends new series.
const NEW_SERIES_WRITERS: usize = 4;
const SMALL_SERIES: usize = 500;
const READERS: &str = "readers";
const WRITERS: &str = "writers";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Load of the greedy tenants.
    #[arg(long, value_enum, default_value_t = Load::Heavy)]
    load: Load,
    #[command(flatten)]
    only: Servers,
    #[command(flatten)]
    bomb: bomb::BombOptions,
    /// New series that one tenant sends with `--load new-series`.
    #[arg(long, default_value_t = 3_000_000)]
    new_series: usize,
    /// Clients of heavy queries.
    #[arg(long, default_value_t = 300)]
    readers: usize,
    /// Writers of the other greedy tenant.
    #[arg(long, default_value_t = 50)]
    writers: usize,
    /// Series that each heavy query reads, an hour of each; with `--load continuous-queries` the
    /// series of all databases together.
    #[arg(long, default_value_t = 20_000)]
    series: usize,
    /// Databases of the tenant of `--load continuous-queries`.
    #[arg(long, default_value_t = 50)]
    databases: usize,
    /// Continuous queries of each of these databases.
    #[arg(long, default_value_t = 20)]
    continuous_queries: usize,
    /// Series of one request of the greedy writers.
    #[arg(long, default_value_t = 2000)]
    write_series: usize,
    /// Length of each phase.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Priority of the clients of the greedy tenants.
    #[arg(long, value_enum, default_value_t = ClientPriority::Usual)]
    client_priority: ClientPriority,
    /// Further flags of the server.
    #[arg(long = "server-flag", allow_hyphen_values = true)]
    server_flags: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Load {
    /// Heavy queries, and many writers.
    Heavy,
    /// New series of one tenant, each in one request.
    NewSeries,
    /// Continuous queries of one tenant, all of them due each second.
    ContinuousQueries,
    /// New series of one tenant and queries of all of its history; the only load for other servers too.
    Bomb,
}

impl Benchmark for Options {
    fn variant(&self) -> Option<&str> {
        (self.load == Load::Bomb).then_some("bomb")
    }

    fn servers(&self) -> Result<Vec<Kind>> {
        match self.load {
            Load::Bomb => self.only.of(&Kind::ALL),
            Load::Heavy | Load::NewSeries | Load::ContinuousQueries => self.only.of(&[Kind::Chronolith]),
        }
    }

    fn measure(&self, run: &mut Run) -> Result<()> {
        if self.load == Load::Bomb {
            let load = bomb::Load {
                options: &self.bomb,
                history_series: self.series,
                seconds: self.seconds,
                priority: self.client_priority,
            };
            return bomb::measure(run, load, &self.server_flags);
        }
        let setup = Setup::new(self.series)
            .own_flags(["--multitenancy=true", "--self-scrape=off"])
            .own_flags(self.server_flags.clone());
        let greedy = Greedy::default();
        let [alone, together] =
            run.measure_server(Kind::Chronolith, setup, |server| self.measure_phases(server, &greedy))?;
        let mut table = Table::new("the small tenant", ["alone", "together"]);
        table.figures(&FIGURES, [&alone, &together].into_iter());
        run.table(table);
        if self.load != Load::ContinuousQueries {
            run.note(format!("greedy tenants: {}", greedy.summary()));
        }
        let checked = match self.load {
            Load::Heavy | Load::ContinuousQueries | Load::Bomb => {
                together.check(&alone, SLOWDOWN_MAX, SLOWDOWN_MS)
            }
            Load::NewSeries => together.check(&alone, NEW_SERIES_SLOWDOWN_MAX, 0.0),
        };
        run.keep("the small tenant", checked);
        run.keep("greedy tenants", greedy.check(self.load));
        Ok(())
    }
}

impl Options {
    /// Measures the small tenant alone and next to the others.
    fn measure_phases(&self, server: &mut Server, greedy: &Greedy) -> Result<[Phase; 2]> {
        let start_ms = SystemClock::new().now_ms() / STEP_MS * STEP_MS - HISTORY_STEPS as i64 * STEP_MS;
        send_history(server, SMALL, SMALL_SERIES, start_ms)?;
        match self.load {
            Load::Heavy => send_history(server, READERS, self.series, start_ms)?,
            Load::NewSeries | Load::Bomb => {}
            Load::ContinuousQueries => continuous::send_history(server, self.shape(), start_ms)?,
        }
        let alone = Phase::measure(server, start_ms, self)?;
        println!("alone: p99 of queries {:.1} ms", at(&alone.queries.served_ms, 0.99));
        let together = match self.load {
            Load::ContinuousQueries => next_to_continuous_queries(server, start_ms, self)?,
            Load::Heavy | Load::NewSeries | Load::Bomb => greedy.next_to(server, start_ms, self)?,
        };
        Ok([alone, together])
    }

    fn shape(&self) -> continuous::Shape {
        continuous::Shape {
            tenant: LOUD,
            databases: self.databases,
            queries: self.continuous_queries,
            series: self.series / self.databases.max(1),
            steps: HISTORY_STEPS,
        }
    }
}

/// Measures the small tenant while the server runs the continuous queries of the other one.
fn next_to_continuous_queries(server: &Server, start_ms: i64, options: &Options) -> Result<Phase> {
    continuous::create_queries(server, options.shape())?;
    std::thread::sleep(WARM_UP);
    let before = continuous::Runs::so_far(server)?;
    let together = Phase::measure(server, start_ms, options)?;
    continuous::Runs::so_far(server)?.check_since(before, options.shape())?;
    Ok(together)
}

/// Sends samples of the last hour, one request per [`LOAD_SERIES`] series and step.
fn send_history(server: &Server, tenant: &str, series_count: usize, start_ms: i64) -> Result<()> {
    let mut connection = WriteConnection::open_as(server.port, tenant)?;
    for first in (0..series_count).step_by(LOAD_SERIES) {
        let count = LOAD_SERIES.min(series_count - first);
        let mut series = SeriesBody::new(first..first + count);
        for step in 0..HISTORY_STEPS {
            connection.post(series.step(start_ms + step as i64 * STEP_MS))?;
        }
    }
    Ok(())
}

const FIGURES: [Figure<Phase>; 13] = [
    ("queries", 0, |phase| phase.queries.served_ms.len() as f64),
    ("queries, p50, ms", 1, |phase| at(&phase.queries.served_ms, 0.5)),
    ("queries, p90, ms", 1, |phase| at(&phase.queries.served_ms, 0.9)),
    ("queries, p99, ms", 1, |phase| at(&phase.queries.served_ms, 0.99)),
    ("queries, max, ms", 1, |phase| largest(&phase.queries.served_ms)),
    ("queries, own_wait p99, ms", 1, |phase| at(&phase.queries.own_wait_ms, 0.99)),
    ("writes", 0, |phase| phase.writes.served_ms.len() as f64),
    ("writes, p50, ms", 1, |phase| at(&phase.writes.served_ms, 0.5)),
    ("writes, p90, ms", 1, |phase| at(&phase.writes.served_ms, 0.9)),
    ("writes, p99, ms", 1, |phase| at(&phase.writes.served_ms, 0.99)),
    ("writes, max, ms", 1, |phase| largest(&phase.writes.served_ms)),
    ("writes, own_wait p99, ms", 1, |phase| at(&phase.writes.own_wait_ms, 0.99)),
    ("refused", 0, |phase| phase.refused as f64),
];

impl Phase {
    fn measure(server: &Server, start_ms: i64, options: &Options) -> Result<Phase> {
        let end = Instant::now() + Duration::from_secs(options.seconds);
        let port = server.port;
        let panels = panels(start_ms, "");
        std::thread::scope(|scope| {
            let dashboard = scope.spawn(|| dashboard(port, &panels, end));
            let writer = scope.spawn(move || writer(port, end));
            let (queries, refused_queries) = dashboard.join().expect("no panic")?;
            let (writes, refused_writes) = writer.join().expect("no panic")?;
            Ok(Phase { queries, writes, refused: refused_queries + refused_writes })
        })
    }

    /// Checks that nothing was refused, and that p99 is at most `factor` times the p99 of `alone` plus
    /// `more_ms`.
    fn check(&self, alone: &Phase, factor: f64, more_ms: f64) -> Result<()> {
        ensure!(self.refused == 0, "{} requests of the small tenant were refused", self.refused);
        for (name, together, alone) in
            [("queries", &self.queries, &alone.queries), ("writes", &self.writes, &alone.writes)]
        {
            let found = at(&together.served_ms, 0.99);
            let allowed = at(&alone.served_ms, 0.99) * factor + more_ms;
            ensure!(found <= allowed, "p99 of {name} is {found:.1} ms, allowed {allowed:.1} ms");
        }
        Ok(())
    }
}

fn writer(port: u16, end: Instant) -> Result<(Latencies, u64)> {
    let mut connection = WriteConnection::open_as(port, SMALL)?;
    let mut series = SeriesBody::new(0..SMALL_SERIES);
    let queue = RunQueue::of_this_thread()?;
    let mut latencies = Latencies::default();
    let mut refused = 0;
    while Instant::now() < end {
        let body = series.step(SystemClock::new().now_ms());
        let (status, text) = latencies.measure(&queue, || connection.send(body))?;
        refused += u64::from(is_refusal(status));
        ensure!(status / 100 == 2 || is_refusal(status), "HTTP {status}: {text:.300}");
        std::thread::sleep(SMALL_PAUSE);
    }
    Ok((latencies, refused))
}

/// The greedy tenants, and what came of their requests.
#[derive(Default)]
struct Greedy {
    queries: AtomicU64,
    queries_refused: AtomicU64,
    samples: AtomicU64,
    writes_refused: AtomicU64,
    /// Number of the next new series.
    next_series: AtomicU64,
}

impl Greedy {
    /// Measures the small tenant next to the greedy clients, and ends the server with them.
    fn next_to(&self, server: &mut Server, start_ms: i64, options: &Options) -> Result<Phase> {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| -> Result<Phase> {
            match options.load {
                Load::NewSeries => self.start_new_series(scope, server, options, &stop),
                Load::Heavy | Load::ContinuousQueries | Load::Bomb => {
                    self.start(scope, server, start_ms, options, &stop);
                }
            }
            std::thread::sleep(WARM_UP);
            let together = Phase::measure(server, start_ms, options);
            stop.store(true, Ordering::Relaxed);
            // Ends the requests of the greedy clients, which may wait for minutes.
            let killed = server.kill();
            killed.and(together)
        })
    }

    fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        server: &Server,
        start_ms: i64,
        options: &Options,
        stop: &'scope AtomicBool,
    ) {
        let port = server.port;
        let priority = options.client_priority;
        let hour = (start_ms, start_ms + HISTORY_STEPS as i64 * STEP_MS, 15);
        for _ in 0..options.readers {
            scope.spawn(move || {
                priority.take();
                // A client that fails starts again, and all fail when the server is ended.
                while !stop.load(Ordering::Relaxed) {
                    drop(self.read(port, hour, stop));
                }
            });
        }
        for idx in 0..options.writers {
            let series = idx * options.write_series..(idx + 1) * options.write_series;
            scope.spawn(move || {
                priority.take();
                let mut series = SeriesBody::new(series.clone());
                while !stop.load(Ordering::Relaxed) {
                    drop(self.write(port, &mut series, stop));
                }
            });
        }
    }

    /// Starts the tenant that sends new series, until all are sent.
    fn start_new_series<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        server: &Server,
        options: &Options,
        stop: &'scope AtomicBool,
    ) {
        let port = server.port;
        let count = options.write_series;
        let priority = options.client_priority;
        let next = &self.next_series;
        let series_max = options.new_series;
        for _ in 0..NEW_SERIES_WRITERS {
            scope.spawn(move || {
                priority.take();
                while !stop.load(Ordering::Relaxed) {
                    let first = next.fetch_add(count as u64, Ordering::Relaxed) as usize;
                    if first >= series_max {
                        break;
                    }
                    drop(self.write_new(port, first..first + count));
                }
            });
        }
    }

    fn write_new(&self, port: u16, series: std::ops::Range<usize>) -> Result<()> {
        let mut connection = WriteConnection::open_as(port, LOUD)?;
        self.write_once(&mut connection, &mut SeriesBody::new(series))
    }

    /// Sends the next samples of `series` and counts the answer.
    fn write_once(&self, connection: &mut WriteConnection, series: &mut SeriesBody) -> Result<()> {
        let series_count = series.len() as u64;
        let (status, _) =
            connection.send(series.step(SystemClock::new().now_ms())).context("a greedy write")?;
        match is_refusal(status) {
            true => self.writes_refused.fetch_add(1, Ordering::Relaxed),
            false => self.samples.fetch_add(series_count, Ordering::Relaxed),
        };
        Ok(())
    }

    fn read(&self, port: u16, hour: (i64, i64, i64), stop: &AtomicBool) -> Result<()> {
        let mut connection = QueryConnection::open_as(port, READERS)?;
        let path = range_path("sum by (job) (rate({__name__=~\".+\"}[5m]))", hour);
        while !stop.load(Ordering::Relaxed) {
            let (status, _) = connection.get(&path).context("a heavy query")?;
            let count = if is_refusal(status) { &self.queries_refused } else { &self.queries };
            count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn write(&self, port: u16, series: &mut SeriesBody, stop: &AtomicBool) -> Result<()> {
        let mut connection = WriteConnection::open_as(port, WRITERS)?;
        while !stop.load(Ordering::Relaxed) {
            self.write_once(&mut connection, series)?;
        }
        Ok(())
    }

    /// Checks that the greedy tenants were a load.
    fn check(&self, load: Load) -> Result<()> {
        let is_none = |count: &AtomicU64| count.load(Ordering::Relaxed) == 0;
        ensure!(load != Load::Heavy || !is_none(&self.queries), "no heavy query was answered");
        let is_refused = load != Load::NewSeries || !is_none(&self.writes_refused);
        ensure!(is_refused, "the loud tenant was never refused");
        Ok(())
    }

    fn summary(&self) -> String {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        format!(
            "{} heavy queries answered, {} refused; {} samples written, {} writes refused, {} new series sent",
            count(&self.queries),
            count(&self.queries_refused),
            count(&self.samples),
            count(&self.writes_refused),
            count(&self.next_series)
        )
    }
}
