//! Times of rounds, stages, results over several rounds, and changes against corrections round by round.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chronolith_base::Rng;
use chronolith_model::sample::STALE_NAN;
use chronolith_model::{Columns, Labels};
use chronolith_promql::{MatrixSeries, Value};

use super::*;
use crate::group::Group;
use crate::repair::{Recorded, stored_value};
use crate::round::{RuleSample, SampleValue};
use crate::schedule::Schedule;
use crate::testing::{group_of, group_of_rules};

const INTERVAL_MS: i64 = 30_000;

/// Against the schedule of rounds, for random ranges.
#[test]
fn rounds_are_at_the_times_of_the_schedule() {
    let rng = Rng::from_seed(1);
    for _ in 0..300 {
        let interval_s = 1 + rng.below(90);
        let offset_s = rng.below(3) * rng.below(100);
        let name = rng.below(1000);
        let group = group_of(&format!(
            "groups:\n- name: g{name}\n  interval: {interval_s}s\n  query_offset: {offset_s}s\n  rules:\n  \
             - {{record: a, expr: b}}\n"
        ));
        let start_ms = 1_700_000_000_000 + rng.below(1_000_000) as i64;
        let end_ms = start_ms + rng.below(600_000) as i64;
        let schedule = Schedule::of(&group);
        let offset_ns = group.query_offset_ms * 1_000_000;
        let mut round_ns = schedule.last_before((start_ms - 1000) * 1_000_000 + offset_ns);
        let mut want = Vec::new();
        while round_ns <= (end_ms + 1000) * 1_000_000 + offset_ns {
            let time_ms = (round_ns - offset_ns).div_euclid(1_000_000);
            want.extend((start_ms <= time_ms && time_ms <= end_ms).then_some(time_ms));
            round_ns += schedule.interval_ns();
        }
        let rounds = RoundTimes::of(&group, start_ms, end_ms);
        let found: Vec<i64> = rounds.iter().flat_map(RoundTimes::iter).collect();
        assert_eq!(found, want, "{start_ms}..{end_ms} every {interval_s} s");
        let Some(rounds) = rounds else { continue };
        let from_ms = start_ms + rng.below(600_000) as i64;
        let since: Vec<i64> = rounds.since(from_ms).iter().flat_map(RoundTimes::iter).collect();
        assert_eq!(since, want.iter().copied().filter(|at_ms| *at_ms >= from_ms).collect::<Vec<_>>());
        if let Some((first, second)) = rounds.halves() {
            assert_eq!(first.iter().chain(second.iter()).collect::<Vec<_>>(), want);
        } else {
            assert_eq!(want.len(), 1);
        }
    }
}

fn plan_of(groups: &[&[(&str, &str)]], stepped: &[&str]) -> Vec<String> {
    let text = |(name, expr): &(&str, &str)| format!("  - {{record: {name}, expr: '{expr}'}}\n");
    let group = |rules: &&[(&str, &str)]| -> Arc<Group> {
        Arc::new(group_of_rules(&rules.iter().map(text).collect::<String>()))
    };
    let groups = groups.iter().map(group).collect();
    let plan = BackfillPlan::of(groups, |_, rule| !stepped.contains(&rule.name.as_str()));
    let names = |stage: &Stage| {
        let names: Vec<&str> = stage
            .units()
            .iter()
            .flat_map(|unit| plan.rules_of(*unit))
            .map(|rule| rule.name.as_str())
            .collect();
        let is_stepped = matches!(stage, Stage::Rounds { .. });
        format!("{}{}", if is_stepped { "rounds: " } else { "" }, names.join(" "))
    };
    plan.stages().iter().map(names).collect()
}

#[test]
fn stages_follow_what_rules_read_over_groups() {
    let first: &[(&str, &str)] = &[("a", "x"), ("c", "b + 1"), ("d", "y")];
    let second: &[(&str, &str)] = &[("b", "sum(a)"), ("e", "z"), ("f", "c + e")];
    assert_eq!(plan_of(&[first, second], &[]), ["a d", "e", "b", "c", "f"]);
    assert_eq!(plan_of(&[first, second], &["d"]), ["a", "rounds: d", "e", "b", "c", "f"]);
}

#[test]
fn rules_that_see_earlier_results_are_evaluated_round_by_round() {
    let rules: &[(&str, &str)] =
        &[("early", "late"), ("late", "x"), ("own", "own + 1"), ("p", "q"), ("q", "p"), ("r", "q")];
    assert_eq!(plan_of(&[rules], &[]), ["late", "rounds: own", "rounds: early", "rounds: p q r"]);
}

