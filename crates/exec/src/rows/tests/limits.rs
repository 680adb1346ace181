//! Memory, deadlines and cost of hostile plans.

use std::fmt::Write as _;

use chronolith_model::QueryError;
use chronolith_model::query::ColumnType;

use super::memory::{MemoryStore, environment};
use super::plans::*;
use crate::rows::error::RowError;
use crate::rows::execution::RowLimits;
use crate::rows::plan::{
    Aggregate, Expr, Extremes, Fill, HoltWinters, Indicator, IndicatorKind, RowPlan, Transform, Variable,
};

const HUGE: usize = usize::MAX;
const BUDGET_BYTES: u64 = 8 << 20;
/// Windows of one tick over the range of a test: far more than there is memory for.
const RANGE: i64 = 1 << 40;

fn lines(count: usize) -> String {
    let mut lines = String::new();
    for idx in 0..count {
        let time = idx as i64 * (RANGE / count as i64);
        let text = "x".repeat(100);
        let _ = writeln!(lines, "m,host=a v={idx},s=\"{text}\" {time}");
    }
    lines
}

fn windows(function: Aggregate) -> RowPlan {
    from_m().call("x", aggregate(function, "v")).between(0, RANGE).every(1)
}

fn forecast(horizon: usize, season: usize, with_fit: bool) -> Transform {
    Transform::HoltWinters(HoltWinters { horizon, season, with_fit })
}

/// Checks that a plan ends with an error of the budget, which it never exceeds.
#[track_caller]
fn check_refused(what: &str, plan: RowPlan) {
    let environment = environment(MemoryStore::of_lines(&lines(400)), BUDGET_BYTES, RowLimits::default());
    let budget = environment.ctx.budget.clone();
    match run(plan, environment) {
        Err(RowError::Query(QueryError::Memory(_))) => {}
        Err(other) => panic!("{what}: {other}"),
        Ok(rows) => panic!("{what}: {} bytes of rows", rows.len()),
    }
    assert!(budget.peak_bytes() <= BUDGET_BYTES, "{what}");
    assert_eq!(budget.used_bytes(), 0, "{what}: all memory is given back");
}

/// A forecast of 1,000,000,000 points was computed before any memory was reserved: 23 GB, and the kernel
/// ended the process. So were windows without points, fits of long seasons, and what functions keep of
/// samples. Memory is reserved before it is allocated: such plans are refused at once.
#[test]
fn plans_that_need_too_much_memory_are_refused_before_they_allocate() {
    let over_mean = |transform| from_m().call("x", over(transform, aggregate(Aggregate::Mean, "v")));
    for (horizon, season, with_fit) in [
        (1_000_000_000, 4, false),
        (100_000_000, 4, true),
        (HUGE, 0, false),
        (HUGE, 4, true),
        (10_000_000, 2, false),
    ] {
        let plan = over_mean(forecast(horizon, season, with_fit)).between(0, RANGE).every(RANGE / 400);
        check_refused("forecast", plan);
    }
    let sparse = RowPlan { fill: Fill::None, ..over_mean(forecast(1, 0, false)).between(0, RANGE).every(1) };
    check_refused("values at regular distances", sparse);
    for function in [Aggregate::Mean, Aggregate::Count, Aggregate::First, Aggregate::Median, Aggregate::Max] {
        for fill in
            [Fill::Null, Fill::Previous, Fill::Linear, Fill::Number(crate::rows::plan::Literal::Integer(0))]
        {
            check_refused("windows", RowPlan { fill, ..windows(function.clone()) });
        }
    }
    for transform in [
        Transform::Difference { non_negative: false },
        Transform::CumulativeSum,
        Transform::MovingAverage { count: 2 },
        Transform::Elapsed { unit: 1 },
    ] {
        check_refused("transformed windows", over_mean(transform).between(0, RANGE).every(1));
    }
    let columns = (0..60_000).fold(from_m(), |plan, _| plan.column("x", field("v")));
    check_refused("columns", columns);
}

