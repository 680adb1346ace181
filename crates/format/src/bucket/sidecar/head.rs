//! Head of a sidecar, at its end: the block, its files, the page table, the metric directory, sections.
//!
//! Invariants: everything is verified when the head is decoded; pages and sections lie before the head,
//! pages have consecutive ordinals and ascending refs. One request for the last bytes of the object reads it:
//! the trailer has the length of the head.

use std::ops::Range;

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::TimeUnit;

use super::super::packed::{Unpacker, put_packed};
use super::super::texts::{check_end, put_column, read_column};
use super::names::{Directory, read_directory};
use super::page::PageEntry;
use super::times::{SegmentRange, read_ranges};
use crate::block::meta::Ulid;

/// Last four bytes of a sidecar, and its first four.
pub const MAGIC: [u8; 4] = *b"CLSD";
/// Version that is written and read.
pub const VERSION: u16 = 1;
/// Magic, version and two zero bytes at the start.
pub const HEADER_BYTES: usize = 8;
/// Fixed-width end of the head.
pub const TRAILER_BYTES: usize = 24;
/// Bytes at the end of a sidecar to read where the length of the head is unknown: most heads are shorter.
pub const SUFFIX_BYTES: u64 = 64 << 10;
/// Bytes of an unpacked head.
const HEAD_RAW_BYTES_MAX: usize = 64 << 20;

/// Bit of the kind of a file.
const HAS_CRC: u8 = 0x80;

const WHAT: &str = "sidecar head";

/// A file of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SidecarFile {
    /// The file `index`.
    Index,
    /// A file of `chunks/`, numbered from 0.
    Segment(u32),
    /// The file `meta.json`.
    Meta,
    /// `tombstones` as uploaded; later deletions are objects that the catalogue names.
    Tombstones,
}

/// Length and checksum of a file of the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSum {
    /// File that is described.
    pub file: SidecarFile,
    /// Number of its bytes.
    pub len: u64,
    /// CRC-32C of all of them, which object stores compute and compare too; `None` if the file was not read
    /// as a whole.
    pub crc: Option<u32>,
}

/// A part of the sidecar that is read on demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// Offset in the sidecar.
    pub offset: u64,
    /// Bytes in the sidecar.
    pub len: u64,
}

/// Ranges of the chunks whose times other chunks refer to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SharedTimes {
    /// All ranges, which ascend.
    Inline(Vec<SegmentRange>),
    /// The section to read; [`SharedTimes::decode_section`] decodes it.
    Section(Section),
}

impl SharedTimes {
    /// Decodes the section with the ranges.
    ///
    /// # Errors
    /// [`DecodeError`] with an offset of the unpacked section, or of `bytes` if they could not be unpacked.
    pub fn decode_section(bytes: &[u8]) -> Result<Vec<SegmentRange>, DecodeError> {
        let mut raw = Vec::new();
        Unpacker::default().unpack("shared times", bytes, HEAD_RAW_BYTES_MAX, &mut raw)?;
        let mut reader = ByteReader::new(&raw);
        let ranges = read_ranges(&mut reader)?;
        check_end("shared times", &reader)?;
        Ok(ranges)
    }
}

/// Decoded head of a sidecar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SidecarHead {
    /// Name of the block.
    pub block: Ulid,
    /// Unit of all times.
    pub time_unit: TimeUnit,
    /// Files of the block: index, segments in order, meta.json, tombstones if there are any.
    pub files: Vec<FileSum>,
    /// Series of the block.
    pub series_count: u32,
    /// Chunks of all series.
    pub chunk_count: u64,
    /// Page table, by ordinal and by series ref.
    pub pages: Vec<PageEntry>,
    /// Metric names and their series.
    pub directory: Directory,
    /// Sparse offset table; `None` if it could not be made (index version 1).
    pub offsets: Option<Section>,
    /// Chunks whose times others share.
    pub times: SharedTimes,
}

/// Fixed-width end of a sidecar.
struct Trailer {
    head_len: u32,
    file_len: u64,
}

