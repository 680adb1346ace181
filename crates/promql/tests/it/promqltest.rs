//! Runs test scripts (promqltest language), Prometheus's and ours, against the engine, in process.
//!
//! Invariants: every eval passes in all forms that Prometheus's own runner uses; their number is the expected
//! one. Each is also asked several times within one query, with and without sharing of equal parts.

mod coverage;
mod histogram;
mod literal;
mod outcome;
mod script;
pub(crate) mod sharing;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::testing::{MemQueryable, MemSample};
use chronolith_base::SystemClock;
use chronolith_model::ReadContext;
use chronolith_promql::parser::{ParserOptions, parse_expr};
use chronolith_promql::{Engine, EngineOptions, NameRemoval, Query, QueryResult};
use histogram::Conversion;
use literal::Point;
use script::{Command, Eval, EvalKind, Load};

/// Prometheus's scripts are not part of this repository: the folder that this variable names, or
/// `shared/promqltest` next to the checkout.
const PROMETHEUS_SCRIPTS: &str = "PROMQLTEST_DIR";
/// Evals in Prometheus's scripts, at least: an empty folder must not pass.
const PROMETHEUS_EVAL_COUNT_MIN: usize = 1000;
/// Distance of the steps when an instant eval is repeated as a range query.
const MINUTE_MS: i64 = 60_000;

/// Counts of the evals of a file by outcome.
#[derive(Default)]
struct Tally {
    passed: usize,
    /// Queries made of evals that shared something.
    shared: usize,
    failures: Vec<String>,
}

/// Storage and engine of one script.
struct Stage {
    source: MemQueryable,
    engine: Engine,
}

/// With everything experimental.
const PARSER: ParserOptions =
    ParserOptions { experimental_functions: true, binop_fill_modifiers: true, unquoted_utf8_names: true };

impl Stage {
    fn new() -> Stage {
        let options = EngineOptions {
            name_removal: NameRemoval::Delayed,
            parser: PARSER,
            start_times: true,
            ..EngineOptions::default()
        };
        Stage { source: MemQueryable::new(), engine: Engine::new(options) }
    }

    fn load(&mut self, load: &Load) {
        let mut conversion = Conversion::default();
        for series in &load.series {
            let mut samples = Vec::new();
            for (index, point) in series.values.iter().enumerate() {
                let time_ms = index as i64 * load.gap_ms;
                let offset = series.start_offsets.get(index).copied().flatten();
                let start_ms = offset.map_or(0, |offset| time_ms + offset);
                match point {
                    Point::Gap => {}
                    Point::Float(value) => {
                        samples.push(MemSample { start_ms, ..MemSample::float(time_ms, *value) });
                        conversion.add(&series.labels, time_ms, *value);
                    }
                    Point::Histogram(literal) => {
                        let histogram = literal.histogram.clone();
                        samples.push(MemSample { start_ms, ..MemSample::histogram(time_ms, histogram) });
                    }
                }
            }
            self.source.add_samples(&series.labels, samples);
        }
        if load.with_nhcb {
            for (labels, histograms) in conversion.finish() {
                let sample = |(time_ms, histogram)| MemSample::histogram(time_ms, histogram);
                self.source.add_samples(&labels, histograms.into_iter().map(sample));
            }
        }
    }

    fn run(&self, eval: &Eval, tally: &mut Tally) {
        let parsed = parse_expr(&eval.expr, self.engine.options().parser);
        let result = parsed.map_err(|e| e.to_string()).and_then(|expr| self.evaluate(eval, &expr));
        match outcome::check(eval, result) {
            Ok(()) => tally.passed += 1,
            Err(message) => tally.failures.push(format!("line {}: {}: {message}", eval.line, eval.expr)),
        }
        self.check_sharing(eval, tally);
    }

    fn check_sharing(&self, eval: &Eval, tally: &mut Tally) {
        let range_ms = match eval.kind {
            EvalKind::Instant { time_ms } => (time_ms, time_ms, 0),
            EvalKind::Range { start_ms, end_ms, step_ms } => (start_ms, end_ms, step_ms),
        };
        for form in sharing::FORMS {
            let text = form.replace('#', &eval.expr);
            match sharing::compare(&self.source, self.engine.options(), &text, range_ms) {
                Ok(found) => tally.shared += usize::from(found == sharing::Compared::Shared),
                Err(message) => tally.failures.push(format!("line {}: {message}", eval.line)),
            }
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
            Command::Clear => stage.source.clear(),
            Command::Load(load) => stage.load(load),
            Command::Eval(eval) => stage.run(eval, &mut tally),
        }
    }
    tally
}

/// Folder with our own scripts.
fn own_scripts() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/promqltest/own")
}

/// Names and texts of the scripts of a folder.
#[expect(clippy::disallowed_methods, reason = "test material is read from the source tree")]
fn read_folder(folder: &Path) -> Vec<(String, String)> {
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ext| ext == "test"));
    paths.sort();
    let script = |path: &std::path::PathBuf| {
        let text = String::from_utf8(std::fs::read(path).unwrap()).unwrap();
        (path.file_name().unwrap().to_string_lossy().into_owned(), text)
    };
    paths.iter().map(script).collect()
}

fn run_folder(folder: &Path) -> Tally {
    let mut total = Tally::default();
    for (name, text) in read_folder(folder) {
        let tally = run_script(&text);
        println!("{name}: {} passed, {} failed", tally.passed, tally.failures.len());
        total.passed += tally.passed;
        total.shared += tally.shared;
        total.failures.extend(tally.failures.into_iter().map(|failure| format!("{name}: {failure}")));
    }
    println!("all: {} passed, {} failed", total.passed, total.failures.len());
    total
}

/// Folder with Prometheus's scripts, if set.
fn prometheus_scripts() -> Option<std::path::PathBuf> {
    let named = std::env::var_os(PROMETHEUS_SCRIPTS).map(std::path::PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/promqltest");
    named.or_else(|| beside.is_dir().then_some(beside))
}

#[test]
fn prometheus_scripts_pass() {
    let Some(folder) = prometheus_scripts() else {
        println!("not run: no scripts of Prometheus ({PROMETHEUS_SCRIPTS}=DIR names them)");
        return;
    };
    let total = run_folder(&folder);
    assert!(total.failures.is_empty(), "{}", total.failures.join("\n"));
    assert!(total.passed >= PROMETHEUS_EVAL_COUNT_MIN, "only {} evals", total.passed);
    assert!(total.shared > 2 * total.passed, "only {} queries shared anything", total.shared);
}

#[test]
fn own_scripts_pass() {
    let total = run_folder(&own_scripts());
    assert!(total.failures.is_empty(), "{}", total.failures.join("\n"));
}

#[test]
fn own_scripts_ask_for_every_form() {
    let mut forms = BTreeSet::new();
    for (_, text) in read_folder(&own_scripts()) {
        for command in script::parse(&text).unwrap() {
            let Command::Eval(eval) = command else { continue };
            if eval.series.is_empty() && eval.scalar.is_none() {
                continue;
            }
            coverage::note(&parse_expr(&eval.expr, PARSER).unwrap(), &mut forms);
        }
    }
    let missing: Vec<_> = coverage::wanted().difference(&forms).cloned().collect();
    assert!(missing.is_empty(), "no eval with an answer asks for: {missing:?}");
}
