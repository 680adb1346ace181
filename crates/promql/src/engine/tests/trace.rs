//! Traces of queries over a small source.

use std::sync::Arc;

use chronolith_base::{Clock, SystemClock};
use chronolith_model::{LabelsBuilder, ReadContext};

use crate::engine::trace::{Trace, TraceNode};
use crate::engine::{Engine, Query};
use crate::parser::{ParserOptions, parse_expr};
use crate::testing::MemQueryable;

/// Three series of `m` and one of `n` with a sample every 10 s from 0 to 1000 s.
fn source() -> MemQueryable {
    let mut source = MemQueryable::new();
    for (name, id) in [("m", "1"), ("m", "2"), ("m", "3"), ("n", "1")] {
        let mut labels = LabelsBuilder::new();
        labels.push("__name__", name);
        labels.push("id", id);
        source.add(&labels.finish(), (0..=100).map(|k| (k * 10_000, k as f64)));
    }
    source
}

/// Evaluates from `start` to `end` seconds every `step` seconds; step 0 is an instant query.
fn traced(text: &str, (start, end, step): (i64, i64, i64)) -> Trace {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let expr = parse_expr(text, ParserOptions::default()).expect("parses");
    let query = Query {
        text,
        expr: &expr,
        start_ms: start * 1000,
        end_ms: end * 1000,
        step_ms: step * 1000,
        lookback_ms: None,
    };
    let trace = Trace::new().with_nodes(clock.clone()).with_steps();
    let ctx = ReadContext::unlimited(clock);
    Engine::default().run_traced(&source(), &query, &ctx, &trace).expect("evaluates");
    trace
}

#[track_caller]
fn check_steps(text: &str, range: (i64, i64, i64), total: &[u64], read: &[u64]) {
    let steps = traced(text, range).step_samples().expect("asked for");
    let counts = |list: &[(i64, u64)]| list.iter().map(|(_, count)| *count).collect::<Vec<_>>();
    assert_eq!((counts(&steps.total), counts(&steps.read)), (total.to_vec(), read.to_vec()), "{text}");
    let times: Vec<i64> = steps.total.iter().map(|(time, _)| *time / 1000).collect();
    assert_eq!(times.first(), Some(&range.0), "{text}");
}

#[test]
fn samples_count_in_every_step_that_sees_them() {
    check_steps("m", (200, 200, 0), &[3], &[3]);
    check_steps("m", (200, 220, 10), &[3, 3, 3], &[3, 3, 3]);
    check_steps("rate(m[1m])", (200, 200, 0), &[18], &[18]);
    check_steps("m[1m]", (200, 200, 0), &[18], &[18]);
    // A window of six samples per series moves by one sample per step.
    check_steps("rate(m[1m])", (200, 220, 10), &[18, 18, 18], &[18, 3, 3]);
    check_steps("sum(rate(m[1m])) + sum(n)", (200, 220, 10), &[19, 19, 19], &[19, 4, 4]);
    check_steps("1 + 2", (200, 220, 10), &[0, 0, 0], &[0, 0, 0]);
}

#[test]
fn what_is_computed_once_counts_in_all_steps_and_is_read_in_the_first() {
    check_steps("m @ 100", (200, 220, 10), &[3, 3, 3], &[3, 0, 0]);
}

#[test]
fn samples_of_a_subquery_count_as_its_function_sees_them() {
    check_steps("max_over_time(n[1m:10s])", (200, 200, 0), &[6], &[6]);
    check_steps("max_over_time(n[1m:10s])", (200, 220, 10), &[6, 6, 6], &[6, 1, 1]);
}

fn shape(node: &TraceNode) -> String {
    let children: Vec<String> = node.children.iter().map(shape).collect();
    let inside = if children.is_empty() { String::new() } else { format!("[{}]", children.join(" ")) };
    format!("{}({}/{}/{}){inside}", node.op, node.series_selected, node.samples, node.series)
}

