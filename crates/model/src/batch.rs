//! Contract into storage: samples of many series as columns, decoded but not resolved to series.
//!
//! Invariants: reusable, no allocation per sample; the key of a series is its bytes on the wire, which are
//! parsed only if the head does not know them.
//! Not here: protocols (`ingest`), the answer to a client (`server`).

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use crate::duration::show_duration_ms;
use crate::{
    Exemplar, ExemplarRejects, Histogram, KIND_LABEL, Labels, LabelsBuilder, MetadataEntry, ReorderRule,
    TimeRange, WordKind,
};

/// Wire key of a series: equal keys of one protocol are one series.
///
/// Series that a line of values shares differ in `field` and `kind` alone, so that `raw` is hashed once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeriesKey<'a> {
    /// Name and labels as sent; of a protocol without fields the whole key.
    pub raw: &'a [u8],
    /// Key of the field as sent, empty if the protocol has none.
    pub field: &'a [u8],
    /// Kind of the words. Part of the key if the protocol has fields; otherwise `raw` determines it.
    pub kind: WordKind,
}

/// Parser from the wire key of a series to labels, one per protocol; `head` calls it on a cache miss.
///
/// Appends pairs in wire order (unsorted, with duplicates and empty values: the caller sorts and validates).
/// `Err` for bytes that are not labels.
pub type LabelParser = fn(key: SeriesKey<'_>, out: &mut LabelsBuilder) -> Result<(), Reject>;

/// Protocol of a batch, which determines how wire keys are parsed.
#[derive(Clone, Copy)]
pub struct LabelSource {
    /// Number of the protocol: equal bytes of different protocols are different keys.
    pub protocol: u8,
    /// The parser.
    pub parse: LabelParser,
    /// Set if the protocol has typed values: its series may have reserved labels.
    pub is_typed: bool,
}

/// Reason why a sample or a series is not stored. One byte, no heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reject {
    /// Older than the tenant's retention.
    TooOld,
    /// Further ahead of the clock than the tenant's limit, or outside of the valid times.
    OutOfBounds,
    /// Another value is stored for this series and time.
    DuplicateTimestamp,
    /// The tenant has reached its `series-limit`.
    SeriesLimit,
    /// No labels, or no metric name.
    NoMetricName,
    /// A label name occurs twice.
    DuplicateLabel,
    /// A label name is empty.
    EmptyLabelName,
    /// A name or value is not UTF-8.
    InvalidUtf8,
    /// More labels than allowed.
    TooManyLabels,
    /// A label name is longer than allowed.
    LabelNameTooLong,
    /// A label value is longer than allowed.
    LabelValueTooLong,
    /// Older than the out-of-order window of the tenant.
    OutOfOrder,
    /// Labels or metadata of the series refer to missing symbols of the request, or the series is empty.
    BadReference,
    /// An invalid native histogram.
    HistogramInvalid,
    /// The server has no free series id, regardless of the tenant's limit.
    SeriesIdsExhausted,
    /// A label name that only Chronolith sets.
    ReservedLabel,
    /// The field has values of another type in the same shard group.
    FieldTypeConflict,
    /// The memory budget of texts in the head is used up.
    TextLimit,
    /// A tag of the new series has as many values in its measurement as `influx.max-values-per-tag` allows.
    TagValueLimit,
    /// The metric has as many series in the head as `series-per-metric-limit` allows.
    MetricSeriesLimit,
    /// A label has as many values in the head as `values-per-label-limit` allows.
    LabelValueLimit,
}

impl Reject {
    /// Number of kinds.
    pub const COUNT: usize = 21;

    /// All kinds, in order of their numbers.
    pub const ALL: [Reject; Reject::COUNT] = [
        Reject::TooOld,
        Reject::OutOfBounds,
        Reject::DuplicateTimestamp,
        Reject::SeriesLimit,
        Reject::NoMetricName,
        Reject::DuplicateLabel,
        Reject::EmptyLabelName,
        Reject::InvalidUtf8,
        Reject::TooManyLabels,
        Reject::LabelNameTooLong,
        Reject::LabelValueTooLong,
        Reject::OutOfOrder,
        Reject::BadReference,
        Reject::HistogramInvalid,
        Reject::SeriesIdsExhausted,
        Reject::ReservedLabel,
        Reject::FieldTypeConflict,
        Reject::TextLimit,
        Reject::TagValueLimit,
        Reject::MetricSeriesLimit,
        Reject::LabelValueLimit,
    ];

