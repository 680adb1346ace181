//! Benchmark `label-endpoints`: label names, label values, `/api/v1/series` and counting of series, over
//! HTTP.
//!
//! Invariants: each server gets the same series; a figure counts only if the answer has as many entries as
//! were written. All samples are in the head. Not here: queries that read samples (`queries`).

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use chronolith_base::{Clock, SystemClock};
use chronolith_ingest::remote_write::encode::RequestEncoder;
use serde_json::Value;

use crate::http::{self, Accept, QueryConnection, WriteConnection};
use crate::options::{DataDirectory, Servers};
use crate::proc;
use crate::server::{Kind, Server, Setup};

const STEP_MS: i64 = 15_000;
const SAMPLES_PER_REQUEST: usize = 10_000;
/// Series of one metric: what `/api/v1/series` is asked for.
const SERIES_PER_METRIC: usize = 1000;
const JOB_COUNT: usize = 20;
/// A request is not timed again after this.
const ROUNDS_WAIT: Duration = Duration::from_secs(20);

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    only: Servers,
    /// Series for the requests about labels; a multiple of 1000.
    #[arg(long, default_value_t = 100_000)]
    series: usize,
    /// Series that are counted; a multiple of 1000. 0 leaves counting out.
    #[arg(long, default_value_t = 1_000_000)]
    count_series: usize,
    /// Samples of each series, 15 s apart.
    #[arg(long, default_value_t = 10)]
    samples: usize,
    /// Timed requests of each kind, after one to warm up.
    #[arg(long, default_value_t = 101)]
    rounds: usize,
    #[command(flatten)]
    data: DataDirectory,
    /// Keeps each server up after the last request, until Enter is pressed: for a profiler.
    #[arg(long)]
    hold: bool,
}

/// A request and the answer it must have.
struct Request {
    name: &'static str,
    path: String,
    want: Want,
}

/// Expectation of an answer.
enum Want {
    /// Entries of the list.
    Entries(usize),
    /// Sum of the values of a vector, and its length.
    Counted { sum: usize, groups: usize },
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let sizes = [options.series, options.count_series];
    ensure!(sizes.iter().all(|size| size % SERIES_PER_METRIC == 0), "series come by the thousand");
    ensure!(options.rounds > 0 && options.samples > 0, "rounds and samples must be above 0");
    let kinds = options.only.chosen(&[Kind::Chronolith, Kind::Prometheus])?;
    let now_ms = SystemClock::new().now_ms();
    for &kind in &kinds {
        if options.series > 0 {
            measure(options, kind, options.series, now_ms, &label_requests(options.series, now_ms))?;
        }
        if options.count_series > 0 {
            measure(
                options,
                kind,
                options.count_series,
                now_ms,
                &count_requests(options.count_series, now_ms),
            )?;
        }
    }
    Ok(())
}

fn label_requests(series_count: usize, now_ms: i64) -> Vec<Request> {
    let range = format!("start={}&end={}", now_ms / 1000 - 60, now_ms / 1000 + 60);
    let entries = |name, path: String, count| Request { name, path, want: Want::Entries(count) };
    let metric_count = series_count / SERIES_PER_METRIC;
    vec![
        entries("label names", "/api/v1/labels".to_owned(), 6),
        entries("label names, a minute", format!("/api/v1/labels?{range}"), 6),
        entries("values of __name__", "/api/v1/label/__name__/values".to_owned(), metric_count),
        entries("values of instance", "/api/v1/label/instance/values".to_owned(), SERIES_PER_METRIC),
        entries(
            "values of instance, a minute",
            format!("/api/v1/label/instance/values?{range}"),
            SERIES_PER_METRIC,
        ),
        entries(
            "series of a metric",
            "/api/v1/series?match[]=bench_metric_7_total".to_owned(),
            SERIES_PER_METRIC,
        ),
        entries(
            "series of a metric, a minute",
            format!("/api/v1/series?match[]=bench_metric_7_total&{range}"),
            SERIES_PER_METRIC,
        ),
    ]
}

fn count_requests(series_count: usize, now_ms: i64) -> Vec<Request> {
    let start_ms = now_ms - 60_000;
    let instant = |name, query: &str, groups, sum| {
        let path = http::query_path(query, now_ms);
        Request { name, path, want: Want::Counted { sum, groups } }
    };
    let selector = "{__name__=~\"bench_.+\"}";
    let metric_count = series_count / SERIES_PER_METRIC;
    vec![
        instant("count", &format!("count({selector})"), 1, series_count),
        instant("count of any name", "count({__name__!=\"\",job!=\"\",pod!=\"\"})", 1, series_count),
        instant("count by (job)", &format!("count by (job) ({selector})"), JOB_COUNT, series_count),
        instant(
            "count by (__name__)",
            &format!("count by (__name__) ({selector})"),
            metric_count,
            series_count,
        ),
        instant("group", &format!("group by (job) ({selector})"), JOB_COUNT, JOB_COUNT),
        instant("count a minute ago", &format!("count({selector} @ {})", start_ms / 1000), 1, series_count),
    ]
}

