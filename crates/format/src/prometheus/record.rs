//! Records of Prometheus's WAL and WBL, decoded from uncompressed bytes that they borrow.
//!
//! Invariants: a damaged record is an error with an offset; no allocation per sample.
//! Not here: native histograms (`histograms`), decompression (`segment`).

use chronolith_base::bytes::unzigzag;
use chronolith_base::{ByteReader, DecodeError};

/// Limit of the labels of a series, against hostile counts.
const LABELS_MAX: usize = 1 << 16;

/// Type of a record, by its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Refs and labels of series.
    Series,
    /// Float samples.
    Samples,
    /// Float samples that may have start timestamps.
    SamplesWithStart,
    /// Deleted intervals.
    Tombstones,
    /// Exemplars.
    Exemplars,
    /// Out-of-order chunks that have been m-mapped.
    MmapMarkers,
    /// Type, unit and help of series.
    Metadata,
    /// Native histograms: integer or float, with or without custom buckets or start timestamps.
    Histograms,
    /// End of the blocks that Prometheus had written when it made the checkpoint.
    MinValidTime,
    /// Unknown type, by its number.
    Unknown(u8),
}

impl Kind {
    /// Returns the type of an uncompressed record; `None` for an empty one.
    #[must_use]
    pub fn of(record: &[u8]) -> Option<Kind> {
        Some(match *record.first()? {
            1 => Kind::Series,
            2 => Kind::Samples,
            3 => Kind::Tombstones,
            4 => Kind::Exemplars,
            5 => Kind::MmapMarkers,
            6 => Kind::Metadata,
            7..=10 | 12 | 13 => Kind::Histograms,
            11 => Kind::SamplesWithStart,
            14 => Kind::MinValidTime,
            number => Kind::Unknown(number),
        })
    }

    /// Returns the name for reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Series => "series",
            Kind::Samples => "samples",
            Kind::SamplesWithStart => "samples with start times",
            Kind::Tombstones => "tombstones",
            Kind::Exemplars => "exemplars",
            Kind::MmapMarkers => "m-map markers",
            Kind::Metadata => "metadata",
            Kind::Histograms => "native histograms",
            Kind::MinValidTime => "end of blocks",
            Kind::Unknown(_) => "unknown",
        }
    }
}

/// Iterates the series of a record.
pub struct SeriesRecords<'a> {
    reader: ByteReader<'a>,
}

impl<'a> SeriesRecords<'a> {
    /// Iterates an uncompressed record of [`Kind::Series`].
    #[must_use]
    pub fn new(record: &'a [u8]) -> SeriesRecords<'a> {
        SeriesRecords { reader: ByteReader::at(record, 1) }
    }

    /// Returns the ref of the next series and replaces `pairs` by its labels, in the order of the record, as
    /// bytes that need not be UTF-8. `None` at the end.
    ///
    /// # Errors
    /// [`DecodeError`]; the rest of the record cannot be read then.
    pub fn next(&mut self, pairs: &mut Vec<(&'a [u8], &'a [u8])>) -> Result<Option<u64>, DecodeError> {
        pairs.clear();
        if self.reader.is_empty() {
            return Ok(None);
        }
        let series_ref = self.reader.be_u64("series ref")?;
        read_labels(&mut self.reader, pairs)?;
        Ok(Some(series_ref))
    }
}

fn read_labels<'a>(
    reader: &mut ByteReader<'a>,
    pairs: &mut Vec<(&'a [u8], &'a [u8])>,
) -> Result<(), DecodeError> {
    let offset = reader.offset();
    let count = reader.length("label count")?;
    if count > LABELS_MAX {
        let (what, expected) = ("label count", "at most 65536");
        return Err(DecodeError::Invalid { what, offset, expected, found: count as u64 });
    }
    for _ in 0..count {
        let name = text(reader, "label name")?;
        pairs.push((name, text(reader, "label value")?));
    }
    Ok(())
}

