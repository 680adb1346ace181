//! Section of a series: a head with its methods and parts, then the parts.

use std::ops::Range;

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::TimeRange;
use chronolith_model::rollup::{RolledWindows, RollupFacts, RollupMethods};

use super::part::{PART_WINDOWS_MAX, PartRead, decode_part, encode_part};
use crate::chunk::dense::DenseScratch;

const WHAT: &str = "roll-up section";

/// Bits of facts, above the bits of methods.
const FACT_EVERY_SAMPLE: u16 = 1 << 15;
const FACT_SMALL_INTEGERS: u16 = 1 << 14;

fn fact_bits(facts: RollupFacts) -> u16 {
    let every_sample = if facts.has_every_sample { FACT_EVERY_SAMPLE } else { 0 };
    let small_integers = if facts.has_small_integers { FACT_SMALL_INTEGERS } else { 0 };
    every_sample | small_integers
}

fn facts_of_bits(bits: u16) -> RollupFacts {
    RollupFacts {
        has_every_sample: bits & FACT_EVERY_SAMPLE != 0,
        has_small_integers: bits & FACT_SMALL_INTEGERS != 0,
    }
}

/// Appends the section of the series `series_ref` with `windows`, at least one, which start at multiples of
/// `span_ms`.
pub fn encode_section(
    series_ref: u32,
    windows: &RolledWindows,
    facts: RollupFacts,
    span_ms: i64,
    scratch: &mut DenseScratch,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    out.extend_from_slice(&series_ref.to_le_bytes());
    out.extend_from_slice(&(windows.methods().bits() | fact_bits(facts)).to_le_bytes());
    let part_ranges = |len: usize| {
        let starts = (0..len).step_by(PART_WINDOWS_MAX);
        starts.map(move |first| first..len.min(first + PART_WINDOWS_MAX))
    };
    put_uvarint(out, part_ranges(windows.len()).count() as u64);
    let mut parts = Vec::new();
    let mut next_number = 0;
    for range in part_ranges(windows.len()) {
        let part_start = parts.len();
        encode_part(windows, range.clone(), span_ms, scratch, &mut parts);
        let numbers = windows.starts().get(range).unwrap_or_default();
        let number = |start: Option<&i64>| start.copied().unwrap_or(0).div_euclid(span_ms);
        let first = number(numbers.first());
        let last = number(numbers.last());
        put_varint(out, first.wrapping_sub(next_number));
        put_uvarint(out, last.wrapping_sub(first).cast_unsigned());
        put_uvarint(out, (parts.len() - part_start) as u64);
        out.extend_from_slice(&crc32c(parts.get(part_start..).unwrap_or_default()).to_le_bytes());
        next_number = last + 1;
    }
    let sum = crc32c(out.get(start..).unwrap_or_default());
    out.extend_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(&parts);
}

/// Entry of a part in the head.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PartEntry {
    /// Numbers of the first and the last window: starts divided by the span.
    first: i64,
    last: i64,
    bytes: Range<usize>,
    checksum: u32,
}

/// Section of a series, its head read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section<'a> {
    bytes: &'a [u8],
    span_ms: i64,
    methods: RollupMethods,
    facts: RollupFacts,
    parts: Vec<PartEntry>,
}

