//! Histograms: layouts, validation, arithmetic, resets, texts. Invariants: texts and bits equal Prometheus's.

use std::sync::Arc;

use super::{
    Buckets, Compensation, FloatHistogram, Histogram, HistogramFault, HistogramOf, IntHistogram, ResetHint,
    SCHEMA_CUSTOM, Span, TrimSide, bound,
};
use crate::sample::is_stale;
use crate::{Columns, Labels, WriteBatch};

fn spans(list: &[(i32, u32)]) -> Vec<Span> {
    list.iter().map(|&(offset, length)| Span { offset, length }).collect()
}

fn buckets(list: &[(i32, u32)], counts: &[f64]) -> Buckets<f64> {
    Buckets { spans: spans(list), counts: counts.to_vec() }
}

/// Schema 0, no zero bucket, buckets from `offset` on; the sum is twice the count.
fn plain(offset: i32, counts: &[f64]) -> FloatHistogram {
    let count: f64 = counts.iter().sum();
    FloatHistogram {
        count,
        sum: 2.0 * count,
        positive: buckets(&[(offset, counts.len() as u32)], counts),
        ..FloatHistogram::default()
    }
}

fn custom(bounds: &[f64], counts: &[f64]) -> FloatHistogram {
    FloatHistogram { schema: SCHEMA_CUSTOM, custom_values: Arc::from(bounds), ..plain(0, counts) }
}

fn int(deltas: &[i64], count: u64) -> IntHistogram {
    let positive = Buckets::from_deltas(spans(&[(0, deltas.len() as u32)]), deltas.iter().copied());
    IntHistogram { count, positive: positive.expect("deltas are fine"), ..IntHistogram::default() }
}

#[test]
fn deltas_go_there_and_back() {
    let deltas = [3i64, -2, 0, 9_007_199_254_740_993, -1];
    let buckets = Buckets::from_deltas(Vec::new(), deltas).expect("no count is negative");
    assert_eq!(buckets.counts, [3, 1, 1, 9_007_199_254_740_994, 9_007_199_254_740_993]);
    assert_eq!(buckets.deltas().collect::<Vec<_>>(), deltas);
    let error = Buckets::from_deltas(Vec::new(), [3, -4]).expect_err("the second count is -1");
    let text = "bucket number 2 has observation count of -1: histogram has a bucket whose observation count is negative";
    assert_eq!(error.to_string(), text);
    let error = Buckets::from_deltas(Vec::new(), [i64::MAX, 1]).expect_err("the second count is too large");
    assert_eq!(error.fault, HistogramFault::CountOverflow);
}

#[track_caller]
fn check_fault(histogram: Histogram, text: &str) {
    match histogram.validate() {
        Ok(()) => assert_eq!("valid", text),
        Err(error) => assert_eq!(error.to_string(), text),
    }
}

#[test]
fn validation_errors_of_integer_histograms_equal_prometheus() {
    let check = |histogram: IntHistogram, text: &str| check_fault(Histogram::Int(histogram), text);
    check(int(&[1, 1], 3), "valid");
    check(
        int(&[1, 1], 4),
        "3 observations found in buckets, but the Count field is 4: histogram's observation count should equal the \
         number of observations found in the buckets (in absence of NaN)",
    );
    check(
        IntHistogram { sum: f64::NAN, ..int(&[1, 1], 2) },
        "3 observations found in buckets, but the Count field is 2: histogram's observation count should be at least \
         the number of observations found in the buckets",
    );
    check(IntHistogram { sum: f64::NAN, ..int(&[1, 1], 4) }, "valid");
    let mut more = int(&[1, 1], 3);
    more.positive.spans[0].length = 3;
    check(
        more,
        "positive side: spans need 3 buckets, have 2 buckets: histogram spans specify different number of buckets \
         than provided",
    );
    let mut overlapping = int(&[1, 1], 3);
    overlapping.positive.spans = spans(&[(0, 1), (-1, 1)]);
    check(
        overlapping,
        "positive side: span number 2 with offset -1: histogram has a span whose offset is negative",
    );
    check(
        IntHistogram { schema: 9, ..int(&[1], 1) },
        "histogram has an invalid schema, which must be between -4 and 8 for exponential buckets, or -53 for custom \
         buckets, got schema 9",
    );
}

