//! Batches of queries: connected components, attribution of common parts, failures of one query next to
//! others. Random batches are in `tests/it/sharing`.

use std::ops::ControlFlow;
use std::sync::Arc;

use chronolith_base::{MemoryBudget, SystemClock};
use chronolith_model::{LabelsBuilder, ReadContext};

use crate::ast::Expr;
use crate::engine::batch::Member;
use crate::engine::trace::Trace;
use crate::engine::{Engine, EngineOptions, Query};
use crate::parser::{ParserOptions, parse_expr};
use crate::testing::MemQueryable;

const TIME_MS: i64 = 500_000;

/// Series of `m` and `n` by `id` and `job`, a sample every 10 s up to 1000 s.
fn source(series_count: usize) -> MemQueryable {
    let mut source = MemQueryable::new();
    for name in ["m", "n"] {
        for id in 0..series_count {
            let mut labels = LabelsBuilder::new();
            labels.push("__name__", name);
            labels.push("id", &id.to_string());
            labels.push("job", &(id % 3).to_string());
            source.add(&labels.finish(), (0..=100).map(|k| (k * 10_000, (k * id as i64 % 37) as f64)));
        }
    }
    source
}

/// Result of a query in a batch, and the samples that it read.
#[derive(Debug, PartialEq)]
enum Found {
    /// The query has nothing in common with others.
    Unconnected,
    /// The query has to be evaluated by itself.
    ByItself,
    Together(Result<String, String>, u64),
}

/// A batch with limits.
struct Case<'a> {
    source: &'a MemQueryable,
    options: EngineOptions,
    memory_bytes_max: u64,
    /// Query that is canceled when the first one starts.
    canceled: Option<usize>,
}

impl Case<'_> {
    fn ctx(budget: &MemoryBudget) -> ReadContext {
        ReadContext::new(Arc::new(SystemClock::new()), u64::MAX, budget.clone())
    }

    fn run(&self, texts: &[&str]) -> Vec<Found> {
        let exprs = parse(texts);
        let queries = queries(texts, &exprs);
        let engine = Engine::new(self.options.clone());
        let batch = engine.plan_batch(&queries);
        let budget = MemoryBudget::new("batch", self.memory_bytes_max);
        let states: Vec<(ReadContext, Trace)> =
            texts.iter().map(|_| (Case::ctx(&budget), Trace::new())).collect();
        let mut found: Vec<Found> = texts.iter().map(|_| Found::Unconnected).collect();
        for component in batch.components() {
            let member = |idx: &usize| {
                let (ctx, trace) = &states[*idx];
                Member { query: &queries[*idx], source: self.source, ctx, trace }
            };
            let members: Vec<Member<'_>> = component.iter().map(member).collect();
            let end = engine.run_component::<()>(&batch, component, &members, &mut |at, compute| {
                self.canceled.iter().for_each(|idx| states[*idx].0.cancel());
                let result = compute();
                let read = states[component[at]].1.samples_read();
                if result.is_none() && self.memory_bytes_max < u64::MAX {
                    assert_eq!(budget.used_bytes(), 0, "memory for the evaluation by itself");
                }
                found[component[at]] = result.map_or(Found::ByItself, |result| {
                    let result = result.map(|result| format!("{:?}", result.value));
                    Found::Together(result.map_err(|error| error.to_string()), read)
                });
                ControlFlow::Continue(())
            });
            assert!(end.is_continue());
        }
        assert_eq!(budget.used_bytes(), 0, "all memory is given back");
        found
    }

    fn alone(&self, text: &str) -> Result<String, String> {
        let (texts, exprs) = ([text], parse(&[text]));
        let ctx = Case::ctx(&MemoryBudget::new("query", u64::MAX));
        let result = Engine::new(self.options.clone()).run(self.source, &queries(&texts, &exprs)[0], &ctx);
        result.map(|result| format!("{:?}", result.value)).map_err(|error| error.to_string())
    }
}

fn parse(texts: &[&str]) -> Vec<Expr> {
    texts.iter().map(|text| parse_expr(text, ParserOptions::default()).expect("parses")).collect()
}

fn queries<'a>(texts: &[&'a str], exprs: &'a [Expr]) -> Vec<Query<'a>> {
    let query = |(text, expr): (&&'a str, &'a Expr)| Query {
        text,
        expr,
        start_ms: TIME_MS,
        end_ms: TIME_MS,
        step_ms: 0,
        lookback_ms: None,
    };
    texts.iter().zip(exprs).map(query).collect()
}

fn case(source: &MemQueryable) -> Case<'_> {
    Case { source, options: EngineOptions::default(), memory_bytes_max: u64::MAX, canceled: None }
}

