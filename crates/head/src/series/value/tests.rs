//! Comparison of values across kinds, and samples of WAL frames.

use chronolith_model::IntHistogram;
use chronolith_model::sample::STALE_NAN;

use super::*;

fn histogram(count: u64, sum: f64) -> Arc<Histogram> {
    Arc::new(Histogram::Int(IntHistogram { count, sum, zero_count: count, ..Default::default() }))
}

#[track_caller]
fn check_compare(stored: Value<'_>, new: Value<'_>, want: Stored) {
    assert_eq!(Value::compare(Some(stored), new), want);
}

#[test]
fn words_are_compared_by_bits() {
    check_compare(Value::Word(0.0f64.to_bits()), Value::Word((-0.0f64).to_bits()), Stored::Different);
    check_compare(Value::Word(STALE_NAN.to_bits()), Value::Word(f64::NAN.to_bits()), Stored::Different);
    check_compare(Value::Word(f64::NAN.to_bits()), Value::Word(f64::NAN.to_bits()), Stored::Same);
    assert_eq!(Value::compare(None, Value::Word(0)), Stored::Nothing);
}

#[test]
fn histograms_are_compared_by_observations() {
    let (two, three) = (histogram(2, 1.0), histogram(3, 1.0));
    check_compare(Value::Histogram(&two), Value::Histogram(&two), Stored::Same);
    check_compare(Value::Histogram(&two), Value::Histogram(&three), Stored::Different);
}

/// A scrape writes the end of a series as a float, a rule as a histogram.
#[test]
fn staleness_markers_of_both_kinds_are_the_same_sample() {
    let (stale, live) = (Arc::new(Histogram::stale()), histogram(2, 1.0));
    let float = Value::Word(STALE_NAN.to_bits());
    check_compare(float, Value::Histogram(&stale), Stored::Same);
    check_compare(Value::Histogram(&stale), float, Stored::Same);
    check_compare(Value::Histogram(&stale), Value::Histogram(&Arc::new(Histogram::stale())), Stored::Same);
    check_compare(Value::Histogram(&live), float, Stored::Different);
    check_compare(Value::Word(1), Value::Histogram(&live), Stored::Different);
    check_compare(Value::Histogram(&stale), Value::Histogram(&live), Stored::Different);
}

/// Frames have words and histograms in any order; reading returns them in order.
#[test]
fn logged_values_are_read_in_order() {
    let (one, two) = (histogram(1, 1.0), histogram(2, 2.0));
    let values = [Value::Word(7), Value::Histogram(&one), Value::Histogram(&two), Value::Word(0)];
    let mut samples = wal::Samples::default();
    for (time, value) in (10..).zip(values) {
        value.put_logged(3, time, time % 2, &mut samples);
    }
    assert_eq!((&samples.ids[..], &samples.times[..]), (&[3; 4][..], &[10, 11, 12, 13][..]));
    assert_eq!(samples.start_times, [0, 1, 0, 1]);
    let mut logged = LoggedValues::new(&samples);
    // The first of both histograms is skipped.
    let found = [0, 2, 3].map(|idx| logged.get(idx).map(Value::to_owned));
    assert_eq!(found, [values[0], values[2], values[3]].map(|value| Some(value.to_owned())));
    assert!(logged.get(4).is_none());
}
