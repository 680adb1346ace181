//! Series of points: looked up in the key memory, translated on a miss, appended to the batch of their
//! temporality.
//!
//! Invariants: a known series costs one lookup, a copy of its key and no allocation; a point that is rejected
//! leaves nothing in its batch; bytes are charged before they are written.
//! Not here: what a point becomes (`number`, `explicit`, `exponential`, `summary`).

use std::sync::Arc;

use chronolith_model::batch::BatchExemplar;
use chronolith_model::{BatchSeries, Exemplar, Histogram, MetadataEntry, WriteBatch};

use super::key_memory::{Identity, KeyMemory, Part, Verdict};
use super::labels::BaseLabels;
use super::points::PointHead;
use super::refused::{PointReject, Refused};
use super::series_names::{Extra, SeriesNames};
use crate::remote_write::charge::Charge;
use crate::remote_write::{
    DecodeError, EXEMPLAR_COUNT_MAX, METADATA_COUNT_MAX, SAMPLE_COUNT_MAX, SERIES_COUNT_MAX, WireError,
};

/// Writes the points of one request.
pub(super) struct Writer<'a, 'b> {
    pub(super) memory: &'b mut KeyMemory,
    pub(super) names: SeriesNames<'a>,
    pub(super) refused: Refused,
    pub(super) room: Room<'b>,
    histogram_charge: Charge<'b>,
    cumulative: &'b mut WriteBatch,
    deltas: &'b mut WriteBatch,
    /// Key of a series that is translated.
    key: Vec<u8>,
    pub(super) is_delta: bool,
    /// Set if the resource has a job or an instance.
    pub(super) has_target: bool,
    pub(super) metric: Identity,
    /// Name of the metric as sent.
    pub(super) metric_name: &'a [u8],
    pub(super) times: TimeRange,
}

/// Earliest and latest time of the points of a resource, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeRange {
    pub(super) earliest_ns: u64,
    pub(super) latest_ns: u64,
}

impl TimeRange {
    pub(super) const EMPTY: TimeRange = TimeRange { earliest_ns: u64::MAX, latest_ns: 0 };
}

/// Bytes that a request may become, charged to the write budget.
pub(super) struct Room<'a> {
    bytes: usize,
    bytes_max: usize,
    charge: Charge<'a>,
}

impl<'a> Room<'a> {
    pub(super) fn new(bytes_max: usize, charge: Charge<'a>) -> Room<'a> {
        Room { bytes: 0, bytes_max, charge }
    }

    /// Admits `count` bytes more.
    pub(super) fn take(&mut self, count: usize) -> Result<(), DecodeError> {
        self.bytes = self.bytes.saturating_add(count);
        if self.bytes > self.bytes_max {
            let found = self.bytes as u64;
            let limit = self.bytes_max as u64;
            return Err(DecodeError::TooLarge {
                what: "request with the labels of its series",
                found,
                limit,
            });
        }
        // Twice, because the buffer that they go to doubles when it is full.
        Ok(self.charge.take(2 * count)?)
    }
}

/// A point that is being written.
pub(super) struct PointState<'p, 'a> {
    head: &'p PointHead<'a>,
    pub(super) identity: Identity,
    base: Option<BaseLabels>,
    marks: Marks,
    stored_count: u32,
}

impl PointState<'_, '_> {
    /// Returns true if a series of the point is in the batch.
    pub(super) fn is_stored(&self) -> bool {
        self.stored_count > 0
    }
}

/// Ends of the columns before a point, to which a rejected one is rolled back.
struct Marks {
    raw: usize,
    series: usize,
    samples: usize,
    histograms: usize,
    exemplars: usize,
}

/// Name of a series of a point.
pub(super) struct SeriesName {
    pub(super) identity: Identity,
    pub(super) suffix: &'static str,
    pub(super) extra: Extra,
}

/// Outcome of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pushed {
    /// Stored as the last series of the batch.
    Stored,
    /// A rule dropped it.
    Dropped,
    Rejected(PointReject),
}

impl<'a, 'b> Writer<'a, 'b> {
    pub(super) fn new(
        names: SeriesNames<'a>,
        memory: &'b mut KeyMemory,
        room: Room<'b>,
        histogram_charge: Charge<'b>,
        cumulative: &'b mut WriteBatch,
        deltas: &'b mut WriteBatch,
    ) -> Writer<'a, 'b> {
        let metric = memory.identity(Part::Resource, &[]);
        Writer {
            memory,
            names,
            refused: Refused::default(),
            room,
            histogram_charge,
            cumulative,
            deltas,
            key: Vec::new(),
            is_delta: false,
            has_target: false,
            metric,
            metric_name: &[],
            times: TimeRange::EMPTY,
        }
    }