#[test]
fn validation_errors_of_float_histograms_equal_prometheus() {
    let check = |histogram: FloatHistogram, text: &str| check_fault(Histogram::Float(histogram), text);
    check(plain(-3, &[1.0, 0.5]), "valid");
    check(
        FloatHistogram { count: -1.5, ..FloatHistogram::default() },
        "observation count is  -1.5: histogram's observation count is negative",
    );
    check(
        FloatHistogram { zero_count: -1.0, ..FloatHistogram::default() },
        "zero bucket has observation count of -1: histogram has a bucket whose observation count is negative",
    );
    check(
        plain(0, &[1.0, -0.5]),
        "positive side: bucket number 2 has observation count of -0.5: histogram has a bucket whose observation count \
         is negative",
    );
    check(custom(&[1.0, 2.0], &[1.0, 2.0, 3.0]), "valid");
    check(
        custom(&[1.0], &[1.0, 2.0, 3.0]),
        "custom buckets: only 1 custom bounds defined which is insufficient to cover total span length of 3: \
         histogram custom bounds are too few",
    );
    check(
        custom(&[2.0, 1.0], &[1.0]),
        "custom buckets: previous bound is 2.000000 and current is 1.000000: histogram custom bounds must be in \
         strictly increasing order",
    );
    check(
        custom(&[1.0, f64::INFINITY], &[1.0]),
        "custom buckets: last +Inf bound must not be explicitly defined: histogram custom bounds must be finite",
    );
    check(
        FloatHistogram { zero_count: 1.0, ..custom(&[1.0], &[1.0]) },
        "custom buckets: must have zero count of 0",
    );
    check(
        FloatHistogram { custom_values: Arc::from([1.0]), ..plain(0, &[1.0]) },
        "histogram with exponential schema must not have custom bounds",
    );
}

#[test]
fn bounds_have_the_bits_of_prometheus() {
    let at = |idx, schema| bound(idx, schema, &[]);
    assert_eq!(at(0, 0), 1.0);
    assert_eq!(at(-1, 2), 0.8408964152537144);
    assert_eq!(at(-1, 1), 0.7071067811865475);
    assert_eq!(at(1, -4), 65536.0);
    assert_eq!((at(1024, 0), at(1025, 0)), (f64::MAX, f64::INFINITY));
    assert_eq!((at(512, -1), at(513, -1)), (f64::MAX, f64::INFINITY));
    assert_eq!((at(-1074, 0), at(-1075, 0)), (f64::from_bits(1), 0.0));
    assert_eq!((at(i32::MAX, -4), at(i32::MIN, -4)), (f64::INFINITY, 0.0));
    let custom = [1.0, 2.5];
    let bounds = [-1, 0, 1, 2].map(|idx| bound(idx, SCHEMA_CUSTOM, &custom));
    assert_eq!(bounds, [f64::NEG_INFINITY, 1.0, 2.5, f64::INFINITY]);
}

#[track_caller]
fn check_sum(a: &FloatHistogram, b: &FloatHistogram, want: &str) {
    let mut sum = a.clone();
    sum.add(b).expect("both are of one kind");
    assert_eq!(sum.test_expression(), want);
    let (mut careful, mut rest) = (a.clone(), Compensation::of(a));
    careful.add_compensated(b, &mut rest).expect("both are of one kind");
    careful.add_compensation(&rest);
    assert_eq!(careful.test_expression(), want, "with compensation");
    sum.subtract(b).expect("both are of one kind");
    sum.compact(0);
    assert!(sum.positive.counts.iter().sum::<f64>() <= a.positive.counts.iter().sum::<f64>());
}

