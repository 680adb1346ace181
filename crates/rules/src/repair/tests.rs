//! Rounds that see a change, corrections round by round, and the order of rules.

use std::collections::BTreeSet;
use std::sync::Arc;

use chronolith_base::Rng;
use chronolith_model::sample::STALE_NAN;
use chronolith_model::{Columns, FloatHistogram, Histogram, Labels};

use super::*;
use crate::group::repair_order::RepairOrder;
use crate::round::SampleValue;
use crate::testing::group_of_rules;

fn labels(job: &str) -> Labels {
    Labels::from_pairs([("__name__", "r"), ("job", job)])
}

fn result(time_ms: i64, jobs: &[(&str, f64)]) -> Vec<RuleSample> {
    let sample = |(job, value): &(&str, f64)| RuleSample {
        labels: labels(job),
        time_ms,
        value: SampleValue::Float(*value),
    };
    jobs.iter().map(sample).collect()
}

fn texts(correction: &Correction) -> Vec<String> {
    let value = |value: &SampleValue| match value {
        SampleValue::Float(value) => value.to_string(),
        SampleValue::Histogram(_) => "histogram".to_owned(),
        SampleValue::Stale => "stale".to_owned(),
    };
    let job = |labels: &Labels| labels.get("job").unwrap_or_default().to_owned();
    let set = correction.replaced.iter().map(|one| format!("{}: {}", job(&one.labels), value(&one.value)));
    let added = correction.added.iter().map(|one| format!("+{}: {}", job(&one.labels), value(&one.value)));
    let removed = correction.removed.iter().map(|one| format!("-{}", job(&one.labels)));
    set.chain(added).chain(removed).collect()
}

