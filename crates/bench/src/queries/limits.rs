//! Benchmark `query-limits`: dashboards at work, and a client that asks for everything at the finest
//! resolution.
//!
//! Invariants: each over-large query is refused with 422 within [`REFUSAL_MS_MAX`]; the latency of the
//! dashboards is printed with and without it, and the run fails if their p99 grows by more than
//! [`SLOWDOWN_MAX`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use chronolith_base::{Clock, SystemClock};

use super::corpus::Corpus;
use super::feed;
use super::measure::median;
use crate::http;
use crate::options::DataDirectory;
use crate::server::{Kind, Server, Setup};

const REFUSAL_MS_MAX: f64 = 1000.0;
/// Times the quiet p99, and this many milliseconds.
const SLOWDOWN_MAX: f64 = 1.5;
const SLOWDOWN_MS: f64 = 20.0;
const DASHBOARD_COUNT: usize = 8;
const PHASE: Duration = Duration::from_secs(10);
/// A panel is asked for so often.
const REFRESH: Duration = Duration::from_millis(100);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Series, 3 h at 15 s for each.
    #[arg(long, default_value_t = 20_000)]
    series: usize,
    /// Further series with one sample each; with 1.2 million of them 11 000 steps of everything take 106 GB.
    #[arg(long, default_value_t = 1_200_000)]
    idle_series: usize,
    #[command(flatten)]
    data: DataDirectory,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let now_ms = SystemClock::new().now_ms();
    let corpus = Corpus::wide(options.series, now_ms - 60_000);
    let setup = Setup {
        series_count: options.series + options.idle_series,
        flags: vec!["--self-scrape=off".to_owned()],
        ..Setup::default()
    };
    let server = Server::start_with(Kind::Chronolith, &options.data, setup)?;
    feed::send(&corpus, &server)?;
    feed::send_idle(options.idle_series, corpus.end_ms(), &server)?;
    let quiet = Phase::run(&server, &corpus, None)?;
    println!("dashboards alone: {}", quiet.summary());
    let end_s = corpus.end_ms() / 1000;
    let huge = format!(
        "/api/v1/query_range?query=%7B__name__%3D~%22.%2B%22%7D&start={}&end={end_s}&step=1",
        end_s - 10_999
    );
    let beside = Phase::run(&server, &corpus, Some(&huge))?;
    println!("with over-large queries: {}", beside.summary());
    for refusal in &beside.refusals {
        println!("refused after {:.1} ms: {}", refusal.ms, refusal.message);
    }
    let slowest = beside.refusals.iter().map(|refusal| refusal.ms).fold(0.0, f64::max);
    ensure!(!beside.refusals.is_empty(), "no over-large query was asked");
    ensure!(slowest < REFUSAL_MS_MAX, "a refusal took {slowest:.0} ms");
    let allowed = quiet.p99_ms * SLOWDOWN_MAX + SLOWDOWN_MS;
    ensure!(
        beside.p99_ms <= allowed,
        "p99 of dashboards is {:.1} ms, allowed {allowed:.1} ms",
        beside.p99_ms
    );
    Ok(())
}

struct Refusal {
    ms: f64,
    message: String,
}

struct Phase {
    query_count: usize,
    p50_ms: f64,
    p99_ms: f64,
    refusals: Vec<Refusal>,
}

impl Phase {
    fn run(server: &Server, corpus: &Corpus, huge: Option<&str>) -> Result<Phase> {
        let stop = AtomicBool::new(false);
        let (mut walls, refusals) = std::thread::scope(|scope| -> Result<_> {
            let dashboards: Vec<_> = (0..DASHBOARD_COUNT)
                .map(|idx| {
                    let stop = &stop;
                    scope.spawn(move || dashboard(server.port, corpus, idx, stop))
                })
                .collect();
            let started = Instant::now();
            let mut refusals = Vec::new();
            while started.elapsed() < PHASE {
                if let Some(path) = huge {
                    refusals.push(refuse(server.port, path)?);
                }
                std::thread::sleep(Duration::from_secs(1));
            }
            stop.store(true, Ordering::Relaxed);
            let mut walls = Vec::new();
            for dashboard in dashboards {
                walls.extend(dashboard.join().expect("a dashboard does not panic")?);
            }
            Ok((walls, refusals))
        })?;
        let p50_ms = median(&mut walls);
        let at = walls.len().saturating_sub(1) * 99 / 100;
        let p99_ms = walls.get(at).copied().unwrap_or(f64::NAN);
        Ok(Phase { query_count: walls.len(), p50_ms, p99_ms, refusals })
    }

    fn summary(&self) -> String {
        format!("{} queries, p50 {:.1} ms, p99 {:.1} ms", self.query_count, self.p50_ms, self.p99_ms)
    }
}

/// One panel after the other, an hour at a minute, past the cache of results.
fn dashboard(port: u16, corpus: &Corpus, idx: usize, stop: &AtomicBool) -> Result<Vec<f64>> {
    let end_ms = corpus.end_ms();
    let queries = [
        format!("sum by (code) (rate(http_requests_total{{job=\"service-{idx:02}\"}}[5m]))"),
        format!("max by (handler) (http_requests_total{{job=\"service-{idx:02}\"}})"),
        "count(node_info)".to_owned(),
    ];
    let mut walls = Vec::new();
    for query in queries.iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let started = Instant::now();
        let (status, body) = http::query_range(port, query, (end_ms - 3_600_000, end_ms, 60))?;
        walls.push(started.elapsed().as_secs_f64() * 1000.0);
        ensure!(status == 200, "HTTP {status}: {body:.300}");
        std::thread::sleep(REFRESH);
    }
    Ok(walls)
}

fn refuse(port: u16, path: &str) -> Result<Refusal> {
    let started = Instant::now();
    let (status, body) = http::get(port, path)?;
    let ms = started.elapsed().as_secs_f64() * 1000.0;
    if status != 422 {
        bail!("an over-large query was answered with {status}: {body:.200}");
    }
    let json: serde_json::Value = serde_json::from_str(&body)?;
    Ok(Refusal { ms, message: json["error"].as_str().unwrap_or("").to_owned() })
}