#[test]
fn sums_reconcile_buckets() {
    check_sum(&plain(1, &[1.0, 2.0]), &plain(1, &[1.0, 2.0]), "{{count:6 sum:12 offset:1 buckets:[2 4]}}");
    check_sum(&plain(1, &[1.0, 2.0]), &plain(-1, &[4.0]), "{{count:7 sum:14 offset:-1 buckets:[4 0 1 2]}}");
    let fine = FloatHistogram { schema: 1, ..plain(1, &[1.0, 2.0, 3.0]) };
    check_sum(&fine, &plain(1, &[4.0]), "{{count:10 sum:20 offset:1 buckets:[7 3]}}");
    check_sum(&plain(1, &[4.0]), &fine, "{{count:10 sum:20 offset:1 buckets:[7 3]}}");
    let zero = FloatHistogram { zero_threshold: 1.5, zero_count: 5.0, ..FloatHistogram::default() };
    // 1.5 lies within the bucket that ends at 2.
    let want = "{{count:7 sum:14 z_bucket:7 z_bucket_w:2 offset:2 buckets:[5]}}";
    check_sum(&plain(0, &[1.0, 1.0, 5.0]), &zero, want);
    check_sum(&zero, &plain(0, &[1.0, 1.0, 5.0]), want);
    let (a, b) =
        (custom(&[1.0, 2.0, 4.0], &[1.0, 2.0, 3.0, 4.0]), custom(&[2.0, 3.0, 4.0], &[1.0, 1.0, 1.0, 1.0]));
    check_sum(&a, &b, "{{schema:-53 count:14 sum:28 custom_values:[2 4] buckets:[4 5 5]}}");
    let mut mixed = plain(0, &[1.0]);
    assert!(mixed.add(&a).is_err() && mixed == plain(0, &[1.0]));
}

#[test]
fn hints_of_a_sum() {
    use ResetHint::{Gauge, NotReset, Reset, Unknown};
    let with = |hint| FloatHistogram { reset_hint: hint, ..plain(0, &[1.0]) };
    for (a, b, want, collide) in [
        (Reset, Reset, Reset, false),
        (Gauge, Reset, Gauge, false),
        (NotReset, Gauge, Gauge, false),
        (Unknown, NotReset, Unknown, false),
        (NotReset, Unknown, Unknown, false),
        (NotReset, Reset, Unknown, true),
    ] {
        let mut sum = with(a);
        let merged = sum.add(&with(b)).expect("both are exponential");
        assert_eq!((sum.reset_hint, merged.hints_collide), (want, collide), "{a:?} {b:?}");
    }
}

#[test]
fn compensation_keeps_what_addition_loses() {
    let (mut sum, mut naive) = (plain(0, &[1e16]), plain(0, &[1e16]));
    let mut rest = Compensation::of(&sum);
    for _ in 0..10 {
        sum.add_compensated(&plain(0, &[1.0]), &mut rest).expect("both are exponential");
        naive.add(&plain(0, &[1.0])).expect("both are exponential");
    }
    sum.add_compensation(&rest);
    assert_eq!(sum.positive.counts, [1e16 + 10.0]);
    assert_eq!(naive.positive.counts, [1e16], "this test would show nothing otherwise");
}

#[test]
fn resets_are_seen_in_every_bucket() {
    let before = plain(0, &[1.0, 2.0, 3.0]);
    let check = |now: FloatHistogram, want: bool| {
        let now = FloatHistogram { count: 100.0, ..now };
        assert_eq!(now.is_reset_after(&before), want, "{now}");
    };
    check(plain(0, &[1.0, 2.0, 3.0]), false);
    check(plain(0, &[1.0, 2.0, 3.0, 4.0]), false);
    check(plain(0, &[1.0, 1.0, 9.0]), true);
    check(plain(1, &[2.0, 3.0]), true);
    check(plain(0, &[1.0, 2.0]), true);
    check(FloatHistogram { schema: 1, ..plain(0, &[1.0, 2.0, 3.0]) }, true);
    check(FloatHistogram { schema: -1, ..plain(0, &[1.0, 5.0]) }, false);
    check(FloatHistogram { schema: -1, ..plain(0, &[1.0, 4.0]) }, true);
    check(FloatHistogram { zero_threshold: 2.0, zero_count: 3.0, ..plain(2, &[3.0]) }, false);
    check(FloatHistogram { zero_threshold: 3.0, zero_count: 9.0, ..plain(3, &[3.0]) }, true);
    check(FloatHistogram { reset_hint: ResetHint::Reset, ..before.clone() }, true);
    check(FloatHistogram { reset_hint: ResetHint::NotReset, ..plain(0, &[0.0]) }, false);
    let before = custom(&[1.0, 2.0, 4.0], &[1.0, 1.0, 1.0]);
    let now = |counts: &[f64]| FloatHistogram { count: 100.0, ..custom(&[1.0, 4.0], counts) };
    assert!(!now(&[1.0, 2.0]).is_reset_after(&before));
    assert!(now(&[1.0, 1.0]).is_reset_after(&before));
}

