//! Runs test scripts (promqltest language), Prometheus's and ours, against the engine, in process.
//!
//! Holds: an eval is skipped only by a rule about what it contains, never by where it stands; all others must
//! pass; and the number of passed evals has a floor, so that no rule can grow unnoticed.
//! Not here: native histograms, which the engine does not know.

#[path = "promqltest/literal.rs"]
mod literal;
#[path = "promqltest/outcome.rs"]
mod outcome;
#[path = "promqltest/script.rs"]
mod script;
#[path = "promqltest/skip.rs"]
mod skip;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use chronolith_base::SystemClock;
use chronolith_model::{Labels, ReadContext};
use chronolith_promql::parser::{ParserOptions, parse_expr};
use chronolith_promql::testing::MemQueryable;
use chronolith_promql::{Engine, EngineOptions, NameRemoval, Query, QueryResult};
use script::{Command, Eval, EvalKind, Load};

/// Evals that pass today. Raise it with every rule that falls.
const PASSED_MIN: usize = 761;
/// Distance of the steps when an instant eval is repeated as a range query.
const MINUTE_MS: i64 = 60_000;

/// What became of the evals of a file.
#[derive(Default)]
struct Tally {
    passed: usize,
    failures: Vec<String>,
    skipped: BTreeMap<&'static str, usize>,
}

/// Storage and engine of one script.
struct Stage {
    source: MemQueryable,
    /// Labels of series that have native histograms, or would have them upstream.
    histograms: Vec<Labels>,
    engine: Engine,
}

impl Stage {
    fn new() -> Stage {
        let parser = ParserOptions {
            experimental_functions: true,
            extended_range_selectors: true,
            binop_fill_modifiers: true,
        };
        let options =
            EngineOptions { name_removal: NameRemoval::Delayed, parser, ..EngineOptions::default() };
        Stage { source: MemQueryable::new(), histograms: Vec::new(), engine: Engine::new(options) }
    }

    fn load(&mut self, load: &Load) {
        for series in &load.series {
            if series.has_histograms {
                self.histograms.push(series.labels.clone());
            }
            if load.with_nhcb {
                self.histograms.extend(skip::converted_histogram(&series.labels));
            }
            let at = |(index, value): (usize, &Option<f64>)| Some((index as i64 * load.gap_ms, (*value)?));
            self.source.add(&series.labels, series.values.iter().enumerate().filter_map(at));
        }
    }

    fn run(&self, eval: &Eval, tally: &mut Tally) {
        let parsed = parse_expr(&eval.expr, self.engine.options().parser);
        if let Some(reason) = skip::reason(eval, parsed.as_ref().ok(), &self.histograms) {
            *tally.skipped.entry(reason).or_default() += 1;
            return;
        }
        let result = parsed.map_err(|e| e.to_string()).and_then(|expr| self.evaluate(eval, &expr));
        match outcome::check(eval, result) {
            Ok(()) => tally.passed += 1,
            Err(message) => tally.failures.push(format!("line {}: {}: {message}", eval.line, eval.expr)),
        }
    }

    /// Evaluates as the script says, and once more as a range query around an instant.
    fn evaluate(&self, eval: &Eval, expr: &chronolith_promql::ast::Expr) -> Result<outcome::Results, String> {
        let query = |start_ms, end_ms, step_ms| {
            let query = Query { text: &eval.expr, expr, start_ms, end_ms, step_ms, lookback_ms: None };
            let ctx = ReadContext::unlimited(Arc::new(SystemClock::new()));
            self.engine.run(&self.source, &query, &ctx).map_err(|e| e.to_string())
        };
        match eval.kind {
            EvalKind::Instant { time_ms } => {
                let result: QueryResult = query(time_ms, time_ms, 0)?;
                let middle = if outcome::repeats_as_range(eval, expr) {
                    Some(query(time_ms - MINUTE_MS, time_ms + MINUTE_MS, MINUTE_MS)?)
                } else {
                    None
                };
                Ok(outcome::Results { result, middle })
            }
            EvalKind::Range { start_ms, end_ms, step_ms } => {
                Ok(outcome::Results { result: query(start_ms, end_ms, step_ms)?, middle: None })
            }
        }
    }
}

fn run_script(text: &str) -> Tally {
    let mut tally = Tally::default();
    let mut stage = Stage::new();
    let commands = match script::parse(text) {
        Ok(commands) => commands,
        Err(message) => {
            tally.failures.push(message);
            return tally;
        }
    };
    for command in &commands {
        match command {
            Command::Clear => {
                stage.source.clear();
                stage.histograms.clear();
            }
            Command::Load(load) => stage.load(load),
            Command::Eval(eval) => stage.run(eval, &mut tally),
        }
    }
    tally
}

/// Runs all scripts of a folder beside this file.
#[expect(clippy::disallowed_methods, reason = "test material is read from the source tree")]
fn run_folder(folder: &str) -> Tally {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/promqltest").join(folder);
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ext| ext == "test"));
    paths.sort();
    let mut total = Tally::default();
    for path in paths {
        let text = String::from_utf8(std::fs::read(&path).unwrap()).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let tally = run_script(&text);
        println!(
            "{name}: {} passed, {} failed, skipped {:?}",
            tally.passed,
            tally.failures.len(),
            tally.skipped
        );
        total.passed += tally.passed;
        total.failures.extend(tally.failures.into_iter().map(|failure| format!("{name}: {failure}")));
        for (reason, count) in tally.skipped {
            *total.skipped.entry(reason).or_default() += count;
        }
    }
    println!("all: {} passed, {} failed, skipped {:?}", total.passed, total.failures.len(), total.skipped);
    total
}

#[test]
fn upstream_scripts_pass() {
    let total = run_folder("scripts");
    assert!(total.failures.is_empty(), "{}", total.failures.join("\n"));
    assert!(total.passed >= PASSED_MIN, "{} passed, at least {PASSED_MIN} did before", total.passed);
}

#[test]
fn own_scripts_pass() {
    let total = run_folder("own");
    assert!(total.failures.is_empty(), "{}", total.failures.join("\n"));
    assert!(total.skipped.is_empty(), "skipped {:?}", total.skipped);
}
