//! CPU of 50 rules over three metrics: one by one, and as one batch (ADR 0130).
//!
//! `cargo run --release -p chronolith-promql --example batch_cost -- [--series N] [--times N] [--rules]`
//! prints the milliseconds of the fastest of `times` evaluations of each kind, and their ratio; at most 0.4
//! is asked. There are N series of all metrics together with 40 samples each. Under a profiler `--times 1`
//! against `--times 0` leaves the rules alone. `--rules` prints the rules as a file instead: load it into
//! Prometheus and with `chronolith serve --rules.files FILE`, send both the same remote write of these
//! series, and compare the CPU of the processes.
//!
//! Invariants: one thread; results of both kinds are compared bit for bit. Series are in memory, so decoding
//! is not part of the cost. Not here: parsing, writes and lists of a round.

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../tests/support/testing.rs"]
mod testing;

use std::error::Error;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;

use chronolith_base::{Clock, SystemClock};
use chronolith_model::{Labels, ReadContext};
use chronolith_promql::ast::Expr;
use chronolith_promql::engine::batch::Member;
use chronolith_promql::engine::trace::Trace;
use chronolith_promql::parser::{ParserOptions, parse_expr};
use chronolith_promql::{Engine, EngineOptions, Query, Value};
use testing::MemQueryable;

type Outcome<T> = Result<T, Box<dyn Error>>;

const INTERVAL_MS: i64 = 15_000;
const SAMPLE_COUNT: i64 = 40;
const TIME_MS: i64 = (SAMPLE_COUNT - 1) * INTERVAL_MS;
const METRICS: [&str; 3] = ["requests_total", "request_seconds_sum", "request_seconds_count"];
const GROUPINGS: [&str; 10] = [
    "job",
    "namespace",
    "cluster",
    "method",
    "code",
    "path",
    "zone",
    "job, code",
    "namespace, job",
    "method, path",
];
/// Expressions of each grouping, which `#` stands for.
const FORMS: [&str; 5] = [
    "sum by (#) (rate(requests_total[5m]))",
    "sum by (#) (rate(request_seconds_sum[5m])) / sum by (#) (rate(request_seconds_count[5m]))",
    "max by (#) (rate(request_seconds_sum[5m]))",
    "avg by (#) (rate(requests_total[5m])) > 0.5",
    "sum by (#) (rate(requests_total[5m])) / on () group_left () sum(rate(requests_total[5m]))",
];

struct Arguments {
    series_count: usize,
    times: usize,
    prints_rules: bool,
}

fn arguments() -> Option<Arguments> {
    let mut parsed = Arguments { series_count: 100_000, times: 3, prints_rules: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--series" => parsed.series_count = words.next()?.parse().ok()?,
            "--times" => parsed.times = words.next()?.parse().ok()?,
            "--rules" => parsed.prints_rules = true,
            _ => return None,
        }
    }
    Some(parsed)
}

/// Evaluates all rules at one time.
struct Rules<'a> {
    engine: Engine,
    source: MemQueryable,
    queries: Vec<Query<'a>>,
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!("usage: batch_cost [--series N] [--times N] [--rules]");
        return ExitCode::FAILURE;
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Outcome<()> {
    let texts = texts();
    if arguments.prints_rules {
        print!("{}", rule_file(&texts));
        return Ok(());
    }
    let parse = |text: &String| parse_expr(text, ParserOptions::default());
    let exprs: Vec<Expr> = texts.iter().map(parse).collect::<Result<_, _>>()?;
    let query = |(text, expr)| Query {
        text,
        expr,
        start_ms: TIME_MS,
        end_ms: TIME_MS,
        step_ms: 0,
        lookback_ms: None,
    };
    let rules = Rules {
        engine: Engine::new(EngineOptions::default()),
        source: source(arguments.series_count),
        queries: texts.iter().map(String::as_str).zip(&exprs).map(query).collect(),
    };
    let mut one_by_one_ns = u64::MAX;
    let mut together_ns = u64::MAX;
    let clock = SystemClock::new();
    for _ in 0..arguments.times {
        let started_ns = clock.mono_ns();
        let alone = rules.one_by_one()?;
        let between_ns = clock.mono_ns();
        let together = rules.together()?;
        together_ns = together_ns.min(clock.mono_ns() - between_ns);
        one_by_one_ns = one_by_one_ns.min(between_ns - started_ns);
        if bits(&alone) != bits(&together) {
            return Err("results differ".into());
        }
    }
    let ms = |ns: u64| ns as f64 / 1e6;
    let ratio = together_ns as f64 / one_by_one_ns as f64;
    println!("one by one {:.1} ms, together {:.1} ms: {ratio:.3}", ms(one_by_one_ns), ms(together_ns));
    Ok(())
}

