//! Load `bomb`: one tenant sends new series all the time, ten times as many as the small tenant has, while
//! its clients query all of its history. The small tenant writes at a fixed rate and has a dashboard.
//!
//! Invariants: every server gets the same requests: tenants are a label too, as not all servers know tenants.
//! A write that begins late, because the one before it took longer than the interval, is as much slower.
//! Not here: latencies and the dashboard (`small_tenant`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use chronolith_base::{Clock, SystemClock};

use super::small_tenant::{
    ClientPriority, HISTORY_STEPS, LOAD_SERIES, LOUD, Latencies, Phase, SMALL, WARM_UP, dashboard,
    is_refusal, panels,
};
use crate::driver::{Run, Summary};
use crate::http::{QueryConnection, WriteConnection, range_path};
use crate::latency::at;
use crate::proc::RunQueue;
use crate::report::Figure;
use crate::server::{Kind, Server, Setup};
use crate::traffic::{STEP_MS, SeriesBody};

/// Allowed p99 of the small tenant's writes and queries, in multiples of that alone.
const WRITE_SLOWDOWN_MAX: f64 = 1.1;
const QUERY_SLOWDOWN_MAX: f64 = 1.5;
/// Samples of one write of the small tenant, and series of one write of new ones.
const BATCH_SERIES: usize = 2000;
/// Connections that send new series.
const WRITER_COUNT: usize = 4;

#[derive(clap::Args)]
pub(super) struct BombOptions {
    /// Series of the small tenant with `--load bomb`; a multiple of 2000.
    #[arg(long, default_value_t = 20_000)]
    small_series: usize,
    /// Samples per second of the small tenant with `--load bomb`.
    #[arg(long, default_value_t = 20_000)]
    small_rate: usize,
    /// New series of the greedy tenant in one phase of `--load bomb`, in multiples of `--small-series`.
    #[arg(long, default_value_t = 10)]
    bomb_factor: usize,
    /// Clients of the greedy tenant that query all of its history with `--load bomb`.
    #[arg(long, default_value_t = 50)]
    bomb_readers: usize,
}

/// Size of the load on one server.
#[derive(Clone, Copy)]
pub(super) struct Load<'a> {
    pub(super) options: &'a BombOptions,
    /// Series of the greedy tenant that have a history.
    pub(super) history_series: usize,
    pub(super) seconds: u64,
    pub(super) priority: ClientPriority,
}

/// Measures all servers and adds their figures and the targets of this repository's one.
pub(super) fn measure(run: &mut Run, load: Load, flags: &[String]) -> Result<()> {
    let options = load.options;
    ensure!(
        options.small_series.is_multiple_of(BATCH_SERIES),
        "--small-series: not a multiple of {BATCH_SERIES}"
    );
    ensure!(options.small_series > 0 && options.small_rate > 0, "the small tenant sends nothing");
    let series_count = options.small_series * (2 + options.bomb_factor) + load.history_series;
    let setup = |_| {
        let setup = Setup::new(series_count).own_flags(["--multitenancy=true", "--self-scrape=off"]);
        Some(setup.own_flags(flags.to_vec()))
    };
    let measured = run.measure_servers("bomb", 1, setup, |server| load.measure_phases(server));
    run.note(format!(
        "small tenant: {} series, {} samples/s; greedy tenant: {} new series in {} s, {} clients of queries over {} series",
        options.small_series,
        options.small_rate,
        options.small_series * options.bomb_factor,
        load.seconds,
        options.bomb_readers,
        load.history_series
    ));
    let kinds = run.kinds();
    run.table(measured.table("the small tenant, alone and next to the greedy one", &kinds, &FIGURES));
    if kinds.contains(&Kind::Chronolith) {
        let own = |figure: fn(&Phases) -> f64| measured.median(Kind::Chronolith, figure);
        run.at_most(
            "p99 of writes next to the greedy tenant / alone",
            own(Phases::write_slowdown),
            WRITE_SLOWDOWN_MAX,
        );
        run.at_most(
            "p99 of queries next to the greedy tenant / alone",
            own(Phases::query_slowdown),
            QUERY_SLOWDOWN_MAX,
        );
        run.at_most(
            "refused requests of the small tenant",
            own(|phases| phases.together.refused as f64),
            0.0,
        );
    }
    Ok(())
}

