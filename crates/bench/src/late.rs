//! Benchmark `late`: the same day of samples, in order and with a tenth and half of them withheld for up to a
//! day.
//! Measured: what taking them costs, and what a query over the day costs before and after they are in blocks.
//!
//! Invariants: whatever the order, the same samples are stored in the end, so answers must be equal and their
//! times can be compared; requests are made before the clock starts.
//! Not here: samples older than a day.

mod arrivals;
mod report;

use std::time::Duration;

use anyhow::{Result, ensure};
use chronolith_base::{Clock, SystemClock};

use crate::body::Body;
use crate::driver::{Benchmark, Run};
use crate::http::{self, WriteConnection};
use crate::latency::{median, timed};
use crate::options::Servers;
use crate::proc::{Spent, Stopwatch};
use crate::server::{Kind, Server, Setup};
use crate::sizes;
use crate::workers::{Progress, in_parallel};
use arrivals::{Arrivals, STEP_MS};

const WINDOW_MS: i64 = 2 * 3_600_000;
/// As in `disk`: Prometheus cuts its last block once its head spans three hours.
const QUIET_MS: i64 = 11_400_000;
/// Longer than any server pauses between two looks for something to merge.
const QUIET: Duration = Duration::from_secs(12);
/// Requests by which a connection may be ahead of the slowest.
const LEAD_MAX: usize = 4;
const QUERY_RUNS: usize = 5;
const QUICK_SERIES: usize = 200;
const QUICK_STEPS: usize = 240;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    only: Servers,
    /// Number of series.
    #[arg(long, default_value_t = 4_000)]
    series: usize,
    /// Samples per series, one a minute: 1440 are a day.
    #[arg(long, default_value_t = 1440)]
    steps: usize,
    /// Percent of the samples that come late, one measurement each; the first is what others are compared
    /// with.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 10, 50])]
    percent: Vec<u64>,
    /// Number of runs of Chronolith (the median counts); other servers run once.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Samples per request.
    #[arg(long, default_value_t = 5_000)]
    batch: usize,
    /// Connections, each with a thread and its own part of the series.
    #[arg(long, default_value_t = 2)]
    connections: usize,
    /// At most 200 series and 4 hours: shows that the benchmark works.
    #[arg(long)]
    quick: bool,
}

/// Figures of one server and one share of out-of-order samples.
struct Measured {
    plan: Plan,
    wall_seconds: f64,
    /// CPU time of the server until the last answer.
    cpu_seconds: f64,
    /// Before samples are in blocks and after.
    before: Queried,
    after: Queried,
}

/// The queries of the benchmark.
#[derive(Debug, Clone, Default)]
struct Queried {
    /// Median of each query.
    ms: Vec<f64>,
    /// Answers, without what the server says about its work.
    answers: Vec<String>,
}

impl Benchmark for Options {
    fn servers(&self) -> Result<Vec<Kind>> {
        self.only.of(&Kind::ALL)
    }

