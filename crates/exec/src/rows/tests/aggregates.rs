//! Aggregations and selectors: types, ties, windows, fill, joins of several calls.

use chronolith_model::query::ColumnType;
use jiff::tz::TimeZone;

use super::memory::{MemoryStore, environment};
use super::plans::*;
use crate::rows::error::RowError;
use crate::rows::execution::RowLimits;
use crate::rows::plan::{
    Aggregate, Call, Expr, Extremes, Fill, Function, Input, Literal, Operator, Order, RowPlan, Windows,
};

const POINTS: &str = r#"
    m,dc=x,host=a v=1,w=10i,s="p",b=true 1
    m,dc=y,host=b v=2,w=5i,s="q",b=false 1
    m,dc=z,host=c v=0.5 1
    m,dc=x,host=a v=3,w=20i 11
    m,dc=y,host=b v=4,s="q" 12
    m,dc=x,host=a v=7,w=30i 31
    m,dc=y,host=b v=-4,w=7i,b=true 32
"#;

fn one(function: Aggregate, field: &str) -> RowPlan {
    from_m().call("x", aggregate(function, field))
}

fn windows(function: Aggregate, field: &str) -> RowPlan {
    one(function, field).between(0, 40).every(10)
}

fn filled(function: Aggregate, field: &str, fill: Fill) -> RowPlan {
    RowPlan { fill, ..windows(function, field) }
}

fn extremes(count: usize, tags: &[&str]) -> Extremes {
    Extremes { count, distinct_tags: tags.iter().map(|tag| (*tag).into()).collect() }
}

#[test]
fn integers_stay_integers() {
    let plan = from_m()
        .call("count", aggregate(Aggregate::Count, "w"))
        .call("sum", aggregate(Aggregate::Sum, "w"))
        .call("spread", aggregate(Aggregate::Spread, "w"))
        .call("mean", aggregate(Aggregate::Mean, "w"))
        .call("median", aggregate(Aggregate::Median, "w"))
        .call("mode", aggregate(Aggregate::Mode, "w"))
        .call("percentile", aggregate(Aggregate::Percentile(50.0), "w"))
        .call("max", aggregate(Aggregate::Max, "w"));
    check(POINTS, plan, "m{}\n0: 5i 72i 25i 14.4 10.0 5i 10i 30i");
    let lines = "m v=9223372036854775807i,u=18446744073709551615u 1\nm v=1i,u=2u 2";
    check(lines, one(Aggregate::Sum, "v"), "m{}\n0: -9223372036854775808i");
    check(lines, one(Aggregate::Sum, "u"), "m{}\n0: 1u");
    check(lines, one(Aggregate::Max, "u"), "m{}\n1: 18446744073709551615u");
}

#[test]
fn texts_and_booleans_have_an_order_in_time() {
    let plan = from_m()
        .call("first", aggregate(Aggregate::First, "s"))
        .call("last", aggregate(Aggregate::Last, "b"))
        .call("count", aggregate(Aggregate::Count, "s"))
        .call("mode", aggregate(Aggregate::Mode, "s"));
    check(POINTS, plan, "m{}\n0: \"q\" true 3i \"q\"");
    check(POINTS, one(Aggregate::Distinct, "s"), "m{}\n0: \"p\"\n0: \"q\"");
    check(POINTS, one(Aggregate::Max, "b"), "m{}\n1: true");
    let environment = environment(MemoryStore::of_lines(POINTS), u64::MAX, RowLimits::default());
    let error = run(one(Aggregate::Sum, "s"), environment).expect_err("texts have no sum");
    assert!(matches!(error, RowError::Type { function: "sum", column_type: ColumnType::Text }), "{error}");
}