    /// Returns the value of the `reason` label of metrics.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Reject::TooOld => "too_old",
            Reject::OutOfBounds => "out_of_bounds",
            Reject::DuplicateTimestamp => "duplicate_timestamp",
            Reject::SeriesLimit => "series_limit",
            Reject::NoMetricName => "no_metric_name",
            Reject::DuplicateLabel => "duplicate_label",
            Reject::EmptyLabelName => "empty_label_name",
            Reject::InvalidUtf8 => "invalid_utf8",
            Reject::TooManyLabels => "too_many_labels",
            Reject::LabelNameTooLong => "label_name_too_long",
            Reject::LabelValueTooLong => "label_value_too_long",
            Reject::OutOfOrder => "out_of_order",
            Reject::BadReference => "bad_reference",
            Reject::HistogramInvalid => "histogram_invalid",
            Reject::SeriesIdsExhausted => "series_ids_exhausted",
            Reject::ReservedLabel => "reserved_label",
            Reject::FieldTypeConflict => "field_type_conflict",
            Reject::TextLimit => "text_limit",
            Reject::TagValueLimit => "tag_value_limit",
            Reject::MetricSeriesLimit => "metric_series_limit",
            Reject::LabelValueLimit => "label_value_limit",
        }
    }

    /// Returns the message for clients.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            Reject::TooOld => "sample is older than the retention",
            Reject::OutOfBounds => {
                "out of bounds: sample is further in the future than future-limit allows, or its time cannot be stored"
            }
            Reject::DuplicateTimestamp => "duplicate sample for timestamp: another value is already stored",
            Reject::SeriesLimit => "the tenant has as many series as series-limit allows",
            Reject::NoMetricName => "series has no metric name (label __name__)",
            Reject::DuplicateLabel => "label name occurs twice",
            Reject::EmptyLabelName => "label name is empty",
            Reject::InvalidUtf8 => "label name or value is not valid UTF-8",
            Reject::TooManyLabels => "series has more labels than label-count-limit allows",
            Reject::LabelNameTooLong => "label name is longer than label-name-length-limit allows",
            Reject::LabelValueTooLong => "label value is longer than label-value-length-limit allows",
            Reject::OutOfOrder => {
                "out of order sample: too old sample for the out-of-order-window of the tenant"
            }
            Reject::BadReference => "reference to a symbol that the request does not have",
            Reject::HistogramInvalid => "histogram is not valid",
            Reject::SeriesIdsExhausted => {
                "the server has no series id left until ids of departed series can be used again"
            }
            Reject::ReservedLabel => "label names __kind__ and __field__ are reserved",
            Reject::FieldTypeConflict => "field has values of another type",
            Reject::TextLimit => "texts of the head take as much memory as text-bytes-limit allows",
            Reject::TagValueLimit => {
                "a tag of the series has as many values as influx.max-values-per-tag allows"
            }
            Reject::MetricSeriesLimit => "the metric has as many series as series-per-metric-limit allows",
            Reject::LabelValueLimit => {
                "a label of the series has as many values as values-per-label-limit allows"
            }
        }
    }
}

/// One series of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchSeries {
    /// Wire key without field and kind, within [`WriteBatch::raw`].
    pub raw: Range<u32>,
    /// Samples of the series, within [`WriteBatch::times`] and [`WriteBatch::values`].
    pub samples: Range<u32>,
}

/// An exemplar and the series of the batch that it belongs to.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchExemplar {
    /// Index into [`WriteBatch::series`].
    pub series_idx: u32,
    /// The exemplar.
    pub exemplar: Exemplar,
}

