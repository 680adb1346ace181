//! Start times of OpenMetrics: a `_created` line has the start of the samples before it.
//!
//! Invariant: as in Prometheus, a sample has the start time of the next `_created` line of its family if name
//! and labels but `le` and `quantile` are equal, byte for byte and in the same order; otherwise none.
//! Not here: use of `_created` lines as series (`text`).

use std::ops::Range;

use chronolith_model::{MetricKind, WriteBatch};

use super::fault::Fault;
use super::grammar::{self, LabelVisitor, OpenMetrics, Series, slice};

/// End of the name of a series whose value is a start time.
pub(super) const SUFFIX: &[u8] = b"_created";

/// Samples of one family that wait for the next `_created` line.
#[derive(Debug, Default)]
pub(super) struct WaitingSamples {
    samples: Vec<WaitingSample>,
    /// Labels of the `_created` line, kept for its memory.
    labels: Vec<(Range<usize>, Range<usize>)>,
}

#[derive(Debug)]
struct WaitingSample {
    /// Index of its time in the batch.
    time_idx: usize,
    /// Text of the series, within the bytes of the batch.
    text: Range<usize>,
    /// Metric name, within the text.
    name: Range<usize>,
}

/// Returns true for types whose samples have a start time.
pub(super) fn has_start_time(kind: MetricKind) -> bool {
    matches!(kind, MetricKind::Counter | MetricKind::Histogram | MetricKind::Summary)
}

/// Label in which the samples of one start time differ.
fn varied_label(kind: MetricKind) -> &'static [u8] {
    match kind {
        MetricKind::Histogram => b"le",
        MetricKind::Summary => b"quantile",
        _ => b"",
    }
}

impl WaitingSamples {
    /// Returns true if no sample waits.
    pub(super) fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Forgets the samples: their start times are unknown.
    pub(super) fn clear(&mut self) {
        self.samples.clear();
    }

    /// Adds the sample that was pushed last. Its series has the bytes `text` of the batch.
    pub(super) fn push(&mut self, batch: &WriteBatch, text: Range<usize>, name: Range<usize>) {
        self.samples.push(WaitingSample { time_idx: batch.times.len() - 1, text, name });
    }

    /// Gives `start_ms` to the samples of the series whose `_created` line has `text`, and forgets all.
    pub(super) fn apply(
        &mut self,
        text: &[u8],
        series: &Series,
        start_ms: i64,
        family: (MetricKind, usize),
        batch: &mut WriteBatch,
    ) {
        debug_assert!(slice(text, series.name.clone()).ends_with(SUFFIX), "a line with a start time");
        let (kind, family_bytes) = family;
        let created_name = slice(text, series.name.start..series.name.end.saturating_sub(SUFFIX.len()));
        self.labels.clear();
        let mut collect = Collect { labels: &mut self.labels };
        // Both lines were read before.
        let is_read = grammar::series::<OpenMetrics>(text, 0, &mut collect).is_ok();
        let is_start = is_read && start_ms > 0 && created_name.len() == family_bytes;
        for sample in self.samples.iter().filter(|_| is_start) {
            let of_sample = slice(&batch.raw, sample.text.clone());
            let name_start = sample.name.start;
            if slice(of_sample, name_start..name_start + family_bytes) != created_name {
                continue;
            }
            let rest = of_sample.get(sample.name.end..);
            let is_same = rest == text.get(series.name.end..) || {
                let created = &self.labels;
                let mut compare =
                    Compare { text, created, idx: 0, is_equal: true, varied: varied_label(kind) };
                let is_read = grammar::series::<OpenMetrics>(of_sample, 0, &mut compare).is_ok();
                is_read && compare.is_equal && compare.idx == self.labels.len()
            };
            if is_same {
                batch.start_times.resize(batch.times.len(), 0);
                if let Some(start) = batch.start_times.get_mut(sample.time_idx) {
                    *start = start_ms;
                }
            }
        }
        self.clear();
    }
}

/// Collects the labels of a `_created` line.
struct Collect<'a> {
    labels: &'a mut Vec<(Range<usize>, Range<usize>)>,
}

impl LabelVisitor for Collect<'_> {
    fn label(&mut self, _: &[u8], name: Range<usize>, value: Range<usize>) -> Result<(), Fault> {
        self.labels.push((name, value));
        Ok(())
    }
}

/// Compares labels with the labels of a `_created` line.
struct Compare<'a> {
    text: &'a [u8],
    created: &'a [(Range<usize>, Range<usize>)],
    idx: usize,
    is_equal: bool,
    varied: &'a [u8],
}

impl LabelVisitor for Compare<'_> {
    fn label(&mut self, bytes: &[u8], name: Range<usize>, value: Range<usize>) -> Result<(), Fault> {
        let name = slice(bytes, name);
        if !self.varied.is_empty() && name == self.varied {
            return Ok(());
        }
        let of_created = |(name, value): &(Range<usize>, Range<usize>)| {
            (slice(self.text, name.clone()), slice(self.text, value.clone()))
        };
        self.is_equal &= self.created.get(self.idx).map(of_created) == Some((name, slice(bytes, value)));
        self.idx += 1;
        Ok(())
    }
}