    fn measure(&self, run: &mut Run) -> Result<()> {
        let capped = |count: usize, most: usize| if self.quick { count.min(most) } else { count };
        let series_count = capped(self.series, QUICK_SERIES);
        let step_count = capped(self.steps, QUICK_STEPS);
        ensure!(
            series_count > 0 && step_count > 1 && self.batch > 0,
            "counts must be above 0, steps above 1"
        );
        ensure!(self.connections > 0 && self.rounds > 0, "connections and rounds must be above 0");
        ensure!(self.percent.iter().all(|percent| *percent <= 100), "percent must be at most 100");
        let end_ms = (SystemClock::new().now_ms() - QUIET_MS).div_euclid(WINDOW_MS) * WINDOW_MS;
        let start_ms = end_ms - step_count as i64 * STEP_MS;
        let mut measured: Vec<Measured> = Vec::new();
        for &percent in &self.percent {
            println!("{percent} % late: {series_count} series, {step_count} samples each");
            let parts = Arrivals::dealt(series_count, step_count, percent, self.connections);
            let late_count = parts.iter().map(|part| part.late_count).sum();
            let bodies: Vec<Vec<Body>> = parts.iter().map(|part| part.bodies(start_ms, self.batch)).collect();
            for kind in run.kinds() {
                let plan = Plan { kind, percent, late_count, series_count, step_count, start_ms };
                let title = format!("{}, {percent} % late", kind.name());
                let done = measure(&plan, &bodies, self, run);
                if let Some(one) = run.keep(&title, done) {
                    println!("  {}", one.summary());
                    run.keep(&title, check_answers(&measured, &one));
                    measured.push(one);
                }
            }
        }
        report::add(self, &measured, run);
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
struct Plan {
    kind: Kind,
    percent: u64,
    late_count: usize,
    series_count: usize,
    step_count: usize,
    start_ms: i64,
}

impl Plan {
    fn end_ms(&self) -> i64 {
        self.start_ms + self.step_count as i64 * STEP_MS
    }

    fn sample_count(&self) -> usize {
        self.series_count * self.step_count
    }

    fn setup(&self) -> Setup {
        Setup::new(self.series_count)
            .own_flags(["--self-scrape", "off"])
            .config("storage:\n  tsdb:\n    out_of_order_time_window: 25h\n")
    }
}

fn measure(plan: &Plan, bodies: &[Vec<Body>], options: &Options, run: &Run) -> Result<Measured> {
    let extra_rounds = if plan.kind == Kind::Chronolith { options.rounds - 1 } else { 0 };
    let mut costs = Vec::new();
    for _ in 0..extra_rounds {
        costs.push(run.measure_server(plan.kind, plan.setup(), |server| send(server, bodies))?);
    }
    let (before, after) = run.measure_server(plan.kind, plan.setup(), |server| {
        costs.push(send(server, bodies)?);
        query_all(server, plan)
    })?;
    let median_of = |figure: fn(&Spent) -> f64| median(&costs.iter().map(figure).collect::<Vec<f64>>());
    Ok(Measured {
        plan: *plan,
        wall_seconds: median_of(|cost| cost.wall_seconds),
        cpu_seconds: median_of(|cost| cost.cpu.total()),
        before,
        after,
    })
}

/// Sends all requests once. Connections stay close to each other: what comes in time on one must not be late
/// for a server because another is ahead.
fn send(server: &Server, bodies: &[Vec<Body>]) -> Result<Spent> {
    let progress = Progress::new(bodies.len(), 0, LEAD_MAX);
    let stopwatch = Stopwatch::start(server.pid())?;
    in_parallel(bodies, |worker, part| {
        let done = send_part(server.port, part, |idx| progress.begin(worker, idx));
        progress.end(worker);
        done
    })?;
    stopwatch.spent()
}

fn send_part(port: u16, part: &[Body], begin: impl Fn(usize)) -> Result<()> {
    let mut connection = WriteConnection::open(port)?;
    part.iter().enumerate().try_for_each(|(idx, body)| {
        begin(idx);
        connection.post(body.bytes())
    })
}

/// Queries before samples are in blocks, makes blocks of them, queries again.
fn query_all(server: &mut Server, plan: &Plan) -> Result<(Queried, Queried)> {
    server.make_visible()?;
    let found = http::query_number(
        server.port,
        &format!("sum(count_over_time({{cluster=\"bench-eu-1\"}}[{}s]))", plan.step_count * 60),
        plan.end_ms() - 1,
    )?;
    ensure!(found == plan.sample_count() as f64, "{found} of {} samples are there", plan.sample_count());
    let before = query(server, plan)?;
    let mut connection = WriteConnection::open(server.port)?;
    // Blocks in front of the newest samples are made and merged only once there are newer ones.
    for time_ms in [plan.end_ms() + STEP_MS, SystemClock::new().now_ms()] {
        let body = Body::of_sample(&[("__name__", "behind_the_load".to_owned())], time_ms, 0.0);
        connection.post(body.bytes())?;
    }
    drop(connection);
    if plan.kind == Kind::Chronolith {
        // Windows are cut at once instead of after an hour.
        server.restart_with(["--self-scrape", "off", "--flush-delay", "1s"])?;
    }
    sizes::wait_compacted(server, plan.sample_count() + 1, QUIET)?;
    let after = query(server, plan)?;
    ensure!(
        plan.kind != Kind::Chronolith || before.answers == after.answers,
        "blocks answer differently from the head"
    );
    Ok((before, after))
}

/// Queries, with the distance of their evaluation times in seconds.
const QUERIES: [(&str, i64); 3] = [
    ("sum by (container) (rate({cluster=\"bench-eu-1\",mode=~\"user.*\"}[5m]))", 300),
    ("sum by (container) (count_over_time({cluster=\"bench-eu-1\"}[1h]))", 900),
    ("max by (container) (max_over_time({cluster=\"bench-eu-1\",namespace=\"default\"}[10m]))", 60),
];

fn query(server: &Server, plan: &Plan) -> Result<Queried> {
    let mut queried = Queried::default();
    for (text, step_s) in QUERIES {
        let mut times_ms = Vec::new();
        let mut answer = String::new();
        for _ in 0..QUERY_RUNS {
            let range = (plan.start_ms + 3_600_000, plan.end_ms() - STEP_MS, step_s);
            let (status, body) = timed(&mut times_ms, || http::query_range(server.port, text, range))?;
            ensure!(status == 200 && body.contains("\"values\""), "{text}: HTTP {status}: {body:.300}");
            answer = body;
        }
        queried.ms.push(median(&times_ms));
        let value: serde_json::Value = serde_json::from_str(&answer)?;
        queried.answers.push(value["data"].to_string());
    }
    Ok(queried)
}

/// Requires that Chronolith's answers do not depend on the order in which samples came.
fn check_answers(measured: &[Measured], one: &Measured) -> Result<()> {
    let first = measured.iter().find(|m| m.plan.kind == one.plan.kind);
    let equal = first.is_none_or(|m| m.after.answers == one.after.answers);
    ensure!(
        one.plan.kind != Kind::Chronolith || equal,
        "answers with {} % late samples differ from those with {} %",
        one.plan.percent,
        first.map_or(0, |m| m.plan.percent)
    );
    Ok(())
}