impl Trailer {
    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.head_len.to_le_bytes());
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&self.file_len.to_le_bytes());
        let sum = crc32c(out.get(start..).unwrap_or_default());
        out.extend_from_slice(&sum.to_le_bytes());
        out.extend_from_slice(&MAGIC);
    }

    fn decode(suffix: &[u8]) -> Result<Trailer, DecodeError> {
        let start = suffix.len().saturating_sub(TRAILER_BYTES);
        let mut reader = ByteReader::at(suffix, start);
        let expected = crc32c(reader.clone().bytes("sidecar trailer", TRAILER_BYTES - 8)?);
        let head_len = reader.le_u32("sidecar head length")?;
        let version = reader.le_u16("sidecar version")?;
        reader.bytes("sidecar trailer", 2)?;
        let file_len = reader.le_u64("sidecar length")?;
        let offset = reader.offset();
        let found = reader.le_u32("sidecar trailer")?;
        let magic = reader.be_u32("sidecar magic")?;
        let invalid = |what, expected, found| DecodeError::Invalid { what, offset, expected, found };
        if magic != u32::from_be_bytes(MAGIC) {
            return Err(invalid("sidecar magic", "CLSD", u64::from(magic)));
        }
        if found != expected {
            return Err(DecodeError::Checksum { what: "sidecar trailer", offset, expected, found });
        }
        if version != VERSION {
            return Err(invalid("sidecar version", "1", u64::from(version)));
        }
        if (head_len as usize) < TRAILER_BYTES || u64::from(head_len) > file_len {
            return Err(invalid("sidecar head length", "that of a part of the file", u64::from(head_len)));
        }
        Ok(Trailer { head_len, file_len })
    }
}

/// Appends the first [`HEADER_BYTES`] of a sidecar.
pub(super) fn put_header(out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&[0, 0]);
}

/// Returns the bytes of the head, trailer included, from the last bytes of a sidecar, at least
/// [`TRAILER_BYTES`].
///
/// # Errors
/// [`DecodeError`] with an offset of `suffix` if these are not the last bytes of a sidecar of this version.
pub fn head_len(suffix: &[u8]) -> Result<u32, DecodeError> {
    Ok(Trailer::decode(suffix)?.head_len)
}

/// Parts of a head, some of them encoded already.
pub(super) struct HeadParts<'a> {
    pub(super) block: Ulid,
    pub(super) time_unit: TimeUnit,
    pub(super) files: &'a [FileSum],
    pub(super) chunk_count: u64,
    pub(super) pages: &'a [PageEntry],
    pub(super) directory: &'a [u8],
    pub(super) offsets: Option<Section>,
    /// The section with the shared times, else their encoded ranges.
    pub(super) times: Result<Section, &'a [u8]>,
}

impl HeadParts<'_> {
    /// Appends head and trailer; the head starts at `offset` of the sidecar. Returns its length.
    pub(super) fn encode(&self, offset: u64, out: &mut Vec<u8>) -> u32 {
        let mut raw = self.block.to_bytes().to_vec();
        raw.push(u8::from(self.time_unit == TimeUnit::Nano));
        let series_count: u64 = self.pages.iter().map(|page| u64::from(page.series_count)).sum();
        put_uvarint(&mut raw, series_count);
        put_uvarint(&mut raw, self.chunk_count);
        put_files(self.files, &mut raw);
        put_pages(self.pages, &mut raw);
        put_section(self.offsets, &mut raw);
        match self.times {
            Ok(section) => put_section(Some(section), &mut raw),
            Err(ranges) => {
                put_section(None, &mut raw);
                raw.extend_from_slice(ranges);
            }
        }
        raw.extend_from_slice(self.directory);
        let start = out.len();
        put_packed(&raw, out);
        let len = out.len() - start + TRAILER_BYTES;
        let head_len = u32::try_from(len).unwrap_or(u32::MAX);
        Trailer { head_len, file_len: offset + len as u64 }.encode(out);
        head_len
    }
}

fn put_section(section: Option<Section>, out: &mut Vec<u8>) {
    let section = section.unwrap_or(Section { offset: 0, len: 0 });
    put_uvarint(out, section.offset);
    put_uvarint(out, section.len);
}

/// Segments are numbered in the order in which they come.
fn put_files(files: &[FileSum], out: &mut Vec<u8>) {
    put_uvarint(out, files.len() as u64);
    for sum in files {
        let kind = match sum.file {
            SidecarFile::Index => 0,
            SidecarFile::Segment(_) => 1,
            SidecarFile::Meta => 2,
            SidecarFile::Tombstones => 3,
        };
        out.push(if sum.crc.is_some() { kind | HAS_CRC } else { kind });
        put_uvarint(out, sum.len);
        if let Some(crc) = sum.crc {
            out.extend_from_slice(&crc.to_le_bytes());
        }
    }
}

