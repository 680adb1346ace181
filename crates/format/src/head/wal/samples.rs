//! Payload of WAL frames with samples of one stripe, floats and native histograms with their start
//! timestamps; checkpoint slices hold out-of-order samples the same way.
//!
//! Invariants: samples come back in the order in which they were appended, to the bit; an encoded payload is
//! at most [`FRAME_PAYLOAD_BYTES_MAX`] long.
//! Not here: one histogram (`histograms`), payloads of earlier versions (`old_samples`). Layout:
//! `docs/head/wal.md`.

use std::ops::Range;
use std::sync::Arc;

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::{DuplicatePolicy, Histogram};

use super::FRAME_PAYLOAD_BYTES_MAX;
use super::histograms::{HistogramDecoder, HistogramEncoder, encoded_len_max};
use super::payload::{expect_end, next_id, put_ids};
use crate::start_runs;

/// Times follow as differences to the base; otherwise all of them are the base.
const HAS_TIMES: u8 = 1;
/// A second value at a timestamp replaces the first one; otherwise the first one is kept.
const LAST_WINS: u8 = 2;
const HAS_HISTOGRAMS: u8 = 4;
const HAS_STARTS: u8 = 8;
/// All samples are of one series, whose id stands there once.
const ONE_SERIES: u8 = 16;
const FLAGS_KNOWN: u8 = HAS_TIMES | LAST_WINS | HAS_HISTOGRAMS | HAS_STARTS | ONE_SERIES;

/// Samples per frame.
const FRAME_SAMPLES_MAX: usize = 1 << 16;
/// Bytes of histograms, as estimated by [`encoded_len_max`], from which on a frame is full.
const FRAME_HISTOGRAM_BYTES: usize = 4 << 20;
/// Upper bound of [`encoded_len_max`]: 2^16 buckets and spans per sign and 2^16 custom bounds.
const HISTOGRAM_BYTES_MAX: usize = 5 << 20;
/// Upper bound of a sample without its histogram: id, time, value, runs of histograms and start timestamps.
const SAMPLE_BYTES_MAX: usize = 5 + 10 + 8 + 6 + 13;

const _: () = assert!(
    64 + FRAME_SAMPLES_MAX * SAMPLE_BYTES_MAX + FRAME_HISTOGRAM_BYTES + HISTOGRAM_BYTES_MAX
        < FRAME_PAYLOAD_BYTES_MAX
);

/// Samples of one stripe in columns, which are reused from frame to frame.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Samples {
    /// Server time at which the samples were received.
    pub arrival_ms: i64,
    /// Policy under which the samples were accepted.
    pub duplicates: DuplicatePolicy,
    /// Series ids.
    pub ids: Vec<u32>,
    /// In the unit of the tenant.
    pub times: Vec<i64>,
    /// Bits of the floats, one word per sample; the word of a histogram has no meaning. Empty if the frame is
    /// of an earlier version and holds nothing but start timestamps.
    pub values: Vec<u64>,
    /// Index of the sample, ascending, and its histogram.
    pub histograms: Vec<(u32, Arc<Histogram>)>,
    /// In the unit of the tenant, 0 = unknown; empty if no sample has one, else missing ones at the end are
    /// 0.
    pub start_times: Vec<i64>,
}

impl Samples {
    /// Adds a float.
    #[inline]
    pub fn push(&mut self, id: u32, time: i64, value_bits: u64) {
        self.ids.push(id);
        self.times.push(time);
        self.values.push(value_bits);
    }

    /// Adds a histogram.
    pub fn push_histogram(&mut self, id: u32, time: i64, histogram: Arc<Histogram>) {
        self.histograms.push((self.ids.len() as u32, histogram));
        self.push(id, time, 0);
    }

    /// Sets the start timestamp of the sample that was added last.
    pub fn set_last_start(&mut self, start_ms: i64) {
        self.start_times.resize(self.ids.len().saturating_sub(1), 0);
        self.start_times.push(start_ms);
    }

    /// Removes all samples.
    pub fn clear(&mut self) {
        self.ids.clear();
        self.times.clear();
        self.values.clear();
        self.histograms.clear();
        self.start_times.clear();
    }

