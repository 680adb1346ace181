//! Metrics of a family: counters, gauges, untyped values, summaries and histograms become series.
//!
//! Invariants: a metric that is not valid leaves nothing in the batch; the series of one metric are in the
//! order of Prometheus's parser: count, sum, then quantiles or buckets.
//! Not here: native histograms (`native`).

use std::ops::Range;

use chronolith_model::batch::BatchExemplar;
use chronolith_model::{
    BatchSeries, Exemplar, ExemplarReject, Histogram, LabelsBuilder, METRIC_NAME, WriteBatch,
};

use crate::exposition::bounds::BoundTexts;
use crate::exposition::fault::Reason;
use crate::exposition::options::{DecodeOptions, EXEMPLAR_LABEL_BYTES_MAX, HistogramKinds, Timestamps};
use crate::exposition::refused::Refused;
use crate::exposition::room::{BYTES_HARD, BYTES_SOFT};
use crate::exposition::value::without_marker;
use crate::remote_write::PROTOCOL;
use crate::remote_write::encode::put_labels;
use crate::remote_write::histogram::double;
use crate::remote_write::wire::{Cursor, FIXED64, LEN, VARINT};

use super::family::{Family, FamilyType};
use super::fault::Fault;
use super::native::HistogramFields;
use super::timestamp::milliseconds;

/// Ends of names of the series of a metric.
#[derive(Debug, Clone, Copy)]
enum Suffix {
    None,
    Count,
    Sum,
    Bucket,
}

/// Texts of [`Suffix`], by its number.
const SUFFIXES: [&str; 4] = ["", "_count", "_sum", "_bucket"];

/// Writer of metrics into batches.
#[derive(Debug, Default)]
pub(super) struct MetricWriter {
    /// Name of the family with each suffix, as a field of labels.
    names: [Vec<u8>; SUFFIXES.len()],
    /// Labels that other fields interrupt.
    copied: Vec<u8>,
    bounds: BoundTexts,
    /// Memory of the histograms of the batch.
    histogram_bytes: usize,
    exemplar_labels: LabelsBuilder,
}

/// Metric whose labels are valid.
struct Metric<'a> {
    labels: &'a [u8],
    /// Fields of the value; empty if there are none.
    value: Cursor<'a>,
    /// Time of its samples.
    sample_ms: i64,
    start_ms: i64,
}

/// Ends of the columns before a metric, to which a refused metric is rolled back.
struct Marks {
    raw: usize,
    series: usize,
    samples: usize,
    histograms: usize,
    exemplars: usize,
}

/// Fields of a counter, gauge or untyped value, and of an exemplar's owner.
#[derive(Default)]
struct Simple<'a> {
    value: f64,
    exemplar: Option<Cursor<'a>>,
    start_ms: i64,
}

/// Batch and options of the metric at hand.
pub(super) struct Target<'a> {
    options: &'a DecodeOptions,
    batch: &'a mut WriteBatch,
    refused: &'a mut Refused,
}

impl MetricWriter {
    /// Starts the metrics of a family.
    pub(super) fn begin(&mut self, family: &Family<'_>) {
        let mut name = String::with_capacity(family.name.len() + 8);
        for (field, suffix) in self.names.iter_mut().zip(SUFFIXES) {
            name.clear();
            name.push_str(family.name);
            name.push_str(suffix);
            field.clear();
            put_labels(field, [(METRIC_NAME, name.as_str())]);
        }
    }

    /// Returns true if the histograms of the batch take as much memory as they may.
    pub(super) fn has_histogram_limit(&self, batch: &WriteBatch) -> bool {
        self.histogram_bytes >= BYTES_SOFT && !batch.histograms.is_empty()
    }