/// Samples to write. Fill through the methods; read through the fields.
pub struct WriteBatch {
    /// Parser of the wire keys.
    pub source: LabelSource,
    /// Bytes of the request that [`BatchSeries::raw`] points into.
    pub raw: Vec<u8>,
    /// Series in the order of the request.
    pub series: Vec<BatchSeries>,
    /// Kind of the words of each series; empty if all are floats. The parser of the wire key returns the
    /// label of the same kind.
    pub kinds: Vec<WordKind>,
    /// Field key of each series as sent, within [`WriteBatch::raw`]; empty if the protocol has no fields.
    pub fields: Vec<Range<u32>>,
    /// In the unit of the store, series after series.
    pub times: Vec<i64>,
    /// One value per time, of integers and booleans the bits of the word; of a histogram its sum, of a text
    /// the bits of its index in [`WriteBatch::texts`].
    pub values: Vec<f64>,
    /// Values of series of texts, as ranges of [`WriteBatch::raw`]. Any bytes.
    pub texts: Vec<Range<u32>>,
    /// Row of each series, ascending; empty if every series is a row of its own. A sample that is refused for
    /// its type takes the others of its row with it.
    pub rows: Vec<u32>,
    /// Samples that are histograms: index into times and values, ascending. The caller that fills the batch
    /// validates them.
    pub histograms: Vec<(u32, Arc<Histogram>)>,
    /// Start timestamps in the unit of the store: one per time, 0 if unknown; empty if all are unknown.
    pub start_times: Vec<i64>,
    /// Rules of reorder buffers to which [`WriteBatch::reordered`] refers. Series with a rule are floats
    /// without start timestamps, in a store in milliseconds.
    pub reorder_rules: Vec<ReorderRule>,
    /// Per series, one more than the index of its rule, or 0; empty if no series has a rule.
    pub reordered: Vec<u16>,
    /// Exemplars, in the order of the request.
    pub exemplars: Vec<BatchExemplar>,
    /// Metric metadata.
    pub metadata: Vec<MetadataEntry>,
}

impl WriteBatch {
    /// An empty batch.
    #[must_use]
    pub fn new(source: LabelSource) -> WriteBatch {
        WriteBatch {
            source,
            raw: Vec::new(),
            series: Vec::new(),
            kinds: Vec::new(),
            fields: Vec::new(),
            times: Vec::new(),
            values: Vec::new(),
            texts: Vec::new(),
            rows: Vec::new(),
            histograms: Vec::new(),
            start_times: Vec::new(),
            reorder_rules: Vec::new(),
            reordered: Vec::new(),
            exemplars: Vec::new(),
            metadata: Vec::new(),
        }
    }

    /// Empties the batch, keeping its memory.
    pub fn clear(&mut self) {
        self.raw.clear();
        self.series.clear();
        self.kinds.clear();
        self.fields.clear();
        self.times.clear();
        self.values.clear();
        self.texts.clear();
        self.rows.clear();
        self.histograms.clear();
        self.start_times.clear();
        self.reorder_rules.clear();
        self.reordered.clear();
        self.exemplars.clear();
        self.metadata.clear();
    }

    /// Appends a sample to the columns; a start timestamp of 0 is unknown.
    pub fn push_sample(&mut self, time: i64, value: f64, start_ms: i64) {
        if start_ms != 0 {
            self.start_times.resize(self.times.len(), 0);
            self.start_times.push(start_ms);
        }
        self.times.push(time);
        self.values.push(value);
    }

    /// Extends the column of start timestamps to the length of the times, unless all are unknown.
    pub fn pad_start_times(&mut self) {
        if !self.start_times.is_empty() {
            self.start_times.resize(self.times.len(), 0);
        }
    }

    /// Number of samples, histograms included.
    #[must_use]
    pub fn sample_count(&self) -> usize {
        self.times.len()
    }

    /// Returns the histograms of `series` with their indices in the columns of the batch.
    #[must_use]
    pub fn histograms_of(&self, series: &BatchSeries) -> &[(u32, Arc<Histogram>)] {
        let start = self.histograms.partition_point(|(idx, _)| *idx < series.samples.start);
        let end = self.histograms.partition_point(|(idx, _)| *idx < series.samples.end);
        self.histograms.get(start..end).unwrap_or(&[])
    }

    /// Returns the rule of the reorder buffer of a series, if it has one.
    #[must_use]
    pub fn reorder_rule_of(&self, series_idx: usize) -> Option<ReorderRule> {
        let rule_idx = usize::from(*self.reordered.get(series_idx)?).checked_sub(1)?;
        self.reorder_rules.get(rule_idx).copied()
    }

    /// Returns the wire key of `series`, without field and kind.
    #[must_use]
    pub fn raw_of(&self, series: &BatchSeries) -> &[u8] {
        self.raw.get(series.raw.start as usize..series.raw.end as usize).unwrap_or(&[])
    }

    /// Returns the field key of a series, empty if the protocol has no fields.
    #[must_use]
    pub fn field_of(&self, series_idx: usize) -> &[u8] {
        let field = self.fields.get(series_idx).map(|field| field.start as usize..field.end as usize);
        field.and_then(|field| self.raw.get(field)).unwrap_or(&[])
    }

