//! Samples of a series of an answer, decoded when they are read.
//!
//! Invariant: heads of the parts were read when they arrived; damage of their samples is an error that names
//! the node.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use chronolith_base::{DecodeError, Reservation};
use chronolith_format::select::{Part, Parts, SeriesEntry};
use chronolith_model::kind::{integer_of_word, unsigned_of_word};
use chronolith_model::query::{ColumnType, SamplesPart, TypedColumns, TypedValues, VisitSamples};
use chronolith_model::{Columns, Labels, QueryError, SampleSource, SeriesRead, TimeRange};

/// Payload of a frame of series, and its memory.
pub(super) struct FrameBytes {
    payload: Vec<u8>,
    _memory: Reservation,
}

impl FrameBytes {
    pub(super) fn new(payload: Vec<u8>, memory: Reservation) -> FrameBytes {
        FrameBytes { payload, _memory: memory }
    }

    pub(super) fn payload(&self) -> &[u8] {
        &self.payload
    }
}

/// Parts of a series in one frame.
struct FrameParts {
    frame: Arc<FrameBytes>,
    parts: Range<usize>,
}

/// A series whose entries arrive.
pub(super) struct PeerSeries {
    labels: Labels,
    column_type: ColumnType,
    parts: Vec<FrameParts>,
    sample_count: u64,
    part_count: u64,
    times: Option<RangeInclusive<i64>>,
}

impl PeerSeries {
    pub(super) fn new(labels: Labels, column_type: ColumnType) -> PeerSeries {
        PeerSeries { labels, column_type, parts: Vec::new(), sample_count: 0, part_count: 0, times: None }
    }

    /// Adds an entry of `frame`, whose samples are later than the ones before.
    pub(super) fn add(&mut self, entry: &SeriesEntry, frame: Arc<FrameBytes>) {
        let Some(times) = &entry.times else { return };
        let first = self.times.as_ref().map_or(*times.start(), |before| *before.start());
        assert!(self.times.as_ref().is_none_or(|before| before.end() < times.start()), "entries ascend");
        self.times = Some(first..=*times.end());
        self.sample_count = self.sample_count.saturating_add(entry.sample_count);
        self.part_count = self.part_count.saturating_add(entry.part_count);
        self.parts.push(FrameParts { frame, parts: entry.parts.clone() });
    }

    /// Returns the series of `node`, which keeps `memory`.
    pub(super) fn into_read(mut self, node: Arc<str>, memory: Arc<Reservation>) -> SeriesRead {
        let labels = std::mem::replace(&mut self.labels, Labels::empty());
        SeriesRead { labels, samples: Box::new(PeerSamples { node, series: self, _memory: memory }) }
    }
}

/// Samples of a series.
pub(super) struct PeerSamples {
    node: Arc<str>,
    series: PeerSeries,
    _memory: Arc<Reservation>,
}

impl PeerSamples {
    #[cold]
    fn damage(&self, error: &DecodeError) -> QueryError {
        QueryError::Corrupt { path: format!("answer of node {}", self.node), what: error.to_string() }
    }

    /// Calls `visit` with each part that has samples in `range`.
    fn each_part(
        &self,
        range: TimeRange,
        mut visit: impl FnMut(&Part<'_>) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        for FrameParts { frame, parts } in &self.series.parts {
            for part in Parts::new(frame.payload().get(parts.clone()).unwrap_or_default()) {
                let part = part.map_err(|error| self.damage(&error))?;
                if part.first_time >= range.end {
                    return Ok(());
                }
                if range.overlaps_inclusive(part.first_time, part.last_time) {
                    visit(&part)?;
                }
            }
        }
        Ok(())
    }

    /// Appends the values as they are sent: integers as words.
    fn read_sent(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        self.each_part(range, |part| part.read(range, out).map_err(|error| self.damage(&error)))
    }
}

impl SampleSource for PeerSamples {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        let start = out.values.len();
        let done = self.read_sent(range, out);
        let added = out.values.get_mut(start..).unwrap_or_default();
        match self.series.column_type {
            ColumnType::Integer => {
                added.iter_mut().for_each(|value| *value = integer_of_word(value.to_bits()) as f64);
            }
            ColumnType::Unsigned => {
                added.iter_mut().for_each(|value| *value = unsigned_of_word(value.to_bits()) as f64);
            }
            ColumnType::Float | ColumnType::Boolean | ColumnType::Text | ColumnType::Histogram => {}
        }
        done
    }

    fn column_type(&self) -> ColumnType {
        self.series.column_type
    }

    fn read_typed(&self, range: TimeRange, out: &mut TypedColumns) -> Result<(), QueryError> {
        let is_of_type = out.values.column_type() == self.series.column_type;
        if let TypedValues::Texts(texts) = &mut out.values
            && is_of_type
        {
            let times = &mut out.times;
            return self.each_part(range, |part| {
                part.read_texts(range, times, texts).map_err(|error| self.damage(&error))
            });
        }
        if is_of_type && out.extend_words(|words| self.read_sent(range, words))? {
            return Ok(());
        }
        let mut columns = Columns::default();
        self.read(range, &mut columns)?;
        out.extend_cast(&columns);
        Ok(())
    }

    fn visit_chunks(
        &self,
        range: TimeRange,
        accepts: &dyn Fn(u8) -> bool,
        scratch: &mut Columns,
        visit: &mut VisitSamples<'_>,
    ) -> Result<(), QueryError> {
        if matches!(self.series.column_type, ColumnType::Integer | ColumnType::Unsigned) {
            scratch.clear();
            self.read(range, scratch)?;
            return if scratch.is_empty() { Ok(()) } else { visit(SamplesPart::Decoded(scratch)) };
        }
        self.each_part(range, |part| {
            if let Some(stored) = part.stored(range).filter(|chunk| accepts(chunk.encoding)) {
                return visit(SamplesPart::Stored(stored));
            }
            scratch.clear();
            part.read(range, scratch).map_err(|error| self.damage(&error))?;
            if scratch.is_empty() { Ok(()) } else { visit(SamplesPart::Decoded(scratch)) }
        })
    }

    fn sample_count_hint(&self) -> usize {
        usize::try_from(self.series.sample_count).unwrap_or(usize::MAX)
    }

    fn chunk_count_hint(&self) -> usize {
        usize::try_from(self.series.part_count).unwrap_or(usize::MAX)
    }

    fn time_bounds(&self) -> Option<(i64, i64)> {
        self.series.times.as_ref().map(|times| (*times.start(), *times.end()))
    }
}
