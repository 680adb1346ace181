//! Transformations: over points, over aggregations, with fill and the window in front of the range.

use super::plans::*;
use crate::rows::plan::{
    Aggregate, Call, Expr, Fill, Function, HoltWinters, Indicator, IndicatorKind, Input, Order, RowPlan,
    Transform, Warmup,
};

const POINTS: &str = "
    m,host=a v=1,w=10i 1
    m,host=b v=2,w=5i 1
    m,host=c v=0.5 1
    m,host=a v=3,w=20i 11
    m,host=b v=4 12
    m,host=a v=7,w=30i 31
    m,host=b v=-4,w=7i 32";

/// Values at 10, 20, ... 200; `w` is twice `v`.
const CURVE: [i64; 20] = [3, 5, 4, 8, 9, 7, 12, 11, 15, 14, 13, 18, 16, 20, 19, 25, 22, 21, 24, 30];

fn curve() -> String {
    let points = CURVE.iter().zip(1..);
    points.map(|(value, idx)| format!("m v={value},w={}i {}\n", value * 2, idx * 10)).collect()
}

fn derivative(unit: i64) -> Transform {
    Transform::Derivative { unit, non_negative: false }
}

fn mean_windows(transform: Transform, fill: Fill) -> RowPlan {
    let call = over(transform, aggregate(Aggregate::Mean, "v"));
    RowPlan { fill, ..from_m().call("x", call).between(0, 40).every(10) }
}

#[test]
fn differences_over_points() {
    let plan = from_m()
        .call("d", transform(derivative(1), "v"))
        .call("e", transform(Transform::Difference { non_negative: false }, "w"));
    let want = "m{}\n11: 0.2 10i\n12: 1.0 null\n31: 0.15789473684210525 10i\n32: -11.0 -23i";
    check(POINTS, plan, want);
    let plan = from_m()
        .call("d", transform(Transform::Derivative { unit: 1, non_negative: true }, "v"))
        .call("e", transform(Transform::Difference { non_negative: true }, "w"));
    check(POINTS, plan, "m{}\n11: 0.2 10i\n12: 1.0 null\n31: 0.15789473684210525 10i");
    let plan = from_m().call("e", transform(Transform::Elapsed { unit: 1 }, "v"));
    check(POINTS, plan, "m{}\n1: 0i\n1: 0i\n11: 10i\n12: 1i\n31: 19i\n32: 1i");
    let lines = "m u=5u 1\nm u=3u 2\nm u=18446744073709551615u 3";
    let plan = from_m()
        .call("d", transform(derivative(1), "u"))
        .call("e", transform(Transform::Difference { non_negative: false }, "u"));
    check(lines, plan, "m{}\n2: -2.0 18446744073709551614u\n3: 1.8446744073709552e19 18446744073709551612u");
}

#[test]
fn descending_differences() {
    let mut plan = from_m()
        .call("d", transform(derivative(1), "v"))
        .call("e", transform(Transform::Elapsed { unit: 1 }, "w"))
        .between(151, 201);
    plan.order = Order::Descending;
    check(&curve(), plan, "m{}\n190: -0.6 -10i\n180: -0.3 -10i\n170: 0.1 -10i\n160: 0.3 -10i");
    let call = over(derivative(1), aggregate(Aggregate::Mean, "v"));
    let mut plan = from_m().call("d", call).between(100, 200).every(20);
    plan.order = Order::Descending;
    check(&curve(), plan, "m{}\n180: -0.375\n160: 0.05\n140: -0.2\n120: -0.125\n100: -0.175");
}

/// One window in front of the range is read, so that the first window has a difference; with a fill it is
/// there without points.
#[test]
fn the_window_before_the_range_is_read() {
    let want = "m{}\n10: 0.2333333333333333\n30: -0.1";
    check(POINTS, mean_windows(derivative(1), Fill::Null), want);
    let zero = Fill::Number(crate::rows::plan::Literal::Integer(0));
    let want = "m{}\n0: 0.11666666666666667\n10: 0.2333333333333333\n20: -0.35\n30: 0.15";
    check(POINTS, mean_windows(derivative(1), zero.clone()), want);
    // Only one, whatever the length of the average.
    let plan = mean_windows(Transform::MovingAverage { count: 3 }, zero).between(10, 40);
    check(POINTS, plan, "m{}\n20: 1.5555555555555556\n30: 1.6666666666666667");
    let plan = mean_windows(Transform::CumulativeSum, Fill::Null).between(10, 40);
    check(POINTS, plan, "m{}\n10: 3.5\n30: 5.0");
    let call = over(derivative(10), aggregate(Aggregate::Mean, "v"));
    let plan = from_m().call("n", aggregate(Aggregate::Count, "v")).call("d", call).between(0, 40).every(10);
    check(POINTS, plan, "m{}\n0: 3i null\n10: 2i 2.333333333333333\n20: 0i null\n30: 2i -1.0");
}