#[test]
fn moments_are_pooled_over_samples() {
    let plan = from_m()
        .call("stddev", aggregate(Aggregate::Stddev, "v"))
        .call("spread", aggregate(Aggregate::Spread, "w"))
        .call("median", aggregate(Aggregate::Median, "w"))
        .call("percentile", aggregate(Aggregate::Percentile(50.0), "w"))
        .by(&["host"]);
    let want = "m{host=a}\n0: 3.055050463303893 20i 20.0 20i
        m{host=b}\n0: 4.163331998932265 2i 6.0 5i
        m{host=c}\n0: null null null null";
    check(POINTS, plan, want);
    check(POINTS, one(Aggregate::Mean, "v"), "m{}\n0: 1.9285714285714286");
    check(POINTS, one(Aggregate::Mode, "v"), "m{}\n0: -4.0");
}

#[test]
fn a_single_selector_has_the_time_and_the_variables_of_its_point() {
    let plan = one(Aggregate::Max, "v").fields(&["w"]).column("host", tag("host"));
    check(POINTS, plan, "m{}\n31: 7.0 30i \"a\"");
    let plan = from_m()
        .call("max", aggregate(Aggregate::Max, "v"))
        .call("min", aggregate(Aggregate::Min, "v"))
        .between(1, 40);
    check(POINTS, plan, "m{}\n1: 7.0 -4.0");
    let plan = from_m()
        .call("first", aggregate(Aggregate::First, "v"))
        .call("last", aggregate(Aggregate::Last, "w"));
    check(POINTS, plan, "m{}\n0: 2.0 7i");
    let want = "m{}\n0: 2.0 5i\n10: 4.0 null\n20: null null\n30: -4.0 7i";
    check(POINTS, windows(Aggregate::Last, "v").fields(&["w"]), want);
    let plan = filled(Aggregate::Last, "v", Fill::Previous).fields(&["w"]);
    check(POINTS, plan, "m{}\n0: 2.0 5i\n10: 4.0 5i\n20: 4.0 5i\n30: -4.0 7i");
    let mut plan = one(Aggregate::Max, "v").fields(&["w"]);
    plan.filter = Some(binary(Operator::Lt, field("w"), integer(30)));
    check(POINTS, plan, "m{}\n11: 3.0 20i");
}

/// Ties: first and last by the greater value, max and min by the earlier time.
#[test]
fn ties_of_selectors() {
    let lines = "
        m,h=a v=5 1
        m,h=a v=2 3
        m,h=b v=7 1
        m,h=b v=9 3
        m,h=c v=9 2
        m,h=c v=2 4";
    check(lines, one(Aggregate::First, "v").column("h", tag("h")), "m{}\n1: 7.0 \"b\"");
    check(lines, one(Aggregate::Last, "v").column("h", tag("h")), "m{}\n4: 2.0 \"c\"");
    check(lines, one(Aggregate::Max, "v").column("h", tag("h")), "m{}\n2: 9.0 \"c\"");
    check(lines, one(Aggregate::Min, "v").column("h", tag("h")), "m{}\n3: 2.0 \"a\"");
    check(lines, one(Aggregate::Percentile(100.0), "v"), "m{}\n3: 9.0");
    check(lines, one(Aggregate::Percentile(10.0), "v"), "m{}\n3: 2.0");
    check(lines, one(Aggregate::Percentile(0.0), "v"), "");
}

#[test]
fn ties_of_texts_booleans_and_modes() {
    let lines = "
        m,h=a v=1 10
        m,h=a v=1 20
        m,h=b v=2 30
        m,h=b v=2 40
        m,h=c v=3 5
        m,h=c v=3 35
        m,h=d s=\"x\",b=true 10
        m,h=d s=\"x\",b=false 20
        m,h=e s=\"y\",b=false 10
        m,h=e s=\"y\",b=true 20";
    let with_tag = |function, field| one(function, field).column("h", tag("h"));
    check(lines, with_tag(Aggregate::First, "b"), "m{}\n10: false \"e\"");
    check(lines, with_tag(Aggregate::Last, "b"), "m{}\n20: true \"e\"");
    check(lines, with_tag(Aggregate::First, "s"), "m{}\n10: \"y\" \"e\"");
    check(lines, with_tag(Aggregate::Last, "s"), "m{}\n20: \"y\" \"e\"");
    check(lines, with_tag(Aggregate::Max, "b"), "m{}\n10: true \"d\"");
    check(lines, with_tag(Aggregate::Min, "b"), "m{}\n10: false \"e\"");
    check(lines, one(Aggregate::Mode, "v"), "m{}\n0: 3.0");
    check(lines, one(Aggregate::Mode, "s"), "m{}\n0: \"y\"");
    check(lines, one(Aggregate::Mode, "b"), "m{}\n0: true");
    check(lines, one(Aggregate::Distinct, "b"), "m{}\n0: false\n0: true");
}

