//! Random queries, each in forms in which it occurs more than once, with and without sharing of equal parts,
//! and batches of queries with common parts, together and one by one: values bit for bit, labels, order,
//! annotations and errors are the same. `SHARING_SEEDS=FROM,COUNT cargo test -p chronolith-promql --test it
//! sharing::` takes other seeds.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::generate::Generator;
use crate::promqltest::sharing::{Compared, FORMS, compare, render};
use crate::series;
use crate::testing::MemQueryable;
use chronolith_base::{MemoryBudget, Rng, SystemClock};
use chronolith_model::ReadContext;
use chronolith_promql::engine::batch::Member;
use chronolith_promql::engine::trace::Trace;
use chronolith_promql::parser::{ParserOptions, parse_expr};
use chronolith_promql::{Engine, EngineOptions, NameRemoval, Query};

const QUERIES_PER_SEED: usize = 40;
/// Different functions of one range, which `#` stands for.
const FUNCTION_FORMS: &[&str] = &[
    "max_over_time(#) - min_over_time(#)",
    "rate(#) and avg_over_time(#)",
    "sum(increase(#)) / on () group_right count_over_time(#) unless last_over_time(#) > 5",
    "scalar(sum(stddev_over_time(#))) + changes(#)",
    "quantile_over_time(2, #) or resets(#)",
];
const RANGES: &[&str] = &[
    "requests_total[5m]",
    "temp{job=\"api\"}[90s]",
    "{job=\"api\"}[2m]",
    "h_mixed[5m]",
    "wild[1m] offset 30s",
    "h_exp[10m]",
    "(temp)[5m:1m]",
];

/// Seeds to test: the first and their number.
fn seeds() -> (u64, u64) {
    let wish = std::env::var("SHARING_SEEDS").ok();
    let wish = wish.as_deref().and_then(|text| text.split_once(','));
    let parsed = wish.and_then(|(from, count)| Some((from.parse().ok()?, count.parse().ok()?)));
    parsed.unwrap_or((1, 40))
}

fn parser() -> ParserOptions {
    ParserOptions { experimental_functions: true, binop_fill_modifiers: true, unquoted_utf8_names: false }
}