/// elapsed() was changed to read no window in front of the range, and back: influxd 1.6.7 reads it.
#[test]
fn elapsed_reads_the_window_before_the_range() {
    let mean = |fill| mean_windows(Transform::Elapsed { unit: 1 }, fill).between(10, 40);
    check(POINTS, mean(Fill::None), "m{}\n10: 10i\n30: 20i");
    let whole = mean_windows(Transform::Elapsed { unit: 1 }, Fill::None);
    check(POINTS, whole, "m{}\n10: 10i\n30: 20i");
    // Not beyond one window: the window at 20 has no points.
    check(POINTS, mean(Fill::None).between(30, 40), "");
    let in_fours = mean_windows(Transform::Elapsed { unit: 4 }, Fill::None);
    check(POINTS, in_fours, "m{}\n10: 2i\n30: 5i");
    // Raw points have no window before.
    let raw = from_m().call("e", transform(Transform::Elapsed { unit: 1 }, "w")).between(11, 40);
    check(POINTS, raw, "m{}\n31: 20i\n32: 1i");
}

/// Differences of integers wrap around as 64-bit ones, in descending order too; one that wraps to a positive
/// value is not negative.
#[test]
fn differences_of_integers_wrap() {
    let lines = "m w=9223372036854775807i 1\nm w=-2i 2\nm w=-9223372036854775808i 3";
    let difference = |non_negative| transform(Transform::Difference { non_negative }, "w");
    let plan = from_m().call("d", difference(false));
    check(lines, plan, "m{}\n2: 9223372036854775807i\n3: -9223372036854775806i");
    check(lines, from_m().call("d", difference(true)), "m{}\n2: 9223372036854775807i");
    let plan = RowPlan { order: Order::Descending, ..from_m().call("d", difference(false)) };
    check(lines, plan, "m{}\n2: 9223372036854775806i\n1: -9223372036854775807i");
    let plan = from_m().call("c", transform(Transform::CumulativeSum, "w"));
    check(lines, plan, "m{}\n1: 9223372036854775807i\n2: 9223372036854775805i\n3: -3i");
}

/// Each nested transformation read one window more. A query reads no more windows before its range than one
/// of its calls needs.
#[test]
fn nested_transformations_share_the_window_before_the_range() {
    let difference = || Transform::Difference { non_negative: false };
    let sum = || aggregate(Aggregate::Sum, "v");
    let plan = |calls: Vec<Call>| {
        let named = calls.into_iter().zip(["a", "b"]);
        named.fold(from_m(), |plan, (call, name)| plan.call(name, call)).between(50, 90).every(10)
    };
    // v: 4 8 9 7 12 11 from time 30 on.
    let twice = || over(difference(), over(difference(), sum()));
    check(&curve(), plan(vec![twice()]), "m{}\n60: -3.0\n70: 7.0\n80: -6.0");
    let average = over(Transform::MovingAverage { count: 2 }, sum());
    let want = "m{}\n50: -3.0 8.5\n60: -3.0 8.0\n70: 7.0 9.5\n80: -6.0 11.5";
    check(&curve(), plan(vec![twice(), average]), want);
}