    /// Returns the memory of the columns, without the memory of the histograms in them.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        4 * self.ids.capacity()
            + 8 * (self.times.capacity() + self.values.capacity() + self.start_times.capacity())
            + size_of::<(u32, Arc<Histogram>)>() * self.histograms.capacity()
    }

    /// Calls `emit` with one payload after another until all samples are encoded; `payload` is scratch
    /// memory.
    ///
    /// # Panics
    /// If the columns differ in length.
    pub fn encode_frames(&self, payload: &mut Vec<u8>, mut emit: impl FnMut(&[u8])) {
        assert!(self.ids.len() == self.times.len() && self.ids.len() == self.values.len(), "equal columns");
        let mut first = 0;
        while first < self.ids.len() {
            let end = self.frame_end(first);
            self.encode(first..end, payload);
            emit(payload);
            first = end;
        }
    }

    /// Returns the end of the frame that starts with sample `first`.
    fn frame_end(&self, first: usize) -> usize {
        let end = self.ids.len().min(first + FRAME_SAMPLES_MAX);
        let mut bytes = 0;
        for (idx, histogram) in self.histograms_in(first..end) {
            bytes += encoded_len_max(histogram);
            if bytes >= FRAME_HISTOGRAM_BYTES {
                return *idx as usize + 1;
            }
        }
        end
    }

    fn histograms_in(&self, range: Range<usize>) -> &[(u32, Arc<Histogram>)] {
        let at = |idx: usize| self.histograms.partition_point(|(of, _)| (*of as usize) < idx);
        self.histograms.get(at(range.start)..at(range.end)).unwrap_or(&[])
    }

    /// Replaces `out` by the samples in `range`, which is not empty.
    fn encode(&self, range: Range<usize>, out: &mut Vec<u8>) {
        let (ids, times) = (&self.ids[range.clone()], &self.times[range.clone()]);
        let values = &self.values[range.clone()];
        let histograms = self.histograms_in(range.clone());
        // Most samples of a frame are of one scrape, and out-of-order ones are earlier: only these need more
        // than a byte for their time.
        let base = times.iter().copied().fold(times[0], i64::max);
        let flag = |is_set, bit| if is_set { bit } else { 0 };
        let flags = flag(times.iter().any(|&time| time != base), HAS_TIMES)
            | flag(self.duplicates == DuplicatePolicy::LastWins, LAST_WINS)
            | flag(!histograms.is_empty(), HAS_HISTOGRAMS)
            | flag(!self.start_times.is_empty(), HAS_STARTS)
            | flag(ids.iter().all(|&id| id == ids[0]), ONE_SERIES);
        out.clear();
        out.push(flags);
        put_uvarint(out, ids.len() as u64);
        out.extend_from_slice(&self.arrival_ms.to_le_bytes());
        out.extend_from_slice(&base.to_le_bytes());
        put_ids(if flags & ONE_SERIES != 0 { &ids[..1] } else { ids }, out);
        if flags & HAS_TIMES != 0 {
            put_times(times, base, out);
        }
        out.reserve(8 * values.len());
        if histograms.is_empty() {
            put_values(values, out);
        } else {
            put_mixed(range.start, values, histograms, out);
        }
        if flags & HAS_STARTS != 0 {
            let starts = self.start_times.get(range.start..).unwrap_or(&[]);
            start_runs::put(starts.iter().copied().chain(std::iter::repeat(0)).take(ids.len()), base, out);
        }
    }

    /// Adds the samples of a payload of [`super::KIND_SAMPLES`] to empty columns.
    ///
    /// # Errors
    /// [`DecodeError`]; the columns are then not usable.
    pub(super) fn decode(&mut self, mut reader: ByteReader<'_>) -> Result<(), DecodeError> {
        let flags = reader.u8("sample flags")?;
        if flags & !FLAGS_KNOWN != 0 {
            let (what, expected, found) = ("sample flags", "known flags", u64::from(flags));
            return Err(DecodeError::Invalid { what, offset: 0, expected, found });
        }
        let is_set = |bit| flags & bit != 0;
        self.duplicates =
            if is_set(LAST_WINS) { DuplicatePolicy::LastWins } else { DuplicatePolicy::KeepFirst };
        let offset = reader.offset();
        let count = reader.length("sample count")?;
        // A sample has at least the eight bytes of its value, which bounds the memory of the columns.
        if count > reader.remaining() / 8 {
            let (what, needed, left) = ("samples", count.saturating_mul(8), reader.remaining());
            return Err(DecodeError::Short { what, offset, needed, left });
        }
        self.arrival_ms = reader.le_u64("arrival time")?.cast_signed();
        let base = reader.le_u64("base time")?.cast_signed();
        self.get_ids(&mut reader, count, is_set(ONE_SERIES))?;
        if is_set(HAS_TIMES) {
            self.get_times(&mut reader, count, base)?;
        } else {
            self.times.resize(count, base);
        }
        if is_set(HAS_HISTOGRAMS) {
            self.get_mixed(&mut reader, count)?;
        } else {
            self.get_values(&mut reader, count)?;
        }
        if is_set(HAS_STARTS) {
            start_runs::read(&mut reader, count, base, &mut self.start_times)?;
        }
        expect_end(&reader, "samples")
    }

    pub(super) fn get_ids(
        &mut self,
        reader: &mut ByteReader<'_>,
        count: usize,
        is_one: bool,
    ) -> Result<(), DecodeError> {
        let mut id = 0;
        for _ in 0..if is_one { count.min(1) } else { count } {
            id = next_id(reader, id)?;
            self.ids.push(id);
        }
        self.ids.resize(count, id);
        Ok(())
    }

    pub(super) fn get_times(
        &mut self,
        reader: &mut ByteReader<'_>,
        count: usize,
        base: i64,
    ) -> Result<(), DecodeError> {
        for _ in 0..count {
            self.times.push(base.wrapping_add(reader.varint("time")?));
        }
        Ok(())
    }

    pub(super) fn get_values(
        &mut self,
        reader: &mut ByteReader<'_>,
        count: usize,
    ) -> Result<(), DecodeError> {
        let values = reader.bytes("values", count.saturating_mul(8))?;
        self.values.extend(values.as_chunks::<8>().0.iter().map(|b| u64::from_le_bytes(*b)));
        Ok(())
    }

    fn get_mixed(&mut self, reader: &mut ByteReader<'_>, count: usize) -> Result<(), DecodeError> {
        let mut decoder = HistogramDecoder::default();
        while self.values.len() < count {
            let float_count = self.get_run(reader, count)?;
            self.get_values(reader, float_count)?;
            for _ in 0..self.get_run(reader, count)? {
                self.histograms.push((self.values.len() as u32, decoder.next(reader)?));
                self.values.push(0);
            }
        }
        Ok(())
    }

    /// Reads the length of a run of samples of one kind.
    fn get_run(&self, reader: &mut ByteReader<'_>, count: usize) -> Result<usize, DecodeError> {
        let (offset, left) = (reader.offset(), count - self.values.len());
        let found = reader.uvarint("run of samples")?;
        let (what, expected) = ("run of samples", "at most the samples that are left");
        let run = usize::try_from(found).ok().filter(|&run| run <= left);
        run.ok_or(DecodeError::Invalid { what, offset, expected, found })
    }
}

