//! Aggregations of one row, nulls included.

use super::{Aggregation, PercentileMethod, percentile};
use crate::absent::ABSENT;

#[track_caller]
fn check(values: &[f64], want: &[(&str, f64)]) {
    for (name, want) in want {
        let found = Aggregation::named(name).unwrap().apply(values);
        assert!(found == *want || found.is_nan() && want.is_nan(), "{name}: {found} {want}");
    }
}

#[test]
fn rows() {
    let sums = [
        ("sum", 9.0),
        ("average", 3.0),
        ("avg_zero", 2.25),
        ("median", 2.0),
        ("min", 1.0),
        ("max", 6.0),
        ("diff", -7.0),
    ];
    check(&[1.0, ABSENT, 6.0, 2.0], &sums);
    check(
        &[1.0, ABSENT, 6.0, 2.0],
        &[("count", 3.0), ("range", 5.0), ("multiply", ABSENT), ("last", 2.0), ("current", 2.0)],
    );
    check(&[1.0, 3.0], &[("median", 2.0), ("multiply", 3.0), ("stddev", 1.0)]);
    check(&[ABSENT], &[("sum", ABSENT), ("count", 0.0), ("avg_zero", 0.0), ("last", ABSENT)]);
    assert!(Aggregation::named("sumSeries").is_err());
}

#[test]
fn percentiles() {
    let values = [5.0, 1.0, ABSENT, 3.0];
    for (percent, method, want) in [
        (50.0, PercentileMethod::Nearest, Ok(3.0)),
        (1.0, PercentileMethod::Nearest, Ok(1.0)),
        (100.0, PercentileMethod::Nearest, Ok(5.0)),
        (60.0, PercentileMethod::Interpolated, Ok(3.8)),
    ] {
        let found: Result<f64, ()> =
            percentile(&values, percent, method).map(|value| (value * 10.0).round() / 10.0).map_err(|_| ());
        assert_eq!(found, want, "{percent}");
    }
    assert!(percentile(&values, 300.0, PercentileMethod::Nearest).is_err());
    assert!(percentile(&[], 50.0, PercentileMethod::Nearest).unwrap().is_nan());
}