/// InfluxDB subtracts the two middle integers as 64-bit ones before their mean becomes a float: the distance
/// of the extremes wraps around.
#[test]
fn medians_of_integers_subtract_before_they_are_floats() {
    let median = |low: i64, high: i64| {
        let lines = format!("m w={high}i 1\nm w={low}i 2");
        let environment = environment(MemoryStore::of_lines(&lines), u64::MAX, RowLimits::default());
        run(one(Aggregate::Median, "w"), environment).expect("rows")
    };
    assert_eq!(median(9223372036854775805, 9223372036854775807), "m{}\n0: 9.223372036854776e18\n");
    assert_eq!(median(2, 5), "m{}\n0: 3.5\n");
    assert_eq!(median(-5, 2), "m{}\n0: -1.5\n");
    assert_eq!(median(-1, i64::MAX), "m{}\n0: -4.611686018427388e18\n");
    // An odd count has one middle value.
    let lines = "m w=9223372036854775807i 1\nm w=-9223372036854775808i 2\nm w=7i 3";
    check(lines, one(Aggregate::Median, "w"), "m{}\n0: 7.0");
}

/// Among values that occur equally often, the value of the earliest point is the mode, whatever the order of
/// the rows.
#[test]
fn modes_of_equal_count_are_the_earliest() {
    let lines = "
        m w=7i,v=1.5,s=\"b\",b=true 1
        m w=3i,v=0.5,s=\"a\",b=false 2
        m w=3i,v=0.5,s=\"a\",b=false 3
        m w=7i,v=1.5,s=\"b\",b=true 4";
    for order in [Order::Ascending, Order::Descending] {
        for (field, want) in [("w", "7i"), ("v", "1.5"), ("s", "\"b\""), ("b", "true")] {
            let plan = RowPlan { order, ..one(Aggregate::Mode, field) };
            check(lines, plan, &format!("m{{}}\n0: {want}"));
        }
    }
}

/// Rank of a percentile: floor(count * p / 100 + 0.5), counted from 1; rank 0 is no value. Equal values are
/// in the order of their times.
#[test]
fn percentiles_take_the_nearest_rank() {
    let lines = "m v=5 1\nm v=1 2\nm v=5 3\nm v=3 4";
    for (percent, want) in
        [(12.4, ""), (12.5, "2: 1.0"), (37.5, "4: 3.0"), (62.5, "1: 5.0"), (100.0, "3: 5.0")]
    {
        let want = if want.is_empty() { String::new() } else { format!("m{{}}\n{want}") };
        check(lines, one(Aggregate::Percentile(percent), "v"), &want);
    }
}

/// A point without a value is null whatever the fill; windows without points are filled.
#[test]
fn points_without_values_are_not_filled() {
    let lines = "m,h=a v=5 10\nm,h=b v=7 10\nm,h=c v=9 20\nm,h=a v=2 30\nm,h=b v=9 30";
    let plan = one(Aggregate::Stddev, "v").between(0, 50).every(10);
    let zero = Fill::Number(Literal::Integer(0));
    let want = "m{}\n0: 0.0\n10: 1.4142135623730951\n20: null\n30: 4.949747468305833\n40: 0.0";
    check(lines, RowPlan { fill: zero, ..plan.clone() }, want);
    let want = "m{}\n0: null\n10: 1.4142135623730951\n20: null\n30: 4.949747468305833\n40: 4.949747468305833";
    check(lines, RowPlan { fill: Fill::Previous, ..plan }, want);
    let lines = "m v=39i 0\nm v=1i 40";
    let plan = one(Aggregate::Sum, "v").between(0, 60).every(10);
    check(
        lines,
        RowPlan { fill: Fill::Linear, ..plan },
        "m{}\n0: 39i\n10: 29i\n20: 20i\n30: 10i\n40: 1i\n50: null",
    );
}

