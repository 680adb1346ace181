//! Compares the engine with Prometheus's on random queries over random series.
//!
//! `cargo run --release -p chronolith-promql --example differential -- --oracle PATH --seed N --count N [--report N]
//! [--query TEXT] [--only KIND]`, where PATH is the program built from `tools/promql-oracle/engine`. Every query runs with
//! immediate and with delayed name removal. Differences are shrunk and printed as scripts of the promqltest
//! language; a seed gives the same run again. `--query` takes the place of the random
//! queries; N differences of each kind are shown, or only of kinds that begin with KIND.
//! Holds: exit code 0 means that no difference was found.

mod case;
mod compare;
mod generate;
mod oracle;
mod series;
mod shrink;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use chronolith_base::{Rng, SystemClock};
use chronolith_model::ReadContext;
use chronolith_promql::parser::{ParserOptions, parse_expr};
use chronolith_promql::{Engine, EngineOptions, NameRemoval, Query};

use case::{Answer, Case};
use generate::{Generator, Node, Type};
use oracle::Oracle;

/// Queries that are asked of the same series.
const QUERIES_PER_DATASET: u64 = 25;
/// Queries written by hand, each asked of many datasets.
const CORNERS: &str = include_str!("corners.txt");

struct Arguments {
    oracle: String,
    seed: u64,
    count: u64,
    report_count: usize,
    query: Option<String>,
    only: Option<String>,
}

fn arguments() -> Option<Arguments> {
    let mut parsed =
        Arguments { oracle: String::new(), seed: 1, count: 1000, report_count: 2, query: None, only: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next()?;
        match word.as_str() {
            "--oracle" => parsed.oracle = value,
            "--seed" => parsed.seed = value.parse().ok()?,
            "--count" => parsed.count = value.parse().ok()?,
            "--report" => parsed.report_count = value.parse().ok()?,
            "--only" => parsed.only = Some(value),
            "--query" => parsed.query = Some(value),
            _ => return None,
        }
    }
    (!parsed.oracle.is_empty()).then_some(parsed)
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!(
            "usage: differential --oracle PATH [--seed N] [--count N] [--report N] [--query TEXT] [--only KIND]"
        );
        return ExitCode::from(2);
    };
    let mut bench = match Bench::new(&arguments.oracle) {
        Ok(bench) => bench,
        Err(error) => {
            eprintln!("cannot start {}: {error}", arguments.oracle);
            return ExitCode::from(2);
        }
    };
    match run(&arguments, &mut bench) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("oracle: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments, bench: &mut Bench) -> std::io::Result<usize> {
    let rng = Rng::from_seed(arguments.seed);
    let corners: Vec<&str> =
        CORNERS.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    let (mut asked, mut refused, mut failed, mut empty, mut differing) =
        (0_usize, 0_usize, 0_usize, 0_usize, 0);
    let mut dataset = series::random(&rng);
    for number in 0..arguments.count {
        if number % QUERIES_PER_DATASET == 0 {
            dataset = series::random(&rng);
        }
        let node = match &arguments.query {
            Some(text) => Node::leaf(Type::Vector, text),
            None if rng.below(4) == 0 => {
                Node::leaf(Type::Vector, corners[rng.below(corners.len() as u64) as usize])
            }
            None => Generator { rng: &rng, dataset: &dataset }.query(),
        };
        let times = case::Times::random(&rng, dataset.start_ms);
        for delayed in [false, true] {
            let case = Case { dataset: &dataset, query: node.to_string(), times, delayed };
            asked += 1;
            let (ours, theirs) = bench.ask(&case)?;
            if ours.is_unsupported() {
                refused += 1;
                continue;
            }
            failed += usize::from(theirs.error.is_some());
            empty += usize::from(theirs.error.is_none() && theirs.series.is_empty());
            let Some(difference) = compare::difference(&case.query, &ours, &theirs) else { continue };
            differing += 1;
            let seen = kinds.entry(difference.kind()).or_default();
            *seen += 1;
            if *seen <= arguments.report_count
                && arguments.only.as_ref().is_none_or(|only| difference.kind().starts_with(only))
            {
                let small = shrink::shrink(bench, &node, &case)?;
                println!("---- query {number}, seed {}\n{small}", arguments.seed);
            }
        }
    }
    println!(
        "{asked} asked, {failed} failed upstream, {empty} empty, {refused} not supported, {differing} differ: {kinds:#?}"
    );
    Ok(differing)
}

/// Both engines.
struct Bench {
    oracle: Oracle,
    immediate: Engine,
    delayed: Engine,
}

impl Bench {
    fn new(oracle: &str) -> std::io::Result<Bench> {
        let engine = |name_removal| {
            let parser = ParserOptions {
                experimental_functions: true,
                extended_range_selectors: true,
                binop_fill_modifiers: true,
            };
            Engine::new(EngineOptions { name_removal, parser, start_times: true, ..EngineOptions::default() })
        };
        let (immediate, delayed) = (engine(NameRemoval::Immediate), engine(NameRemoval::Delayed));
        Ok(Bench { oracle: Oracle::start(oracle)?, immediate, delayed })
    }

    /// Our answer and upstream's.
    fn ask(&mut self, case: &Case<'_>) -> std::io::Result<(Answer, Answer)> {
        Ok((self.ours(case), self.oracle.ask(case)?))
    }

    fn ours(&self, case: &Case<'_>) -> Answer {
        let engine = if case.delayed { &self.delayed } else { &self.immediate };
        let expr = match parse_expr(&case.query, engine.options().parser) {
            Ok(expr) => expr,
            Err(error) => return Answer::failed(error.to_string()),
        };
        let query = Query {
            text: &case.query,
            expr: &expr,
            start_ms: case.times.start_ms,
            end_ms: case.times.end_ms,
            step_ms: case.times.step_ms,
            lookback_ms: (case.times.lookback_ms > 0).then_some(case.times.lookback_ms),
        };
        let ctx = ReadContext::unlimited(Arc::new(SystemClock::new()));
        match engine.run(&case.dataset.source(), &query, &ctx) {
            Ok(result) => Answer::from_result(result),
            Err(error) => Answer::failed(error.to_string()),
        }
    }
}