#[test]
fn trimming_cuts_by_the_logarithm_or_by_distance() {
    let trimmed = |mut histogram: FloatHistogram, at: f64, side| {
        histogram.trim(at, side);
        histogram.test_expression()
    };
    let exponential = plain(1, &[4.0, 4.0]);
    let at = 2.0 * f64::sqrt(2.0);
    let below = trimmed(exponential.clone(), at, TrimSide::Above);
    assert!(below.starts_with("{{count:6 ") && below.ends_with("offset:1 buckets:[4 2]}}"), "{below}");
    assert_eq!(trimmed(exponential.clone(), 9.0, TrimSide::Above), exponential.test_expression());
    assert_eq!(trimmed(exponential, 9.0, TrimSide::Below), "{{}}");
    assert_eq!(
        trimmed(custom(&[10.0, 20.0], &[10.0, 10.0]), 15.0, TrimSide::Below),
        "{{schema:-53 count:5 sum:87.5 custom_values:[10 20] offset:1 buckets:[5]}}"
    );
}

#[test]
fn display_equals_that_of_prometheus() {
    let histogram = FloatHistogram {
        zero_count: 1.0,
        zero_threshold: 0.001,
        negative: buckets(&[(0, 2)], &[1.0, 2.0]),
        ..plain(0, &[1.0, 0.0, 1e6])
    };
    let want = "{count:1.000001e+06, sum:2.000002e+06, [-2,-1):2, [-1,-0.5):1, [-0.001,0.001]:1, (0.5,1]:1, (2,4]:1e+06}";
    assert_eq!(histogram.to_string(), want);
    assert_eq!(custom(&[5.0], &[1.0, 2.0]).to_string(), "{count:3, sum:6, [-Inf,5]:1, (5,+Inf]:2}");
}

#[test]
fn reduced_resolution_keeps_integer_counts() {
    let mut histogram = Histogram::Int(IntHistogram { schema: 10, ..int(&[1 << 60, 1, 1], 3 << 60) });
    histogram.reduce_resolution(8).expect("spans fit");
    let Histogram::Int(histogram) = histogram else { panic!("the kind stays") };
    assert_eq!((histogram.schema, &histogram.positive.spans[..]), (8, &spans(&[(0, 2)])[..]));
    assert_eq!(histogram.positive.counts, [1 << 60, (2 << 60) + 3]);
}

#[test]
fn empty_spans_make_no_difference() {
    let a = FloatHistogram { positive: buckets(&[(1, 1), (3, 1)], &[1.0, 1.0]), ..plain(0, &[]) };
    let b =
        FloatHistogram { positive: buckets(&[(0, 0), (1, 1), (1, 0), (2, 1)], &[1.0, 1.0]), ..plain(0, &[]) };
    assert!(a.is_identical(&b));
    let c = FloatHistogram { positive: buckets(&[(1, 1), (2, 1)], &[1.0, 1.0]), ..plain(0, &[]) };
    assert!(!a.is_identical(&c));
}

#[test]
fn columns_and_batches_carry_both_kinds_in_order() {
    let histogram = Arc::new(Histogram::Int(int(&[1], 1)));
    let mut columns = Columns::default();
    columns.push(1, 1.0);
    columns.push_histogram(2, histogram.clone());
    columns.push_histogram(3, Arc::new(Histogram::stale()));
    assert_eq!((columns.len(), columns.histograms.len()), (3, 2));
    assert!(columns.histogram_at(0).is_none() && is_stale(columns.values[2]));
    assert_eq!(columns.histogram_at(1), Some(&histogram));
    let mut copy = Columns::default();
    (0..3).for_each(|at| copy.push_from(&columns, at));
    assert_eq!(copy.histograms, columns.histograms);
    let mut batch = WriteBatch::from_labels();
    let labels = Labels::from_pairs([("__name__", "a")]);
    batch.push_labels(&labels, &[(1, 1.0)]);
    batch.push_histograms(&labels, &[(2, histogram.clone())]);
    batch.push_labels(&labels, &[(3, 1.0)]);
    let found: Vec<usize> = batch.series.iter().map(|s| batch.histograms_of(s).len()).collect();
    assert_eq!(found, [0, 1, 0]);
    assert_eq!(batch.histograms_of(&batch.series[1]), [(1, histogram)]);
}