    /// Returns the kind of the words of a series.
    #[must_use]
    pub fn kind_of(&self, series_idx: usize) -> WordKind {
        self.kinds.get(series_idx).copied().unwrap_or_default()
    }

    /// Returns the whole wire key of a series.
    ///
    /// # Panics
    /// If the batch has no such series.
    #[must_use]
    pub fn key_of(&self, series_idx: usize) -> SeriesKey<'_> {
        let series = &self.series[series_idx];
        SeriesKey {
            raw: self.raw_of(series),
            field: self.field_of(series_idx),
            kind: self.kind_of(series_idx),
        }
    }

    /// A batch of series given as labels, for tests, self-scrape and tools. Wire keys are names and values,
    /// each after its length as little-endian u32.
    #[must_use]
    pub fn from_labels() -> WriteBatch {
        WriteBatch::new(LabelSource { protocol: 0, parse: parse_plain, is_typed: true })
    }

    /// Adds a series to a batch of [`WriteBatch::from_labels`].
    ///
    /// # Panics
    /// Beyond 4 GiB of names or 4 G samples.
    pub fn push_labels(&mut self, labels: &Labels, samples: &[(i64, f64)]) {
        let at = |n: usize| u32::try_from(n).expect("a batch is below 4 GiB");
        let raw_start = at(self.raw.len());
        for text in labels.iter().flat_map(|(n, v)| [n, v]) {
            self.raw.extend_from_slice(&at(text.len()).to_le_bytes());
            self.raw.extend_from_slice(text.as_bytes());
        }
        let start = at(self.times.len());
        self.times.extend(samples.iter().map(|s| s.0));
        self.values.extend(samples.iter().map(|s| s.1));
        self.series
            .push(BatchSeries { raw: raw_start..at(self.raw.len()), samples: start..at(self.times.len()) });
        self.kinds.push(WordKind::of(labels));
    }
}

impl WriteBatch {
    /// As [`WriteBatch::push_labels`], for a series of booleans.
    ///
    /// # Panics
    /// Beyond 4 GiB of names or 4 G samples.
    pub fn push_booleans(&mut self, labels: &Labels, samples: &[(i64, bool)]) {
        let mut builder = labels.to_builder();
        builder.set(KIND_LABEL, WordKind::Boolean.label_value());
        let samples: Vec<(i64, f64)> =
            samples.iter().map(|&(time, value)| (time, f64::from(u8::from(value)))).collect();
        self.push_labels(&builder.finish(), &samples);
    }

    /// As [`WriteBatch::push_labels`], for a series of words of `kind`, which its labels do not name yet.
    ///
    /// # Panics
    /// Beyond 4 GiB of names or 4 G samples.
    pub fn push_words(&mut self, labels: &Labels, kind: WordKind, samples: &[(i64, u64)]) {
        let mut builder = labels.to_builder();
        if kind != WordKind::Float {
            builder.set(KIND_LABEL, kind.label_value());
        }
        let samples: Vec<(i64, f64)> =
            samples.iter().map(|&(time, word)| (time, f64::from_bits(word))).collect();
        self.push_labels(&builder.finish(), &samples);
    }

    /// As [`WriteBatch::push_labels`], for a series of texts.
    ///
    /// # Panics
    /// Beyond 4 GiB of names and texts or 4 G samples.
    pub fn push_texts(&mut self, labels: &Labels, samples: &[(i64, &[u8])]) {
        let at = |n: usize| u32::try_from(n).expect("a batch is below 4 GiB");
        let mut words = Vec::with_capacity(samples.len());
        for &(time, text) in samples {
            words.push((time, self.texts.len() as u64));
            let start = at(self.raw.len());
            self.raw.extend_from_slice(text);
            self.texts.push(start..at(self.raw.len()));
        }
        self.push_words(labels, WordKind::Text, &words);
    }

    /// As [`WriteBatch::push_labels`], for samples that are histograms.
    ///
    /// # Panics
    /// Beyond 4 GiB of names or 4 G samples.
    pub fn push_histograms(&mut self, labels: &Labels, samples: &[(i64, Arc<Histogram>)]) {
        let start = self.times.len();
        let sums: Vec<(i64, f64)> = samples.iter().map(|(time, h)| (*time, h.sum())).collect();
        self.push_labels(labels, &sums);
        let idx = |at: usize| u32::try_from(start + at).expect("a batch is below 4 G samples");
        self.histograms.extend(samples.iter().enumerate().map(|(at, (_, h))| (idx(at), h.clone())));
    }
}