fn text<'a>(reader: &mut ByteReader<'a>, what: &'static str) -> Result<&'a [u8], DecodeError> {
    let len = reader.length(what)?;
    reader.bytes(what, len)
}

/// Calls `visit` with ref, time and value bits of every sample of a record of [`Kind::Samples`].
///
/// # Errors
/// [`DecodeError`] for a damaged sample; those before it have been visited.
///
/// Refs and times mostly take one or two bytes each, which are read without a loop. `visit` has one call
/// site, so that the compiler inlines it.
pub fn for_each_sample(record: &[u8], visit: &mut impl FnMut(u64, i64, u64)) -> Result<(), DecodeError> {
    if record.len() <= 1 {
        return Ok(());
    }
    let mut reader = ByteReader::at(record, 1);
    let base_ref = reader.be_u64("base ref")?;
    let base_time = reader.be_u64("base time")?.cast_signed();
    let mut rest = record.get(reader.offset()..).unwrap_or_default();
    while !rest.is_empty() {
        let offset = record.len() - rest.len();
        let sample = (|| Some((varint(&mut rest)?, varint(&mut rest)?, take8(&mut rest)?)))();
        let Some((ref_delta, time_delta, bits)) = sample else { return Err(short_sample(record, offset)) };
        visit(base_ref.wrapping_add_signed(ref_delta), base_time.wrapping_add(time_delta), bits);
    }
    Ok(())
}

/// Calls `visit` with ref, time, value bits and start timestamp (0 if unknown) of every sample of a record
/// of [`Kind::SamplesWithStart`].
///
/// # Errors
/// As [`for_each_sample`].
pub fn for_each_with_start(
    record: &[u8],
    visit: &mut impl FnMut(u64, i64, u64, i64),
) -> Result<(), DecodeError> {
    let mut rest = record.get(1..).unwrap_or_default();
    let (mut series_ref, mut first_time, mut starts) = (0i64, None, StartTimestamps::default());
    while !rest.is_empty() {
        let offset = record.len() - rest.len();
        let sample = (|| {
            series_ref = series_ref.wrapping_add(varint(&mut rest)?);
            let time_delta = varint(&mut rest)?;
            let time = first_time.map_or(time_delta, |first: i64| first.wrapping_add(time_delta));
            let start_ms = starts.next(&mut rest)?;
            first_time.get_or_insert(time);
            Some((time, take8(&mut rest)?, start_ms))
        })();
        let Some((time, bits, start_ms)) = sample else { return Err(short_sample(record, offset)) };
        visit(series_ref.cast_unsigned(), time, bits, start_ms);
    }
    Ok(())
}

/// Decoder of the start timestamps of a record: a varint for the first sample, a marker for each later one.
#[derive(Debug, Default)]
pub(super) struct StartTimestamps {
    first: Option<i64>,
    before: i64,
}

impl StartTimestamps {
    /// Returns the start timestamp of the next sample; 0 if unknown.
    pub(super) fn next(&mut self, rest: &mut &[u8]) -> Option<i64> {
        const ABSENT: u8 = 0;
        const AS_BEFORE: u8 = 1;
        self.before = match self.first {
            None => *self.first.insert(varint(rest)?),
            Some(first) => {
                let (&marker, tail) = rest.split_first()?;
                *rest = tail;
                match marker {
                    ABSENT => 0,
                    AS_BEFORE => self.before,
                    _ => first.wrapping_add(varint(rest)?),
                }
            }
        };
        Some(self.before)
    }
}

#[cold]
fn short_sample(record: &[u8], offset: usize) -> DecodeError {
    let left = record.len().saturating_sub(offset);
    DecodeError::Short { what: "sample", offset, needed: left + 1, left }
}