#[test]
fn empty_buckets_do_not_affect_equivalence() {
    let of = |spans: &[(i32, u32)], counts: &[u64]| {
        let spans = spans.iter().map(|&(offset, length)| Span { offset, length }).collect();
        Histogram::Int(HistogramOf {
            positive: Buckets { spans, counts: counts.to_vec() },
            ..HistogramOf::default()
        })
    };
    let one = of(&[(1, 2), (3, 1)], &[4, 5, 6]);
    assert!(one.is_equivalent(&of(&[(0, 7)], &[0, 4, 5, 0, 0, 0, 6])));
    assert!(one.is_equivalent(&of(&[(1, 1), (0, 1), (3, 2)], &[4, 5, 6, 0])));
    assert!(!one.is_equivalent(&of(&[(1, 2), (4, 1)], &[4, 5, 6])));
    assert!(!one.is_equivalent(&of(&[(1, 2)], &[4, 5])));
    let float = Histogram::Float(HistogramOf::default());
    assert!(!of(&[], &[]).is_equivalent(&float));
}

/// Sums, compactions and coarser schemas wrapped indexes of 32 bits: a bucket beyond the last one became one
/// near zero, and two buckets further apart than an offset got a negative one. A walk ends before an index
/// that does not fit, and an empty span takes the part of a distance that does not fit an offset.
#[test]
fn bucket_indexes_do_not_wrap_around() {
    const LAST: i32 = i32::MAX;
    let indexes = |buckets: &Buckets<f64>| buckets.walk().map(|(idx, _)| idx).collect::<Vec<_>>();
    /// Spans, and the indexes of their buckets.
    type Walk = (&'static [(i32, u32)], &'static [i32]);
    let walks: [Walk; 6] = [
        (&[(LAST, 1), (5, 1)], &[LAST]),
        (&[(LAST, 2)], &[LAST]),
        (&[(LAST - 1, 4)], &[LAST - 1, LAST]),
        (&[(i32::MIN, 1), (0, 1)], &[i32::MIN, i32::MIN + 1]),
        (&[(1_500_000_000, 1), (1_500_000_000, 1), (10, 1)], &[1_500_000_000]),
        (&[(LAST, 0), (LAST, 0), (0, 2)], &[]),
    ];
    for (spans, want) in walks {
        let counts = vec![1.0; spans.iter().map(|(_, length)| *length as usize).sum()];
        assert_eq!(indexes(&buckets(spans, &counts)), want, "{spans:?}");
    }
    // Further apart than an offset, added in either order. Lower buckets are within the zero bucket.
    const LOW: i32 = -1070;
    let (low, high) = (plain(LOW, &[1.0]), plain(LAST, &[2.0]));
    for (mut sum, other) in [(low.clone(), &high), (high.clone(), &low)] {
        sum.add(other).expect("both are exponential");
        assert_eq!(indexes(&sum.positive), [LOW, LAST]);
        sum.compact(0);
        assert_eq!(indexes(&sum.positive), [LOW, LAST]);
        assert!(sum.positive.spans.iter().skip(1).all(|span| span.offset >= 0), "{:?}", sum.positive.spans);
        sum.validate().expect("the sum of valid histograms is valid");
        let mut rest = Compensation::of(&sum);
        sum.add_compensated(&low, &mut rest).expect("both are exponential");
        assert_eq!(sum.positive.counts, [2.0, 2.0]);
        sum.reduce_resolution(-4).expect("exponential");
        assert_eq!(indexes(&sum.positive), [-66, 134_217_728]);
    }
    for (idx, steps, want) in
        [(LAST, 1, 1 << 30), (i32::MIN + 1, 1, 1 - (1 << 30)), (LAST, 40, 1), (0, 40, 0)]
    {
        assert_eq!(super::resolution::coarser_idx(idx, steps), want, "{idx} by {steps}");
    }
}