#[test]
fn extreme_points_keep_their_times() {
    let top = |count, tags: &[&str]| one(Aggregate::Top(extremes(count, tags)), "v").column("h", tag("host"));
    check(POINTS, top(2, &[]), "m{}\n12: 4.0 \"b\"\n31: 7.0 \"a\"");
    check(POINTS, top(3, &[]), "m{}\n11: 3.0 \"a\"\n12: 4.0 \"b\"\n31: 7.0 \"a\"");
    check(POINTS, top(3, &["host"]), "m{}\n1: 0.5 \"c\"\n12: 4.0 \"b\"\n31: 7.0 \"a\"");
    let bottom = one(Aggregate::Bottom(extremes(2, &[])), "v").between(0, 40).every(20);
    check(POINTS, bottom, "m{}\n1: 0.5\n1: 1.0\n31: 7.0\n32: -4.0");
    let want = "m{host=a}\n1: 1.0\nm{host=b}\n32: -4.0\nm{host=c}\n1: 0.5";
    check(POINTS, one(Aggregate::Bottom(extremes(1, &[])), "v").by(&["host"]), want);
}

#[test]
fn samples_are_points_at_their_times() {
    let found = run(
        one(Aggregate::Sample(3), "v"),
        environment(MemoryStore::of_lines(POINTS), u64::MAX, RowLimits::default()),
    )
    .expect("rows");
    let all = run(
        from_m().fields(&["v"]),
        environment(MemoryStore::of_lines(POINTS), u64::MAX, RowLimits::default()),
    )
    .expect("rows");
    assert_eq!(found.lines().count(), 4);
    assert!(found.lines().all(|line| all.contains(line)), "{found}");
    check("m v=1 5\nm v=2 6", one(Aggregate::Sample(9), "v"), "m{}\n5: 1.0\n6: 2.0");
}

#[test]
fn distinct_values_are_in_the_order_of_their_first_time() {
    let want = "m{}\n0: 0.5\n0: 1.0\n0: 2.0\n0: 3.0\n0: 4.0\n0: 7.0\n0: -4.0";
    check(POINTS, one(Aggregate::Distinct, "v"), want);
    let distinct = aggregate(Aggregate::Distinct, "s");
    let count =
        Call { function: Function::Aggregate(Aggregate::Count), input: Input::Call(Box::new(distinct)) };
    check(POINTS, from_m().call("n", count.clone()), "m{}\n0: 2i");
    let plan = from_m().call("n", count).between(0, 40).every(10);
    check(POINTS, plan, "m{}\n0: 2i\n10: 1i\n20: 0i\n30: 0i");
}

#[test]
fn windows_without_points_are_filled() {
    let mean = |fill| filled(Aggregate::Mean, "v", fill);
    let rows = |value: &str| format!("m{{}}\n0: 1.1666666666666667\n10: 3.5\n{value}30: 1.5");
    check(POINTS, mean(Fill::Null), &rows("20: null\n"));
    check(POINTS, mean(Fill::None), &rows(""));
    check(POINTS, mean(Fill::Previous), &rows("20: 3.5\n"));
    check(POINTS, mean(Fill::Linear), &rows("20: 2.5\n"));
    check(POINTS, mean(Fill::Number(Literal::Integer(7))), &rows("20: 7.0\n"));
    check(POINTS, filled(Aggregate::Count, "v", Fill::Null), "m{}\n0: 3i\n10: 2i\n20: 0i\n30: 2i");
    let seven = Fill::Number(Literal::Float(7.9));
    check(POINTS, filled(Aggregate::Count, "v", seven.clone()), "m{}\n0: 3i\n10: 2i\n20: 7i\n30: 2i");
    let want = "m{}\n0: \"q\"\n10: \"q\"\n20: \"\"\n30: \"\"";
    check(POINTS, filled(Aggregate::Last, "s", seven.clone()), want);
    check(POINTS, filled(Aggregate::Last, "s", Fill::Linear), "m{}\n0: \"q\"\n10: \"q\"\n20: null\n30: null");
    check(POINTS, filled(Aggregate::Last, "b", seven), "m{}\n0: true\n10: false\n20: false\n30: true");
}

