//! Estimated costs. The kit `prom-api` compares the same kinds of queries with Prometheus.

use chronolith_model::FloatHistogram;
use chronolith_model::histogram::{Buckets, Span};

use super::*;
use crate::testing::MemSample;

/// 3 series `a` with 40 samples each, one of which has a gap; 60 series `b`; 2 series of histograms `h`.
fn stored() -> MemQueryable {
    let mut source = MemQueryable::new();
    let labels =
        |name: &str, i: usize| Labels::from_pairs([(METRIC_NAME, name), ("i", i.to_string().as_str())]);
    for i in 0..3 {
        source.add(&labels("a", i), (0..40).map(|k| (k * 15_000, k as f64)));
    }
    for i in 0..60 {
        source.add(&labels("b", i), (0..40).map(|k| (k * 15_000, k as f64)));
    }
    source.add(&labels("single", 0), [(590_000, 1.0)]);
    source.add(&labels("stale", 0), [(590_000, chronolith_model::sample::STALE_NAN)]);
    let buckets = Buckets { spans: vec![Span { offset: 0, length: 3 }], counts: vec![1.0; 3] };
    let histogram = FloatHistogram { count: 3.0, positive: buckets, ..FloatHistogram::default() };
    for i in 0..2 {
        let samples = (0..40).map(|k| MemSample::histogram(k * 15_000, histogram.clone()));
        source.add_samples(&labels("h", i), samples);
    }
    source
}

fn estimate(text: &str, (start_ms, end_ms, step_ms): (i64, i64, i64)) -> Result<CostEstimate, String> {
    let expr = parse_expr(text, parser()).map_err(|e| e.to_string())?;
    let query = Query { text, expr: &expr, start_ms, end_ms, step_ms, lookback_ms: None };
    let ctx = ReadContext::unlimited(Arc::new(SystemClock::new()));
    let engine = Engine::new(EngineOptions::default());
    engine.estimate_cost(&stored(), &query, &ctx).map_err(|e| e.to_string())
}

#[track_caller]
fn check(text: &str, range: (i64, i64, i64), want: (u64, u64)) {
    let cost = estimate(text, range).expect(text);
    assert_eq!((cost.series, cost.samples), want, "{text}");
    assert_eq!(cost.warnings, Vec::<String>::new(), "{text}");
}

#[test]
fn instant_selectors_read_a_sample_per_series_and_step() {
    let at = (590_000, 590_000, 0);
    check("a", at, (3, 3));
    check("b", at, (60, 60));
    check("nope", at, (0, 0));
    check("1 + 2", at, (0, 0));
    check("sum(a) + sum(a)", at, (6, 6));
    let range = (300_000, 590_000, 10_000);
    check("a", range, (3, 90));
    // One evaluation, whose value is repeated.
    check("a @ 590", range, (3, 3));
    check("vector(scalar(a @ end()))", range, (3, 3));
}

#[test]
fn windows_are_counted_by_the_distance_of_samples() {
    let at = (585_000, 585_000, 0);
    // The bound of a window is a sample, which the estimate counts as in Prometheus, unless all are known.
    check("rate(a[2m])", at, (3, 24));
    check("rate(a[1s])", at, (3, 3));
    check("sum_over_time(single[5m])", (590_000, 590_000, 0), (1, 1));
    let range = (300_000, 600_000, 60_000);
    // 5 in the first window of 1m, 4 more per step would be 25; the windows hold no more than 23.
    check("rate(a[1m])", range, (3, 69));
    check("rate(b[1m])", range, (60, 1380));
    // Windows apart from each other.
    check("rate(a[15s])", (0, 600_000, 300_000), (3, 18));
}

#[test]
fn subqueries_are_evaluated_on_their_own_steps() {
    let at = (590_000, 590_000, 0);
    check("max_over_time(a[5m:30s])", at, (3, 30));
    check("max_over_time(a[5m:1m] offset 1m)", at, (3, 15));
    // Default step of a minute.
    check("max_over_time(a[5m:])", at, (3, 15));
    // No step lies in the window.
    check("max_over_time(a[10s:1m])", at, (3, 0));
    check("max_over_time(rate(a[1m])[2m:30s])", at, (3, 33));
}

#[test]
fn histograms_count_by_their_size() {
    let at = (585_000, 585_000, 0);
    // 168 bytes, a span, three buckets and 8 bytes for the time, in units of 16 bytes.
    check("h", at, (2, 26));
    check("rate(h[1m])", at, (2, 104));
    // Without buckets.
    check("histogram_count(rate(h[1m]))", at, (2, 88));
}

/// Sampled density: a series of many samples is read in part only.
#[test]
fn long_series_are_read_in_part() {
    let mut source = MemQueryable::new();
    source.add(&Labels::from_pairs([(METRIC_NAME, "long")]), (0..100_000).map(|k| (k * 1000, 1.0)));
    let expr = parse_expr("rate(long[20000s])", parser()).expect("valid");
    let ctx = ReadContext::unlimited(Arc::new(SystemClock::new()));
    let time_ms = 99_999_000;
    let query =
        Query { text: "", expr: &expr, start_ms: time_ms, end_ms: time_ms, step_ms: 0, lookback_ms: None };
    let cost = Engine::new(EngineOptions::default()).estimate_cost(&source, &query, &ctx).expect("estimated");
    assert_eq!((cost.series, cost.samples), (1, 20_001));
}

#[test]
fn what_cannot_be_estimated_is_named() {
    let cost = estimate("info(a)", (590_000, 590_000, 0)).expect("estimated");
    assert_eq!((cost.series, cost.samples), (3, 3));
    let why = "query cost estimate is incomplete: info() selects additional series at runtime";
    assert_eq!(cost.warnings, [why]);
    let matrix = estimate("a[5m]", (0, 60_000, 1000)).expect_err("no vector");
    assert!(matrix.starts_with("invalid expression type \"range vector\" for range query"), "{matrix}");
    let duration = estimate("max_over_time(a[5m:step()])", (0, 0, 0)).expect_err("no step");
    assert!(duration.ends_with("duration must be greater than 0"), "{duration}");
}
