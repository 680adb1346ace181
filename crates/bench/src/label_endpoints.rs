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

use crate::driver::{Benchmark, Run};
use crate::http::{self, Accept, QueryConnection, WriteConnection};
use crate::latency::{at, median, timed};
use crate::options::Servers;
use crate::proc::Stopwatch;
use crate::report::Table;
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

impl Benchmark for Options {
    fn servers(&self) -> Result<Vec<Kind>> {
        if self.only.is_chosen() {
            self.only.of(&Kind::ALL)
        } else {
            Ok(vec![Kind::Chronolith, Kind::Prometheus])
        }
    }

    fn measure(&self, run: &mut Run) -> Result<()> {
        let sizes = [self.series, self.count_series];
        ensure!(sizes.iter().all(|size| size % SERIES_PER_METRIC == 0), "series come by the thousand");
        ensure!(self.rounds > 0 && self.samples > 0, "rounds and samples must be above 0");
        let now_ms = SystemClock::new().now_ms();
        let parts = [
            (self.series, label_requests(self.series, now_ms)),
            (self.count_series, count_requests(self.count_series, now_ms)),
        ];
        for kind in run.kinds() {
            for (series_count, requests) in parts.iter().filter(|(series_count, _)| *series_count > 0) {
                let setup = Setup::new(*series_count).own_flags(["--self-scrape=off"]);
                let table = run.measure_server(kind, setup, |server| {
                    self.fill(server, *series_count, now_ms)?;
                    self.measure_requests(server, *series_count, requests)
                })?;
                run.table(table);
            }
        }
        Ok(())
    }
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

impl Options {
    fn measure_requests(&self, server: &Server, series_count: usize, requests: &[Request]) -> Result<Table> {
        server.make_visible()?;
        let title = format!("{}: {series_count} series, milliseconds", server.kind().name());
        let columns = ["p50 with gzip", "p99", "CPU of the server per request", "p50 plain"];
        let mut table = Table::new(title, columns);
        for request in requests {
            let time = |accept| self.time_request(server, request, accept);
            let [p50, p99, cpu] = time(Accept::Gzip).with_context(|| request.name.to_owned())?;
            let [plain, ..] = time(Accept::Plain).with_context(|| request.name.to_owned())?;
            table.row(request.name, 2, [p50, p99, cpu, plain]);
        }
        if self.hold {
            println!("process {} on port {}; Enter goes on", server.pid(), server.port);
            std::io::stdin().read_line(&mut String::new())?;
        }
        Ok(table)
    }

    /// Sends all series, target by target within a metric.
    fn fill(&self, server: &Server, series_count: usize, now_ms: i64) -> Result<()> {
        let mut connection = WriteConnection::open(server.port)?;
        let per_request = (SAMPLES_PER_REQUEST / self.samples).max(1);
        let first_ms = now_ms - self.samples as i64 * STEP_MS;
        let samples: Vec<(i64, f64)> =
            (0..self.samples).map(|step| (first_ms + step as i64 * STEP_MS, step as f64)).collect();
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

    /// Median, 99th percentile and CPU time of the server per request, in milliseconds.
    fn time_request(&self, server: &Server, request: &Request, accept: Accept) -> Result<[f64; 3]> {
        let mut connection = QueryConnection::open(server.port)?;
        connection.set_accept(accept);
        check(&http::ok(connection.get(&request.path)?)?, &request.want)?;
        let mut times_ms = Vec::with_capacity(self.rounds);
        let stopwatch = Stopwatch::start(server.pid())?;
        let begun = Instant::now();
        while times_ms.len() < self.rounds && (times_ms.is_empty() || begun.elapsed() < ROUNDS_WAIT) {
            let status = timed(&mut times_ms, || connection.fetch(&request.path).map(|got| got.status))?;
            ensure!(status == 200, "HTTP {status}");
        }
        let cpu_ms = stopwatch.spent()?.cpu.total() * 1e3 / times_ms.len() as f64;
        Ok([median(&times_ms), at(&times_ms, 0.99), cpu_ms])
    }
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
