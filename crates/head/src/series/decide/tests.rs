//! Every row of the table, and the comparison of values across kinds.

use chronolith_model::DuplicatePolicy::{KeepFirst, LastWins};
use chronolith_model::sample::STALE_NAN;
use chronolith_model::{Histogram, IntHistogram};

use super::*;

#[track_caller]
fn check(position: Position, stored: Stored, duplicates: DuplicatePolicy, want: AppendOutcome) {
    assert_eq!(decide(position, stored, duplicates), want, "{position:?}, {stored:?}, {duplicates:?}");
}

#[test]
fn a_sample_after_the_newest_is_in_order() {
    check(Position::Newest, Stored::Nothing, KeepFirst, AppendOutcome::InOrder);
    check(Position::Newest, Stored::Nothing, LastWins, AppendOutcome::InOrder);
}

#[test]
fn a_sample_at_an_unused_timestamp_before_the_newest_is_out_of_order() {
    check(Position::NotNewest, Stored::Nothing, KeepFirst, AppendOutcome::OutOfOrder);
    check(Position::NotNewest, Stored::Nothing, LastWins, AppendOutcome::OutOfOrder);
}

#[test]
fn the_same_sample_again_is_a_duplicate_under_every_policy() {
    for position in [Position::Newest, Position::NotNewest] {
        check(position, Stored::Same, KeepFirst, AppendOutcome::Duplicate);
        check(position, Stored::Same, LastWins, AppendOutcome::Duplicate);
    }
}

#[test]
fn another_value_is_refused_or_replaces_by_policy() {
    for position in [Position::Newest, Position::NotNewest] {
        check(position, Stored::Different, KeepFirst, AppendOutcome::DuplicateTimestamp);
        check(position, Stored::Different, LastWins, AppendOutcome::Replaced);
    }
}

#[test]
fn another_start_timestamp_replaces_under_last_wins_only() {
    for position in [Position::Newest, Position::NotNewest] {
        check(position, Stored::OtherStart, KeepFirst, AppendOutcome::Duplicate);
        check(position, Stored::OtherStart, LastWins, AppendOutcome::Replaced);
    }
}

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
