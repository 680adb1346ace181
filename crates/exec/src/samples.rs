//! Samples of one series as rollups need them: floats and histograms apart, without staleness markers.
//! Invariants: nothing is copied for a series of floats.

use std::sync::Arc;

use chronolith_model::sample::is_stale;
use chronolith_model::{Columns, FloatHistogram, Histogram, ResetHint};

use crate::column::{Element, SAMPLE_BYTES, StepSeries};

/// Values that are checked together.
const BLOCK_LEN: usize = 256;

/// Parts of samples that a function needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SampleParts {
    /// True if only count, sum and resets of histograms are needed.
    pub stats_only: bool,
    /// True if start timestamps are needed.
    pub start_times: bool,
}

impl SampleParts {
    /// Returns the selected parts of the histogram at `at`; `None` if the sample is a float.
    pub fn of(self, columns: &Columns, at: usize) -> Option<Arc<FloatHistogram>> {
        let whole = to_float(columns.histogram_at(at)?.clone());
        if !self.stats_only {
            return Some(whole);
        }
        let place = columns.histograms.partition_point(|(idx, _)| (*idx as usize) < at);
        let before = columns.histograms.iter().take(place).rev();
        let before = before.map(|(_, histogram)| histogram).find(|histogram| !is_stale(histogram.sum()));
        Some(stats_of(&whole, before.map(|histogram| histogram.to_float()).as_deref()))
    }
}

/// Histograms with their times.
#[derive(Debug, Default)]
pub struct HistogramSamples {
    /// Milliseconds, ascending.
    pub times: Vec<i64>,
    /// One per time.
    pub histograms: Vec<Arc<FloatHistogram>>,
    /// As in [`Columns::start_times`], but empty or one per time.
    pub start_times: Vec<i64>,
}

impl HistogramSamples {
    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Forgets all, keeping the memory.
    pub fn clear(&mut self) {
        self.times.clear();
        self.histograms.clear();
        self.start_times.clear();
    }

    /// Bytes for budgets.
    pub fn heap_bytes(&self) -> usize {
        self.histograms.iter().map(|h| size_of::<FloatHistogram>() + h.heap_bytes() + 24).sum()
    }
}

/// Samples of one series.
#[derive(Debug, Default)]
pub struct RangeSamples {
    /// Floats; a source reads all samples to it first, histograms included.
    pub floats: Columns,
    /// Histograms.
    pub histograms: HistogramSamples,
}

impl RangeSamples {
    /// Forgets all, keeping the memory.
    pub fn clear(&mut self) {
        self.floats.clear();
        self.histograms.clear();
    }

    /// Takes histograms and staleness markers out of the samples in [`RangeSamples::floats`].
    pub fn split(&mut self, parts: SampleParts) {
        self.histograms.clear();
        let Columns { times, values, histograms, start_times } = &mut self.floats;
        if !parts.start_times {
            start_times.clear();
        }
        if histograms.is_empty() && !any_stale(values) {
            return;
        }
        let mut all = std::mem::take(histograms).into_iter().peekable();
        let mut previous: Option<Arc<FloatHistogram>> = None;
        let mut kept = 0;
        let start_count = start_times.len();
        for at in 0..times.len() {
            let histogram = all.next_if(|(idx, _)| *idx as usize == at);
            if is_stale(values[at]) {
                continue;
            }
            if let Some((_, histogram)) = histogram {
                self.histograms.times.push(times[at]);
                if start_count > 0 {
                    self.histograms.start_times.push(start_times.get(at).copied().unwrap_or(0));
                }
                let whole = to_float(histogram);
                let used =
                    if parts.stats_only { stats_of(&whole, previous.as_deref()) } else { whole.clone() };
                self.histograms.histograms.push(used);
                previous = Some(whole);
                continue;
            }
            (times[kept], values[kept]) = (times[at], values[at]);
            if at < start_count {
                start_times[kept] = start_times[at];
            }
            kept += 1;
        }
        times.truncate(kept);
        values.truncate(kept);
        start_times.truncate(kept);
    }

