//! Deleted intervals of series, as Prometheus stores them next to a block's index
//! (`docs/block/tombstones.md`).
//!
//! Invariant: the intervals of a series are sorted, disjoint and not adjacent; bounds are inclusive, as on
//! disk.
//! Not here: applying them (`block`), the delete request (`tsdb`).

use std::collections::BTreeMap;

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::TimeUnit;

/// First four bytes of the file.
pub const MAGIC: u32 = 0x0130_BA30;
/// Version with intervals in milliseconds.
pub const VERSION: u8 = 1;
/// Version with intervals in nanoseconds, of blocks of stores in that unit. Programs that do not know it
/// refuse the block instead of taking its times for milliseconds.
const VERSION_NANO: u8 = 2;
const HEADER_BYTES: usize = 5;
const CHECKSUM_BYTES: usize = 4;
/// Bytes of a file without intervals.
pub const EMPTY_BYTES: u64 = (HEADER_BYTES + CHECKSUM_BYTES) as u64;

/// A deleted stretch of time, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// First deleted time.
    pub first: i64,
    /// Last deleted time.
    pub last: i64,
}

/// Deleted intervals by series ref.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tombstones {
    unit: TimeUnit,
    by_series: BTreeMap<u64, Vec<Interval>>,
}

impl Tombstones {
    /// Nothing deleted.
    #[must_use]
    pub fn new() -> Tombstones {
        Tombstones::default()
    }

    /// Nothing deleted of a block with times in `unit`.
    #[must_use]
    pub fn of_unit(unit: TimeUnit) -> Tombstones {
        Tombstones { unit, by_series: BTreeMap::new() }
    }

    /// Unit of the intervals.
    #[must_use]
    pub fn unit(&self) -> TimeUnit {
        self.unit
    }

    /// Deletes `interval` of the series `series_ref`; joins what it touches. An interval that ends before it
    /// starts deletes nothing.
    pub fn add(&mut self, series_ref: u64, interval: Interval) {
        if interval.last < interval.first {
            return;
        }
        let list = self.by_series.entry(series_ref).or_default();
        let touches = |a: &Interval| {
            a.first <= interval.last.saturating_add(1) && interval.first <= a.last.saturating_add(1)
        };
        let from = list.partition_point(|a| a.last.saturating_add(1) < interval.first);
        let count = list.iter().skip(from).take_while(|a| touches(a)).count();
        let joined = list
            .iter()
            .skip(from)
            .take(count)
            .fold(interval, |a, b| Interval { first: a.first.min(b.first), last: a.last.max(b.last) });
        list.splice(from..from + count, [joined]);
    }

    /// Deleted intervals of a series, ascending.
    #[must_use]
    pub fn get(&self, series_ref: u64) -> &[Interval] {
        self.by_series.get(&series_ref).map_or(&[], Vec::as_slice)
    }

    /// Returns true if nothing is deleted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_series.is_empty()
    }

    /// Number of intervals (`numTombstones` of meta.json).
    #[must_use]
    pub fn interval_count(&self) -> usize {
        self.by_series.values().map(Vec::len).sum()
    }

    /// Series with their intervals, in order of ref.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[Interval])> {
        self.by_series.iter().map(|(series_ref, list)| (*series_ref, list.as_slice()))
    }

    /// Appends the whole file.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC.to_be_bytes());
        out.push(match self.unit {
            TimeUnit::Milli => VERSION,
            TimeUnit::Nano => VERSION_NANO,
        });
        let start = out.len();
        for (series_ref, list) in self.iter() {
            for interval in list {
                put_uvarint(out, series_ref);
                put_varint(out, interval.first);
                put_varint(out, interval.last);
            }
        }
        let sum = crc32c(out.get(start..).unwrap_or_default());
        out.extend_from_slice(&sum.to_be_bytes());
    }

    /// Reads a whole file.
    ///
    /// # Errors
    /// [`DecodeError`] if magic, version, checksum or an entry is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Tombstones, DecodeError> {
        let mut r = ByteReader::new(bytes);
        let magic = r.be_u32("tombstones magic")?;
        if magic != MAGIC {
            let (what, expected) = ("tombstones magic", "0x0130ba30");
            return Err(DecodeError::Invalid { what, offset: 0, expected, found: u64::from(magic) });
        }
        let version = r.u8("tombstones version")?;
        let unit = match version {
            VERSION => TimeUnit::Milli,
            VERSION_NANO => TimeUnit::Nano,
            _ => {
                let (what, expected) = ("tombstones version", "1 or 2");
                return Err(DecodeError::Invalid { what, offset: 4, expected, found: u64::from(version) });
            }
        };
        let Some(len) = r.remaining().checked_sub(CHECKSUM_BYTES) else {
            let (what, left) = ("tombstones checksum", r.remaining());
            return Err(DecodeError::Short { what, offset: HEADER_BYTES, needed: CHECKSUM_BYTES, left });
        };
        let expected = crc32c(r.bytes("tombstones", len)?);
        let found = r.be_u32("tombstones checksum")?;
        if found != expected {
            let (what, offset) = ("tombstones checksum", HEADER_BYTES + len);
            return Err(DecodeError::Checksum { what, offset, expected, found });
        }
        let entries = bytes.get(..HEADER_BYTES + len).unwrap_or_default();
        let mut r = ByteReader::at(entries, HEADER_BYTES);
        let mut out = Tombstones::of_unit(unit);
        while !r.is_empty() {
            let series_ref = r.uvarint("tombstone series ref")?;
            let first = r.varint("tombstone start")?;
            let last = r.varint("tombstone end")?;
            out.add(series_ref, Interval { first, last });
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests;