    /// Appends the series of a metric.
    pub(super) fn write(
        &mut self,
        family: &Family<'_>,
        message: Cursor<'_>,
        options: &DecodeOptions,
        batch: &mut WriteBatch,
        refused: &mut Refused,
    ) -> Result<(), Fault> {
        if batch.histograms.is_empty() {
            self.histogram_bytes = 0;
        }
        let marks = Marks::of(batch);
        let mut copied = std::mem::take(&mut self.copied);
        let target = &mut Target { options, batch: &mut *batch, refused };
        let written = Metric::read(message, family.family_type, options, &mut copied).and_then(|metric| {
            match family.family_type {
                FamilyType::Summary => self.summary(&metric, target),
                FamilyType::Histogram | FamilyType::GaugeHistogram => {
                    let is_gauge = family.family_type == FamilyType::GaugeHistogram;
                    self.histogram(&metric, is_gauge, target)
                }
                _ => self.simple(&metric, family.family_type, target),
            }
        });
        self.copied = copied;
        written.inspect_err(|_| marks.roll_back(batch))
    }

    fn simple(
        &mut self,
        metric: &Metric<'_>,
        family_type: FamilyType,
        target: &mut Target<'_>,
    ) -> Result<(), Fault> {
        let simple = Simple::read(metric.value, family_type == FamilyType::Counter)?;
        let metric = Metric { start_ms: simple.start_ms, ..*metric };
        self.push(&metric, Suffix::None, None, simple.value, target);
        self.exemplar(simple.exemplar, &metric, false, target)
    }

    fn summary(&mut self, metric: &Metric<'_>, target: &mut Target<'_>) -> Result<(), Fault> {
        let mut count = 0;
        let mut sum = 0.0;
        let mut start_ms = 0;
        let mut at = metric.value;
        while !at.is_empty() {
            match at.tag()? {
                (1, VARINT) => count = at.varint()?,
                (2, FIXED64) => sum = double(&mut at)?,
                (3, LEN) => at.message().map(drop)?,
                (4, LEN) => start_ms = milliseconds(at.message()?)?,
                (1..=4, _) => return Err(at.wrong_type().into()),
                (_, other) => at.skip(other)?,
            }
        }
        let metric = Metric { start_ms, ..*metric };
        self.push(&metric, Suffix::Count, None, count as f64, target);
        self.push(&metric, Suffix::Sum, None, sum, target);
        let mut at = metric.value;
        while !at.is_empty() {
            let (number, wire) = at.tag()?;
            if (number, wire) != (3, LEN) {
                at.skip(wire)?;
                continue;
            }
            let (quantile, value) = quantile(at.message()?)?;
            self.push(&metric, Suffix::None, Some(("quantile", quantile)), value, target);
            self.check_size(metric.value, target.batch)?;
        }
        Ok(())
    }

    fn histogram(
        &mut self,
        metric: &Metric<'_>,
        is_gauge: bool,
        target: &mut Target<'_>,
    ) -> Result<(), Fault> {
        let fields = HistogramFields::read(metric.value)?;
        let metric = Metric { start_ms: fields.start_ms, ..*metric };
        let kinds = target.options.histograms;
        let has_buckets = fields.bucket_count > 0;
        let is_native = fields.is_native() && kinds != HistogramKinds::Classic;
        let is_classic = !is_native || (has_buckets && kinds == HistogramKinds::NativeAndClassic);
        let count = fields.count();
        let sum = fields.sum;
        if is_native {
            let has_exemplars = fields.exemplar_count > 0;
            self.push_native(&metric, fields.into_histogram(is_gauge)?, target);
            self.native_exemplars(&metric, has_exemplars, target)?;
        }
        if is_classic {
            self.push(&metric, Suffix::Count, None, count, target);
            self.push(&metric, Suffix::Sum, None, sum, target);
            self.buckets(&metric, count, target)?;
        }
        Ok(())
    }

    fn buckets(&mut self, metric: &Metric<'_>, count: f64, target: &mut Target<'_>) -> Result<(), Fault> {
        let mut at = metric.value;
        while !at.is_empty() {
            let (number, wire) = at.tag()?;
            if (number, wire) != (3, LEN) {
                at.skip(wire)?;
                continue;
            }
            let bucket = Bucket::read(at.message()?)?;
            self.push(metric, Suffix::Bucket, Some(("le", bucket.upper_bound)), bucket.count(), target);
            self.exemplar(bucket.exemplar, metric, false, target)?;
            self.check_size(metric.value, target.batch)?;
            if bucket.upper_bound == f64::INFINITY {
                return Ok(());
            }
        }
        self.push(metric, Suffix::Bucket, Some(("le", f64::INFINITY)), count, target);
        Ok(())
    }

