//! Header, table of series, and trailer of a roll-up file.

use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::rollup::RollupSpan;

const MAGIC: [u8; 4] = *b"CLRU";
const VERSION: u16 = 1;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 32;
/// Bytes of a series in the table.
pub const ENTRY_BYTES: usize = 16;
/// Bytes of the trailer.
pub const TRAILER_BYTES: usize = 16;

/// Returns the header of the file of an archive.
#[must_use]
pub fn encode_header(span: RollupSpan) -> [u8; HEADER_BYTES] {
    let mut out = [0u8; HEADER_BYTES];
    out[..4].copy_from_slice(&MAGIC);
    out[4..6].copy_from_slice(&VERSION.to_le_bytes());
    out[8..16].copy_from_slice(&span.span_ms.to_le_bytes());
    out[16..24].copy_from_slice(&span.slot_ms.to_le_bytes());
    let sum = crc32c(&out[..28]);
    out[28..].copy_from_slice(&sum.to_le_bytes());
    out
}

/// Reads the header at the start of `bytes`: the archive of the file.
///
/// # Errors
/// [`DecodeError`] for short, foreign, damaged or later-version bytes.
pub fn decode_header(bytes: &[u8]) -> Result<RollupSpan, DecodeError> {
    let head = ByteReader::new(bytes).bytes("roll-up header", HEADER_BYTES)?;
    let mut reader = ByteReader::new(head);
    let magic = reader.be_u32("roll-up magic")?;
    if magic != u32::from_be_bytes(MAGIC) {
        let found = u64::from(magic);
        return Err(DecodeError::Invalid { what: "roll-up magic", offset: 0, expected: "CLRU", found });
    }
    let version = reader.le_u16("roll-up version")?;
    reader.bytes("roll-up reserved", 2)?;
    let span_ms = reader.le_u64("roll-up span")?.cast_signed();
    let slot_ms = reader.le_u64("roll-up slot")?.cast_signed();
    reader.bytes("roll-up reserved", 4)?;
    check("roll-up header", 28, head.get(..28), reader.le_u32("roll-up checksum")?)?;
    if version != VERSION {
        let found = u64::from(version);
        return Err(DecodeError::Invalid { what: "roll-up version", offset: 4, expected: "1", found });
    }
    if span_ms <= 0 || slot_ms <= 0 || span_ms % slot_ms != 0 {
        let expected = "a multiple of the slot";
        let found = span_ms.cast_unsigned();
        return Err(DecodeError::Invalid { what: "roll-up span", offset: 8, expected, found });
    }
    Ok(RollupSpan { span_ms, slot_ms })
}

fn check(what: &'static str, offset: usize, bytes: Option<&[u8]>, found: u32) -> Result<(), DecodeError> {
    let expected = crc32c(bytes.unwrap_or_default());
    if expected == found { Ok(()) } else { Err(DecodeError::Checksum { what, offset, expected, found }) }
}

/// Appends the entry of a series to the table: series ascend.
pub fn put_entry(series_ref: u32, offset: u64, len: u32, table: &mut Vec<u8>) {
    table.extend_from_slice(&series_ref.to_le_bytes());
    table.extend_from_slice(&len.to_le_bytes());
    table.extend_from_slice(&offset.to_le_bytes());
}

/// Returns the trailer of a file with the table `table`.
#[must_use]
pub fn encode_trailer(table: &[u8]) -> [u8; TRAILER_BYTES] {
    let mut out = [0u8; TRAILER_BYTES];
    out[..8].copy_from_slice(&((table.len() / ENTRY_BYTES) as u64).to_le_bytes());
    out[8..12].copy_from_slice(&crc32c(table).to_le_bytes());
    let sum = crc32c(&out[..12]);
    out[12..].copy_from_slice(&sum.to_le_bytes());
    out
}

/// Verified table of series of a file: offsets of its ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RollupTable {
    start: usize,
    end: usize,
}

impl RollupTable {
    /// Finds and verifies the table of the file `bytes`. Cost: the table.
    ///
    /// # Errors
    /// [`DecodeError`] if trailer or table are short or damaged.
    pub fn find(bytes: &[u8]) -> Result<RollupTable, DecodeError> {
        RollupTable::find_after(bytes, HEADER_BYTES)
    }

    /// As [`RollupTable::find`], of the end of a file: the table begins at `start_min` or later.
    fn find_after(bytes: &[u8], start_min: usize) -> Result<RollupTable, DecodeError> {
        let end = bytes.len().saturating_sub(TRAILER_BYTES);
        let mut reader = ByteReader::at(bytes, end);
        let count = reader.le_u64("roll-up trailer")?;
        let sum = reader.le_u32("roll-up trailer")?;
        let found = reader.le_u32("roll-up trailer")?;
        check("roll-up trailer", end, bytes.get(end..end + 12), found)?;
        let len = usize::try_from(count).ok().and_then(|count| count.checked_mul(ENTRY_BYTES));
        let start = len.and_then(|len| end.checked_sub(len)).filter(|start| *start >= start_min);
        let Some(start) = start else {
            let expected = "no more series than the file has bytes";
            return Err(DecodeError::Invalid {
                what: "roll-up trailer",
                offset: end,
                expected,
                found: count,
            });
        };
        let table = bytes.get(start..end).unwrap_or_default();
        check("roll-up table", start, Some(table), sum)?;
        if !(0..table.len() / ENTRY_BYTES).is_sorted_by_key(|idx| entry(table, idx).series_ref) {
            let expected = "series that ascend";
            return Err(DecodeError::Invalid {
                what: "roll-up table",
                offset: start,
                expected,
                found: count,
            });
        }
        Ok(RollupTable { start, end })
    }