fn put_pages(pages: &[PageEntry], out: &mut Vec<u8>) {
    let mut columns: [Vec<u8>; 5] = Default::default();
    let [lens, counts, refs, min_times, widths] = &mut columns;
    let mut last_ref = 0;
    let mut last_min = 0i64;
    for page in pages {
        put_uvarint(lens, u64::from(page.len));
        put_uvarint(counts, u64::from(page.series_count));
        put_uvarint(refs, u64::from(page.first_ref - last_ref));
        put_varint(min_times, page.min_time.wrapping_sub(last_min));
        put_uvarint(widths, page.max_time.wrapping_sub(page.min_time).cast_unsigned());
        last_ref = page.first_ref;
        last_min = page.min_time;
    }
    put_uvarint(out, pages.len() as u64);
    columns.iter().for_each(|column| put_column(column, out));
}

impl SidecarHead {
    /// Decodes the head from `suffix`, the last bytes of a sidecar.
    ///
    /// # Errors
    /// [`DecodeError::Short`] if `suffix` does not reach the start of the head: [`head_len`] has its length.
    /// Other errors for damage, with an offset of the unpacked head, or of `suffix` if it could not be
    /// unpacked.
    pub fn decode(suffix: &[u8]) -> Result<SidecarHead, DecodeError> {
        let trailer = Trailer::decode(suffix)?;
        let needed = trailer.head_len as usize;
        let short = DecodeError::Short { what: WHAT, offset: 0, needed, left: suffix.len() };
        let start = suffix.len().checked_sub(needed).ok_or_else(|| short.clone())?;
        let packed = suffix.get(start..suffix.len() - TRAILER_BYTES).ok_or(short)?;
        let mut raw = Vec::new();
        Unpacker::default().unpack(WHAT, packed, HEAD_RAW_BYTES_MAX, &mut raw)?;
        let head_start = trailer.file_len - u64::from(trailer.head_len);
        SidecarHead::decode_raw(&raw, head_start)
    }

    /// `head_start` is the offset of the head: everything else lies before it.
    fn decode_raw(raw: &[u8], head_start: u64) -> Result<SidecarHead, DecodeError> {
        let mut reader = ByteReader::new(raw);
        let high = reader.be_u64(WHAT)?;
        let low = reader.be_u64(WHAT)?;
        let time_unit = match reader.u8("sidecar time unit")? {
            0 => TimeUnit::Milli,
            1 => TimeUnit::Nano,
            unit => return Err(invalid("0 or 1 as time unit", 16, u64::from(unit))),
        };
        let offset = reader.offset();
        let series_count = reader.uvarint(WHAT)?;
        let series_count =
            u32::try_from(series_count).map_err(|_| invalid("a number of series", offset, series_count))?;
        let chunk_count = reader.uvarint(WHAT)?;
        let files = read_files(&mut reader)?;
        let pages = read_pages(&mut reader, head_start)?;
        let paged_count: u64 = pages.iter().map(|page| u64::from(page.series_count)).sum();
        if paged_count != u64::from(series_count) {
            return Err(invalid("pages with all series", reader.offset(), paged_count));
        }
        let offsets = read_section(&mut reader, head_start)?;
        let times = match read_section(&mut reader, head_start)? {
            Some(section) => SharedTimes::Section(section),
            None => SharedTimes::Inline(read_ranges(&mut reader)?),
        };
        let directory = read_directory(&mut reader, series_count)?;
        check_end(WHAT, &reader)?;
        if let Directory::Paged(pages) = &directory
            && let Some(page) = pages.iter().find(|page| page.offset + u64::from(page.len) > head_start)
        {
            return Err(invalid("name pages before the head", 0, page.offset));
        }
        let block = Ulid::from_bits(u128::from(high) << 64 | u128::from(low));
        Ok(SidecarHead {
            block,
            time_unit,
            files,
            series_count,
            chunk_count,
            pages,
            directory,
            offsets,
            times,
        })
    }

    /// Length and checksum of a file of the block.
    #[must_use]
    pub fn file(&self, file: SidecarFile) -> Option<&FileSum> {
        self.files.iter().find(|sum| sum.file == file)
    }

    /// Returns true if the sidecar was made of the index alone: no file has a checksum, lengths of chunks are
    /// expected ones, and chunks whose times others share are not recorded.
    #[must_use]
    pub fn is_of_index_alone(&self) -> bool {
        self.file(SidecarFile::Index).is_some_and(|sum| sum.crc.is_none())
    }