    /// Refuses a metric whose labels are large for its many series.
    fn check_size(&self, metric: Cursor<'_>, batch: &WriteBatch) -> Result<(), Fault> {
        if batch.raw.len() <= BYTES_HARD {
            return Ok(());
        }
        let text = format!("series of a metric take more than {BYTES_HARD} bytes with their labels");
        Err(Fault { reason: Reason::Limit, offset: metric.offset(), text })
    }

    /// Appends a series with its key.
    fn push_series(
        &mut self,
        metric: &Metric<'_>,
        suffix: Suffix,
        bound: Option<(&str, f64)>,
        target: &mut Target<'_>,
    ) {
        let raw = &mut target.batch.raw;
        let start = raw.len();
        raw.extend_from_slice(self.names.get(suffix as usize).map_or(&[][..], Vec::as_slice));
        raw.extend_from_slice(metric.labels);
        if let Some((name, value)) = bound {
            put_labels(raw, [(name, self.bounds.text(value))]);
        }
        target.options.added.put_tail(PROTOCOL, raw);
        let time_idx = index(target.batch.times.len());
        let end = index(target.batch.raw.len());
        let samples = time_idx..time_idx + 1;
        target.batch.series.push(BatchSeries { raw: index(start)..end, samples });
    }

    fn push(
        &mut self,
        metric: &Metric<'_>,
        suffix: Suffix,
        bound: Option<(&str, f64)>,
        value: f64,
        target: &mut Target<'_>,
    ) {
        self.push_series(metric, suffix, bound, target);
        target.batch.push_sample(metric.sample_ms, without_marker(value), metric.start_ms);
    }

    fn push_native(&mut self, metric: &Metric<'_>, histogram: Histogram, target: &mut Target<'_>) {
        self.histogram_bytes += histogram.memory_bytes();
        self.push_series(metric, Suffix::None, None, target);
        let idx = index(target.batch.times.len());
        target.batch.push_sample(metric.sample_ms, histogram.sum(), metric.start_ms);
        target.batch.histograms.push((idx, std::sync::Arc::new(histogram)));
    }

    /// Reads exemplars of a native histogram: its own, or the exemplars of its classic buckets.
    fn native_exemplars(
        &mut self,
        metric: &Metric<'_>,
        has_own: bool,
        target: &mut Target<'_>,
    ) -> Result<(), Fault> {
        let mut at = metric.value;
        while !at.is_empty() {
            match at.tag()? {
                (16, LEN) => {
                    let exemplar = at.message()?;
                    self.exemplar(Some(exemplar).filter(|_| has_own), metric, true, target)?;
                }
                (3, LEN) => {
                    let bucket = Bucket::read(at.message()?)?;
                    self.exemplar(bucket.exemplar.filter(|_| !has_own), metric, true, target)?;
                }
                (_, other) => at.skip(other)?,
            }
        }
        Ok(())
    }