/// Against a set of times, for random histories.
#[test]
fn rounds_within_a_range_are_those_that_were_evaluated() {
    let rng = Rng::from_seed(3);
    for _ in 0..200 {
        let mut rounds = EvaluatedRounds::new(10);
        let mut all = BTreeSet::new();
        let mut time_ms = rng.below(1000) as i64 - 500;
        for _ in 0..rng.below(40) {
            // Most rounds follow the one before.
            time_ms += 10 * if rng.below(6) == 0 { 1 + rng.below(5) as i64 } else { 1 };
            rounds.push(time_ms);
            all.insert(time_ms);
        }
        assert_eq!(rounds.last(), all.last().copied());
        for _ in 0..20 {
            let first = rng.below(1400) as i64 - 600;
            let last = first + rng.below(300) as i64;
            let want: Vec<i64> = all.range(first..=last).copied().collect();
            assert_eq!(
                rounds.within(first, last).collect::<Vec<_>>(),
                want,
                "{first}..={last} of {rounds:?}"
            );
            assert_eq!(rounds.previous(first), all.range(..first).next_back().copied(), "{first} {rounds:?}");
            assert_eq!(rounds.next(first), all.range(first + 1..).next().copied(), "{first} {rounds:?}");
        }
        let runs: Vec<(i64, i64)> = rounds.runs().collect();
        assert_eq!(EvaluatedRounds::from_runs(10, &runs), rounds);
        let everything: Vec<i64> = rounds.within(i64::MIN, i64::MAX).collect();
        assert_eq!(everything, all.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn a_clock_that_goes_back_begins_a_new_history() {
    let mut rounds = EvaluatedRounds::new(10);
    [100, 110, 110, 50].into_iter().for_each(|time_ms| rounds.push(time_ms));
    assert_eq!(rounds.within(i64::MIN, i64::MAX).collect::<Vec<_>>(), [50]);
}

#[test]
fn damaged_runs_are_left_out() {
    let runs = [(10, 5), (i64::MIN, i64::MAX), (0, 20), (10, 40), (50, 55), (60, 70)];
    let rounds = EvaluatedRounds::from_runs(10, &runs);
    assert_eq!(rounds.runs().collect::<Vec<_>>(), [(0, 20), (60, 70)]);
}

#[test]
fn a_change_is_seen_within_the_lookback() {
    let lookback = Lookback { past_ms: 300, future_ms: 10, joins: true };
    assert_eq!(rounds_that_see(Some(lookback), 1000, 1005), (990, 1305));
    assert_eq!(rounds_that_see(None, 5, 5), (5, i64::MAX));
}

/// A sample in place of a staleness marker, and the marker one round later.
#[test]
fn staleness_markers_move_with_the_end_of_a_series() {
    let mut recorded = Recorded::default();
    recorded.push(labels("a"), 10, SampleValue::Float(1.0));
    recorded.push(labels("a"), 20, SampleValue::Stale);
    let correction = recorded.correct(20, Some(10), Some(result(20, &[("a", 2.0), ("b", 1.0)])));
    assert_eq!(texts(&correction), ["a: 2", "+b: 1"]);
    assert_eq!(texts(&recorded.correct(30, Some(20), None)), ["+a: stale", "+b: stale"]);
    assert!(recorded.correct(40, Some(30), None).is_empty());
    assert_eq!(texts(&recorded.correct(20, Some(10), Some(Vec::new()))), ["a: stale", "-b"]);
    assert_eq!(texts(&recorded.correct(30, Some(20), None)), ["-a", "-b"]);
    assert!(!recorded.has_samples(30) && recorded.has_samples(20));
}

#[test]
fn equal_results_correct_nothing() {
    let mut recorded = Recorded::default();
    recorded.push(labels("a"), 10, SampleValue::Float(f64::NAN));
    recorded.push(labels("z"), 10, SampleValue::Float(0.0));
    assert!(recorded.correct(10, None, Some(result(10, &[("a", f64::NAN), ("z", 0.0)]))).is_empty());
    let sign = recorded.correct(10, None, Some(result(10, &[("a", f64::NAN), ("z", -0.0)])));
    assert_eq!(texts(&sign), ["z: -0"], "compared by bits");
}

/// The marker of a series of histograms was taken for a histogram, and each repair of its round replaced it.
#[test]
fn a_staleness_marker_of_histograms_is_one() {
    let mut columns = Columns::default();
    let marker = FloatHistogram { sum: STALE_NAN, ..FloatHistogram::default() };
    for histogram in [marker, FloatHistogram::default()] {
        columns.push_histogram(10, Arc::new(Histogram::Float(histogram)));
    }
    assert_eq!(stored_value(&columns, 0), SampleValue::Stale);
    assert!(matches!(stored_value(&columns, 1), SampleValue::Histogram(_)));
}

#[test]
fn of_rules_that_write_the_same_series_the_first_wins() {
    let all = joined(vec![result(10, &[("b", 1.0)]), result(10, &[("a", 2.0), ("b", 3.0)])]);
    assert_eq!(all, result(10, &[("a", 2.0), ("b", 1.0)]));
}

fn order_of(groups: &[&[(&str, &str)]]) -> RepairOrder {
    let text = |(name, expr): &(&str, &str)| format!("  - {{record: {name}, expr: '{expr}'}}\n");
    let group = |rules: &&[(&str, &str)]| -> Arc<Group> {
        Arc::new(group_of_rules(&rules.iter().map(text).collect::<String>()))
    };
    RepairOrder::of(&groups.iter().map(group).collect::<Vec<_>>())
}

#[test]
fn a_rule_comes_after_the_rules_that_it_reads_in_any_group() {
    let order = order_of(&[&[("c", "b + 1"), ("x", "up")], &[("b", "sum(a)"), ("a", "rate(up[5m])")]]);
    let position = |idx: usize| order.acyclic.iter().position(|&unit| unit == idx).expect("sorted");
    assert!(position(3) < position(2) && position(2) < position(0), "{order:?}");
    assert!(order.cyclic.is_empty());
    assert_eq!(order.units[2].later, [3], "b sees the results that a had in the round before");
    assert!(order.units[0].later.is_empty(), "rules of another group are no later ones");
}

#[test]
fn rules_in_a_circle_have_no_order() {
    let order = order_of(&[&[("a", "b"), ("own", "own + 1"), ("d", "a")], &[("b", "a"), ("e", "up")]]);
    assert_eq!((order.acyclic, order.cyclic), (vec![1, 4], vec![0, 2, 3]));
    assert_eq!(order.units[1].later, [1], "a rule that reads itself");
}

#[test]
fn rules_that_may_write_the_same_series_are_one_unit() {
    let order = order_of(&[&[("a", "sum(x)"), ("b", "up"), ("a", "sum(y)")], &[("a", "sum(z)")]]);
    let rules: Vec<&[usize]> = order.units.iter().map(|unit| unit.rules.as_slice()).collect();
    assert_eq!(rules, [&[0, 2][..], &[1], &[0]]);
}