/// Labels of a series.
fn labels(idx: usize) -> [(&'static str, String); 6] {
    let metric = idx / SERIES_PER_METRIC;
    let instance = idx % SERIES_PER_METRIC;
    [
        ("__name__", format!("bench_metric_{metric}_total")),
        ("cluster", "bench-eu-1".to_owned()),
        ("instance", format!("10.0.{}.{}:9100", instance / 250, instance % 250)),
        ("job", format!("service-{:02}", instance % JOB_COUNT)),
        ("namespace", format!("namespace-{}", instance % 7)),
        ("pod", format!("service-{:02}-5f7b9c-{instance:05}", instance % JOB_COUNT)),
    ]
}

fn measure(
    options: &Options,
    kind: Kind,
    series_count: usize,
    now_ms: i64,
    requests: &[Request],
) -> Result<()> {
    let flags = match kind {
        Kind::Chronolith => vec!["--self-scrape=off".to_owned()],
        Kind::Prometheus | Kind::VictoriaMetrics | Kind::Influx(_) | Kind::Carbon => Vec::new(),
    };
    let setup = Setup { series_count, flags, ..Setup::default() };
    let server = Server::start_with(kind, &options.data, setup)?;
    fill(options, &server, series_count, now_ms).with_context(|| server.log_tail())?;
    server.make_visible()?;
    println!(
        "{}: {series_count} series; milliseconds with gzip: p50, p99, CPU of the server per request; p50 plain",
        kind.name()
    );
    for request in requests {
        let time = |accept| time_request(options, &server, request, accept);
        let figures = time(Accept::Gzip).with_context(|| request.name.to_owned())?;
        let plain = time(Accept::Plain).with_context(|| request.name.to_owned())?;
        println!(
            "  {:<30} {:>9.2} {:>9.2} {:>9.2} {:>9.2}",
            request.name, figures.p50_ms, figures.p99_ms, figures.cpu_ms, plain.p50_ms
        );
    }
    if options.hold {
        println!("process {} on port {}; Enter goes on", server.pid(), server.port);
        std::io::stdin().read_line(&mut String::new())?;
    }
    Ok(())
}

/// Sends all series, target by target within a metric.
fn fill(options: &Options, server: &Server, series_count: usize, now_ms: i64) -> Result<()> {
    let mut connection = WriteConnection::open(server.port, "/api/v1/write")?;
    let per_request = (SAMPLES_PER_REQUEST / options.samples).max(1);
    let first_ms = now_ms - options.samples as i64 * STEP_MS;
    let samples: Vec<(i64, f64)> =
        (0..options.samples).map(|step| (first_ms + step as i64 * STEP_MS, step as f64)).collect();
    for first in (0..series_count).step_by(per_request) {
        let mut encoder = RequestEncoder::new();
        for idx in first..series_count.min(first + per_request) {
            let labels = labels(idx);
            encoder.push_series(labels.iter().map(|(name, value)| (*name, value.as_str())), &samples);
        }
        connection.post(&encoder.compressed()).with_context(|| format!("series {first}"))?;
    }
    Ok(())
}

struct Figures {
    p50_ms: f64,
    p99_ms: f64,
    cpu_ms: f64,
}

fn time_request(options: &Options, server: &Server, request: &Request, accept: Accept) -> Result<Figures> {
    let mut connection = QueryConnection::open(server.port)?;
    connection.set_accept(accept);
    let (status, body) = connection.get(&request.path)?;
    ensure!(status == 200, "HTTP {status}: {body:.300}");
    check(&serde_json::from_str(&body)?, &request.want)?;
    let mut times_ms = Vec::with_capacity(options.rounds);
    let cpu = proc::cpu_seconds(server.pid())?;
    let begun = Instant::now();
    while times_ms.len() < options.rounds && (times_ms.is_empty() || begun.elapsed() < ROUNDS_WAIT) {
        let started = Instant::now();
        let status = connection.fetch(&request.path)?.status;
        times_ms.push(started.elapsed().as_secs_f64() * 1000.0);
        ensure!(status == 200, "HTTP {status}");
    }
    let cpu_ms = proc::cpu_seconds(server.pid())?.since(cpu).total() * 1000.0 / times_ms.len() as f64;
    times_ms.sort_by(f64::total_cmp);
    let at = |percent: usize| times_ms[(times_ms.len() * percent / 100).min(times_ms.len() - 1)];
    Ok(Figures { p50_ms: at(50), p99_ms: at(99), cpu_ms })
}

fn check(answer: &Value, want: &Want) -> Result<()> {
    match want {
        Want::Entries(count) => {
            let found = answer["data"].as_array().map_or(0, Vec::len);
            ensure!(found == *count, "{found} entries instead of {count}");
        }
        Want::Counted { sum, groups } => {
            let result = answer["data"]["result"].as_array().context("no vector")?;
            let value = |one: &Value| one["value"][1].as_str().and_then(|text| text.parse::<f64>().ok());
            let found: f64 = result.iter().filter_map(value).sum();
            ensure!(result.len() == *groups, "{} groups instead of {groups}", result.len());
            ensure!(found as usize == *sum, "{found} instead of {sum}");
        }
    }
    Ok(())
}