const FIGURES: [Figure<Phases>; 15] = [
    ("writes alone", 0, |phases| phases.alone.writes.served_ms.len() as f64),
    ("writes alone, p50, ms", 1, |phases| at(&phases.alone.writes.served_ms, 0.5)),
    ("writes alone, p99, ms", 1, |phases| at(&phases.alone.writes.served_ms, 0.99)),
    ("writes together", 0, |phases| phases.together.writes.served_ms.len() as f64),
    ("writes together, p50, ms", 1, |phases| at(&phases.together.writes.served_ms, 0.5)),
    ("writes together, p99, ms", 1, |phases| at(&phases.together.writes.served_ms, 0.99)),
    ("queries alone", 0, |phases| phases.alone.queries.served_ms.len() as f64),
    ("queries alone, p50, ms", 1, |phases| at(&phases.alone.queries.served_ms, 0.5)),
    ("queries alone, p99, ms", 1, |phases| at(&phases.alone.queries.served_ms, 0.99)),
    ("queries together", 0, |phases| phases.together.queries.served_ms.len() as f64),
    ("queries together, p50, ms", 1, |phases| at(&phases.together.queries.served_ms, 0.5)),
    ("queries together, p99, ms", 1, |phases| at(&phases.together.queries.served_ms, 0.99)),
    ("refused together", 0, |phases| phases.together.refused as f64),
    ("greedy tenant: new series stored", 0, |phases| phases.greedy.new_series as f64),
    ("greedy tenant: queries answered", 0, |phases| phases.greedy.queries as f64),
];

/// Latencies of the small tenant in both phases, and work of the greedy one in the second.
pub(super) struct Phases {
    alone: Phase,
    together: Phase,
    greedy: Answered,
}

/// Requests of the greedy tenant that were carried out.
struct Answered {
    new_series: u64,
    queries: u64,
}

impl Phases {
    fn write_slowdown(&self) -> f64 {
        at(&self.together.writes.served_ms, 0.99) / at(&self.alone.writes.served_ms, 0.99)
    }

    fn query_slowdown(&self) -> f64 {
        at(&self.together.queries.served_ms, 0.99) / at(&self.alone.queries.served_ms, 0.99)
    }
}

impl Summary for Phases {
    fn summary(&self) -> String {
        format!(
            "p99 {:.2} times (writes) and {:.2} times (queries) that of alone, {} refused; greedy: {} new series, {} queries",
            self.write_slowdown(),
            self.query_slowdown(),
            self.together.refused,
            self.greedy.new_series,
            self.greedy.queries
        )
    }
}

impl Load<'_> {
    /// Measures the small tenant alone and next to the greedy one, and ends the server.
    fn measure_phases(&self, server: &mut Server) -> Result<Phases> {
        let start_ms = SystemClock::new().now_ms() / STEP_MS * STEP_MS - HISTORY_STEPS as i64 * STEP_MS;
        send_histories(server, [(SMALL, self.options.small_series), (LOUD, self.history_series)], start_ms)?;
        let alone = self.measure_small(server.port, start_ms)?;
        let greedy = Greedy::default();
        let together = std::thread::scope(|scope| {
            greedy.start(scope, server.port, start_ms, *self);
            std::thread::sleep(WARM_UP);
            let together = self.measure_small(server.port, start_ms);
            greedy.stop.store(true, Ordering::Relaxed);
            // Ends the requests of the greedy clients, which may wait for minutes.
            let killed = server.kill();
            killed.and(together)
        })?;
        let greedy = Answered {
            new_series: greedy.new_series.load(Ordering::Relaxed),
            queries: greedy.queries.load(Ordering::Relaxed),
        };
        ensure!(greedy.new_series > 0, "the greedy tenant stored no series");
        Ok(Phases { alone, together, greedy })
    }

    fn measure_small(&self, port: u16, start_ms: i64) -> Result<Phase> {
        let end = Instant::now() + Duration::from_secs(self.seconds);
        let panels = panels(start_ms, &matcher(SMALL));
        std::thread::scope(|scope| {
            let dashboard = scope.spawn(|| dashboard(port, &panels, end));
            let writer = scope.spawn(|| self.write_small(port, end));
            let (queries, refused_queries) = dashboard.join().expect("no panic")?;
            let (writes, refused_writes) = writer.join().expect("no panic")?;
            Ok(Phase { queries, writes, refused: refused_queries + refused_writes })
        })
    }

    /// Writes at the fixed rate until `end`: latencies, and how many were refused.
    fn write_small(&self, port: u16, end: Instant) -> Result<(Latencies, u64)> {
        let firsts = (0..self.options.small_series).step_by(BATCH_SERIES);
        let mut batches: Vec<SeriesBody> =
            firsts.map(|first| SeriesBody::of_tenant(first..first + BATCH_SERIES, SMALL)).collect();
        let interval = Duration::from_secs_f64(BATCH_SERIES as f64 / self.options.small_rate as f64);
        let mut connection = WriteConnection::open_as(port, SMALL)?;
        let queue = RunQueue::of_this_thread()?;
        let mut latencies = Latencies::default();
        let mut refused = 0;
        let mut idx = 0;
        let mut due = Instant::now();
        while due < end {
            let late = Instant::now().saturating_duration_since(due);
            let body = batches[idx].step(SystemClock::new().now_ms());
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let (status, text) = latencies.measure(&queue, || connection.send(body))?;
            ensure!(status / 100 == 2 || is_refusal(status), "HTTP {status}: {text:.300}");
            refused += u64::from(status / 100 != 2);
            idx = (idx + 1) % batches.len();
            if let Some(latest) = latencies.served_ms.last_mut() {
                *latest += late.as_secs_f64() * 1000.0;
            }
            due += interval;
        }
        Ok((latencies, refused))
    }
}

