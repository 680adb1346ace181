//! Frames of records besides samples: metadata, exemplars, ranges of time.
//!
//! Invariant: a reader allocates for entries that it has found, not for a count that a frame claims.
//! Not here: frames of series (`encode`), items of an answer (`decode`).

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::{Exemplar, Labels, LabelsBuilder, MetadataEntry, SeriesExemplars, TimeRange};

use super::content::SelectEncodeError;
use super::frame::{FRAME_BYTES_FULL, KIND_EXEMPLARS, KIND_METADATA, KIND_RANGES, check_len, put_frame};
use crate::lists::{put_list, put_text, read_list, read_text};
use crate::read::range_of;
use crate::record::{invalid, put_metadata, read_metadata as read_entry};

/// Exemplars of an entry; a series with more has several ones.
const EXEMPLARS_PER_ENTRY: usize = 256;

/// Encoder of frames.
#[derive(Debug, Default)]
pub struct RecordFrames {
    out: Vec<u8>,
    /// Payload of the open frame.
    payload: Vec<u8>,
}

impl RecordFrames {
    /// Appends frames of metadata.
    ///
    /// # Errors
    /// [`SelectEncodeError::TooLong`].
    pub fn put_metadata(&mut self, entries: &[MetadataEntry]) -> Result<(), SelectEncodeError> {
        for entry in entries {
            check_len("metadata", entry.metric.len() + entry.help.len() + entry.unit.len())?;
            put_metadata(entry, &mut self.payload);
            self.end_frame(KIND_METADATA, FRAME_BYTES_FULL);
        }
        self.end_frame(KIND_METADATA, 1);
        Ok(())
    }

    /// Appends the exemplars of a series. The last frame stays open for the next series.
    ///
    /// # Errors
    /// [`SelectEncodeError::TooLong`].
    pub fn put_exemplars(
        &mut self,
        labels: &Labels,
        exemplars: &[Exemplar],
    ) -> Result<(), SelectEncodeError> {
        check_len("labels", labels.heap_bytes())?;
        for part in exemplars.chunks(EXEMPLARS_PER_ENTRY) {
            check_len("exemplars", part.iter().map(|one| one.labels.heap_bytes()).sum())?;
            put_exemplars(labels, part, &mut self.payload);
            self.end_frame(KIND_EXEMPLARS, FRAME_BYTES_FULL);
        }
        Ok(())
    }

    /// Ends the frame of the exemplars of the last series.
    pub fn end_exemplars(&mut self) {
        self.end_frame(KIND_EXEMPLARS, 1);
    }

    /// Appends frames of ranges of time.
    pub fn put_ranges(&mut self, ranges: &[TimeRange]) {
        for range in ranges {
            put_range(*range, &mut self.payload);
            self.end_frame(KIND_RANGES, FRAME_BYTES_FULL);
        }
        self.end_frame(KIND_RANGES, 1);
    }

    /// Ends the open frame if it has `bytes_min` bytes.
    fn end_frame(&mut self, kind: u8, bytes_min: usize) {
        if self.payload.len() >= bytes_min {
            put_frame(kind, &self.payload, &mut self.out);
            self.payload.clear();
        }
    }

    /// Returns the finished frames.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }
}

/// Reads the entries of a frame.
///
/// # Errors
/// [`DecodeError`].
pub(super) fn read_metadata(payload: &[u8]) -> Result<Vec<MetadataEntry>, DecodeError> {
    let mut reader = ByteReader::new(payload);
    let mut entries = Vec::new();
    while !reader.is_empty() {
        entries.push(read_entry(&mut reader)?);
    }
    Ok(entries)
}

/// Appends exemplars of a series.
fn put_exemplars(labels: &Labels, exemplars: &[Exemplar], out: &mut Vec<u8>) {
    put_labels(labels, out);
    put_list(out, exemplars, |out, exemplar| {
        put_labels(&exemplar.labels, out);
        out.extend_from_slice(&exemplar.value.to_bits().to_le_bytes());
        put_varint(out, exemplar.time_ms);
    });
}

/// Reads the exemplars of a frame; a series may come several times in a row.
///
/// # Errors
/// [`DecodeError`].
pub(super) fn read_exemplars(payload: &[u8]) -> Result<Vec<SeriesExemplars>, DecodeError> {
    let what = "exemplars of a select answer";
    let mut reader = ByteReader::new(payload);
    let mut builder = LabelsBuilder::new();
    let mut all = Vec::new();
    while !reader.is_empty() {
        let labels = read_labels(&mut reader, &mut builder)?;
        let exemplars = read_list(&mut reader, what, |reader| {
            let labels = read_labels(reader, &mut builder)?;
            let value = f64::from_bits(reader.le_u64(what)?);
            Ok(Exemplar { labels, value, time_ms: reader.varint(what)? })
        })?;
        all.push((labels, exemplars));
    }
    Ok(all)
}

fn put_labels(labels: &Labels, out: &mut Vec<u8>) {
    put_uvarint(out, labels.len() as u64);
    for (name, value) in labels.iter() {
        put_text(out, name);
        put_text(out, value);
    }
}

fn read_labels(reader: &mut ByteReader<'_>, builder: &mut LabelsBuilder) -> Result<Labels, DecodeError> {
    let what = "labels of a select answer";
    let count = reader.length(what)?;
    builder.clear();
    let mut before: Option<String> = None;
    for _ in 0..count {
        let offset = reader.offset();
        let name = read_text(reader, what)?;
        let value = read_text(reader, what)?;
        if value.is_empty() || before.as_ref().is_some_and(|before| *before >= name) {
            return Err(invalid(what, offset, "ascending names with values", name.len() as u64));
        }
        builder.push(&name, &value);
        before = Some(name);
    }
    Ok(builder.finish())
}

/// Appends a range.
fn put_range(range: TimeRange, out: &mut Vec<u8>) {
    put_varint(out, range.start);
    put_varint(out, range.end);
}

/// Reads the ranges of a frame.
///
/// # Errors
/// [`DecodeError`].
pub(super) fn read_ranges(payload: &[u8]) -> Result<Vec<TimeRange>, DecodeError> {
    let mut reader = ByteReader::new(payload);
    let mut ranges = Vec::new();
    while !reader.is_empty() {
        ranges.push(range_of(&mut reader)?);
    }
    Ok(ranges)
}
