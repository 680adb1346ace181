//! Benchmark `late`: the same day of samples, in order and with a tenth and half of them withheld for up to a
//! day.
//! Measured: what taking them costs, and what a query over the day costs before and after they are in blocks.
//!
//! Invariants: whatever the order, the same samples are stored in the end, so answers must be equal and their
//! times can be compared; requests are made before the clock starts.
//! Not here: samples older than a day.

mod arrivals;
mod report;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use chronolith_base::{Clock, SystemClock};

use crate::body::Body;
use crate::fleet::WRITE_PATH;
use crate::http::{self, WriteConnection};
use crate::options::{DataDirectory, ReportDirectory, Servers};
use crate::proc;
use crate::report::{Failures, median};
use crate::server::{Kind, Server, Setup};
use crate::sizes;
use arrivals::{Arrivals, STEP_MS};

const WINDOW_MS: i64 = 2 * 3_600_000;
/// As in `disk`: Prometheus cuts its last block once its head spans three hours.
const QUIET_MS: i64 = 11_400_000;
/// Longer than any server pauses between two looks for something to merge.
const QUIET: Duration = Duration::from_secs(12);
/// Requests by which a connection may be ahead of the slowest.
const LEAD_MAX: usize = 4;
const LEAD_POLL: Duration = Duration::from_millis(1);
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
    #[command(flatten)]
    out: ReportDirectory,
    #[command(flatten)]
    data: DataDirectory,
}

/// Figures of one server and one share of out-of-order samples.
struct Measured {
    kind: Kind,
    percent: u64,
    late_count: usize,
    sample_count: usize,
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

pub(crate) fn run(options: &Options) -> Result<()> {
    let kinds = options.only.chosen(&Kind::ALL)?;
    let mut series_count = options.series;
    let mut step_count = options.steps;
    if options.quick {
        (series_count, step_count) = (series_count.min(QUICK_SERIES), step_count.min(QUICK_STEPS));
    }
    ensure!(series_count > 0 && step_count > 1 && options.batch > 0, "counts must be above 0, steps above 1");
    ensure!(options.connections > 0 && options.rounds > 0, "connections and rounds must be above 0");
    ensure!(options.percent.iter().all(|percent| *percent <= 100), "percent must be at most 100");
    let end_ms = (SystemClock::new().now_ms() - QUIET_MS).div_euclid(WINDOW_MS) * WINDOW_MS;
    let start_ms = end_ms - step_count as i64 * STEP_MS;
    let (mut measured, mut failures): (Vec<Measured>, Failures) = Default::default();
    for &percent in &options.percent {
        println!("{percent} % late: {series_count} series, {step_count} samples each");
        let parts = Arrivals::dealt(series_count, step_count, percent, options.connections);
        let late_count = parts.iter().map(|part| part.late_count).sum();
        let bodies: Vec<Vec<Body>> = parts.iter().map(|part| part.bodies(start_ms, options.batch)).collect();
        for kind in &kinds {
            let plan = Plan { kind: *kind, percent, late_count, series_count, step_count, start_ms };
            let title = format!("{}, {percent} % late", kind.name());
            if let Some(one) = failures.keep(title.clone(), measure(&plan, &bodies, options)) {
                println!("  {}", one.summary());
                failures.keep(title, check_answers(&measured, &one));
                measured.push(one);
            }
        }
    }
    report::write(options, &kinds, &measured)?;
    failures.end()
}

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
        let config = match self.kind {
            Kind::Prometheus => "storage:\n  tsdb:\n    out_of_order_time_window: 25h\n",
            Kind::Chronolith | Kind::VictoriaMetrics | Kind::Influx(_) | Kind::Carbon => "",
        };
        let flags: &[&str] = match self.kind {
            Kind::Chronolith => &["--self-scrape", "off"],
            Kind::Prometheus | Kind::VictoriaMetrics | Kind::Influx(_) | Kind::Carbon => &[],
        };
        Setup {
            series_count: self.series_count,
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            config: config.to_owned(),
        }
    }
}