#[test]
fn groups_are_filled_apart() {
    let plan = RowPlan { fill: Fill::Linear, ..windows(Aggregate::Mean, "v").by(&["host"]) };
    let want = "m{host=a}\n0: 1.0\n10: 3.0\n20: 5.0\n30: 7.0
        m{host=b}\n0: 2.0\n10: 4.0\n20: 0.0\n30: -4.0
        m{host=c}\n0: 0.5\n10: null\n20: null\n30: null";
    check(POINTS, plan, want);
    let plan =
        RowPlan { fill: Fill::Previous, ..windows(Aggregate::Mean, "w").between(-20, 40).by(&["host"]) };
    let want = "m{host=a}\n-20: null\n-10: null\n0: 10.0\n10: 20.0\n20: 20.0\n30: 30.0
        m{host=b}\n-20: null\n-10: null\n0: 5.0\n10: 5.0\n20: 5.0\n30: 7.0";
    check(POINTS, plan, want);
}

#[test]
fn calls_are_joined_by_time() {
    let plan =
        |fill| RowPlan { fill, ..windows(Aggregate::Mean, "v").call("max", aggregate(Aggregate::Max, "w")) };
    let rows = |value: &str| format!("m{{}}\n0: 1.1666666666666667 10i\n10: 3.5 20i\n{value}30: 1.5 30i");
    check(POINTS, plan(Fill::Previous), &rows("20: 3.5 20i\n"));
    check(POINTS, plan(Fill::None), &rows(""));
    // The sum of columns is null if one is.
    let sum = binary(Operator::Add, Expr::Call(0), Expr::Call(1));
    let mut plan = plan(Fill::Null);
    plan.columns = Vec::new();
    check(POINTS, plan.column("x", sum), "m{}\n0: 11.166666666666666\n10: 23.5\n20: null\n30: 31.5");
    // Calls without points of a group are null.
    let plan = from_m()
        .call("v", aggregate(Aggregate::Sum, "v"))
        .call("w", aggregate(Aggregate::Sum, "w"))
        .call("n", aggregate(Aggregate::Sum, "nothing"))
        .by(&["host"]);
    check(
        POINTS,
        plan,
        "m{host=a}\n0: 11.0 60i null\nm{host=b}\n0: 2.0 12i null\nm{host=c}\n0: 0.5 null null",
    );
}

#[test]
fn descending_windows() {
    let plan = |fill| RowPlan { fill, order: Order::Descending, ..windows(Aggregate::Mean, "v").by(&["dc"]) };
    let want = "m{dc=z}\n30: null\n20: null\n10: null\n0: 0.5
        m{dc=y}\n30: -4.0\n20: -4.0\n10: 4.0\n0: 2.0
        m{dc=x}\n30: 7.0\n20: 7.0\n10: 3.0\n0: 1.0";
    check(POINTS, plan(Fill::Previous), want);
}

/// Points descend by time; points at one time keep their order.
#[test]
fn descending_windows_of_several_points() {
    let descending = |plan: RowPlan| RowPlan { order: Order::Descending, ..plan };
    let top = || one(Aggregate::Top(extremes(7, &[])), "v");
    let want = "m{}\n32: -4.0\n31: 7.0\n12: 4.0\n11: 3.0\n1: 2.0\n1: 1.0\n1: 0.5";
    check(POINTS, descending(top().between(0, 40).every(20)), want);
    check(POINTS, descending(top()), want);
    let plan = one(Aggregate::Distinct, "v").between(0, 40).every(20);
    let want = "m{}\n20: -4.0\n20: 7.0\n0: 4.0\n0: 3.0\n0: 0.5\n0: 1.0\n0: 2.0";
    check(POINTS, descending(plan), want);
}

