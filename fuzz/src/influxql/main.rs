//! Compares the server with InfluxDB 1.6.7 on random InfluxQL and random line protocol.
//!
//! `cargo run --release -p chronolith-fuzz --bin influxql -- [--server PATH] [--influxd PATH] [--index
//! inmem|tsi1] [--seed N] [--statements N] [--bodies N] [--report N] [--only KIND] [--show all] [--query
//! TEXT]`. Both servers are started on free ports of this machine, get the same points and the same
//! requests, and their answers are compared: structure, order, texts, values. A difference that a rule
//! explains (docs/influxql-differences.md) is counted; others are reduced and printed, N of each kind. A
//! seed gives the same run again. Invariants: exit code 0 means that no difference is unexplained and, in a
//! run of 5,000 statements and 2,000 bodies or more, that each rule explained something.

mod body;
mod call;
mod cells;
mod chooser;
mod compare;
mod dataset;
mod http;
mod json;
mod malformed;
mod metadata;
mod msgpack;
mod piece;
mod rules;
mod runner;
mod schema;
mod script;
mod select;
mod server;
mod shrink;
mod steps;
mod text;

use std::collections::BTreeMap;
use std::io::Result;
use std::process::ExitCode;

use chronolith_base::Rng;

use chooser::Chooser;
use piece::Piece;
use runner::Runner;
use server::{Pair, Server};
use steps::{Output, Step};

/// Statements and bodies from which on a rule has to explain something.
const LONG_RUN: [usize; 2] = [5000, 2000];
/// Statements that are asked of one set of points.
const STATEMENTS_PER_DATASET: usize = 1000;
/// Statements printed whose answers differ in last digits.
const LISTED_MAX: usize = 10;

struct Arguments {
    server: String,
    influxd: String,
    index: String,
    seed: u64,
    statements: usize,
    bodies: usize,
    report_count: usize,
    only: Option<String>,
    show_all: bool,
    query: Option<String>,
}

fn arguments() -> Option<Arguments> {
    let mut parsed = Arguments {
        server: "target/release/chronolith".to_owned(),
        influxd: "influxd".to_owned(),
        index: "inmem".to_owned(),
        seed: 1,
        statements: 5000,
        bodies: 2000,
        report_count: 2,
        only: None,
        show_all: false,
        query: None,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next()?;
        match word.as_str() {
            "--server" => parsed.server = value,
            "--influxd" => parsed.influxd = value,
            "--index" => parsed.index = value,
            "--seed" => parsed.seed = value.parse().ok()?,
            "--statements" => parsed.statements = value.parse().ok()?,
            "--bodies" => parsed.bodies = value.parse().ok()?,
            "--report" => parsed.report_count = value.parse().ok()?,
            "--only" => parsed.only = Some(value),
            "--show" if value == "all" => parsed.show_all = true,
            "--query" => parsed.query = Some(value),
            _ => return None,
        }
    }
    Some(parsed)
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!(
            "usage: influxql [--server PATH] [--influxd PATH] [--index inmem|tsi1] [--seed N] [--statements N] \
             [--bodies N] [--report N] [--only KIND] [--show all] [--query TEXT]"
        );
        return ExitCode::from(2);
    };
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Runs everything; true if nothing is unexplained.
fn run(arguments: &Arguments) -> Result<bool> {
    let dir = tempfile::tempdir()?;
    let pair = Pair {
        ours: Box::new(Server::chronolith(&arguments.server, dir.path())?),
        theirs: Box::new(Server::influxdb(&arguments.influxd, dir.path(), &arguments.index)?),
    };
    let mut runner = Runner::new(pair, arguments.index == "tsi1");
    let mut tally = Tally::default();
    let rng = Rng::from_seed(arguments.seed);
    let chooser = Chooser(&rng);
    let mut next_load = 0;
    while runner.statements < arguments.statements {
        if runner.statements >= next_load {
            runner.load(chooser)?;
            next_load += STATEMENTS_PER_DATASET;
        }
        let steps = case(arguments, chooser);
        check(arguments, &mut runner, &mut tally, steps)?;
        if arguments.query.is_some() {
            return Ok(tally.report(false));
        }
    }
    let statements = runner.statements;
    for _ in 0..arguments.bodies {
        check(arguments, &mut runner, &mut tally, write_case(chooser))?;
    }
    println!(
        "seed {}, index {}: {statements} statements, {} bodies, {} answers differ in last digits only",
        arguments.seed, arguments.index, arguments.bodies, runner.last_digits
    );
    runner.listed.iter().take(LISTED_MAX).for_each(|text| println!("  last digits: {text}"));
    let long = arguments.statements >= LONG_RUN[0] && arguments.bodies >= LONG_RUN[1];
    Ok(tally.report(long))
}