#[test]
fn the_hash_of_a_plan_depends_on_rules_names_and_range() {
    let plan = |expr: &str| {
        let group = group_of_rules(&format!("  - {{record: a, expr: '{expr}'}}\n"));
        BackfillPlan::of(vec![Arc::new(group)], |_, _| true)
    };
    let hash = plan("x").hash((1, 2));
    assert_eq!(plan("x").hash((1, 2)), hash);
    assert_ne!(plan("y").hash((1, 2)), hash);
    assert_ne!(plan("x").hash((1, 3)), hash);
}

fn series(job: &str, samples: &[(i64, f64)]) -> MatrixSeries {
    let (times, values) = samples.iter().copied().unzip();
    MatrixSeries { labels: Labels::from_pairs([("job", job)]), times, values, histograms: Vec::new() }
}

fn results(rule: &str, matrix: Vec<MatrixSeries>, limits: ResultLimits) -> RoundResults {
    let group = group_of_rules(rule);
    results_of(&group.rules()[0], Value::Matrix(matrix), limits, RoundTimes::new(10, 10, 3))
}

#[test]
fn a_round_with_equal_label_sets_fails_alone() {
    let rule = "  - {record: r, expr: x, labels: {job: all}}\n";
    let matrix = vec![series("a", &[(10, 1.0), (20, 2.0)]), series("b", &[(20, 3.0), (30, 4.0)])];
    let found = results(rule, matrix, ResultLimits::default());
    let labels = Labels::from_pairs([("__name__", "r"), ("job", "all")]);
    assert_eq!(found.series.keys().collect::<Vec<_>>(), [&labels]);
    assert_eq!(
        (&found.series[&labels].times[..], &found.series[&labels].values[..]),
        (&[10, 30][..], &[1.0, 4.0][..])
    );
    assert_eq!(found.failed.keys().collect::<Vec<_>>(), [&20]);
    assert!(found.failed[&20].contains("same labelset"));
}

#[test]
fn a_round_beyond_a_limit_fails_alone() {
    let rule = "  - {record: r, expr: x}\n";
    let matrix = || vec![series("a", &[(10, 1.0), (20, 2.0)]), series("b", &[(20, 3.0)])];
    for (limits, text) in [
        (ResultLimits { group: Some(1), series_max: 5 }, "exceeded limit of 1 with 2 series"),
        (
            ResultLimits { group: None, series_max: 1 },
            "rule has 2 series, and rules.series-per-rule-max allows 1",
        ),
    ] {
        let found = results(rule, matrix(), limits);
        assert_eq!(found.failed, BTreeMap::from([(20, text.to_owned())]));
        assert_eq!(found.sample_count(), 1);
    }
    let within = results(rule, matrix(), ResultLimits { group: Some(2), series_max: 2 });
    assert_eq!((within.failed.len(), within.sample_count()), (0, 3));
}

#[test]
fn results_that_are_no_vector_fail_in_all_rounds() {
    let group = group_of_rules("  - {record: r, expr: x}\n");
    let value = Value::String { time_ms: 10, value: "a".to_owned() };
    let rounds = RoundTimes::new(10, 10, 3);
    let found = results_of(&group.rules()[0], value, ResultLimits::default(), rounds);
    assert_eq!(found.failed.keys().copied().collect::<Vec<_>>(), [10, 20, 30]);
    let scalar = Value::Scalar { time_ms: 10, value: 4.0 };
    let found = results_of(&group.rules()[0], scalar, ResultLimits::default(), rounds);
    assert_eq!(found.series.keys().next().map(ToString::to_string).as_deref(), Some("r"));
}

#[test]
fn of_rules_that_write_the_same_series_the_first_one_wins() {
    let limits = ResultLimits::default();
    let rule = "  - {record: r, expr: x}\n";
    let mut all = results(rule, vec![series("a", &[(10, 1.0), (30, 2.0)])], limits);
    all.join(results(rule, vec![series("a", &[(10, 5.0), (20, 6.0)]), series("b", &[(20, 7.0)])], limits));
    let found: Vec<_> = all.series.values().map(|one| (one.times.clone(), one.values.clone())).collect();
    assert_eq!(found, [(vec![10, 20, 30], vec![1.0, 6.0, 2.0]), (vec![20], vec![7.0])]);
}