fn check_seed(seed: u64, shared: &mut usize) {
    let rng = Rng::from_seed(seed);
    let dataset = series::random(&rng);
    let source = dataset.source();
    let generator = Generator { rng: &rng, dataset: &dataset };
    let parser = parser();
    for name_removal in [NameRemoval::Immediate, NameRemoval::Delayed] {
        let options = EngineOptions { name_removal, parser, start_times: true, ..EngineOptions::default() };
        for _ in 0..QUERIES_PER_SEED {
            let query = generator.query().to_string();
            let pick = |from: &[&'static str]| from[rng.below(from.len() as u64) as usize];
            let text = match rng.below(4) {
                0 => pick(FUNCTION_FORMS).replace('#', pick(RANGES)),
                _ => pick(FORMS).replace('#', &query),
            };
            let start_ms = dataset.start_ms + rng.below(900_000) as i64;
            for range_ms in [(start_ms, start_ms, 0), (start_ms, start_ms + 300_000, 17_000)] {
                let found = compare(&source, &options, &text, range_ms)
                    .unwrap_or_else(|difference| panic!("seed {seed}: {difference}"));
                *shared += usize::from(found == Compared::Shared);
            }
        }
    }
}

#[test]
fn random_queries_have_the_same_results_with_and_without_sharing() {
    let (from, count) = seeds();
    let mut shared = 0;
    (from..from + count).for_each(|seed| check_seed(seed, &mut shared));
    let asked = count as usize * QUERIES_PER_SEED * 4;
    assert!(shared * 6 > asked, "only {shared} of {asked} queries shared anything");
}

/// Counts of queries in batches.
#[derive(Default)]
struct BatchCounts {
    /// Queries that were evaluated together with others.
    together: usize,
    /// Queries among them that had to be evaluated by themselves.
    again: usize,
    /// Samples read together, and by each query for itself.
    samples_together: u64,
    samples_alone: u64,
}

/// Evaluates a batch with this memory together and one by one.
///
/// # Errors
/// What differs.
fn compare_batch(
    source: &MemQueryable,
    options: &EngineOptions,
    texts: &[String],
    times_ms: (i64, i64, i64),
    memory_bytes_max: u64,
    counts: &mut BatchCounts,
) -> Result<(), String> {
    let parsed: Vec<_> =
        texts.iter().filter_map(|text| Some((text, parse_expr(text, options.parser).ok()?))).collect();
    let (start_ms, end_ms, step_ms) = times_ms;
    let query = |(text, expr)| Query { text, expr, start_ms, end_ms, step_ms, lookback_ms: None };
    let queries: Vec<Query<'_>> = parsed.iter().map(|(text, expr)| query((text.as_str(), expr))).collect();
    let engine = Engine::new(options.clone());
    let budget = MemoryBudget::new("batch", memory_bytes_max);
    let ctx = || ReadContext::new(Arc::new(SystemClock::new()), u64::MAX, budget.clone());
    let batch = engine.plan_batch(&queries);
    let mut together: Vec<Option<String>> = vec![None; queries.len()];
    for component in batch.components() {
        let states: Vec<(ReadContext, Trace)> = component.iter().map(|_| (ctx(), Trace::new())).collect();
        let member = |(idx, (ctx, trace)): (&usize, _)| Member { query: &queries[*idx], source, ctx, trace };
        let members: Vec<Member<'_>> =
            component.iter().zip(states.iter().map(|(ctx, trace)| (ctx, trace))).map(member).collect();
        let end = engine.run_component::<()>(&batch, component, &members, &mut |at, compute| {
            counts.together += 1;
            match compute() {
                Some(result) => {
                    let result = result.map_err(|error| error.to_string());
                    together[component[at]] = Some(render(&result));
                }
                None => counts.again += 1,
            }
            ControlFlow::Continue(())
        });
        assert!(end.is_continue(), "all are visited");
        counts.samples_together += states.iter().map(|(_, trace)| trace.samples_read()).sum::<u64>();
    }
    if budget.used_bytes() > 0 {
        return Err(format!("{texts:?}: {} bytes are not given back", budget.used_bytes()));
    }
    for (idx, found) in together.iter().enumerate() {
        let Some(found) = found else { continue };
        let result = engine.run(source, &queries[idx], &ctx()).map_err(|error| error.to_string());
        // A query that reads a part of another one may need less memory.
        if result.is_err() && memory_bytes_max < u64::MAX {
            continue;
        }
        if *found != render(&result) {
            let want = render(&result);
            return Err(format!("{} of {texts:?}: together {found}, else {want}", queries[idx].text));
        }
        counts.samples_alone += result.map_or(0, |result| result.samples_read);
    }
    Ok(())
}

fn check_batches(seed: u64, counts: &mut BatchCounts) {
    let rng = Rng::from_seed(seed);
    let dataset = series::random(&rng);
    let source = dataset.source();
    let generator = Generator { rng: &rng, dataset: &dataset };
    for name_removal in [NameRemoval::Immediate, NameRemoval::Delayed] {
        let parser = parser();
        let options = EngineOptions { name_removal, parser, start_times: true, ..EngineOptions::default() };
        for _ in 0..QUERIES_PER_SEED / 4 {
            let pick = |from: &[&'static str]| from[rng.below(from.len() as u64) as usize];
            let common: Vec<String> = (0..2).map(|_| generator.query().to_string()).collect();
            let range = pick(RANGES);
            let text = |_| match rng.below(8) {
                0 => generator.query().to_string(),
                1 | 2 => pick(FUNCTION_FORMS).replace('#', range),
                _ => pick(FORMS).replace('#', &common[rng.below(2) as usize]),
            };
            let texts: Vec<String> = (0..2 + rng.below(7)).map(text).collect();
            let time_ms = dataset.start_ms + rng.below(900_000) as i64;
            let memory_max = 1000 << rng.below(8);
            for times_ms in [(time_ms, time_ms, 0), (time_ms, time_ms + 300_000, 17_000)] {
                for memory_bytes_max in [u64::MAX, memory_max] {
                    compare_batch(&source, &options, &texts, times_ms, memory_bytes_max, counts)
                        .unwrap_or_else(|difference| panic!("seed {seed}: {difference}"));
                }
            }
        }
    }
}

#[test]
fn random_batches_have_the_same_results_together_and_one_by_one() {
    let (from, count) = seeds();
    let mut counts = BatchCounts::default();
    (from..from + count).for_each(|seed| check_batches(seed, &mut counts));
    let BatchCounts { together, again, samples_together, samples_alone } = counts;
    assert!(together as u64 > count * 80 && again > 0, "{together} queries together, {again} again");
    assert!(samples_together * 8 < samples_alone * 7, "{samples_together} samples, not {samples_alone}");
}