fn parse_plain(SeriesKey { raw, .. }: SeriesKey<'_>, out: &mut LabelsBuilder) -> Result<(), Reject> {
    let mut reader = chronolith_base::ByteReader::new(raw);
    let mut text = || -> Result<&str, Reject> {
        let len = reader.le_u32("label length").map_err(|_| Reject::InvalidUtf8)?;
        let bytes = reader.bytes("label", len as usize).map_err(|_| Reject::InvalidUtf8)?;
        std::str::from_utf8(bytes).map_err(|_| Reject::InvalidUtf8)
    };
    let mut used = 0;
    while used < raw.len() {
        let (name, value) = (text()?, text()?);
        used += 8 + name.len() + value.len();
        out.push(name, value);
    }
    Ok(())
}

/// A field that has values of another type in the shard group of a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldConflict {
    /// Label `__name__`.
    pub measurement: String,
    /// Label `__field__`.
    pub field: String,
    /// Kind of the refused sample.
    pub kind: WordKind,
    /// Kind that the field has.
    pub existing: WordKind,
}

/// A tag that has as many values in its measurement as it may have, and the value that would be one more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FullTagValue {
    /// Label `__name__`.
    pub measurement: String,
    /// Tag key.
    pub tag: String,
    /// The value of the refused series.
    pub value: String,
    /// Number of values.
    pub value_count: u64,
}

/// A limit that a rejected series or sample exceeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReachedLimit {
    /// The reject.
    pub kind: Reject,
    /// The metric or the label; the setting of a limit of folded series; empty for other limits.
    pub name: String,
    /// Series of the tenant or metric, values of the label, labels of the series, bytes of the name or value,
    /// or distance of the sample from the clock or the newest sample in milliseconds.
    pub used: u64,
    /// The limit, in the unit of `used`.
    pub limit: u64,
}

impl ReachedLimit {
    /// Returns the message for clients. Parts of [`Reject::message`] that clients compare are in it.
    fn message(&self) -> String {
        let ReachedLimit { kind, name, used, limit } = self;
        let duration = |ms: u64| show_duration_ms(i64::try_from(ms).unwrap_or(i64::MAX));
        match kind {
            Reject::SeriesLimit if name.is_empty() => {
                format!("the tenant has {used} series, and series-limit allows {limit}")
            }
            Reject::SeriesLimit => {
                let unit = if name.ends_with("-memory") { "bytes of histograms" } else { "series" };
                format!(
                    "the tenant has as many series as series-limit allows, and {used} folded {unit}, of which \
                     {name} allows {limit}"
                )
            }
            Reject::MetricSeriesLimit => {
                format!("metric {name:?} has {used} series, and series-per-metric-limit allows {limit}")
            }
            Reject::LabelValueLimit => {
                format!("label {name:?} has {used} values, and values-per-label-limit allows {limit}")
            }
            Reject::TooManyLabels => {
                format!("series has {used} labels, and label-count-limit allows {limit}")
            }
            Reject::LabelNameTooLong => {
                format!("label name has {used} bytes, and label-name-length-limit allows {limit}")
            }
            Reject::LabelValueTooLong => {
                format!(
                    "value of label {name:?} has {used} bytes, and label-value-length-limit allows {limit}"
                )
            }
            Reject::OutOfBounds => format!(
                "out of bounds: sample is {} in the future, and future-limit allows {}",
                duration(*used),
                duration(*limit)
            ),
            Reject::TooOld => format!(
                "sample is older than the retention: it is {} old, and retention allows {}",
                duration(*used),
                duration(*limit)
            ),
            Reject::OutOfOrder => format!(
                "out of order sample: too old sample for the out-of-order-window of the tenant: it is {} before \
                 the newest one, and out-of-order-window allows {}",
                duration(*used),
                duration(*limit)
            ),
            other => other.message().to_owned(),
        }
    }
}

/// Samples of a batch that were folded into overflow series.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OverflowOutcome {
    /// Folded samples, repeated ones included; the accepted samples contain them.
    pub sample_count: u64,
    /// Times of the samples that overflow series got for them.
    pub written: Option<TimeRange>,
}