#[test]
fn limits_are_per_call() {
    let mut plan = windows(Aggregate::Max, "v").every(20);
    plan.slice.limit = 1;
    plan.slice.offset = 1;
    check(POINTS, plan, "m{}\n20: 7.0");
    let plan = RowPlan {
        fill: Fill::None,
        ..windows(Aggregate::Max, "v").call("y", aggregate(Aggregate::Max, "b"))
    };
    let mut plan = plan;
    plan.slice.limit = 2;
    check(POINTS, plan, "m{}\n0: 2.0 true\n10: 4.0 null\n30: null true");
}

#[test]
fn windows_have_an_offset_and_open_ends() {
    let mut plan = windows(Aggregate::Count, "v");
    plan.windows = Some(Windows { width: 10, offset: 2, zone: None });
    check(POINTS, plan, "m{}\n-8: 3i\n2: 1i\n12: 1i\n22: 1i\n32: 1i");
    // Without a start, windows begin at the first point of each group.
    let plan = one(Aggregate::Count, "v").between(crate::rows::plan::OPEN_START, 50).every(10).by(&["dc"]);
    let want = "m{dc=x}\n0: 1i\n10: 1i\n20: 0i\n30: 1i\n40: 0i
        m{dc=y}\n0: 1i\n10: 1i\n20: 0i\n30: 1i\n40: 0i
        m{dc=z}\n0: 1i\n10: 0i\n20: 0i\n30: 0i\n40: 0i";
    check(POINTS, plan, want);
    check(
        "m v=1 -15\nm v=1 -5",
        one(Aggregate::Count, "v").between(-20, 0).every(10),
        "m{}\n-20: 1i\n-10: 1i",
    );
}

#[test]
fn too_many_windows_are_refused() {
    let limits = RowLimits { buckets_max: 3, ..RowLimits::default() };
    let environment = environment(MemoryStore::of_lines(POINTS), u64::MAX, limits);
    let error = run(windows(Aggregate::Mean, "v"), environment).expect_err("four windows");
    assert!(matches!(error, RowError::BucketLimit { found: 4, limit: 3 }), "{error}");
}

const SECOND: i64 = 1_000_000_000;

/// Counts of hourly points around a change of the offset of Central Europe: seconds after `start` and counts.
#[track_caller]
fn check_zone(start: i64, hours: i64, offset_hours: i64, want: &[(i64, i64)]) {
    const HOUR: i64 = 3600 * SECOND;
    let first = (start + 7200) * SECOND;
    let lines: Vec<String> = (-6..60).map(|hour| format!("m v=1 {}", first + hour * HOUR)).collect();
    let mut plan = one(Aggregate::Count, "v").between(start * SECOND, (start + 136_800) * SECOND);
    // The last Sundays of March and October, 2:00 and 3:00 local time.
    let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a zone");
    plan.windows = Some(Windows { width: hours * HOUR, offset: offset_hours * HOUR, zone: Some(zone) });
    let rows = want.iter().map(|(at, count)| format!("{}: {count}i", (start + at) * SECOND));
    let rows: Vec<String> = rows.collect();
    check(&lines.join("\n"), plan, &format!("m{{}}\n{}", rows.join("\n")));
}

