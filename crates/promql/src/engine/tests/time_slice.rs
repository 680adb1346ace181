//! A query that pauses after each morsel has the result of one that does not, with and without helper
//! threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use chronolith_model::query::TimeSlice;

use super::*;

/// A time slice that is always over; the query is cancelled when it pauses for the `cancel_at`th time.
struct Over {
    pause_count: AtomicUsize,
    cancel_at: usize,
}

impl TimeSlice for Over {
    fn is_over(&self) -> bool {
        true
    }

    fn give_way(&self, ctx: &ReadContext) -> Result<(), QueryError> {
        if self.pause_count.fetch_add(1, Ordering::Relaxed) + 1 == self.cancel_at {
            ctx.cancel();
        }
        ctx.check()
    }
}

/// Enough samples for helper threads.
const SERIES_COUNT: usize = 300;
const SAMPLE_COUNT: usize = 400;

fn large_source() -> MemQueryable {
    let mut source = MemQueryable::new();
    for idx in 0..SERIES_COUNT {
        let group = (idx % 7).to_string();
        let id = idx.to_string();
        let labels = Labels::from_pairs([(METRIC_NAME, "m"), ("g", &group), ("id", &id)]);
        source.add(
            &labels,
            (0..SAMPLE_COUNT as i64).map(|at| (at * 10_000, (at * (1 + idx as i64 % 5)) as f64)),
        );
    }
    source
}

fn run_sliced(
    source: &MemQueryable,
    text: &str,
    threads: usize,
    slice: Option<Arc<Over>>,
) -> Result<Vec<String>, String> {
    let expr = parse_expr(text, parser()).map_err(|error| error.to_string())?;
    let end_ms = SAMPLE_COUNT as i64 * 10_000;
    let query = Query { text, expr: &expr, start_ms: 0, end_ms, step_ms: 100_000, lookback_ms: None };
    let mut ctx = ReadContext::unlimited(Arc::new(SystemClock::new()));
    if let Some(slice) = slice {
        ctx = ctx.with_time_slice(slice);
    }
    let engine = Engine::new(EngineOptions { threads, ..EngineOptions::default() });
    engine.run(source, &query, &ctx).map(|result| render(&result.value)).map_err(|error| error.to_string())
}

const QUERIES: [&str; 6] = [
    "m",
    "sum by (g) (rate(m[1m]))",
    "topk(3, m)",
    "max_over_time(rate(m[1m])[5m:1m])",
    "m / on (id) group_left () rate(m[1m])",
    "quantile_over_time(0.5, m[2m])",
];

#[test]
fn pauses_change_no_result() {
    let source = large_source();
    for text in QUERIES {
        let want = run_sliced(&source, text, 1, None).expect("a result");
        for threads in [1, 4] {
            let slice = Arc::new(Over { pause_count: AtomicUsize::new(0), cancel_at: usize::MAX });
            let found = run_sliced(&source, text, threads, Some(slice.clone())).expect("a result");
            assert!(found == want, "{text} on {threads} threads");
            // A morsel has 16 series or 4096 samples; helpers end one each between two pauses.
            let pause_count = slice.pause_count.load(Ordering::Relaxed);
            assert!(pause_count >= SERIES_COUNT / 16 / 4, "{text} on {threads}: {pause_count} pauses");
        }
    }
}

#[test]
fn a_query_that_is_cancelled_while_it_is_paused_ends() {
    let source = large_source();
    for text in QUERIES {
        for (threads, cancel_at) in [(1, 1), (1, 3), (4, 1), (4, 3)] {
            let slice = Arc::new(Over { pause_count: AtomicUsize::new(0), cancel_at });
            let found = run_sliced(&source, text, threads, Some(slice.clone()));
            let error = found.expect_err("it is cancelled");
            assert!(error.contains("cancel"), "{text} on {threads} threads: {error}");
            assert_eq!(slice.pause_count.load(Ordering::Relaxed), cancel_at, "it does not go on");
        }
    }
}