fn measure(plan: &Plan, bodies: &[Vec<Body>], options: &Options) -> Result<Measured> {
    let start = || Server::start_with(plan.kind, &options.data, plan.setup());
    let extra_rounds = if plan.kind == Kind::Chronolith { options.rounds - 1 } else { 0 };
    let mut costs = Vec::new();
    for _ in 0..extra_rounds {
        costs.push(send(&start()?, bodies)?);
    }
    let mut server = start()?;
    let queried = send(&server, bodies).and_then(|cost| {
        costs.push(cost);
        query_all(&mut server, plan)
    });
    let context = || format!("{}; its log ends with:\n{}", plan.kind.name(), server.log_tail());
    let (before, after) = queried.with_context(context)?;
    Ok(Measured {
        kind: plan.kind,
        percent: plan.percent,
        late_count: plan.late_count,
        sample_count: plan.sample_count(),
        wall_seconds: median(costs.iter().map(|cost| cost.wall_seconds).collect()),
        cpu_seconds: median(costs.iter().map(|cost| cost.cpu_seconds).collect()),
        before,
        after,
    })
}

/// Cost of sending everything once.
struct Cost {
    wall_seconds: f64,
    /// CPU time of the server.
    cpu_seconds: f64,
}

/// Sends all requests. Connections stay close to each other: what comes in time on one must not be late for a
/// server because another is ahead.
fn send(server: &Server, bodies: &[Vec<Body>]) -> Result<Cost> {
    let sent_counts: Vec<AtomicUsize> = bodies.iter().map(|_| AtomicUsize::new(0)).collect();
    let cpu_before = proc::cpu_seconds(server.pid())?;
    let start = Instant::now();
    let sent: Vec<Result<()>> = std::thread::scope(|scope| {
        let workers = bodies.iter().enumerate().map(|(idx, part)| {
            let sent_counts = &sent_counts;
            let port = server.port;
            scope.spawn(move || {
                let done = send_part(port, part, sent_counts, idx);
                // Others must not wait for one that failed or has finished.
                sent_counts[idx].store(usize::MAX, Ordering::Release);
                done
            })
        });
        let workers: Vec<_> = workers.collect();
        workers.into_iter().map(|worker| worker.join().expect("a sender does not panic")).collect()
    });
    let wall_seconds = start.elapsed().as_secs_f64();
    sent.into_iter().collect::<Result<()>>()?;
    let cpu_seconds = proc::cpu_seconds(server.pid())?.since(cpu_before).total();
    Ok(Cost { wall_seconds, cpu_seconds })
}

fn send_part(port: u16, part: &[Body], sent_counts: &[AtomicUsize], own_idx: usize) -> Result<()> {
    let mut connection = WriteConnection::open(port, WRITE_PATH)?;
    for (idx, body) in part.iter().enumerate() {
        sent_counts[own_idx].store(idx, Ordering::Release);
        let is_ahead = |other: &AtomicUsize| other.load(Ordering::Acquire).saturating_add(LEAD_MAX) < idx;
        while sent_counts.iter().any(is_ahead) {
            std::thread::sleep(LEAD_POLL);
        }
        connection.post(body.bytes())?;
    }
    Ok(())
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
    let mut connection = WriteConnection::open(server.port, WRITE_PATH)?;
    // Blocks in front of the newest samples are made and merged only once there are newer ones.
    for time_ms in [plan.end_ms() + STEP_MS, SystemClock::new().now_ms()] {
        let mut body = Body::new([[("__name__", "behind_the_load".to_owned())]].into_iter());
        body.set(time_ms, std::iter::once(0.0));
        connection.post(body.bytes())?;
    }
    drop(connection);
    if plan.kind == Kind::Chronolith {
        // Windows are cut at once instead of after an hour.
        let flags = ["--self-scrape", "off", "--flush-delay", "1s"];
        server.restart_with(flags.map(str::to_owned).to_vec())?;
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
            let start = Instant::now();
            let (status, body) = http::query_range(server.port, text, range)?;
            times_ms.push(start.elapsed().as_secs_f64() * 1000.0);
            ensure!(status == 200 && body.contains("\"values\""), "{text}: HTTP {status}: {body:.300}");
            answer = body;
        }
        queried.ms.push(median(times_ms));
        let value: serde_json::Value = serde_json::from_str(&answer)?;
        queried.answers.push(value["data"].to_string());
    }
    Ok(queried)
}

/// Requires that Chronolith's answers do not depend on the order in which samples came.
fn check_answers(measured: &[Measured], one: &Measured) -> Result<()> {
    let first = measured.iter().find(|m| m.kind == one.kind);
    let equal = first.is_none_or(|m| m.after.answers == one.after.answers);
    ensure!(
        one.kind != Kind::Chronolith || equal,
        "answers with {} % late samples differ from those with {} %",
        one.percent,
        first.map_or(0, |m| m.percent)
    );
    Ok(())
}