#[track_caller]
fn check_shape(text: &str, want: &str) -> TraceNode {
    let report = traced(text, (200, 220, 10)).report(text).expect("asked for");
    assert_eq!(shape(&report), want, "{text}");
    report
}

/// Series selected, samples read, series yielded.
#[test]
fn nodes_are_those_of_the_query() {
    check_shape("m", "query(0/0/0)[select(3/69/3)]");
    check_shape("sum(rate(m[1m])) / 2", "query(0/0/0)[/(0/0/1)[sum(0/0/1)[rate(3/24/3)]]]");
    check_shape("(m) + on (id) n", "query(0/0/0)[+(0/0/1)[select(3/69/3) select(1/23/1)]]");
    check_shape(
        "max_over_time(sum(m)[1m:10s])",
        "query(0/0/0)[max_over_time(0/0/1)[sum(0/0/1)[select(3/69/3)]]]",
    );
    check_shape("1 + 1", "query(0/0/0)");
}

#[test]
fn texts_are_those_of_the_query_and_times_add_up() {
    let report = check_shape("sum(rate(m[1m]))", "query(0/0/0)[sum(0/0/1)[rate(3/24/3)]]");
    let (sum, rate) = (&report.children[0], &report.children[0].children[0]);
    assert_eq!(
        (&*report.text, &*sum.text, &*rate.text),
        ("sum(rate(m[1m]))", "sum(rate(m[1m]))", "rate(m[1m])")
    );
    assert!(rate.time_ns > 0 && sum.time_ns >= rate.time_ns && report.time_ns >= sum.time_ns);
    assert_eq!(sum.self_ns, sum.time_ns - rate.time_ns);
    assert!(report.memory_bytes + sum.memory_bytes + rate.memory_bytes > 0);
}

/// Samples that a subquery reads counted once, by the values that the outer function sees. They count in
/// every step whose window contains their evaluation, as in Prometheus 3.16, and not at all between windows.
#[test]
fn samples_of_subqueries_count_where_their_evaluations_are_seen() {
    // A window of 2 m has 4 evaluations of 6 samples in each of 3 series.
    check_steps("max_over_time(sum_over_time(m[1m])[2m:30s])", (600, 600, 0), &[72], &[45]);
    check_steps("max_over_time(sum_over_time(m[1m])[2m:30s])", (600, 720, 60), &[72, 72, 72], &[45, 18, 18]);
    check_steps("sum_over_time(m[2m:30s])", (600, 720, 60), &[12, 12, 12], &[12, 6, 6]);
    check_steps("m[2m:30s]", (600, 600, 0), &[12], &[12]);
    check_steps("sum_over_time(m[2m:30s] offset 1m)", (600, 720, 60), &[12, 12, 12], &[12, 6, 6]);
    // Evaluations between the windows count for nothing.
    check_steps("sum_over_time(m[1m:30s])", (300, 900, 300), &[6, 6, 6], &[6, 6, 6]);
    check_steps("sum_over_time((m + m)[1m:30s])", (300, 900, 300), &[12, 12, 12], &[12, 12, 12]);
    check_steps("max_over_time(sum_over_time(n[1m:30s])[2m:1m])", (600, 660, 60), &[4, 4], &[4, 2]);
    check_steps("max_over_time(n[2m:30s] @ 600)", (600, 720, 60), &[4, 4, 4], &[4, 0, 0]);
    check_steps("sum_over_time(n[1m:20s]) + sum_over_time(n[1m:20s])", (600, 660, 60), &[6, 6], &[6, 6]);
    check_steps("count_over_time(vector(1)[2m:30s])", (600, 660, 60), &[0, 0], &[0, 0]);
    check_steps(
        "max_over_time(max_over_time(max_over_time(n[1m])[1m:30s])[1m:30s])",
        (600, 600, 0),
        &[24],
        &[12],
    );
}