/// One case of statements.
fn case(arguments: &Arguments, c: Chooser<'_>) -> Vec<Step> {
    if let Some(text) = &arguments.query {
        return vec![Step::query(
            Piece::text(text.clone()),
            "d0",
            Output { epoch: "ns", ..Output::default() },
        )];
    }
    let database = *c.pick(&["d0", "d0", "d0", "d two", ""]);
    match c.below(100) {
        0..12 => vec![Step::query(metadata::show(c, ""), database, Output::random(c))],
        12..20 => vec![malformed::malformed(c)],
        20..23 => script::script(c),
        _ => vec![Step::query(select::select(c), "d0", Output::random(c))],
    }
}

/// One body, written to a database of its own, which is then read.
fn write_case(c: Chooser<'_>) -> Vec<Step> {
    let body = body::body(c);
    let look = |text: &str| {
        Step::query(Piece::text(text), script::DATABASE, Output { epoch: "ns", ..Output::default() })
    };
    vec![
        look("CREATE DATABASE script"),
        Step::write(script::DATABASE, "", body.precision, body.bytes),
        look("SELECT * FROM /.*/ GROUP BY *"),
        look("SHOW SERIES"),
        look("SHOW FIELD KEYS"),
    ]
}

/// Runs one case and counts its difference; what no rule explains is reduced, put to the rules again, and
/// printed.
fn check(arguments: &Arguments, runner: &mut Runner, tally: &mut Tally, steps: Vec<Step>) -> Result<()> {
    let Some(found) = runner.find(&steps)? else { return Ok(()) };
    let rule = rules::explain(&steps, &found, runner)?;
    let (steps, found, rule) = match rule {
        Some(_) => (steps, found, rule),
        None => {
            let counted = (runner.statements, runner.last_digits, runner.listed.len());
            let (steps, found) = shrink::shrink(runner, steps, found)?;
            (runner.statements, runner.last_digits) = (counted.0, counted.1);
            runner.listed.truncate(counted.2);
            let rule = rules::explain(&steps, &found, runner)?;
            (steps, found, rule)
        }
    };
    let kind = rule.map_or_else(|| found.difference.kind.clone(), str::to_owned);
    let counts = if rule.is_some() { &mut tally.explained } else { &mut tally.unexplained };
    let seen = counts.entry(kind.clone()).or_default();
    *seen += 1;
    let wanted = (rule.is_none() || arguments.show_all)
        && *seen <= arguments.report_count
        && arguments.only.as_ref().is_none_or(|only| kind.starts_with(only));
    if wanted {
        println!("---- {kind}");
        steps.iter().for_each(|step| println!("  {step:.1000}"));
        println!("  here:     {:.600}\n  InfluxDB: {:.600}", found.difference.ours, found.difference.theirs);
    }
    Ok(())
}

/// Counts of differences.
#[derive(Default)]
struct Tally {
    explained: BTreeMap<String, usize>,
    unexplained: BTreeMap<String, usize>,
}

impl Tally {
    /// Prints the counts; true if nothing is unexplained and, in a long run, no rule unused.
    fn report(&self, long: bool) -> bool {
        for (kind, count) in &self.explained {
            println!("  {count:6} {kind}");
        }
        for (kind, count) in &self.unexplained {
            println!("  {count:6} UNEXPLAINED {kind}");
        }
        let unused: Vec<&str> = rules::rules()
            .filter(|rule| !rule.is_rare())
            .map(|rule| rule.name)
            .filter(|name| !self.explained.contains_key(*name))
            .collect();
        for name in &unused {
            println!("  a rule that explains nothing: {name}");
        }
        println!("unexplained: {}", self.unexplained.values().sum::<usize>());
        self.unexplained.is_empty() && (unused.is_empty() || !long)
    }
}
