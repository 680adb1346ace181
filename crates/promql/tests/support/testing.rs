//! A source in memory, for tests of the engine and of what stands on it.
//! Invariants: what [`Queryable`] promises; nothing is ever lost or merged away.

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_model::query::{Opened, Read, Source, VecBatches, Wanted, visit_listed};
use chronolith_model::{
    Columns, FloatHistogram, Histogram, Labels, Matcher, QueryError, ReadContext, ResetHint, SampleSource,
    SeriesRead, TimeRange,
};

/// A sample of any kind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MemSample {
    /// Time of the sample in milliseconds.
    pub(crate) time_ms: i64,
    /// The value of a float.
    pub(crate) value: f64,
    /// The value of a histogram.
    pub(crate) histogram: Option<FloatHistogram>,
    /// Start timestamp of the counter; 0 if unknown.
    pub(crate) start_ms: i64,
}

impl MemSample {
    /// A number.
    #[must_use]
    pub(crate) fn float(time_ms: i64, value: f64) -> MemSample {
        MemSample { time_ms, value, histogram: None, start_ms: 0 }
    }

    /// A native histogram.
    #[must_use]
    pub(crate) fn histogram(time_ms: i64, histogram: FloatHistogram) -> MemSample {
        MemSample { time_ms, value: histogram.sum, histogram: Some(histogram), start_ms: 0 }
    }
}

/// Appends a sample that is later than all others.
fn push(columns: &mut Columns, sample: &MemSample) {
    match &sample.histogram {
        None => columns.push(sample.time_ms, sample.value),
        Some(histogram) => {
            let mut histogram = histogram.clone();
            if histogram.reset_hint != ResetHint::Gauge {
                histogram.reset_hint = stored_hint(columns, &histogram);
            }
            columns.push_histogram(sample.time_ms, Arc::new(Histogram::Float(histogram)));
        }
    }
    if sample.start_ms != 0 {
        columns.set_start_time(sample.start_ms);
    }
}

/// Reset hints of a counter histogram's chunk, after `columns`.
fn stored_hint(columns: &Columns, histogram: &FloatHistogram) -> ResetHint {
    let last = columns.len().checked_sub(1).and_then(|last| columns.histogram_at(last));
    let Some(Histogram::Float(before)) = last.map(|last| &**last) else { return ResetHint::Unknown };
    let joins = before.reset_hint != ResetHint::Gauge
        && histogram.reset_hint != ResetHint::Reset
        && !before.is_stale()
        && histogram.schema == before.schema
        && histogram.zero_threshold == before.zero_threshold
        && histogram.custom_values == before.custom_values;
    let unhinted = FloatHistogram { reset_hint: ResetHint::Unknown, ..histogram.clone() };
    if joins && !unhinted.is_reset_after(before) { ResetHint::NotReset } else { ResetHint::Unknown }
}

/// Series in memory, sorted by labels.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemQueryable {
    series: BTreeMap<Labels, Arc<Columns>>,
}

impl MemQueryable {
    /// Without series.
    #[must_use]
    pub(crate) fn new() -> MemQueryable {
        MemQueryable::default()
    }

    /// Adds floats in any order; of two samples with equal times the later call wins.
    pub(crate) fn add(&mut self, labels: &Labels, samples: impl IntoIterator<Item = (i64, f64)>) {
        self.add_samples(labels, samples.into_iter().map(|(time, value)| MemSample::float(time, value)));
    }

    /// Adds samples in any order; of two samples with equal times the later call wins. Hints about resets are
    /// set as Prometheus's chunks give them back: known only within a run of histograms that fit one chunk.
    pub(crate) fn add_samples(&mut self, labels: &Labels, samples: impl IntoIterator<Item = MemSample>) {
        let columns = Arc::make_mut(self.series.entry(labels.clone()).or_default());
        for sample in samples {
            let last = columns.times.last();
            if last.is_none_or(|&last| last < sample.time_ms) {
                push(columns, &sample);
                continue;
            }
            let before = std::mem::take(columns);
            let at = before.times.partition_point(|&time| time < sample.time_ms);
            let after = at + usize::from(before.times.get(at) == Some(&sample.time_ms));
            (0..at).for_each(|idx| columns.push_from(&before, idx));
            push(columns, &sample);
            (after..before.len()).for_each(|idx| columns.push_from(&before, idx));
        }
    }

    /// All series with their samples, sorted by labels.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Labels, &Columns)> {
        self.series.iter().map(|(labels, columns)| (labels, &**columns))
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.series.clear();
    }

    fn matching<'a>(
        &'a self,
        matchers: &'a [Matcher],
        range: TimeRange,
    ) -> impl Iterator<Item = (&'a Labels, &'a Arc<Columns>)> {
        self.series.iter().filter(move |(labels, columns)| {
            let (Some(&first), Some(&last)) = (columns.times.first(), columns.times.last()) else {
                return false;
            };
            range.overlaps_inclusive(first, last) && matchers.iter().all(|m| m.matches_labels(labels))
        })
    }
}

struct MemSamples(Arc<Columns>);

impl SampleSource for MemSamples {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        let from = self.0.times.partition_point(|&time| time < range.start);
        let to = self.0.times.partition_point(|&time| time < range.end);
        if !self.0.histograms.is_empty() || !self.0.start_times.is_empty() {
            (from..to).for_each(|idx| out.push_from(&self.0, idx));
            return Ok(());
        }
        out.times.extend_from_slice(&self.0.times[from..to]);
        out.values.extend_from_slice(&self.0.values[from..to]);
        Ok(())
    }

    fn sample_count_hint(&self) -> usize {
        self.0.len()
    }
}

impl Source for MemQueryable {
    fn open(&self, read: Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        ctx.check()?;
        let Read { request, wanted } = read;
        let series = self.matching(&request.matchers, request.range);
        Ok(match wanted {
            Wanted::Series => {
                let read = |(labels, columns): (&Labels, &Arc<Columns>)| SeriesRead {
                    labels: labels.clone(),
                    samples: Box::new(MemSamples(columns.clone())),
                };
                Opened::Series(request.filter(Box::new(VecBatches::new(series.map(read).collect()))))
            }
            Wanted::Estimate => Opened::Estimate(None),
            Wanted::LabelNames => {
                let names = series.flat_map(|(labels, _)| labels.iter().map(|(name, _)| name.to_owned()));
                Opened::listed(limited(names.collect(), request.limit))
            }
            Wanted::LabelValues { name } => {
                let values = series.filter_map(|(labels, _)| labels.get(&name).map(str::to_owned));
                Opened::listed(limited(values.collect(), request.limit))
            }
            Wanted::EachLabelValue { name, prefix } => {
                visit_listed(self, request.clone(), name, prefix, ctx)?
            }
            Wanted::SoleLabelValues { .. } => Opened::Cursor(None),
        })
    }
}

fn limited(mut texts: Vec<String>, limit: usize) -> Vec<String> {
    texts.sort_unstable();
    texts.dedup();
    if limit > 0 {
        texts.truncate(limit);
    }
    texts
}