    pub(super) fn batch(&mut self) -> &mut WriteBatch {
        if self.is_delta { self.deltas } else { self.cumulative }
    }

    /// Counts a point that cannot be read.
    #[cold]
    pub(super) fn malformed(&mut self, error: WireError) {
        self.refused.note(PointReject::Malformed, 1, self.metric_name, Some(error.to_string()));
    }

    /// Counts a rejected point.
    #[cold]
    pub(super) fn reject(&mut self, reason: PointReject) {
        self.refused.note(reason, 1, self.metric_name, None);
    }

    /// Begins a point; `None` if it has no time, which is counted.
    pub(super) fn begin<'p>(&mut self, head: &'p PointHead<'a>) -> Option<PointState<'p, 'a>> {
        if head.time_ns == 0 {
            self.reject(PointReject::NoTime);
            return None;
        }
        self.times.earliest_ns = self.times.earliest_ns.min(head.time_ns);
        self.times.latest_ns = self.times.latest_ns.max(head.time_ns);
        let identity = head.identity(self.metric, self.memory);
        let batch = self.batch();
        let marks = Marks {
            raw: batch.raw.len(),
            series: batch.series.len(),
            samples: batch.times.len(),
            histograms: batch.histograms.len(),
            exemplars: batch.exemplars.len(),
        };
        Some(PointState { head, identity, base: None, marks, stored_count: 0 })
    }

    /// Returns the name of one of several series of a point.
    pub(super) fn series_name(
        &self,
        point: &PointState<'_, '_>,
        suffix: &'static str,
        extra: Extra,
    ) -> SeriesName {
        let (tag, number) = match (extra, suffix) {
            (Extra::None, "_count") => (0, 0.0),
            (Extra::None, _) => (1, 0.0),
            (Extra::Le(bound), _) => (2, bound),
            (Extra::Quantile(quantile), _) => (3, quantile),
        };
        let mut bytes = [tag; 9];
        let number_bytes = number.to_bits().to_le_bytes();
        bytes.iter_mut().skip(1).zip(number_bytes).for_each(|(to, from)| *to = from);
        SeriesName { identity: self.memory.within(point.identity, Part::Series, &bytes), suffix, extra }
    }

    /// Appends a series with one sample at the time of the point.
    pub(super) fn push(
        &mut self,
        point: &mut PointState<'_, 'a>,
        name: SeriesName,
        value: f64,
    ) -> Result<Pushed, DecodeError> {
        let batch = if self.is_delta { &mut *self.deltas } else { &mut *self.cumulative };
        let start = batch.raw.len();
        match self.memory.find(name.identity) {
            Some(Verdict::Key(key)) => {
                self.room.take(key.len())?;
                batch.raw.extend_from_slice(key);
            }
            Some(Verdict::Dropped(number)) => {
                return Ok(PointReject::from_number(number).map_or(Pushed::Dropped, Pushed::Rejected));
            }
            None => {
                if let Err(reject) = translate(&mut self.names, point, &name, &mut self.key) {
                    self.memory.insert(name.identity, Verdict::Dropped(reject as u32));
                    return Ok(Pushed::Rejected(reject));
                }
                self.memory.insert(name.identity, Verdict::Key(&self.key));
                self.room.take(self.key.len())?;
                batch.raw.extend_from_slice(&self.key);
            }
        }
        push_series(batch, start, point.head.time_ms(), value, point.head.start_ms())?;
        point.stored_count += 1;
        Ok(Pushed::Stored)
    }

    /// As [`Writer::push`], with a sample that is a histogram.
    pub(super) fn push_histogram(
        &mut self,
        point: &mut PointState<'_, 'a>,
        name: SeriesName,
        histogram: Histogram,
    ) -> Result<Pushed, DecodeError> {
        self.histogram_charge.take(histogram.memory_bytes())?;
        let pushed = self.push(point, name, histogram.sum())?;
        if pushed == Pushed::Stored {
            let batch = self.batch();
            debug_assert!(
                batch.histograms.last().is_none_or(|(last, _)| (*last as usize) < batch.times.len() - 1)
            );
            let idx = index(batch.times.len() - 1);
            batch.histograms.push((idx, Arc::new(histogram)));
        }
        Ok(pushed)
    }

    /// Appends exemplars to the series that was stored last.
    pub(super) fn push_exemplars(
        &mut self,
        exemplars: impl Iterator<Item = Exemplar>,
    ) -> Result<(), DecodeError> {
        for exemplar in exemplars {
            self.room.take(size_of::<BatchExemplar>() + exemplar.labels.heap_bytes())?;
            let batch = self.batch();
            if batch.exemplars.len() >= EXEMPLAR_COUNT_MAX {
                return Err(DecodeError::TooMany { what: "exemplars", limit: EXEMPLAR_COUNT_MAX });
            }
            let series_idx = index(batch.series.len().saturating_sub(1));
            batch.exemplars.push(BatchExemplar { series_idx, exemplar });
        }
        Ok(())
    }

    /// Ends a point that was not rejected.
    pub(super) fn finish(&mut self, point: &PointState<'_, '_>) {
        debug_assert!(self.times.latest_ns >= self.times.earliest_ns, "the point began");
        if point.stored_count == 0 {
            self.refused.dropped_count += 1;
            return;
        }
        self.refused.delta_point_count += u64::from(self.is_delta);
        self.refused.point_without_target_count += u64::from(!self.has_target);
    }

    /// Takes back what a rejected point has written, and counts it.
    #[cold]
    pub(super) fn roll_back(
        &mut self,
        point: &PointState<'_, '_>,
        reason: PointReject,
        detail: Option<String>,
    ) {
        let batch = self.batch();
        debug_assert!(batch.series.len() >= point.marks.series, "points are written one after the other");
        batch.raw.truncate(point.marks.raw);
        batch.series.truncate(point.marks.series);
        batch.times.truncate(point.marks.samples);
        batch.values.truncate(point.marks.samples);
        batch.start_times.truncate(point.marks.samples);
        batch.histograms.truncate(point.marks.histograms);
        batch.exemplars.truncate(point.marks.exemplars);
        self.refused.note(reason, 1, self.metric_name, detail);
    }

    /// Appends an entry of metadata; one beyond the limit is counted.
    pub(super) fn push_metadata(&mut self, entry: MetadataEntry) -> Result<(), DecodeError> {
        if self.cumulative.metadata.len() >= METADATA_COUNT_MAX {
            self.refused.metadata_count += 1;
            return Ok(());
        }
        let text = entry.metric.len() + entry.help.len() + entry.unit.len();
        self.room.take(size_of::<MetadataEntry>() + text)?;
        self.cumulative.metadata.push(entry);
        Ok(())
    }

    /// Appends a series of the batch of cumulative points whose key is given, with several samples.
    pub(super) fn push_known(
        &mut self,
        key: &[u8],
        times_ms: impl Iterator<Item = i64>,
        value: f64,
    ) -> Result<(), DecodeError> {
        self.room.take(key.len())?;
        let batch = &mut *self.cumulative;
        let raw = index(batch.raw.len());
        let samples = index(batch.times.len());
        for time_ms in times_ms {
            check_counts(batch)?;
            batch.push_sample(time_ms, value, 0);
        }
        let samples = samples..index(batch.times.len());
        if !samples.is_empty() {
            batch.raw.extend_from_slice(key);
            batch.series.push(BatchSeries { raw: raw..index(batch.raw.len()), samples });
        }
        Ok(())
    }
}