#[test]
fn a_common_part_is_read_once_and_counts_for_the_first_query() {
    let source = source(20);
    let case = case(&source);
    let texts = [
        "sum by (job) (rate(m[1m]))",
        "1 + 1",
        "avg(rate(m[1m])) / on () group_right sum by (id) (rate(m[60s]))",
        "rate(n[1m])",
        "rate(m[1m]) > 0.1",
        "rate(m[2m])",
        "topk(3, rate(m[1m]))",
    ];
    let found = case.run(&texts);
    for (idx, reads) in [(0, true), (2, false), (4, false), (6, false)] {
        let Found::Together(result, read) = &found[idx] else { panic!("{}: {:?}", texts[idx], found[idx]) };
        assert_eq!(*result, case.alone(texts[idx]), "{}", texts[idx]);
        assert_eq!(*read > 0, reads, "{}", texts[idx]);
    }
    for idx in [1, 3, 5] {
        assert_eq!(found[idx], Found::Unconnected, "{} has nothing in common", texts[idx]);
    }
}

#[test]
fn an_error_of_one_query_leaves_the_others() {
    let source = source(6);
    let case = case(&source);
    let texts = [
        "m + on (job) n",
        "sum(m + on (job) n)",
        "m and on (job) n",
        "count(m)",
        "label_replace(m, \"id\", \"x\", \"\", \"\")",
    ];
    let found = case.run(&texts);
    for (text, found) in texts.iter().zip(found) {
        let Found::Together(result, _) = found else { panic!("{text}: {found:?}") };
        assert_eq!(result, case.alone(text), "{text}");
    }
}

/// The samples of `quantile` exceed the limit while another query feeds it.
#[test]
fn a_limit_of_one_query_leaves_the_query_that_feeds_it() {
    let source = source(300);
    let options = EngineOptions { samples_max: 100, ..EngineOptions::default() };
    let case = Case { options, ..case(&source) };
    let texts = ["sum(rate(m[1m]))", "quantile(0.5, rate(m[1m]))", "count(rate(m[1m]))"];
    let found = case.run(&texts);
    assert_eq!(found[1], Found::ByItself);
    assert!(case.alone(texts[1]).is_err());
    for idx in [0, 2] {
        let Found::Together(result, _) = &found[idx] else { panic!("{}: {:?}", texts[idx], found[idx]) };
        assert_eq!(*result, case.alone(texts[idx]), "{}", texts[idx]);
    }
}

#[test]
fn a_canceled_query_ends_alone_and_its_part_is_not_used() {
    let source = source(50);
    let texts = ["sum(m)", "count(m)", "m > 5"];
    for canceled in 0..texts.len() {
        let case = Case { canceled: Some(canceled), ..case(&source) };
        for (idx, found) in case.run(&texts).into_iter().enumerate() {
            match found {
                Found::Together(Err(error), _) => {
                    assert_eq!((idx, error.as_str()), (canceled, "query was canceled"));
                }
                Found::Together(result, _) => assert_eq!(result, case.alone(texts[idx]), "{}", texts[idx]),
                found => assert!(found == Found::ByItself && canceled == 0, "{}: {found:?}", texts[idx]),
            }
        }
    }
}

#[test]
fn a_query_that_is_to_be_evaluated_by_itself_finds_all_memory_free() {
    let source = source(200);
    let texts = ["sum(m)", "m > 5", "max_over_time(m[1m])", "m < 7", "min_over_time(m[1m])"];
    let mut by_itself = 0;
    for kilobytes in 2..60 {
        let case = Case { memory_bytes_max: kilobytes * 1000, ..case(&source) };
        for (text, found) in texts.iter().zip(case.run(&texts)) {
            match found {
                Found::Together(result, _) => assert_eq!(result, case.alone(text), "{text}"),
                found => {
                    assert_eq!(found, Found::ByItself);
                    by_itself += 1;
                }
            }
        }
    }
    assert!(by_itself > 0);
}

#[test]
fn large_batches_are_evaluated_in_components_of_bounded_size() {
    let source = source(3);
    let case = case(&source);
    let texts: Vec<String> = (0..300).map(|idx| format!("sum(m) + {idx}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let exprs = parse(&texts);
    let batch = Engine::default().plan_batch(&queries(&texts, &exprs));
    let sizes: Vec<usize> = batch.components().iter().map(Vec::len).collect();
    assert_eq!(sizes, [128, 128, 44]);
    for (text, found) in texts.iter().zip(case.run(&texts)) {
        let Found::Together(result, _) = found else { panic!("{text}: {found:?}") };
        assert_eq!(result, case.alone(text), "{text}");
    }
}
