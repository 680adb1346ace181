//! Cost of queries over series in memory: for counting instructions, and for comparing with and without
//! sharing.
//!
//! `cargo run --release -p chronolith-promql --example cost -- QUERY [--series N] [--steps N] [--times N]
//! [--sharing off]` prints the milliseconds of the fastest of `times` evaluations. There are N series of
//! `x_total` and of `y_total` with ten labels, an hour of samples every 15 s (60 of them where there is one
//! step), and `info` by instance. Under a profiler `--times 1` against `--times 0` leaves the query alone.
//! Invariants: one thread. Not here: storage (`bench`).

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../tests/support/testing.rs"]
mod testing;

use std::process::ExitCode;
use std::sync::Arc;

use chronolith_base::{Clock, SystemClock};
use chronolith_model::{Labels, ReadContext};
use chronolith_promql::parser::{ParserOptions, parse_expr};
use chronolith_promql::{Engine, EngineOptions, Query, Sharing, Value};
use testing::MemQueryable;

const INTERVAL_MS: i64 = 15_000;
/// Series that one instance has of a metric.
const SERIES_PER_INSTANCE: usize = 100;

struct Arguments {
    query: String,
    series_count: usize,
    step_count: i64,
    times: usize,
    sharing: Sharing,
}

fn arguments() -> Option<Arguments> {
    let mut words = std::env::args().skip(1);
    let query = words.next()?;
    let mut parsed =
        Arguments { query, series_count: 100_000, step_count: 1, times: 3, sharing: Sharing::Auto };
    while let Some(word) = words.next() {
        let value = words.next()?;
        match word.as_str() {
            "--series" => parsed.series_count = value.parse().ok()?,
            "--steps" => parsed.step_count = value.parse().ok()?,
            "--times" => parsed.times = value.parse().ok()?,
            "--sharing" if value == "off" => parsed.sharing = Sharing::Off,
            _ => return None,
        }
    }
    Some(parsed)
}

fn source(arguments: &Arguments) -> MemQueryable {
    let mut source = MemQueryable::new();
    let sample_count = if arguments.step_count == 1 { 60 } else { 60 + arguments.step_count };
    for idx in 0..arguments.series_count {
        let instance = idx / SERIES_PER_INSTANCE;
        for name in ["x_total", "y_total"] {
            let labels = Labels::from_pairs([
                ("__name__", name),
                ("cluster", "production-eu-west-1"),
                ("code", ["200", "204", "404", "500"][idx % 4]),
                ("instance", &format!("10.0.{}.{}:9090", instance / 250, instance % 250)),
                ("job", &format!("service-{}", instance % 10)),
                ("method", ["GET", "POST", "PUT", "DELETE", "PATCH"][idx / 4 % 5]),
                ("namespace", &format!("team-{}", instance % 7)),
                ("path", &format!("/api/v1/resource/{}", idx / 20 % 5)),
                ("pod", &format!("service-{}-{instance:08x}", instance % 10)),
                ("zone", ["a", "b", "c"][instance % 3]),
            ]);
            let value = |k: i64| (k * (idx % 97 + 1) as i64) as f64;
            source.add(&labels, (0..sample_count).map(|k| (k * INTERVAL_MS, value(k))));
        }
        if idx % SERIES_PER_INSTANCE == 0 {
            let labels = Labels::from_pairs([
                ("__name__", "info"),
                ("instance", &*format!("10.0.{}.{}:9090", instance / 250, instance % 250)),
                ("version", &format!("1.{}.0", instance % 12)),
            ]);
            source.add(&labels, (0..sample_count).map(|k| (k * INTERVAL_MS, 1.0)));
        }
    }
    source
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!("usage: cost QUERY [--series N] [--steps N] [--times N] [--sharing off]");
        return ExitCode::FAILURE;
    };
    let source = source(&arguments);
    let clock = SystemClock::new();
    let engine = Engine::new(EngineOptions { sharing: arguments.sharing, ..EngineOptions::default() });
    let expr = match parse_expr(&arguments.query, ParserOptions::default()) {
        Ok(expr) => expr,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let start_ms = 59 * INTERVAL_MS;
    let end_ms = start_ms + (arguments.step_count - 1) * INTERVAL_MS;
    let step_ms = if arguments.step_count == 1 { 0 } else { INTERVAL_MS };
    let query = Query { text: "", expr: &expr, start_ms, end_ms, step_ms, lookback_ms: None };
    let mut best_ns = u64::MAX;
    let mut said = String::new();
    for _ in 0..arguments.times {
        let ctx = ReadContext::unlimited(Arc::new(SystemClock::new()));
        let started_ns = clock.mono_ns();
        match engine.run(&source, &query, &ctx) {
            Ok(result) => {
                best_ns = best_ns.min(clock.mono_ns() - started_ns);
                let count = match &result.value {
                    Value::Vector(all) => all.len(),
                    Value::Matrix(all) => all.len(),
                    Value::Scalar { .. } | Value::String { .. } => 1,
                };
                let (read, peak) = (result.samples_read, ctx.budget.peak_bytes() >> 20);
                said = format!("{count} series, {read} samples read, peak {peak} MiB");
            }
            Err(error) => said = error.to_string(),
        }
    }
    println!("{:.1} ms, {said}", best_ns as f64 / 1e6);
    ExitCode::SUCCESS
}
