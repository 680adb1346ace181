//! Benchmark `query-limits`: dashboards at work, and a client that asks for everything at the finest
//! resolution.
//!
//! Invariants: each over-large query is refused with 422 within [`REFUSAL_MS_MAX`]; the latency of the
//! dashboards is printed with and without it, and the run fails if their p99 grows by more than
//! [`SLOWDOWN_MAX`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use chronolith_base::{Clock, SystemClock};

use super::corpus::Corpus;
use super::feed;
use crate::driver::{Benchmark, Run};
use crate::http;
use crate::latency::{at, largest, median, repeat, timed};
use crate::report::Table;
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
}

impl Benchmark for Options {
    fn servers(&self) -> Result<Vec<Kind>> {
        Ok(vec![Kind::Chronolith])
    }

    fn measure(&self, run: &mut Run) -> Result<()> {
        let corpus = Corpus::wide(self.series, SystemClock::new().now_ms() - 60_000);
        let setup = Setup::new(self.series + self.idle_series).own_flags(["--self-scrape=off"]);
        let [quiet, beside] = run.measure_server(Kind::Chronolith, setup, |server| {
            feed::send(&corpus, server)?;
            feed::send_idle(self.idle_series, corpus.end_ms(), server)?;
            let end_s = corpus.end_ms() / 1000;
            let huge = format!(
                "/api/v1/query_range?query=%7B__name__%3D~%22.%2B%22%7D&start={}&end={end_s}&step=1",
                end_s - 10_999
            );
            Ok([Phase::measure(server, &corpus, None)?, Phase::measure(server, &corpus, Some(&huge))?])
        })?;
        let columns = ["queries", "p50, ms", "p99, ms", "refusals", "slowest refusal, ms"];
        let mut table = Table::new("dashboards", columns);
        table.mixed_row("alone", quiet.cells());
        table.mixed_row("with over-large queries", beside.cells());
        run.table(table);
        run.note(format!("refused: {}", beside.message));
        run.keep("query-limits", beside.check(&quiet));
        Ok(())
    }
}

/// Latencies of the dashboards and of refusals in one phase.
struct Phase {
    dashboards_ms: Vec<f64>,
    refusals_ms: Vec<f64>,
    /// Message of the last refusal.
    message: String,
}

impl Phase {
    fn measure(server: &Server, corpus: &Corpus, huge: Option<&str>) -> Result<Phase> {
        let stop = AtomicBool::new(false);
        let mut phase = Phase { dashboards_ms: Vec::new(), refusals_ms: Vec::new(), message: String::new() };
        std::thread::scope(|scope| {
            let stop = &stop;
            let dashboards: Vec<_> = (0..DASHBOARD_COUNT)
                .map(|idx| scope.spawn(move || dashboard(server.port, corpus, idx, stop)))
                .collect();
            let refused = phase.ask_for(PHASE, server.port, huge);
            stop.store(true, Ordering::Relaxed);
            for dashboard in dashboards {
                phase.dashboards_ms.extend(dashboard.join().expect("a dashboard does not panic")?);
            }
            refused.map(|()| phase)
        })
    }

    /// Asks for `huge` every second, which must be refused.
    fn ask_for(&mut self, time: Duration, port: u16, huge: Option<&str>) -> Result<()> {
        let started = Instant::now();
        while started.elapsed() < time {
            if let Some(path) = huge {
                let (status, body) = timed(&mut self.refusals_ms, || http::get(port, path))?;
                ensure!(status == 422, "an over-large query was answered with {status}: {body:.200}");
                let json: serde_json::Value = serde_json::from_str(&body)?;
                self.message = json["error"].as_str().unwrap_or("").to_owned();
            }
            std::thread::sleep(Duration::from_secs(1));
        }
        Ok(())
    }

    fn cells(&self) -> [(usize, f64); 5] {
        [
            (0, self.dashboards_ms.len() as f64),
            (1, median(&self.dashboards_ms)),
            (1, at(&self.dashboards_ms, 0.99)),
            (0, self.refusals_ms.len() as f64),
            (1, largest(&self.refusals_ms)),
        ]
    }

    fn check(&self, quiet: &Phase) -> Result<()> {
        let slowest = largest(&self.refusals_ms);
        ensure!(!self.refusals_ms.is_empty(), "no over-large query was asked");
        ensure!(slowest < REFUSAL_MS_MAX, "a refusal took {slowest:.0} ms");
        let allowed = at(&quiet.dashboards_ms, 0.99) * SLOWDOWN_MAX + SLOWDOWN_MS;
        let found = at(&self.dashboards_ms, 0.99);
        ensure!(found <= allowed, "p99 of dashboards is {found:.1} ms, allowed {allowed:.1} ms");
        Ok(())
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
    let range = (end_ms - 3_600_000, end_ms, 60);
    let mut queries = queries.iter().cycle();
    repeat(
        REFRESH,
        || stop.load(Ordering::Relaxed),
        || {
            let query = queries.next().map_or("", String::as_str);
            let (status, body) = http::query_range(port, query, range)?;
            ensure!(status == 200, "HTTP {status}: {body:.300}");
            Ok(())
        },
    )
}