    /// Number of series.
    #[must_use]
    pub fn len(&self) -> usize {
        (self.end - self.start) / ENTRY_BYTES
    }

    /// Returns true if the file has no series.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Bytes of the section of a series in the file `bytes`, which the table was found in; `None` if it has
    /// none. Cost: a binary search.
    ///
    /// # Errors
    /// [`DecodeError::Short`] if the section is not in the file.
    pub fn section<'a>(&self, bytes: &'a [u8], series_ref: u32) -> Result<Option<&'a [u8]>, DecodeError> {
        let table = bytes.get(self.start..self.end).unwrap_or_default();
        let Some(idx) = idx_of(table, series_ref) else { return Ok(None) };
        self.section_at(bytes, idx).map(|section| Some(section.bytes))
    }

    /// Section of the series at `idx` of the table.
    ///
    /// # Errors
    /// [`DecodeError::Short`] if the section is not in the file.
    pub fn section_at<'a>(&self, bytes: &'a [u8], idx: usize) -> Result<TableSection<'a>, DecodeError> {
        let table = bytes.get(self.start..self.end).unwrap_or_default();
        let Entry { series_ref, len, offset } = entry(table, idx);
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.checked_add(len as usize).filter(|end| *end <= self.start);
        match end.and_then(|end| bytes.get(start..end)) {
            Some(bytes) => Ok(TableSection { series_ref, offset: start, bytes }),
            None => {
                let left = self.start.saturating_sub(start);
                let what = "roll-up section";
                Err(DecodeError::Short { what, offset: start, needed: len as usize, left })
            }
        }
    }
}

/// Section of a series in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableSection<'a> {
    /// Ref of the series in the table.
    pub series_ref: u32,
    /// Offset in the file.
    pub offset: usize,
    /// The section.
    pub bytes: &'a [u8],
}

/// Footer of a roll-up file: its table of series, read without the rest of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RollupTail {
    table: Vec<u8>,
    /// Offset of the table in the file.
    start: u64,
}

impl RollupTail {
    /// Bytes of the end of a file that has at most `series_count` series.
    #[must_use]
    pub fn bytes_max(series_count: u64) -> u64 {
        series_count.saturating_mul(ENTRY_BYTES as u64).saturating_add(TRAILER_BYTES as u64)
    }

    /// Reads the end of a file of `file_bytes` bytes, which has the whole table. Cost: the table.
    ///
    /// # Errors
    /// [`DecodeError`] if trailer or table are short or damaged, with offsets in `tail`.
    pub fn decode(tail: &[u8], file_bytes: u64) -> Result<RollupTail, DecodeError> {
        let RollupTable { start, end } = RollupTable::find_after(tail, 0)?;
        let table = tail.get(start..end).unwrap_or_default().to_vec();
        let start = file_bytes.saturating_sub((tail.len() - start) as u64);
        Ok(RollupTail { table, start })
    }

    /// Offsets of the section of a series in the file; `None` if it has none. Cost: a binary search.
    #[must_use]
    pub fn place(&self, series_ref: u32) -> Option<std::ops::Range<u64>> {
        let Entry { len, offset, .. } = entry(&self.table, idx_of(&self.table, series_ref)?);
        let end = offset.checked_add(u64::from(len)).filter(|end| *end <= self.start)?;
        Some(offset..end)
    }

    /// Memory of the table.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.table.len()
    }
}

/// Index of a series in a table, whose series ascend.
fn idx_of(table: &[u8], series_ref: u32) -> Option<usize> {
    let count = table.len() / ENTRY_BYTES;
    let mut low = 0;
    let mut high = count;
    while low < high {
        let middle = low.midpoint(high);
        match entry(table, middle).series_ref < series_ref {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    (low < count && entry(table, low).series_ref == series_ref).then_some(low)
}

/// Entry of a series in the table: offset and length of its section.
struct Entry {
    series_ref: u32,
    len: u32,
    offset: u64,
}

fn entry(table: &[u8], idx: usize) -> Entry {
    let mut reader = ByteReader::at(table, idx.saturating_mul(ENTRY_BYTES));
    let what = "roll-up table";
    let series_ref = reader.le_u32(what).unwrap_or(u32::MAX);
    let len = reader.le_u32(what).unwrap_or(0);
    Entry { series_ref, len, offset: reader.le_u64(what).unwrap_or(u64::MAX) }
}