/// A subquery had no window before the range of the outer query, whatever its calls need.
#[test]
fn a_subquery_is_read_from_the_window_that_a_call_needs() {
    let difference = || over(Transform::Difference { non_negative: false }, aggregate(Aggregate::Max, "y"));
    let inner = || from_m().column("y", Expr::Variable(field_variable("v")));
    let outer = |inner: RowPlan| from_subquery(inner).call("d", difference()).between(50, 80).every(10);
    check(&curve(), outer(inner()), "m{}\n50: 1.0\n60: -2.0\n70: 5.0");
    let plan = outer(inner()).call("max", aggregate(Aggregate::Max, "y"));
    check(&curve(), plan, "m{}\n50: 1.0 9.0\n60: -2.0 7.0\n70: 5.0 12.0");
    check(&curve(), outer(inner().between(50, 1000)), "m{}\n60: -2.0\n70: 5.0");
    let windows = from_m().call("y", aggregate(Aggregate::Max, "v")).every(10);
    check(&curve(), outer(windows), "m{}\n50: 1.0\n60: -2.0\n70: 5.0");
}

#[test]
fn sums_and_averages_move() {
    let plan = from_m()
        .call("s", transform(Transform::CumulativeSum, "w"))
        .call("a", transform(Transform::MovingAverage { count: 3 }, "w"))
        .between(131, 201);
    let want = "m{}\n140: 40i null\n150: 78i null\n160: 128i 42.666666666666664\n170: 172i 44.0
        180: 214i 45.333333333333336\n190: 262i 44.666666666666664\n200: 322i 50.0";
    check(&curve(), plan, want);
    let plan = from_m().call("a", transform(Transform::MovingAverage { count: 30 }, "w"));
    check(&curve(), plan, "");
}

#[test]
fn integrals_are_cut_at_windows() {
    let integral = |unit| aggregate(Aggregate::Integral { unit }, "v");
    check(POINTS, from_m().call("i", integral(1)), "m{}\n0: 127.0");
    let plan = from_m().call("i", integral(1)).between(0, 40).every(10);
    check(POINTS, plan, "m{}\n0: 14.625\n10: 43.42763157894737\n30: 68.94736842105263");
    let mut plan = from_m().call("i", integral(1)).between(1, 101).every(30);
    plan.order = Order::Descending;
    check(&curve(), plan, "m{}\n120: -145.0\n120: 0.0\n90: -340.0\n90: 0.0\n60: -225.0\n60: 0.0\n30: -85.0");
}

/// Times were floats before they were subtracted, so neighbouring nanoseconds of today had no area.
#[test]
fn integrals_of_neighbouring_nanoseconds_have_an_area() {
    let lines = "m v=2 1500000000000000001\nm v=4 1500000000000000003\nm v=4 1500000000000000004";
    check(lines, from_m().call("i", aggregate(Aggregate::Integral { unit: 1 }, "v")), "m{}\n0: 10.0");
    let plan = from_m().call("d", transform(derivative(1), "v"));
    check(lines, plan, "m{}\n1500000000000000003: 1.0\n1500000000000000004: 0.0");
}

#[track_caller]
fn check_indicator(
    kind: IndicatorKind,
    period: usize,
    hold: Option<usize>,
    warmup: Option<Warmup>,
    want: &[f64],
) {
    let indicator = Indicator { kind, period, hold, warmup };
    let plan = from_m().call("x", transform(Transform::Indicator(indicator), "v")).between(0, 91);
    let first = 10 - want.len() as i64;
    let want: Vec<(i64, f64)> = (first..).map(|idx| idx * 10).zip(want.iter().copied()).collect();
    check_close(&curve(), plan, &want, 1e-12);
}

#[test]
fn exponential_averages() {
    use IndicatorKind::*;
    let simple = Some(Warmup::Simple);
    let want = [5.699999999999999, 7.02, 7.012, 9.0072, 9.804319999999999, 11.882591999999999];
    check_indicator(ExponentialMovingAverage, 4, None, None, &want);
    let want = [4.0, 5.0, 6.6, 6.76, 8.856, 9.7136, 11.82816];
    check_indicator(ExponentialMovingAverage, 4, Some(2), simple, &want);
    let want = [6.703333333333333, 8.414, 7.8435999999999995, 10.70328, 11.300239999999999, 14.0271072];
    check_indicator(DoubleExponentialMovingAverage, 4, None, None, &want);
    let want =
        [9.166666666666668, 7.958333333333334, 11.166666666666668, 11.427083333333334, 14.385416666666668];
    check_indicator(DoubleExponentialMovingAverage, 3, None, simple, &want);
    let want = [
        4.226851851851852,
        7.516203703703704,
        9.094907407407408,
        7.533564814814817,
        11.418692129629633,
        11.364728009259256,
        14.674768518518523,
    ];
    check_indicator(TripleExponentialMovingAverage, 3, None, None, &want);
    let want = [
        3.0,
        4.0,
        4.0,
        8.0,
        10.833333333333332,
        8.3125,
        11.444444444444446,
        11.352430555555555,
        14.655381944444443,
    ];
    check_indicator(TripleExponentialMovingAverage, 3, Some(0), simple, &want);
    let want = [
        16.342648845686547,
        21.0443864229765,
        13.222605694564283,
        17.57001333587349,
        14.849098642900538,
        16.81099098781329,
    ];
    check_indicator(TripleExponentialDerivative, 3, None, None, &want);
}