impl<'a> Section<'a> {
    /// Reads the head of the section `bytes` of the series `series_ref`.
    ///
    /// # Errors
    /// [`DecodeError`] if it is damaged, or the section of another series.
    pub fn decode(bytes: &'a [u8], series_ref: u32, span_ms: i64) -> Result<Section<'a>, DecodeError> {
        let mut reader = ByteReader::new(bytes);
        let found_ref = reader.le_u32(WHAT)?;
        let bits = reader.le_u16(WHAT)?;
        let part_count = reader.length(WHAT)?;
        let mut parts = Vec::new();
        let mut next_number = 0i64;
        let mut offset = 0usize;
        for _ in 0..part_count {
            let at = reader.offset();
            let first = next_number.checked_add(reader.varint(WHAT)?);
            let extent = i64::try_from(reader.uvarint(WHAT)?).ok();
            let len = reader.length(WHAT)?;
            let checksum = reader.le_u32(WHAT)?;
            let last = first.zip(extent).and_then(|(first, extent)| first.checked_add(extent));
            // Starts and ends of all windows are times.
            let in_time =
                |number: &i64| number.checked_add(1).and_then(|next| next.checked_mul(span_ms)).is_some();
            let follows = parts.is_empty() || first.is_some_and(|first| first >= next_number);
            let (Some(first), Some(last)) = (first.filter(in_time), last.filter(in_time).filter(|_| follows))
            else {
                let expected = "windows that ascend and are times";
                let found = extent.unwrap_or(-1).cast_unsigned();
                return Err(DecodeError::Invalid { what: WHAT, offset: at, expected, found });
            };
            parts.push(PartEntry { first, last, bytes: offset..offset + len, checksum });
            next_number = last + 1;
            offset += len;
        }
        let head_end = reader.offset();
        let found = reader.le_u32(WHAT)?;
        let expected = crc32c(bytes.get(..head_end).unwrap_or_default());
        if found != expected {
            return Err(DecodeError::Checksum { what: WHAT, offset: 0, expected, found });
        }
        if found_ref != series_ref {
            let expected = "the series of the table";
            return Err(DecodeError::Invalid {
                what: WHAT,
                offset: 0,
                expected,
                found: u64::from(found_ref),
            });
        }
        let start = reader.offset();
        if reader.remaining() != offset {
            let left = reader.remaining();
            return Err(DecodeError::Short { what: WHAT, offset: start, needed: offset, left });
        }
        for part in &mut parts {
            part.bytes = part.bytes.start + start..part.bytes.end + start;
        }
        let facts = facts_of_bits(bits);
        let Some(methods) = RollupMethods::from_bits(bits & !fact_bits(facts)) else {
            let expected = "known methods";
            let found = u64::from(bits);
            return Err(DecodeError::Invalid { what: WHAT, offset: 0, expected, found });
        };
        Ok(Section { bytes, span_ms, methods, facts, parts })
    }

    /// Methods of the windows.
    #[must_use]
    pub fn methods(&self) -> RollupMethods {
        self.methods
    }

    /// Properties of the samples of the windows.
    #[must_use]
    pub fn facts(&self) -> RollupFacts {
        self.facts
    }

    /// Time from the start of the first to the end of the last window; `None` without windows.
    #[must_use]
    pub fn range(&self) -> Option<TimeRange> {
        let start = self.parts.first()?.first * self.span_ms;
        Some(TimeRange::new(start, (self.parts.last()?.last + 1) * self.span_ms))
    }

    /// Appends the windows in `range` to `out`, whose methods are a subset of the section's. Cost: the parts
    /// that have some of them.
    ///
    /// # Errors
    /// [`DecodeError`] of the first damaged part; windows before it have been appended.
    pub fn read(&self, range: TimeRange, out: &mut RolledWindows) -> Result<(), DecodeError> {
        let span_ms = self.span_ms;
        let wanted =
            |part: &&PartEntry| part.first * span_ms < range.end && range.start < (part.last + 1) * span_ms;
        for part in self.parts.iter().filter(wanted) {
            let bytes = self.bytes.get(part.bytes.clone()).unwrap_or_default();
            let expected = crc32c(bytes);
            if expected != part.checksum {
                let what = "roll-up part";
                let offset = part.bytes.start;
                return Err(DecodeError::Checksum { what, offset, expected, found: part.checksum });
            }
            let read = PartRead { first: part.first, last: part.last, span_ms, methods: self.methods, range };
            decode_part(bytes, &read, out)?;
        }
        Ok(())
    }
}