    /// Adds an exemplar to the series that was pushed last. One without a timestamp has the time of the
    /// sample, or is none if `needs_time` is set.
    fn exemplar(
        &mut self,
        message: Option<Cursor<'_>>,
        metric: &Metric<'_>,
        needs_time: bool,
        target: &mut Target<'_>,
    ) -> Result<(), Fault> {
        let Some(mut at) = message else { return Ok(()) };
        let labels = &mut self.exemplar_labels;
        labels.clear();
        let mut value = 0.0;
        let mut time_ms = None;
        let mut label_bytes = 0;
        while !at.is_empty() {
            match at.tag()? {
                (1, LEN) => {
                    let (name, label_value) = label(at.message()?)?;
                    label_bytes += name.len() + label_value.len();
                    labels.push(name, label_value);
                }
                (2, FIXED64) => value = without_marker(double(&mut at)?),
                (3, LEN) => time_ms = Some(milliseconds(at.message()?)?),
                (1..=3, _) => return Err(at.wrong_type().into()),
                (_, other) => at.skip(other)?,
            }
        }
        labels.sort();
        if label_bytes > EXEMPLAR_LABEL_BYTES_MAX || labels.repeated_name().is_some() {
            let is_long = label_bytes > EXEMPLAR_LABEL_BYTES_MAX;
            let reason = if is_long { ExemplarReject::LabelsTooLong } else { ExemplarReject::DuplicateLabel };
            target.refused.exemplars.add(reason, 1);
            return Ok(());
        }
        let time_ms = match time_ms {
            Some(time_ms) => time_ms,
            None if needs_time => return Ok(()),
            None => metric.sample_ms,
        };
        let series_idx = index(target.batch.series.len().saturating_sub(1));
        let exemplar = Exemplar { labels: labels.finish(), value, time_ms };
        target.batch.exemplars.push(BatchExemplar { series_idx, exemplar });
        Ok(())
    }
}

impl<'a> Metric<'a> {
    fn read(
        message: Cursor<'a>,
        family_type: FamilyType,
        options: &DecodeOptions,
        copied: &'a mut Vec<u8>,
    ) -> Result<Metric<'a>, Fault> {
        let value_number = match family_type {
            FamilyType::Gauge => 2,
            FamilyType::Counter => 3,
            FamilyType::Summary => 4,
            FamilyType::Untyped => 5,
            FamilyType::Histogram | FamilyType::GaugeHistogram => 7,
        };
        let body = message.rest();
        let base = message.offset();
        let mut at = message;
        let mut section = 0..0;
        copied.clear();
        let mut label_count = 0;
        let mut value = Cursor::new(b"");
        let mut time_ms = 0;
        while !at.is_empty() {
            let start = at.offset() - base;
            match at.tag()? {
                (1, LEN) => {
                    label(at.message()?)?;
                    label_count += 1;
                    add_label(body, start..at.offset() - base, &mut section, copied);
                }
                (6, VARINT) => time_ms = at.varint()?.cast_signed(),
                (number, LEN) if number == value_number => value = at.message()?,
                (1 | 6, _) => return Err(at.wrong_type().into()),
                (number, _) if number == value_number => return Err(at.wrong_type().into()),
                (_, other) => at.skip(other)?,
            }
        }
        if label_count > options.limits.label_count_max {
            let text = format!("metric has {label_count} labels, more than the limit of a line");
            return Err(Fault { reason: Reason::Limit, offset: base, text });
        }
        let labels = if copied.is_empty() { body.get(section).unwrap_or(&[]) } else { copied.as_slice() };
        let time_ms = Some(time_ms).filter(|time_ms| *time_ms != 0);
        let honored = time_ms.filter(|_| options.timestamps == Timestamps::Honored);
        let sample_ms = honored.unwrap_or(options.now_ms);
        Ok(Metric { labels, value, sample_ms, start_ms: 0 })
    }
}

/// Extends the section of labels, or copies it once another field interrupts it.
fn add_label(body: &[u8], field: Range<usize>, section: &mut Range<usize>, copied: &mut Vec<u8>) {
    let bytes = |range: Range<usize>| body.get(range).unwrap_or(&[]);
    if section.start == section.end {
        *section = field;
    } else if copied.is_empty() && section.end == field.start {
        section.end = field.end;
    } else {
        if copied.is_empty() {
            copied.extend_from_slice(bytes(section.clone()));
        }
        copied.extend_from_slice(bytes(field));
    }
}