impl OverflowOutcome {
    /// Adds the outcome of another part of the request.
    pub fn add(&mut self, later: &OverflowOutcome) {
        self.sample_count += later.sample_count;
        self.written = match (self.written, later.written) {
            (Some(a), Some(b)) => Some(TimeRange::new(a.start.min(b.start), a.end.max(b.end))),
            (a, b) => a.or(b),
        };
    }
}

/// Outcome of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteOutcome {
    /// Accepted samples, duplicates included.
    pub accepted_count: u64,
    /// Duplicates: samples that were stored before with the same value.
    pub repeated_count: u64,
    /// Native histograms among the accepted samples.
    pub histograms_accepted: u64,
    /// New series.
    pub series_created_count: u64,
    /// Samples of series beyond a limit.
    pub overflow: OverflowOutcome,
    /// Accepted exemplars, duplicates included.
    pub exemplars_accepted: u64,
    /// Exemplars that are not stored, by reason.
    pub exemplars_rejected: ExemplarRejects,
    /// Samples rejected, by kind.
    pub rejected: [u64; Reject::COUNT],
    /// The first reject: kind, series as text, time of the sample.
    pub first_reject: Option<(Reject, String, i64)>,
    /// The first conflict of types.
    pub field_conflict: Option<FieldConflict>,
    /// The first tag with too many values.
    pub full_tag: Option<FullTagValue>,
    /// The first limit of each kind that a reject exceeds.
    pub reached_limits: Vec<ReachedLimit>,
    /// Points with a conflict of types; all their samples are rejected.
    pub conflict_point_count: u64,
    /// The batch has two types of a field that was new in a shard group: its samples in that group are
    /// rejected.
    pub has_refused_shard_group: bool,
    /// The first reject of each further kind.
    pub further_rejects: Vec<(Reject, String, i64)>,
}

impl WriteOutcome {
    /// Counts `count` rejected samples; `series` is called only for the first of a kind.
    pub fn reject(&mut self, kind: Reject, count: u64, time: i64, series: impl FnOnce() -> String) {
        let is_first_of_kind = self.rejected[kind as usize] == 0;
        self.rejected[kind as usize] += count;
        if self.first_reject.is_none() {
            self.first_reject = Some((kind, series(), time));
        } else if is_first_of_kind {
            self.further_rejects.push((kind, series(), time));
        }
    }

    /// Adds the outcome of a later part of the same request.
    pub fn add(&mut self, later: WriteOutcome) {
        self.accepted_count += later.accepted_count;
        self.repeated_count += later.repeated_count;
        self.histograms_accepted += later.histograms_accepted;
        self.series_created_count += later.series_created_count;
        self.overflow.add(&later.overflow);
        self.exemplars_accepted += later.exemplars_accepted;
        self.exemplars_rejected.add_all(&later.exemplars_rejected);
        for first in later.first_reject.into_iter().chain(later.further_rejects) {
            if self.rejected[first.0 as usize] > 0 {
                continue;
            }
            match self.first_reject {
                None => self.first_reject = Some(first),
                Some(_) => self.further_rejects.push(first),
            }
        }
        self.rejected.iter_mut().zip(later.rejected).for_each(|(count, more)| *count += more);
        self.field_conflict = self.field_conflict.take().or(later.field_conflict);
        self.full_tag = self.full_tag.take().or(later.full_tag);
        later.reached_limits.into_iter().for_each(|full| self.note_reached(full));
        self.conflict_point_count += later.conflict_point_count;
        self.has_refused_shard_group |= later.has_refused_shard_group;
    }

    /// Keeps the first limit of each kind.
    pub fn note_reached(&mut self, reached: ReachedLimit) {
        if self.reached_limits.iter().all(|known| known.kind != reached.kind) {
            self.reached_limits.push(reached);
        }
    }

    /// Returns the message of a reject for clients, with the use of the limit where it is known.
    #[must_use]
    pub fn message(&self, kind: Reject) -> Cow<'static, str> {
        match self.reached_limits.iter().find(|reached| reached.kind == kind) {
            None => Cow::Borrowed(kind.message()),
            Some(reached) => Cow::Owned(reached.message()),
        }
    }

    /// The first reject of each kind: kind, series as text, time of the sample.
    pub fn first_rejects(&self) -> impl Iterator<Item = &(Reject, String, i64)> {
        self.first_reject.iter().chain(&self.further_rejects)
    }

    /// All rejected samples.
    #[must_use]
    pub fn rejected_count(&self) -> u64 {
        self.rejected.iter().sum()
    }
}
