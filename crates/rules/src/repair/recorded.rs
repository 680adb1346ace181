//! Samples that a rule has recorded, and their correction round by round.
//!
//! Invariant: rounds are corrected in ascending order, so that each one sees the series of the one before
//! as they are after the repair.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chronolith_model::sample::is_stale;
use chronolith_model::{Columns, FloatHistogram, Histogram, Labels, ResetHint};

use crate::round::{RuleSample, SampleValue};

/// Samples of a rule by time and series, staleness markers included.
#[derive(Debug, Clone, Default)]
pub struct Recorded(BTreeMap<i64, BTreeMap<Labels, SampleValue>>);

/// A series and a time at which it has no sample any more.
#[derive(Debug, Clone, PartialEq)]
pub struct RemovedSample {
    /// Labels of the series.
    pub labels: Labels,
    /// Time of the sample.
    pub time_ms: i64,
    /// Labels that other series with a sample at this time have, and this one does not.
    pub absent_labels: Vec<String>,
}

/// Difference of the samples of one round.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Correction {
    /// Samples with another value.
    pub replaced: Vec<RuleSample>,
    /// Samples of series that had none.
    pub added: Vec<RuleSample>,
    /// Samples of series that have none any more.
    pub removed: Vec<RemovedSample>,
}

impl Correction {
    /// Returns true if the round is right as it is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.replaced.is_empty() && self.added.is_empty() && self.removed.is_empty()
    }
}

impl Recorded {
    /// Adds a sample that is stored.
    pub fn push(&mut self, labels: Labels, time_ms: i64, value: SampleValue) {
        self.0.entry(time_ms).or_default().insert(labels, value);
    }

    /// Returns true if a round has a sample.
    #[must_use]
    pub fn has_samples(&self, time_ms: i64) -> bool {
        self.0.get(&time_ms).is_some_and(|samples| !samples.is_empty())
    }

    /// Corrects the round at `time_ms`: `result` replaces its samples; without one its samples stay, and
    /// the series with a staleness marker are the series that have ended since `before_ms`, the round before.
    pub fn correct(
        &mut self,
        time_ms: i64,
        before_ms: Option<i64>,
        result: Option<Vec<RuleSample>>,
    ) -> Correction {
        let stored = self.0.remove(&time_ms).unwrap_or_default();
        let mut samples: BTreeMap<Labels, SampleValue> = match result {
            Some(result) => result.into_iter().map(|sample| (sample.labels, sample.value)).collect(),
            None => stored.iter().filter(is_live).map(|(k, v)| (k.clone(), v.clone())).collect(),
        };
        let before = before_ms.and_then(|before_ms| self.0.get(&before_ms));
        for (labels, _) in before.into_iter().flatten().filter(is_live) {
            samples.entry(labels.clone()).or_insert(SampleValue::Stale);
        }
        let correction = difference(time_ms, &stored, &samples);
        if !samples.is_empty() {
            self.0.insert(time_ms, samples);
        }
        correction
    }
}

fn is_live(sample: &(&Labels, &SampleValue)) -> bool {
    *sample.1 != SampleValue::Stale
}

fn difference(
    time_ms: i64,
    stored: &BTreeMap<Labels, SampleValue>,
    samples: &BTreeMap<Labels, SampleValue>,
) -> Correction {
    let mut correction = Correction::default();
    for (labels, value) in samples {
        let sample = || RuleSample { labels: labels.clone(), time_ms, value: value.clone() };
        match stored.get(labels) {
            Some(old) if is_equal(old, value) => {}
            Some(_) => correction.replaced.push(sample()),
            None => correction.added.push(sample()),
        }
    }
    let gone = stored.keys().filter(|labels| !samples.contains_key(labels));
    let all = || stored.keys().chain(samples.keys()).flat_map(Labels::iter).map(|(name, _)| name);
    correction.removed = gone
        .map(|labels| {
            let absent: BTreeSet<&str> = all().filter(|name| labels.get(name).is_none()).collect();
            let absent_labels = absent.into_iter().map(str::to_owned).collect();
            RemovedSample { labels: labels.clone(), time_ms, absent_labels }
        })
        .collect();
    correction
}

/// Returns the sample at an index of `columns`.
///
/// # Panics
/// If there are fewer samples.
#[must_use]
pub fn stored_value(columns: &Columns, idx: usize) -> SampleValue {
    // The value of a histogram is its sum: the marker of a series of histograms is one too.
    if is_stale(columns.values[idx]) {
        return SampleValue::Stale;
    }
    match columns.histogram_at(idx) {
        Some(histogram) => SampleValue::Histogram(Arc::new(Histogram::to_float(histogram).into_owned())),
        None => SampleValue::Float(columns.values[idx]),
    }
}

/// Compares floats by their bits, and histograms without the hint, which the store makes of the neighbours.
pub(crate) fn is_equal(a: &SampleValue, b: &SampleValue) -> bool {
    match (a, b) {
        (SampleValue::Float(a), SampleValue::Float(b)) => a.to_bits() == b.to_bits(),
        (SampleValue::Histogram(a), SampleValue::Histogram(b)) => without_hint(a) == without_hint(b),
        (SampleValue::Stale, SampleValue::Stale) => true,
        _ => false,
    }
}

fn without_hint(histogram: &Arc<FloatHistogram>) -> FloatHistogram {
    let mut histogram = FloatHistogram::clone(histogram);
    histogram.reset_hint = ResetHint::Unknown;
    histogram
}