/// Reads a zig-zag varint.
#[inline]
pub(super) fn varint(rest: &mut &[u8]) -> Option<i64> {
    match **rest {
        [a, ref tail @ ..] if a < 0x80 => {
            *rest = tail;
            Some(unzigzag(u64::from(a)))
        }
        [a, b, ref tail @ ..] if b < 0x80 => {
            *rest = tail;
            Some(unzigzag(u64::from(a & 0x7f) | u64::from(b) << 7))
        }
        _ => uvarint(rest).map(unzigzag),
    }
}

/// Reads an unsigned varint.
pub(super) fn uvarint(rest: &mut &[u8]) -> Option<u64> {
    let mut reader = ByteReader::new(rest);
    let value = reader.uvarint("varint").ok()?;
    *rest = rest.get(reader.offset()..)?;
    Some(value)
}

/// Reads eight big-endian bytes.
#[inline]
pub(super) fn take8(rest: &mut &[u8]) -> Option<u64> {
    let (front, tail) = rest.split_first_chunk::<8>()?;
    *rest = tail;
    Some(u64::from_be_bytes(*front))
}

/// A deleted interval of a series, inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tombstone {
    /// Series.
    pub series_ref: u64,
    /// First deleted millisecond.
    pub first: i64,
    /// Last deleted millisecond.
    pub last: i64,
}

impl Tombstone {
    /// Returns true if Prometheus removed the series from its head, because a block holds all of its samples.
    #[must_use]
    pub fn is_whole_series(&self) -> bool {
        (self.first, self.last) == (i64::MIN, i64::MAX)
    }
}

/// Returns the intervals of a record of [`Kind::Tombstones`].
///
/// # Errors
/// [`DecodeError`].
pub fn tombstones(record: &[u8]) -> Result<Vec<Tombstone>, DecodeError> {
    let mut reader = ByteReader::at(record, 1);
    let mut out = Vec::new();
    while !reader.is_empty() {
        let series_ref = reader.be_u64("series ref")?;
        let (first, last) = (reader.varint("first time")?, reader.varint("last time")?);
        out.push(Tombstone { series_ref, first, last });
    }
    Ok(out)
}

/// Decodes a record of [`Kind::MinValidTime`]: in-order samples before this time are in blocks.
///
/// # Errors
/// If the record does not have the length of one time.
pub fn min_valid_time(record: &[u8]) -> Result<i64, DecodeError> {
    let mut reader = ByteReader::at(record, 1);
    let time = reader.be_u64("end of blocks")?.cast_signed();
    if reader.is_empty() {
        return Ok(time);
    }
    let found = reader.remaining() as u64;
    let what = "bytes after the end of blocks";
    Err(DecodeError::Invalid { what, offset: reader.offset(), expected: "0", found })
}

/// Returns the number of entries of a record of [`Kind::Exemplars`], [`Kind::Metadata`] or
/// [`Kind::MmapMarkers`]; 0 for other types.
///
/// # Errors
/// [`DecodeError`].
pub fn entry_count(record: &[u8]) -> Result<u64, DecodeError> {
    let mut reader = ByteReader::at(record, 1);
    let mut count = 0;
    let kind = Kind::of(record);
    if kind == Some(Kind::Exemplars) && !reader.is_empty() {
        reader.bytes("base ref and time", 16)?;
    }
    while !reader.is_empty() {
        match kind {
            Some(Kind::Exemplars) => {
                reader.varint("series ref")?;
                reader.varint("time")?;
                reader.bytes("value", 8)?;
                read_labels(&mut reader, &mut Vec::new())?;
            }
            Some(Kind::Metadata) => {
                reader.uvarint("series ref")?;
                reader.u8("metric type")?;
                for _ in 0..reader.length("field count")? {
                    text(&mut reader, "field name")?;
                    text(&mut reader, "field value")?;
                }
            }
            Some(Kind::MmapMarkers) => {
                reader.bytes("series ref and chunk ref", 16)?;
            }
            _ => return Ok(0),
        }
        count += 1;
    }
    Ok(count)
}
