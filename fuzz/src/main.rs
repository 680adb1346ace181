//! Compares the engine with Prometheus's on random queries over random series.
//!
//! `cargo run --release -p chronolith-fuzz -- --oracle PATH --seeds A,B --count N
//! [--report N] [--query TEXT] [--only KIND] [--show all] [--mode mutate]`, where PATH is the program built
//! from `fuzz/oracles/promql-engine`. N queries for each seed; each runs with immediate and with delayed name
//! removal. Differences of a documented kind are counted; others are unexplained: N of each kind (or only of
//! kinds that begin with KIND) are shrunk and printed as scripts of the promqltest language. `--show all`
//! prints explained ones, too. A seed gives the same run again. `--query` takes the place of the random
//! queries. `--mode mutate` only parses: random queries with words changed.
//! Invariants: exit code 0 means that no difference is unexplained.

mod case;
mod compare;
mod explain;
mod generate;
mod mutate;
mod oracle;
mod series;
mod shrink;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../crates/promql/tests/support/testing.rs"]
mod testing;

use std::collections::BTreeMap;
use std::fmt;
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
    seeds: Vec<u64>,
    count: u64,
    report_count: usize,
    query: Option<String>,
    only: Option<String>,
    show: Show,
    mode: Mode,
}

/// Subject of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Answers.
    Evaluate,
    /// Verdicts of the parsers about texts that may be no queries.
    Mutate,
}

/// Differences to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Show {
    Unexplained,
    All,
}

fn arguments() -> Option<Arguments> {
    let mut parsed = Arguments {
        oracle: String::new(),
        seeds: vec![1],
        count: 1000,
        report_count: 2,
        query: None,
        only: None,
        show: Show::Unexplained,
        mode: Mode::Evaluate,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next()?;
        match word.as_str() {
            "--oracle" => parsed.oracle = value,
            "--seed" | "--seeds" => {
                parsed.seeds = value.split(',').map(str::parse).collect::<Result<_, _>>().ok()?;
            }
            "--show" if value == "all" => parsed.show = Show::All,
            "--mode" if value == "mutate" => parsed.mode = Mode::Mutate,
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
            "usage: differential --oracle PATH [--seeds A,B] [--count N] [--report N] [--query TEXT] [--only KIND] \
             [--show all] [--mode mutate]"
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
    let unexplained = match arguments.mode {
        Mode::Evaluate => run(&arguments, &mut bench),
        Mode::Mutate => mutate::run(&arguments, &mut bench.oracle),
    };
    match unexplained {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("oracle: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs all seeds; gives how many differences are unexplained.
fn run(arguments: &Arguments, bench: &mut Bench) -> std::io::Result<usize> {
    let mut tally = Tally::default();
    for &seed in &arguments.seeds {
        run_seed(arguments, seed, bench, &mut tally)?;
        eprintln!("seed {seed}: {tally}");
    }
    println!("seeds {:?}, {} expressions each: {tally}", arguments.seeds, arguments.count);
    for (kind, count) in &tally.explained {
        println!("  {count:6} {kind}");
    }
    for (kind, count) in &tally.unexplained {
        println!("  {count:6} UNEXPLAINED {kind}");
    }
    let unexplained = tally.unexplained.values().sum();
    println!("unexplained: {unexplained}");
    Ok(unexplained)
}

/// Counts of queries by result.
#[derive(Default)]
struct Tally {
    expressions: u64,
    asked: usize,
    refused: usize,
    failed: usize,
    empty: usize,
    explained: BTreeMap<&'static str, usize>,
    unexplained: BTreeMap<String, usize>,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let differing = self.explained.values().sum::<usize>() + self.unexplained.values().sum::<usize>();
        write!(
            f,
            "{} expressions, {} evaluations, {} failed in Prometheus, {} empty, {} not supported, {differing} differ",
            self.expressions, self.asked, self.failed, self.empty, self.refused
        )
    }
}

fn run_seed(arguments: &Arguments, seed: u64, bench: &mut Bench, tally: &mut Tally) -> std::io::Result<()> {
    let rng = Rng::from_seed(seed);
    let corners: Vec<&str> =
        CORNERS.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
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
        let typed = rng.below(8) == 0;
        tally.expressions += 1;
        for delayed in [false, true] {
            let case = Case { dataset: &dataset, query: node.to_string(), times, delayed, typed };
            let Some(small) = ask_one(arguments, bench, &node, &case, tally)? else { continue };
            println!("---- query {number}, seed {seed}: {}\n{small}", case.query);
        }
    }
    Ok(())
}

/// Asks both and counts; gives the difference, made small, if it is to be shown.
fn ask_one(
    arguments: &Arguments,
    bench: &mut Bench,
    node: &Node,
    case: &Case<'_>,
    tally: &mut Tally,
) -> std::io::Result<Option<String>> {
    tally.asked += 1;
    let (ours, theirs) = bench.ask(case)?;
    if ours.is_unsupported() {
        tally.refused += 1;
        return Ok(None);
    }
    tally.failed += usize::from(theirs.error.is_some());
    tally.empty += usize::from(theirs.error.is_none() && theirs.series.is_empty());
    let Some(difference) = compare::difference(&case.query, &ours, &theirs) else { return Ok(None) };
    let seen = match explain::explain(bench, case, (&ours, &theirs), &difference)? {
        Some(kind) => {
            let seen = tally.explained.entry(kind).or_default();
            *seen += 1;
            if arguments.show == Show::All { *seen } else { usize::MAX }
        }
        None => {
            let seen = tally.unexplained.entry(difference.kind()).or_default();
            *seen += 1;
            *seen
        }
    };
    let wanted = arguments.only.as_ref().is_none_or(|only| difference.kind().starts_with(only));
    if seen > arguments.report_count || !wanted {
        return Ok(None);
    }
    Ok(Some(shrink::shrink(bench, node, case)?))
}

/// Both engines.
struct Bench {
    oracle: Oracle,
    /// By delayed name removal and types.
    engines: [[Engine; 2]; 2],
}

impl Bench {
    fn new(oracle: &str) -> std::io::Result<Bench> {
        let engine = |name_removal, type_and_unit_labels| {
            let parser = ParserOptions {
                experimental_functions: true,
                binop_fill_modifiers: true,
                unquoted_utf8_names: false,
            };
            Engine::new(EngineOptions {
                name_removal,
                parser,
                start_times: true,
                type_and_unit_labels,
                ..EngineOptions::default()
            })
        };
        let engines =
            [NameRemoval::Immediate, NameRemoval::Delayed].map(|n| [false, true].map(|t| engine(n, t)));
        Ok(Bench { oracle: Oracle::start(oracle)?, engines })
    }

    /// Our answer and Prometheus's.
    fn ask(&mut self, case: &Case<'_>) -> std::io::Result<(Answer, Answer)> {
        Ok((self.ours(case), self.oracle.ask(case)?))
    }

    /// Prometheus's answer alone.
    fn ask_prometheus(&mut self, case: &Case<'_>) -> std::io::Result<Answer> {
        self.oracle.ask(case)
    }

    fn ours(&self, case: &Case<'_>) -> Answer {
        let engine = &self.engines[usize::from(case.delayed)][usize::from(case.typed)];
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