/// A period of 10^12 points allocated a ring of that length, and the allocator ended the process.
#[test]
fn periods_and_counts_beyond_the_points_need_no_memory() {
    let kinds = [
        IndicatorKind::ChandeMomentumOscillator,
        IndicatorKind::ExponentialMovingAverage,
        IndicatorKind::DoubleExponentialMovingAverage,
        IndicatorKind::TripleExponentialMovingAverage,
        IndicatorKind::TripleExponentialDerivative,
        IndicatorKind::RelativeStrengthIndex,
        IndicatorKind::KaufmansEfficiencyRatio,
        IndicatorKind::KaufmansAdaptiveMovingAverage,
    ];
    let fits = |plan: RowPlan| {
        let environment = environment(MemoryStore::of_lines(&lines(400)), BUDGET_BYTES, RowLimits::default());
        run(plan, environment).expect("within the budget")
    };
    for kind in kinds {
        for period in [1_000_000_000_000, HUGE - 1, HUGE] {
            for hold in [None, Some(0)] {
                let indicator = Transform::Indicator(Indicator { kind, period, hold, warmup: None });
                let rows = fits(from_m().call("x", transform(indicator, "v")));
                assert_eq!(rows.is_empty(), hold.is_none(), "{kind:?} {period} {hold:?}: {rows}");
            }
        }
    }
    for count in [1_000, HUGE] {
        let extremes = || Extremes { count, distinct_tags: Vec::new() };
        for function in [Aggregate::Top(extremes()), Aggregate::Bottom(extremes()), Aggregate::Sample(count)]
        {
            assert_eq!(fits(from_m().call("x", aggregate(function, "v"))).lines().count(), 401);
        }
        assert_eq!(fits(from_m().call("x", transform(Transform::MovingAverage { count }, "v"))), "");
    }
}

/// A ring that is as long as the input gives what a longer one gives.
#[test]
fn long_periods_have_the_values_of_a_full_ring() {
    let momentum = |period| {
        let kind = IndicatorKind::ChandeMomentumOscillator;
        let indicator = Indicator { kind, period, hold: Some(0), warmup: None };
        let environment = environment(MemoryStore::of_lines(&lines(50)), BUDGET_BYTES, RowLimits::default());
        run(from_m().call("x", transform(Transform::Indicator(indicator), "v")), environment).expect("rows")
    };
    assert_eq!(momentum(52), momentum(1000));
    assert_eq!(momentum(53), momentum(HUGE));
}

/// Nested SELECT * of 20,000 fields compared each field with all others at each level: 40 levels took 218 s
/// for one row. The work is linear in fields and levels: this test would take minutes otherwise.
#[test]
fn nested_selects_of_many_fields_are_linear() {
    const FIELDS: usize = 20_000;
    const LEVELS: usize = 40;
    let fields: Vec<String> = (0..FIELDS).map(|idx| format!("f{idx}={idx}")).collect();
    let store = MemoryStore::of_lines(&format!("m,host=a {} 1", fields.join(",")));
    let names: Vec<String> = (0..FIELDS).map(|idx| format!("f{idx}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut plan = from_m().fields(&names);
    for _ in 1..LEVELS {
        plan = from_subquery(plan).fields(&names);
    }
    let rows = run(plan, environment(store, 1 << 30, RowLimits::default())).expect("rows");
    assert_eq!(rows.split_whitespace().count(), FIELDS + 2);
}

/// A query whose deadline has passed, or whose client has left, ends before it selects anything.
#[test]
fn a_canceled_query_ends_while_it_is_planned() {
    let environment = environment(MemoryStore::of_lines(&lines(10)), BUDGET_BYTES, RowLimits::default());
    environment.ctx.cancel_flag().store(true, std::sync::atomic::Ordering::Relaxed);
    let nested = (0..60).fold(from_m().fields(&["v"]), |plan, _| from_subquery(plan).fields(&["v"]));
    assert!(matches!(run(nested, environment), Err(RowError::Query(QueryError::Canceled))));
}

/// A name that several variables have in different types is found once per type.
#[test]
fn variables_of_one_field_are_kept_apart() {
    let of = |cast| Expr::Variable(Variable::Field { name: "v".into(), cast });
    let plan = from_m()
        .column("float", of(None))
        .column("integer", of(Some(ColumnType::Integer)))
        .column("again", of(Some(ColumnType::Integer)))
        .column("text", of(Some(ColumnType::Text)));
    let rows = run(plan, environment(MemoryStore::of_lines("m v=1.5 1"), BUDGET_BYTES, RowLimits::default()));
    assert_eq!(rows.expect("rows"), "m{}\n1: 1.5 1i 1i null\n");
}