/// Windows of local time: days of 23 and 25 hours where the offset changes.
#[test]
fn windows_follow_the_zone() {
    const SPRING: i64 = 954_018_000;
    const AUTUMN: i64 = 972_763_200;
    check_zone(SPRING, 24, 0, &[(-79_200, 2), (7200, 23), (90_000, 13)]);
    let want = [
        (-14_400, 2),
        (7200, 5),
        (25_200, 6),
        (46_800, 6),
        (68_400, 6),
        (90_000, 6),
        (111_600, 6),
        (133_200, 1),
    ];
    check_zone(SPRING, 6, 0, &want);
    let want = [
        (-3600, 4),
        (14_400, 4),
        (28_800, 5),
        (46_800, 5),
        (64_800, 5),
        (82_800, 5),
        (100_800, 5),
        (118_800, 5),
    ];
    check_zone(SPRING, 5, 0, &want);
    check_zone(SPRING, 24, 2, &[(-72_000, 4), (14_400, 23), (97_200, 11)]);
    check_zone(AUTUMN, 24, 0, &[(-79_200, 2), (7200, 25), (97_200, 11)]);
    let want = [(-14_400, 2), (7200, 7), (32_400, 6), (54_000, 6), (75_600, 6), (97_200, 6), (118_800, 5)];
    check_zone(AUTUMN, 6, 0, &want);
    let want = [
        (-14_400, 1),
        (3600, 6),
        (25_200, 5),
        (43_200, 5),
        (61_200, 5),
        (79_200, 5),
        (97_200, 5),
        (115_200, 5),
        (133_200, 1),
    ];
    check_zone(AUTUMN, 5, 0, &want);
    let want: Vec<(i64, i64)> = (0..38).map(|hour| (hour * 3600, 1)).collect();
    check_zone(SPRING, 1, 0, &want);
    check_zone(AUTUMN, 1, 0, &want);
}

#[test]
fn aggregates_of_subqueries() {
    let inner = || from_m().column("x", field("v"));
    let outer = from_subquery(inner())
        .call("mean", aggregate(Aggregate::Mean, "x"))
        .between(0, 40)
        .every(20)
        .by(&["host"]);
    let want = "m{host=a}\n0: 2.0\n20: 7.0\nm{host=b}\n0: 3.0\n20: -4.0\nm{host=c}\n0: 0.5\n20: null";
    check(POINTS, outer, want);
    let inner = from_m().column("v", field("v")).column("host", tag("host"));
    let count = from_subquery(inner).call("n", aggregate(Aggregate::Count, "host"));
    check(POINTS, count, "m{}\n0: 7i");
    // Rows of windows that begin before the range are points, too.
    let lasts = || RowPlan { fill: Fill::None, ..one(Aggregate::Last, "v").between(11, 40).every(10) };
    let outer = from_subquery(lasts()).call("sum", aggregate(Aggregate::Sum, "x")).between(11, 40);
    check(POINTS, outer.clone(), "m{}\n11: 0.0");
    let want = "m{}\n10: 4.0\n15: null\n20: null\n25: null\n30: -4.0\n35: null";
    check(POINTS, outer.every(5), want);
    check(POINTS, from_subquery(lasts()).fields(&["x"]).between(11, 40), "m{}\n10: 4.0\n30: -4.0");
    let sums = one(Aggregate::Max, "v").by(&["host"]);
    let mut total = from_subquery(sums).call("sum", aggregate(Aggregate::Sum, "x"));
    check(POINTS, total.clone(), "m{}\n0: 11.5");
    total.filter = Some(binary(Operator::Ne, tag("host"), text("c")));
    check(POINTS, total, "m{}\n0: 11.0");
}

#[test]
fn samples_in_memory_are_within_the_budget() {
    let lines: Vec<String> = (0..20_000).map(|time| format!("m v={time} {time}")).collect();
    let store = || MemoryStore::of_lines(&lines.join("\n"));
    let environment_of = |bytes| environment(store(), bytes, RowLimits::default());
    assert!(run(one(Aggregate::Mode, "v"), environment_of(1 << 20)).is_ok());
    assert!(matches!(run(one(Aggregate::Mode, "v"), environment_of(64 << 10)), Err(RowError::Query(_))));
    let plan = || one(Aggregate::Mean, "v").between(0, i64::MAX / 2).every(1);
    assert!(matches!(run(plan(), environment_of(8 << 20)), Err(RowError::Query(_))), "windows are counted");
}