fn put_times(times: &[i64], base: i64, out: &mut Vec<u8>) {
    out.reserve(2 * times.len());
    for &time in times {
        match time.wrapping_sub(base) {
            0 => out.push(0),
            difference => put_varint(out, difference),
        }
    }
}

fn put_values(values: &[u64], out: &mut Vec<u8>) {
    for value in values {
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// Appends runs of floats and of histograms in turn; sample `first` is the first one of `values`.
fn put_mixed(first: usize, values: &[u64], histograms: &[(u32, Arc<Histogram>)], out: &mut Vec<u8>) {
    let mut encoder = HistogramEncoder::new(out);
    let mut done = 0;
    for run in histograms.chunk_by(|a, b| a.0 + 1 == b.0) {
        let start = run[0].0 as usize - first;
        put_uvarint(encoder.out(), (start - done) as u64);
        put_values(&values[done..start], encoder.out());
        put_uvarint(encoder.out(), run.len() as u64);
        run.iter().for_each(|(_, histogram)| encoder.put(histogram));
        done = start + run.len();
    }
    if done < values.len() {
        put_uvarint(encoder.out(), (values.len() - done) as u64);
        put_values(&values[done..], encoder.out());
        put_uvarint(encoder.out(), 0);
    }
}

#[cfg(test)]
mod tests;
