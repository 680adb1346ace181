//! Samples of the parts of a series.
//!
//! Invariants: decoded times ascend, are within the times of the part, and are as many as the part claims
//! if all of it is read; a part that fails appends nothing.

use std::sync::Arc;

use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::query::StoredChunk;
use chronolith_model::{Columns, TimeRange};

use super::parts::{Part, PartKind};
use crate::chunk::dense::{self, ENCODING_BOOLEAN, ENCODING_DENSE};
use crate::chunk::starts;
use crate::chunk::{decimal_delta, kinds, xor, xor2};
use crate::head::wal::BoundedHistogramDecoder;
use crate::record::{expect_end, invalid};

const WHAT: &str = "samples of a part";

/// Returns true if chunks of this encoding are decoded without other bytes, so that they travel as they are.
#[must_use]
pub fn is_sent_as_stored(encoding: u8) -> bool {
    let of_words = [
        xor::ENCODING_XOR,
        xor2::ENCODING_XOR2,
        decimal_delta::ENCODING_DECIMAL_DELTA,
        kinds::ENCODING_WITH_STARTS,
        ENCODING_DENSE,
        ENCODING_BOOLEAN,
    ];
    of_words.contains(&encoding) || kinds::is_histogram(encoding)
}

impl<'a> Part<'a> {
    /// Returns the chunk of a part that is one, if `range` has all of it.
    #[must_use]
    pub fn stored(&self, range: TimeRange) -> Option<StoredChunk<'a>> {
        let Part { first_time: min_time, last_time: max_time, sample_count, body, .. } = *self;
        match self.kind {
            PartKind::Chunk { encoding } if self.is_within(range) => Some(StoredChunk {
                min_time,
                max_time,
                sample_count: sample_count.into(),
                encoding,
                bytes: body,
            }),
            _ => None,
        }
    }

    fn is_within(&self, range: TimeRange) -> bool {
        range.contains(self.first_time) && range.contains(self.last_time)
    }

    /// Appends the samples in `range` to `out`; nothing when it fails, and nothing of a part of texts. Cost:
    /// the samples in the range, of histograms all.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), DecodeError> {
        if !range.overlaps_inclusive(self.first_time, self.last_time) {
            return Ok(());
        }
        let start = out.len();
        let decoded = match self.kind {
            PartKind::Chunk { encoding } => decode_chunk(encoding, self.body, self.part_of(range), out),
            PartKind::Columns if self.histograms.is_empty() => self.read_floats(range, out),
            PartKind::Columns => self.read_mixed(range, out),
            PartKind::Texts => return Ok(()),
        };
        let checked = decoded.and_then(|()| self.check(range, out.times.get(start..).unwrap_or_default()));
        if checked.is_err() {
            out.truncate(start);
        }
        checked
    }

    /// Range for a decoder: everything if `range` has all of the part, so that a sample outside of its times
    /// is noticed.
    fn part_of(&self, range: TimeRange) -> TimeRange {
        if self.is_within(range) {
            return TimeRange { start: i64::MIN, end: i64::MAX };
        }
        TimeRange::new(range.start.max(self.first_time), range.end.min(self.last_time.saturating_add(1)))
    }

    fn check(&self, range: TimeRange, times: &[i64]) -> Result<(), DecodeError> {
        if !times.is_sorted_by(|a, b| a < b) {
            return Err(invalid(WHAT, 0, "ascending times", times.len() as u64));
        }
        let is_whole = times.len() == usize::from(self.sample_count)
            && times.first() == Some(&self.first_time)
            && times.last() == Some(&self.last_time);
        if self.is_within(range) && !is_whole {
            return Err(invalid(WHAT, 0, "number and times of the part", times.len() as u64));
        }
        Ok(())
    }

    /// Appends the values of a part without histograms.
    fn read_floats(&self, range: TimeRange, out: &mut Columns) -> Result<(), DecodeError> {
        let start = out.len();
        self.read_values(self.part_of(range), out)?;
        self.fill_starts(start, out)
    }

    fn read_values(&self, range: TimeRange, out: &mut Columns) -> Result<(), DecodeError> {
        if self.sample_count == 1 {
            let bits = ByteReader::new(self.body).le_u64(WHAT)?;
            out.push(self.first_time, f64::from_bits(bits));
            return Ok(());
        }
        dense::decode(self.body, range, out)
    }

    fn fill_starts(&self, first: usize, out: &mut Columns) -> Result<(), DecodeError> {
        if self.starts.is_empty() {
            return Ok(());
        }
        let mut reader = ByteReader::new(self.starts);
        let mut runs = Vec::new();
        starts::decode(&mut reader, &mut runs)?;
        expect_end(&reader, WHAT)?;
        starts::fill(&runs, first, out);
        Ok(())
    }

    /// Appends the samples of a part with histograms.
    fn read_mixed(&self, range: TimeRange, out: &mut Columns) -> Result<(), DecodeError> {
        let mut all = Columns::default();
        self.read_values(TimeRange { start: i64::MIN, end: i64::MAX }, &mut all)?;
        self.check(TimeRange::inclusive(self.first_time, self.last_time), &all.times)?;
        self.read_histograms(&mut all)?;
        self.fill_starts(0, &mut all)?;
        let indices = all.indices_in(range);
        for idx in indices.clone() {
            // The reset hint of a histogram refers to the sample before it.
            if idx == indices.start && idx > 0 {
                out.push_after_gap(&all, idx);
            } else {
                out.push_from(&all, idx);
            }
        }
        Ok(())
    }

    fn read_histograms(&self, all: &mut Columns) -> Result<(), DecodeError> {
        let mut reader = ByteReader::new(self.histograms);
        let count = reader.length(WHAT)?;
        let mut decoder = BoundedHistogramDecoder::default();
        let mut idx = 0u64;
        for at in 0..count {
            let offset = reader.offset();
            let distance = reader.uvarint(WHAT)?;
            idx = idx.saturating_add(distance);
            let is_repeated = at > 0 && distance == 0;
            if is_repeated || idx >= all.len() as u64 {
                return Err(invalid(WHAT, offset, "a later sample of the part", idx));
            }
            let histogram = decoder.next(&mut reader)?;
            all.histograms.push((idx as u32, histogram));
        }
        expect_end(&reader, WHAT)
    }

    /// Appends the texts in `range`; nothing of a part of other values.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn read_texts(
        &self,
        range: TimeRange,
        times: &mut Vec<i64>,
        texts: &mut Vec<Arc<[u8]>>,
    ) -> Result<(), DecodeError> {
        if self.kind != PartKind::Texts || !range.overlaps_inclusive(self.first_time, self.last_time) {
            return Ok(());
        }
        let mut indices = Columns::default();
        dense::decode(self.body, self.part_of(range), &mut indices)?;
        self.check(range, &indices.times)?;
        let mut reader = ByteReader::new(self.texts);
        let mut dictionary: Vec<Arc<[u8]>> = Vec::new();
        while !reader.is_empty() {
            let len = reader.length(WHAT)?;
            dictionary.push(Arc::from(reader.bytes(WHAT, len)?));
        }
        let mut found = Vec::with_capacity(indices.len());
        for &value in &indices.values {
            // A cast of any other float gives the index 0, or one beyond the dictionary.
            let text = dictionary.get(value as usize).cloned();
            found.push(text.ok_or_else(|| invalid(WHAT, 0, "a text of the part", value.to_bits()))?);
        }
        debug_assert_eq!(found.len(), indices.len(), "one text per time");
        times.append(&mut indices.times);
        texts.append(&mut found);
        Ok(())
    }
}

fn decode_chunk(encoding: u8, bytes: &[u8], range: TimeRange, out: &mut Columns) -> Result<(), DecodeError> {
    match encoding {
        ENCODING_DENSE => dense::decode(bytes, range, out),
        ENCODING_BOOLEAN => dense::decode_boolean(bytes, range, out),
        other => kinds::decode(other, bytes, range, out),
    }
}