    /// Indices of the pages that have series of `ordinals`.
    #[must_use]
    pub fn pages_of(&self, ordinals: Range<u32>) -> Range<usize> {
        let end_of = |page: &PageEntry| u64::from(page.first_ordinal) + u64::from(page.series_count);
        let start = self.pages.partition_point(|page| end_of(page) <= u64::from(ordinals.start));
        let end = self.pages.partition_point(|page| page.first_ordinal < ordinals.end);
        start..end.max(start)
    }

    /// Index of the page that has the series `series_ref` if the block has it.
    #[must_use]
    pub fn page_of_ref(&self, series_ref: u32) -> Option<usize> {
        self.pages.partition_point(|page| page.first_ref <= series_ref).checked_sub(1)
    }
}

#[cold]
fn invalid(expected: &'static str, offset: usize, found: u64) -> DecodeError {
    DecodeError::Invalid { what: WHAT, offset, expected, found }
}

fn read_section(reader: &mut ByteReader<'_>, head_start: u64) -> Result<Option<Section>, DecodeError> {
    let at = reader.offset();
    let offset = reader.uvarint(WHAT)?;
    let len = reader.uvarint(WHAT)?;
    match offset.checked_add(len) {
        Some(0) => Ok(None),
        Some(end) if end <= head_start => Ok(Some(Section { offset, len })),
        _ => Err(invalid("a section before the head", at, offset)),
    }
}

fn read_files(reader: &mut ByteReader<'_>) -> Result<Vec<FileSum>, DecodeError> {
    let count = reader.length(WHAT)?;
    let mut files = Vec::new();
    let mut segment_idx = 0u32;
    for _ in 0..count {
        let offset = reader.offset();
        let kind = reader.u8(WHAT)?;
        let file = match kind & !HAS_CRC {
            0 => SidecarFile::Index,
            1 => {
                segment_idx = segment_idx.saturating_add(1);
                SidecarFile::Segment(segment_idx - 1)
            }
            2 => SidecarFile::Meta,
            3 => SidecarFile::Tombstones,
            _ => return Err(invalid("a kind of file", offset, u64::from(kind))),
        };
        let len = reader.uvarint(WHAT)?;
        let crc = if kind & HAS_CRC != 0 { Some(reader.le_u32(WHAT)?) } else { None };
        files.push(FileSum { file, len, crc });
    }
    Ok(files)
}

fn read_pages(reader: &mut ByteReader<'_>, head_start: u64) -> Result<Vec<PageEntry>, DecodeError> {
    let count = reader.length(WHAT)?;
    let mut lens = read_column(WHAT, reader)?;
    let mut counts = read_column(WHAT, reader)?;
    let mut refs = read_column(WHAT, reader)?;
    let mut min_times = read_column(WHAT, reader)?;
    let mut widths = read_column(WHAT, reader)?;
    let mut pages: Vec<PageEntry> = Vec::new();
    let mut offset = HEADER_BYTES as u64;
    let mut ordinal = 0u32;
    let mut first_ref = 0u32;
    let mut min_time = 0i64;
    for idx in 0..count {
        let at = lens.offset();
        let len = u32::try_from(lens.uvarint(WHAT)?).ok();
        let series_count = u32::try_from(counts.uvarint(WHAT)?).ok().filter(|&count| count > 0);
        let ref_delta = u32::try_from(refs.uvarint(WHAT)?).ok().filter(|&delta| idx == 0 || delta > 0);
        let next_ref = ref_delta.and_then(|delta| first_ref.checked_add(delta));
        let end = len.and_then(|len| offset.checked_add(u64::from(len))).filter(|&end| end <= head_start);
        let next_ordinal = series_count.and_then(|count| ordinal.checked_add(count));
        let (Some(len), Some(series_count), Some(end)) = (len, series_count, end) else {
            return Err(invalid("a page before the head, with series", at, offset));
        };
        let (Some(next_ref), Some(next_ordinal)) = (next_ref, next_ordinal) else {
            return Err(invalid("ascending series", at, u64::from(first_ref)));
        };
        first_ref = next_ref;
        min_time = min_time.wrapping_add(min_times.varint(WHAT)?);
        let max_time = min_time.wrapping_add(widths.uvarint(WHAT)?.cast_signed());
        let first_ordinal = ordinal;
        pages.push(PageEntry { offset, len, first_ordinal, series_count, first_ref, min_time, max_time });
        offset = end;
        ordinal = next_ordinal;
    }
    for column in [&lens, &counts, &refs, &min_times, &widths] {
        check_end(WHAT, column)?;
    }
    Ok(pages)
}
