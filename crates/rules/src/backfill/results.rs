//! Results of recording rules over consecutive rounds, series by series.
//!
//! Invariants: a round has the samples that it has by itself, or it has failed and has none of its rule.
//! Not here: evaluation, stored samples (`change`).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use chronolith_model::Labels;
use chronolith_promql::{MatrixSeries, Value};

use super::RoundTimes;
use crate::round::NO_VECTOR;
use crate::round::recording::{DUPLICATE_SERIES, limit_exceeded, recorded_labels};
use crate::rule::Rule;

/// Limits of the series of a rule in one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResultLimits {
    /// `limit` of the group; `None` for no limit.
    pub group: Option<usize>,
    /// `rules.series-per-rule-max` of the tenant; 0 for no limit.
    pub series_max: usize,
}

/// Results of one rule or of several, by series.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RoundResults {
    /// Series with the labels of the rule.
    pub series: BTreeMap<Labels, MatrixSeries>,
    /// Times of rounds that failed, with the reason.
    pub failed: BTreeMap<i64, String>,
}

impl RoundResults {
    /// Rounds that have all failed for one reason.
    #[must_use]
    pub fn failed(rounds: RoundTimes, why: &str) -> RoundResults {
        let failed = rounds.iter().map(|time_ms| (time_ms, why.to_owned())).collect();
        RoundResults { series: BTreeMap::new(), failed }
    }

    /// Appends the results of later rounds of the same rule.
    pub fn append(&mut self, later: RoundResults) {
        self.failed.extend(later.failed);
        for (labels, series) in later.series {
            match self.series.entry(labels) {
                Entry::Vacant(free) => {
                    free.insert(series);
                }
                Entry::Occupied(mut known) => {
                    let known = known.get_mut();
                    known.times.extend(series.times);
                    known.values.extend(series.values);
                    known.histograms.extend(series.histograms);
                }
            }
        }
    }

    /// Adds the results of a later rule that may write the same series: at a time of both, the first one
    /// stays.
    pub fn join(&mut self, other: RoundResults) {
        self.failed.extend(other.failed);
        for (labels, series) in other.series {
            match self.series.entry(labels) {
                Entry::Vacant(free) => {
                    free.insert(series);
                }
                Entry::Occupied(mut known) => drop(merge(known.get_mut(), series)),
            }
        }
    }

    /// Number of samples.
    #[must_use]
    pub fn sample_count(&self) -> usize {
        self.series.values().map(|one| one.times.len() + one.histograms.len()).sum()
    }

    /// Takes the samples of rounds that have failed out.
    fn remove_failed(&mut self) {
        let failed = &self.failed;
        for series in self.series.values_mut() {
            let mut values = std::mem::take(&mut series.values).into_iter();
            let times = std::mem::take(&mut series.times).into_iter();
            for (time_ms, value) in
                times.zip(&mut values).filter(|(time_ms, _)| !failed.contains_key(time_ms))
            {
                series.times.push(time_ms);
                series.values.push(value);
            }
            series.histograms.retain(|(time_ms, _)| !failed.contains_key(time_ms));
        }
        self.series.retain(|_, series| !series.times.is_empty() || !series.histograms.is_empty());
    }
}

/// Results of a recording rule for the value of its expression over `rounds`, as each round writes them.
#[must_use]
pub fn results_of(rule: &Rule, value: Value, limits: ResultLimits, rounds: RoundTimes) -> RoundResults {
    let Some(matrix) = matrix_of(value) else { return RoundResults::failed(rounds, NO_VECTOR) };
    let mut results = RoundResults::default();
    let mut duplicates = Vec::new();
    for mut series in matrix {
        series.labels = recorded_labels(rule, &series.labels);
        match results.series.entry(series.labels.clone()) {
            Entry::Vacant(free) => {
                free.insert(series);
            }
            Entry::Occupied(mut known) => duplicates.extend(merge(known.get_mut(), series)),
        }
    }
    results.failed.extend(duplicates.into_iter().map(|time_ms| (time_ms, DUPLICATE_SERIES.to_owned())));
    let exceeded = exceeded(&results, limits);
    results.failed.extend(exceeded);
    if !results.failed.is_empty() {
        results.remove_failed();
    }
    results
}

/// Rounds with more series than a limit allows, and the text of each.
fn exceeded(results: &RoundResults, limits: ResultLimits) -> Vec<(i64, String)> {
    let ResultLimits { group, series_max } = limits;
    let of_tenant = (series_max > 0).then_some(series_max);
    let Some(least) = group.into_iter().chain(of_tenant).min().filter(|least| results.series.len() > *least)
    else {
        return Vec::new();
    };
    let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
    for series in results.series.values() {
        let times = series.times.iter().chain(series.histograms.iter().map(|(time_ms, _)| time_ms));
        times.for_each(|time_ms| *counts.entry(*time_ms).or_default() += 1);
    }
    let text = |count: usize| match of_tenant.filter(|series_max| count > *series_max) {
        Some(series_max) => series_limit_exceeded(count, series_max),
        None => limit_exceeded(group.unwrap_or(least), count),
    };
    let beyond = counts.into_iter().filter(|(_, count)| *count > least);
    beyond.map(|(time_ms, count)| (time_ms, text(count))).collect()
}

/// Text for a rule with more series than its tenant may have.
#[must_use]
pub fn series_limit_exceeded(count: usize, series_max: usize) -> String {
    format!("rule has {count} series, and rules.series-per-rule-max allows {series_max}")
}

/// The series of a value; `None` if it is neither of vectors nor of scalars.
fn matrix_of(value: Value) -> Option<Vec<MatrixSeries>> {
    let series = |labels, times, values| MatrixSeries { labels, times, values, histograms: Vec::new() };
    match value {
        Value::Matrix(matrix) => Some(matrix),
        Value::Scalar { time_ms, value } => Some(vec![series(Labels::empty(), vec![time_ms], vec![value])]),
        Value::Vector(samples) => {
            let one = |sample: chronolith_promql::VectorSample| match sample.histogram {
                Some(histogram) => MatrixSeries {
                    histograms: vec![(sample.time_ms, histogram)],
                    ..series(sample.labels, Vec::new(), Vec::new())
                },
                None => series(sample.labels, vec![sample.time_ms], vec![sample.value]),
            };
            Some(samples.into_iter().map(one).collect())
        }
        Value::String { .. } => None,
    }
}

/// Adds the samples of `other` at times without one; returns the times of both.
fn merge(series: &mut MatrixSeries, other: MatrixSeries) -> Vec<i64> {
    let own_times = |series: &MatrixSeries| -> std::collections::BTreeSet<i64> {
        series.times.iter().copied().chain(series.histograms.iter().map(|(time_ms, _)| *time_ms)).collect()
    };
    let known = own_times(series);
    let added = own_times(&other);
    let mut floats: BTreeMap<i64, f64> = series.times.drain(..).zip(series.values.drain(..)).collect();
    for (time_ms, value) in other.times.into_iter().zip(other.values).filter(|(at, _)| !known.contains(at)) {
        floats.insert(time_ms, value);
    }
    (series.times, series.values) = floats.into_iter().unzip();
    series.histograms.extend(other.histograms.into_iter().filter(|(at, _)| !known.contains(at)));
    series.histograms.sort_by_key(|(time_ms, _)| *time_ms);
    added.intersection(&known).copied().collect()
}