/// Reads a label; its name is not empty, both texts are UTF-8.
fn label(message: Cursor<'_>) -> Result<(&str, &str), Fault> {
    let mut at = message;
    let mut name = Cursor::new(b"");
    let mut value = Cursor::new(b"");
    while !at.is_empty() {
        match at.tag()? {
            (1, LEN) => name = at.message()?,
            (2, LEN) => value = at.message()?,
            (1 | 2, _) => return Err(at.wrong_type().into()),
            (_, other) => at.skip(other)?,
        }
    }
    let invalid = |reason, what, text: Cursor<'_>| Fault::new(reason, message.offset(), what, text.rest());
    let name_text = name.text().map_err(|_| invalid(Reason::Utf8, "invalid label name", name))?;
    if name_text.is_empty() {
        return Err(invalid(Reason::Labels, "invalid label name", name));
    }
    let value_text = value.text().map_err(|_| invalid(Reason::Utf8, "invalid label value", value))?;
    Ok((name_text, value_text))
}

fn quantile(message: Cursor<'_>) -> Result<(f64, f64), Fault> {
    let mut at = message;
    let mut quantile = 0.0;
    let mut value = 0.0;
    while !at.is_empty() {
        match at.tag()? {
            (1, FIXED64) => quantile = double(&mut at)?,
            (2, FIXED64) => value = double(&mut at)?,
            (1 | 2, _) => return Err(at.wrong_type().into()),
            (_, other) => at.skip(other)?,
        }
    }
    Ok((quantile, value))
}

impl<'a> Simple<'a> {
    fn read(message: Cursor<'a>, is_counter: bool) -> Result<Simple<'a>, Fault> {
        let mut at = message;
        let mut out = Simple::default();
        while !at.is_empty() {
            match at.tag()? {
                (1, FIXED64) => out.value = double(&mut at)?,
                (2, LEN) if is_counter => out.exemplar = Some(at.message()?),
                (3, LEN) if is_counter => out.start_ms = milliseconds(at.message()?)?,
                (1, _) => return Err(at.wrong_type().into()),
                (2 | 3, _) if is_counter => return Err(at.wrong_type().into()),
                (_, other) => at.skip(other)?,
            }
        }
        Ok(out)
    }
}

/// Classic bucket, whose counts are cumulative.
struct Bucket<'a> {
    cumulative: u64,
    cumulative_float: f64,
    upper_bound: f64,
    exemplar: Option<Cursor<'a>>,
}

impl<'a> Bucket<'a> {
    fn read(message: Cursor<'a>) -> Result<Bucket<'a>, Fault> {
        let mut at = message;
        let mut out = Bucket { cumulative: 0, cumulative_float: 0.0, upper_bound: 0.0, exemplar: None };
        while !at.is_empty() {
            match at.tag()? {
                (1, VARINT) => out.cumulative = at.varint()?,
                (2, FIXED64) => out.upper_bound = double(&mut at)?,
                (3, LEN) => out.exemplar = Some(at.message()?),
                (4, FIXED64) => out.cumulative_float = double(&mut at)?,
                (1..=4, _) => return Err(at.wrong_type().into()),
                (_, other) => at.skip(other)?,
            }
        }
        Ok(out)
    }

    /// The float, unless it is zero.
    fn count(&self) -> f64 {
        if self.cumulative_float == 0.0 { self.cumulative as f64 } else { self.cumulative_float }
    }
}

impl Marks {
    fn of(batch: &WriteBatch) -> Marks {
        Marks {
            raw: batch.raw.len(),
            series: batch.series.len(),
            samples: batch.times.len(),
            histograms: batch.histograms.len(),
            exemplars: batch.exemplars.len(),
        }
    }

    #[cold]
    fn roll_back(&self, batch: &mut WriteBatch) {
        batch.raw.truncate(self.raw);
        batch.series.truncate(self.series);
        batch.times.truncate(self.samples);
        batch.values.truncate(self.samples);
        batch.start_times.truncate(self.samples);
        batch.histograms.truncate(self.histograms);
        batch.exemplars.truncate(self.exemplars);
    }
}

/// A batch is full long before its offsets exceed u32.
fn index(at: usize) -> u32 {
    u32::try_from(at).expect("offsets into a batch fit u32")
}
