//! Changes of one series: the difference between the results of a backfill and the stored samples.
//!
//! Invariants: after the change, the samples at times of rounds are the results, with a staleness
//! marker in the round after which a series has ended; samples at other times stay. A round that failed
//! changes nothing.
//! Not here: writes (the caller).

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_model::sample::STALE_NAN;
use chronolith_model::{Columns, FloatHistogram};
use chronolith_promql::MatrixSeries;

use super::RoundTimes;
use crate::repair::{is_equal, stored_value};
use crate::round::SampleValue;

/// Samples of a series to write and to remove.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SeriesChange {
    /// Numbers and staleness markers, ascending.
    pub floats: Vec<(i64, f64)>,
    /// Native histograms, ascending.
    pub histograms: Vec<(i64, Arc<FloatHistogram>)>,
    /// First and last times of ranges all of whose samples are removed, ascending.
    pub removed: Vec<(i64, i64)>,
}

/// Numbers of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SampleCounts {
    /// At times without a sample.
    pub added: u64,
    /// At times with another sample.
    pub replaced: u64,
    /// Gone.
    pub removed: u64,
    /// Stored as they are.
    pub equal: u64,
}

impl SampleCounts {
    /// Adds other numbers.
    pub fn add(&mut self, other: SampleCounts) {
        self.added += other.added;
        self.replaced += other.replaced;
        self.removed += other.removed;
        self.equal += other.equal;
    }
}

/// Outcome of a comparison.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Compared {
    /// The difference.
    pub change: SeriesChange,
    /// Samples by outcome.
    pub counts: SampleCounts,
    /// True if the series has a sample in the last round that did not fail.
    pub is_live: bool,
}

impl SeriesChange {
    /// Returns true if nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.floats.is_empty() && self.histograms.is_empty() && self.removed.is_empty()
    }

    fn push(&mut self, time_ms: i64, value: SampleValue) {
        match value {
            SampleValue::Float(value) => self.floats.push((time_ms, value)),
            SampleValue::Stale => self.floats.push((time_ms, STALE_NAN)),
            SampleValue::Histogram(histogram) => self.histograms.push((time_ms, histogram)),
        }
    }
}

/// Compares the results of a series in `rounds` with its stored samples. `was_live` is true if it has a
/// sample in the round before.
#[must_use]
pub fn compare(
    rounds: RoundTimes,
    result: Option<&MatrixSeries>,
    failed: &BTreeMap<i64, String>,
    stored: &Columns,
    was_live: bool,
) -> Compared {
    let mut compared = Compared { is_live: was_live, ..Compared::default() };
    let mut results = ResultCursor::new(result, rounds.first_ms());
    let mut stored_idx = stored.times.partition_point(|time_ms| *time_ms < rounds.first_ms());
    let mut removed = RemovedRange::default();
    for time_ms in rounds.iter() {
        while stored.times.get(stored_idx).is_some_and(|at_ms| *at_ms < time_ms) {
            // A sample between two rounds stays.
            removed.end(&mut compared.change);
            stored_idx += 1;
        }
        let is_stored = stored.times.get(stored_idx) == Some(&time_ms);
        let found = is_stored.then(|| stored_value(stored, stored_idx));
        stored_idx += usize::from(is_stored);
        let wanted = match results.take(time_ms) {
            Some(value) => Some(value),
            None if failed.contains_key(&time_ms) => {
                if is_stored {
                    removed.end(&mut compared.change);
                }
                continue;
            }
            None => compared.is_live.then_some(SampleValue::Stale),
        };
        compared.is_live = wanted.as_ref().is_some_and(|value| *value != SampleValue::Stale);
        match (wanted, found) {
            (Some(wanted), Some(found)) if is_equal(&wanted, &found) => {
                compared.counts.equal += 1;
                removed.end(&mut compared.change);
            }
            (Some(wanted), Some(_)) => {
                compared.counts.replaced += 1;
                removed.end(&mut compared.change);
                compared.change.push(time_ms, wanted);
            }
            (Some(wanted), None) => {
                compared.counts.added += 1;
                compared.change.push(time_ms, wanted);
            }
            (None, Some(_)) => {
                compared.counts.removed += 1;
                removed.add(time_ms);
            }
            (None, None) => {}
        }
    }
    removed.end(&mut compared.change);
    compared
}

/// Samples of a result in order of time.
struct ResultCursor<'a> {
    series: Option<&'a MatrixSeries>,
    float_idx: usize,
    histogram_idx: usize,
}

impl<'a> ResultCursor<'a> {
    fn new(series: Option<&'a MatrixSeries>, first_ms: i64) -> ResultCursor<'a> {
        let float_idx = series.map_or(0, |one| one.times.partition_point(|time_ms| *time_ms < first_ms));
        let histogram_idx =
            series.map_or(0, |one| one.histograms.partition_point(|(time_ms, _)| *time_ms < first_ms));
        ResultCursor { series, float_idx, histogram_idx }
    }

    /// The sample at `time_ms`, which is after the times before.
    fn take(&mut self, time_ms: i64) -> Option<SampleValue> {
        let series = self.series?;
        if series.times.get(self.float_idx) == Some(&time_ms) {
            let value = series.values.get(self.float_idx).copied()?;
            self.float_idx += 1;
            return Some(SampleValue::Float(value));
        }
        let (_, histogram) =
            series.histograms.get(self.histogram_idx).filter(|(at_ms, _)| *at_ms == time_ms)?;
        self.histogram_idx += 1;
        Some(SampleValue::Histogram(histogram.clone()))
    }
}

/// Removed samples between which no sample stays.
#[derive(Default)]
struct RemovedRange(Option<(i64, i64)>);

impl RemovedRange {
    fn add(&mut self, time_ms: i64) {
        let first_ms = self.0.map_or(time_ms, |(first_ms, _)| first_ms);
        self.0 = Some((first_ms, time_ms));
    }

    fn end(&mut self, change: &mut SeriesChange) {
        change.removed.extend(self.0.take());
    }
}