fn source(series_count: usize) -> MemQueryable {
    let mut source = MemQueryable::new();
    for idx in 0..series_count / METRICS.len() {
        for metric in METRICS {
            let value = |k: i64| (k * (idx % 97 + 1) as i64) as f64;
            source.add(&labels(metric, idx), (0..SAMPLE_COUNT).map(|k| (k * INTERVAL_MS, value(k))));
        }
    }
    source
}

fn texts() -> Vec<String> {
    let of_grouping = |grouping: &&str| FORMS.map(|form| form.replace('#', grouping));
    GROUPINGS.iter().flat_map(of_grouping).collect()
}

fn rule_file(texts: &[String]) -> String {
    let mut file = "groups:\n- name: sharing\n  interval: 1m\n  rules:\n".to_owned();
    for (idx, text) in texts.iter().enumerate() {
        file += &format!("  - {{record: 'bench:rule{idx:02}', expr: '{text}'}}\n");
    }
    file
}

fn labels(metric: &str, idx: usize) -> Labels {
    let instance = idx / 100;
    Labels::from_pairs([
        ("__name__", metric),
        ("cluster", ["eu-west-1", "us-east-1", "ap-south-1"][instance % 3]),
        ("code", ["200", "204", "404", "500"][idx % 4]),
        ("instance", &format!("10.0.{}.{}:9090", instance / 250, instance % 250)),
        ("job", &format!("service-{}", instance % 10)),
        ("method", ["GET", "POST", "PUT", "DELETE", "PATCH"][idx / 4 % 5]),
        ("namespace", &format!("team-{}", instance % 7)),
        ("path", &format!("/api/v1/resource/{}", idx / 20 % 5)),
        ("zone", ["a", "b", "c"][instance % 3]),
    ])
}

impl Rules<'_> {
    fn ctx(&self) -> ReadContext {
        ReadContext::unlimited(Arc::new(SystemClock::new()))
    }

    fn one_by_one(&self) -> Outcome<Vec<Value>> {
        let value = |query: &Query<'_>| Ok(self.engine.run(&self.source, query, &self.ctx())?.value);
        self.queries.iter().map(value).collect()
    }

    fn together(&self) -> Outcome<Vec<Value>> {
        let batch = self.engine.plan_batch(&self.queries);
        let states: Vec<(ReadContext, Trace)> =
            self.queries.iter().map(|_| (self.ctx(), Trace::new())).collect();
        let mut values: Vec<Option<Value>> = vec![None; self.queries.len()];
        for component in batch.components() {
            let member = |idx: &usize| {
                let (ctx, trace) = &states[*idx];
                Member { query: &self.queries[*idx], source: &self.source, ctx, trace }
            };
            let members: Vec<Member<'_>> = component.iter().map(member).collect();
            let end =
                self.engine.run_component(&batch, component, &members, &mut |at, compute| match compute() {
                    Some(Ok(result)) => {
                        values[component[at]] = Some(result.value);
                        ControlFlow::Continue(())
                    }
                    other => ControlFlow::Break(format!("no result: {other:?}")),
                });
            if let ControlFlow::Break(error) = end {
                return Err(error.into());
            }
        }
        let grouped = values.into_iter().enumerate();
        grouped
            .map(|(idx, value)| value.ok_or_else(|| format!("rule {idx} is in no component").into()))
            .collect()
    }
}

/// Labels and bits of all values.
fn bits(values: &[Value]) -> Vec<Vec<(Labels, u64)>> {
    let of_value = |value: &Value| match value {
        Value::Vector(all) => all.iter().map(|one| (one.labels.clone(), one.value.to_bits())).collect(),
        _ => Vec::new(),
    };
    values.iter().map(of_value).collect()
}