/// Matcher of the series of `tenant`.
fn matcher(tenant: &str) -> String {
    format!("tenant=\"{tenant}\"")
}

/// Sends an hour of samples of both tenants in order of time: Prometheus refuses a sample that is an hour
/// older than the newest.
fn send_histories(server: &Server, tenants: [(&str, usize); 2], start_ms: i64) -> Result<()> {
    let mut senders = Vec::new();
    for (tenant, series_count) in tenants {
        let firsts = (0..series_count).step_by(LOAD_SERIES);
        let bodies = firsts.map(|first| {
            let end = (first + LOAD_SERIES).min(series_count);
            SeriesBody::of_tenant(first..end, tenant)
        });
        let bodies: Vec<SeriesBody> = bodies.collect();
        senders.push((WriteConnection::open_as(server.port, tenant)?, bodies));
    }
    for step in 0..HISTORY_STEPS {
        for (connection, bodies) in &mut senders {
            for body in bodies {
                connection.post(body.step(start_ms + step as i64 * STEP_MS))?;
            }
        }
    }
    Ok(())
}

/// The greedy tenant, and its requests that were carried out.
#[derive(Default)]
struct Greedy {
    stop: AtomicBool,
    queries: AtomicU64,
    new_series: AtomicU64,
    /// Number of the next write of new series.
    next_write: AtomicU64,
}

impl Greedy {
    fn start<'scope>(
        &'scope self,
        scope: &'scope std::thread::Scope<'scope, '_>,
        port: u16,
        start_ms: i64,
        load: Load<'_>,
    ) {
        let priority = load.priority;
        let hour = (start_ms, start_ms + HISTORY_STEPS as i64 * STEP_MS, 15);
        let path =
            range_path(&format!("sum by (job) (rate({{__name__=~\".+\",{}}}[5m]))", matcher(LOUD)), hour);
        for _ in 0..load.options.bomb_readers {
            let path = path.clone();
            scope.spawn(move || {
                priority.take();
                // A client that fails starts again, and all fail when the server is ended.
                while !self.is_over() {
                    drop(self.read(port, &path));
                }
            });
        }
        let first_new = load.history_series;
        let new_series = load.options.small_series * load.options.bomb_factor;
        let interval =
            Duration::from_secs_f64(load.seconds as f64 * BATCH_SERIES as f64 / new_series.max(1) as f64);
        let began = Instant::now();
        for _ in 0..WRITER_COUNT {
            scope.spawn(move || {
                priority.take();
                while !self.is_over() {
                    let number = self.next_write.fetch_add(1, Ordering::Relaxed);
                    let first = first_new + number as usize * BATCH_SERIES;
                    let due = began + interval.mul_f64(number as f64);
                    drop(self.write_new(port, first..first + BATCH_SERIES, due));
                }
            });
        }
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn read(&self, port: u16, path: &str) -> Result<()> {
        let mut connection = QueryConnection::open_as(port, LOUD)?;
        while !self.is_over() {
            let (status, _) = connection.get(path)?;
            self.queries.fetch_add(u64::from(status == 200), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Sends one sample of each of `series` at `due`.
    fn write_new(&self, port: u16, series: std::ops::Range<usize>, due: Instant) -> Result<()> {
        let count = series.len() as u64;
        let mut series = SeriesBody::of_tenant(series, LOUD);
        let mut connection = WriteConnection::open_as(port, LOUD)?;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let (status, _) = connection.send(series.step(SystemClock::new().now_ms()))?;
        if status / 100 == 2 {
            self.new_series.fetch_add(count, Ordering::Relaxed);
        }
        Ok(())
    }
}