#[test]
fn strength_and_momentum() {
    use IndicatorKind::*;
    let simple = Some(Warmup::Simple);
    let want = [90.3225806451613, 68.29268292682927, 82.51121076233184, 73.69826435246995, 83.24354975900198];
    check_indicator(RelativeStrengthIndex, 4, None, None, &want);
    let want = [
        100.0,
        100.0,
        83.33333333333334,
        90.0,
        90.9090909090909,
        69.76744186046511,
        82.96943231441048,
        74.31551499348109,
        83.49623010332309,
    ];
    check_indicator(RelativeStrengthIndex, 4, Some(0), simple, &want);
    let want = [
        0.0,
        100.0,
        33.33333333333333,
        71.42857142857143,
        75.0,
        25.0,
        66.66666666666666,
        33.33333333333333,
        50.0,
    ];
    check_indicator(ChandeMomentumOscillator, 4, Some(0), None, &want);
    check_indicator(ChandeMomentumOscillator, 4, None, None, &want[3..]);
    let want =
        [81.81818181818181, 39.53488372093023, 65.93886462882097, 48.63102998696219, 66.99246020664617];
    check_indicator(ChandeMomentumOscillator, 4, None, simple, &want);
    let want = [1.0, 1.0, 0.6666666666666666, 0.8, 0.75, 0.25, 0.6666666666666666, 0.3333333333333333, 0.5];
    check_indicator(KaufmansEfficiencyRatio, 4, Some(0), None, &want);
    check_indicator(KaufmansEfficiencyRatio, 4, None, None, &want[4..]);
    let want = [
        1.3333333333333335,
        3.8888888888888893,
        4.782890764507136,
        5.193497514163488,
        8.266389177939645,
        8.207821057789818,
        9.031138128785207,
        9.169644669127344,
        9.948912880769011,
    ];
    check_indicator(KaufmansAdaptiveMovingAverage, 4, Some(0), None, &want);
    check_indicator(KaufmansAdaptiveMovingAverage, 4, None, None, &want[4..]);
}

fn forecast(arguments: HoltWinters) -> RowPlan {
    let call = Call {
        function: Function::Transform(Transform::HoltWinters(arguments)),
        input: Input::Call(Box::new(aggregate(Aggregate::Mean, "v"))),
    };
    from_m().call("x", call).between(10, 201).every(10)
}

#[test]
fn forecasts() {
    let want = [
        (210, 29.070189934209886),
        (220, 30.894781823086852),
        (230, 32.83476060582476),
        (240, 34.90086681054155),
        (250, 37.10459515283561),
    ];
    check_close(&curve(), forecast(HoltWinters { horizon: 5, season: 0, with_fit: false }), &want, 1e-6);
    let want = [
        3.0,
        5.978458376824415,
        2.9783810953647705,
        8.102052661901014,
        7.133510189970266,
        10.350216446893274,
        8.852844431791427,
        14.114364825783438,
        13.203114087352686,
        13.297677513606295,
        13.53279880174616,
        18.539647813651666,
        18.215384939474355,
        16.37858959419525,
        18.63595187477339,
        23.338075624757646,
        24.020880952785785,
        19.98628212095431,
        25.081146145847413,
        29.10525799290815,
        31.328874266402423,
        24.311638102134044,
        33.48725539361759,
    ];
    let want: Vec<(i64, f64)> = (1..).map(|idx| idx * 10).zip(want).collect();
    check_close(&curve(), forecast(HoltWinters { horizon: 3, season: 4, with_fit: true }), &want, 1e-6);
    check("m v=1 10", forecast(HoltWinters { horizon: 3, season: 0, with_fit: false }), "");
}