/// A random series of samples and staleness markers at rounds, and between them.
fn random_columns(rng: &Rng, rounds: RoundTimes, has_between: bool) -> Columns {
    let mut columns = Columns::default();
    for time_ms in std::iter::once(rounds.previous_ms()).chain(rounds.iter()) {
        match rng.below(4) {
            0 => columns.push(time_ms, STALE_NAN),
            1 | 2 => columns.push(time_ms, rng.below(3) as f64),
            _ => {}
        }
        if has_between && rng.below(5) == 0 {
            columns.push(time_ms + 7, 1.0);
        }
    }
    columns
}

/// Against [`Recorded`], which corrects round by round, over random samples, results and failures.
#[test]
fn changes_are_what_corrections_round_by_round_are() {
    let rng = Rng::from_seed(2);
    let rounds = RoundTimes::new(1_000_000, INTERVAL_MS, 12);
    let labels = Labels::from_pairs([("__name__", "r")]);
    for _ in 0..3000 {
        let stored = random_columns(&rng, rounds, true);
        let failed: BTreeMap<i64, String> =
            rounds.iter().filter(|_| rng.below(6) == 0).map(|time_ms| (time_ms, String::new())).collect();
        let mut result = series("", &[]);
        for time_ms in rounds.iter().filter(|time_ms| !failed.contains_key(time_ms)) {
            if rng.below(3) > 0 {
                result.times.push(time_ms);
                result.values.push(rng.below(3) as f64);
            }
        }
        let is_live = |idx: usize| stored_value(&stored, idx) != SampleValue::Stale;
        let was_live = stored.times.first() == Some(&rounds.previous_ms()) && is_live(0);
        let compared = compare(rounds, Some(&result), &failed, &stored, was_live);

        let mut recorded = Recorded::default();
        let is_round = |time_ms: &i64| (time_ms - rounds.first_ms()) % INTERVAL_MS == 0;
        for (idx, time_ms) in stored.times.iter().enumerate().filter(|(_, time_ms)| is_round(time_ms)) {
            recorded.push(labels.clone(), *time_ms, stored_value(&stored, idx));
        }
        let mut want: BTreeMap<i64, Option<u64>> = BTreeMap::new();
        let mut before_ms = rounds.previous_ms();
        for time_ms in rounds.iter().filter(|time_ms| !failed.contains_key(time_ms)) {
            let idx = result.times.binary_search(&time_ms).ok();
            let value = idx.map(|idx| RuleSample {
                labels: labels.clone(),
                time_ms,
                value: SampleValue::Float(result.values[idx]),
            });
            let correction = recorded.correct(time_ms, Some(before_ms), Some(value.into_iter().collect()));
            for sample in correction.replaced.iter().chain(&correction.added) {
                let bits = match sample.value {
                    SampleValue::Float(value) => value.to_bits(),
                    _ => STALE_NAN.to_bits(),
                };
                want.insert(time_ms, Some(bits));
            }
            if !correction.removed.is_empty() {
                want.insert(time_ms, None);
            }
            before_ms = time_ms;
        }
        let change = &compared.change;
        let mut found: BTreeMap<i64, Option<u64>> =
            change.floats.iter().map(|(time_ms, value)| (*time_ms, Some(value.to_bits()))).collect();
        let mut gone = BTreeSet::new();
        for (first_ms, last_ms) in &change.removed {
            let within = stored.times.iter().filter(|time_ms| (first_ms..=last_ms).contains(time_ms));
            gone.extend(within.copied());
        }
        found.extend(gone.iter().map(|time_ms| (*time_ms, None)));
        assert_eq!(found, want, "{stored:?} {result:?} {failed:?}");
        assert_eq!(compared.counts.removed, gone.len() as u64, "samples between rounds stay");
        assert_eq!(compared.counts.added + compared.counts.replaced, change.floats.len() as u64);
        let again = after(&stored, change);
        let second = compare(rounds, Some(&result), &failed, &again, was_live);
        assert!(second.change.is_empty(), "{second:?}");
        assert_eq!(second.is_live, compared.is_live);
    }
}

/// The stored samples after a change.
fn after(stored: &Columns, change: &SeriesChange) -> Columns {
    let is_gone =
        |time_ms: i64| change.removed.iter().any(|(first, last)| (*first..=*last).contains(&time_ms));
    let kept = stored.times.iter().copied().zip(stored.values.iter().copied());
    let mut all: BTreeMap<i64, f64> = kept.filter(|(time_ms, _)| !is_gone(*time_ms)).collect();
    all.extend(change.floats.iter().copied());
    let mut columns = Columns::default();
    all.into_iter().for_each(|(time_ms, value)| columns.push(time_ms, value));
    columns
}