    /// Appends the steps of a computed series, as samples at `times`.
    pub fn push_steps(&mut self, series: &StepSeries, times: impl Iterator<Item = i64>) {
        if !series.has_histograms() && !any_stale(&series.values) {
            // All steps have numbers, as is usual.
            self.floats.times.extend(times.take(series.values.len()));
            self.floats.values.extend_from_slice(&series.values);
            return;
        }
        for (step, time) in times.enumerate() {
            match series.element(step) {
                None => {}
                Some(Element::Float(value)) => self.floats.push(time, value),
                Some(Element::Histogram(histogram)) => {
                    self.histograms.times.push(time);
                    self.histograms.histograms.push(histogram.clone());
                }
            }
        }
    }

    /// Removes reset hints: a hint compares a sample with its predecessor, which a subquery may not have
    /// returned.
    pub fn forget_hints(&mut self) {
        for histogram in &mut self.histograms.histograms {
            if matches!(histogram.reset_hint, ResetHint::Reset | ResetHint::NotReset) {
                Arc::make_mut(histogram).reset_hint = ResetHint::Unknown;
            }
        }
    }

    /// Samples counted against the limit.
    pub fn sample_count(&self) -> u64 {
        self.floats.len() as u64 + self.histograms.heap_bytes() as u64 / SAMPLE_BYTES
    }

    /// Bytes for budgets.
    pub fn heap_bytes(&self) -> u64 {
        let unsplit = self.floats.histogram_bytes() as u64;
        self.floats.len() as u64 * SAMPLE_BYTES + unsplit + self.histograms.heap_bytes() as u64
    }
}

/// Returns true if a staleness marker is among `values`.
// PERF: no early end within a block, so that several values are compared per instruction:
//   cargo xtask bench rate-kernel
fn any_stale(values: &[f64]) -> bool {
    let any = |block: &[f64]| block.iter().fold(false, |any, &value| any | is_stale(value));
    values.chunks(BLOCK_LEN).any(any)
}

/// A histogram to compute with.
fn to_float(histogram: Arc<Histogram>) -> Arc<FloatHistogram> {
    Arc::new(match Arc::unwrap_or_clone(histogram) {
        Histogram::Float(histogram) => histogram,
        Histogram::Int(histogram) => histogram.to_float(),
    })
}

/// Count, sum and hint of a histogram. The hint equals the hint from the buckets if the previous histogram is
/// known.
fn stats_of(histogram: &FloatHistogram, previous: Option<&FloatHistogram>) -> Arc<FloatHistogram> {
    let reset_hint = match (histogram.reset_hint, previous) {
        (ResetHint::Unknown, Some(previous)) if histogram.is_reset_after(previous) => ResetHint::Reset,
        (ResetHint::Unknown, Some(_)) => ResetHint::NotReset,
        (hint, _) => hint,
    };
    Arc::new(FloatHistogram {
        reset_hint,
        schema: histogram.schema,
        count: histogram.count,
        sum: histogram.sum,
        ..FloatHistogram::default()
    })
}

#[cfg(test)]
mod tests {
    use chronolith_model::Labels;

    use super::*;
    use crate::column::ABSENT;

    #[test]
    fn steps_without_a_value_are_no_samples() {
        let pushed = |values: &[f64]| {
            let mut samples = RangeSamples::default();
            samples.push_steps(&StepSeries::floats(Labels::empty(), values.to_vec()), (1..9).map(|k| 10 * k));
            (samples.floats.times, samples.floats.values)
        };
        assert_eq!(pushed(&[1.0, 2.0, 3.0]), (vec![10, 20, 30], vec![1.0, 2.0, 3.0]));
        assert_eq!(pushed(&[ABSENT, 2.0, ABSENT, 4.0]), (vec![20, 40], vec![2.0, 4.0]));
        assert_eq!(pushed(&[]), (vec![], vec![]));
    }
}