/// Writes the key of an unknown series to `key`.
#[cold]
fn translate(
    names: &mut SeriesNames<'_>,
    point: &mut PointState<'_, '_>,
    name: &SeriesName,
    key: &mut Vec<u8>,
) -> Result<(), PointReject> {
    let base = match point.base.take() {
        Some(base) => base,
        None => names.base(point.head.attributes())?,
    };
    let written = names.write_key(&base, name.suffix, name.extra, key);
    point.base = Some(base);
    written
}

fn push_series(
    batch: &mut WriteBatch,
    raw_start: usize,
    time_ms: i64,
    value: f64,
    start_ms: i64,
) -> Result<(), DecodeError> {
    check_counts(batch)?;
    debug_assert!(raw_start < batch.raw.len(), "a series has a key");
    debug_assert_eq!(batch.times.len(), batch.values.len(), "columns have one length");
    let sample = index(batch.times.len());
    batch.push_sample(time_ms, value, start_ms);
    let raw = index(raw_start)..index(batch.raw.len());
    batch.series.push(BatchSeries { raw, samples: sample..sample + 1 });
    Ok(())
}

fn check_counts(batch: &WriteBatch) -> Result<(), DecodeError> {
    if batch.series.len() >= SERIES_COUNT_MAX {
        return Err(DecodeError::TooMany { what: "series", limit: SERIES_COUNT_MAX });
    }
    if batch.times.len() >= SAMPLE_COUNT_MAX {
        return Err(DecodeError::TooMany { what: "samples", limit: SAMPLE_COUNT_MAX });
    }
    Ok(())
}

/// Keys stay below [`crate::remote_write::DECOMPRESSED_BYTES_MAX`], samples below their limit.
fn index(at: usize) -> u32 {
    u32::try_from(at).expect("offsets into a request fit u32")
}
