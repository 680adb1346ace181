//! Header of a whisper file: method, xFilesFactor and the table of archives, checked against the length of
//! the file.
//!
//! Layout, all big-endian: method, maximum retention (u32 each), xFilesFactor (f32), number of archives
//! (u32); per archive its offset, seconds per point and number of points (u32 each).
//! Invariants: the archives of a [`Header`] lie within the file, after the header and apart from one
//! another; their steps ascend and divide one another, their retentions ascend. The maximum retention is
//! read and not used: the archives have theirs.
//! Not here: points (`points`).

use chronolith_base::{ByteReader, DecodeError};
use chronolith_ingest::carbon::{AggregationMethod, Archive};

/// Bytes of a point: u32 time, f64 value.
pub(crate) const POINT_BYTES: usize = 12;
/// Archives of a file at most; the archives of a rule are at most 16.
pub const ARCHIVE_COUNT_MAX: u32 = 64;
/// Bytes of a file at most, which is in memory as a whole: 2.8 years in seconds.
pub const FILE_BYTES_MAX: u64 = 1 << 30;

/// Methods by their numbers in files, from 1 on.
const METHODS: [AggregationMethod; 8] = [
    AggregationMethod::Average,
    AggregationMethod::Sum,
    AggregationMethod::Last,
    AggregationMethod::Max,
    AggregationMethod::Min,
    AggregationMethod::AverageZero,
    AggregationMethod::AbsMax,
    AggregationMethod::AbsMin,
];
/// First bytes of the compressed files of go-carbon, as a number of a method.
const COMPRESSED_MAGIC: u32 = u32::from_be_bytes(*b"whis");

/// Header of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// Method of all archives but the first.
    pub method: AggregationMethod,
    /// Part of the points that must be there for a point of the next archive, 0 to 1.
    pub x_files_factor: f32,
    /// Archives, at least one, the finest first.
    pub archives: Vec<StoredArchive>,
}

/// An archive with its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredArchive {
    /// Offset of its first slot in the file.
    pub offset: usize,
    /// Step and number of slots.
    pub archive: Archive,
}

/// Damage of a file, or a content that is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("offset {offset}: {what}")]
pub struct FileDamage {
    /// Byte offset in the file.
    pub offset: usize,
    /// Expected and found content.
    pub what: String,
}

impl FileDamage {
    pub(crate) fn new(offset: usize, what: impl Into<String>) -> FileDamage {
        FileDamage { offset, what: what.into() }
    }
}

impl From<DecodeError> for FileDamage {
    fn from(error: DecodeError) -> FileDamage {
        FileDamage::new(error.offset(), error.to_string())
    }
}

/// Returns the number of a method in files; `None` for those that whisper does not have.
#[must_use]
pub fn method_number(method: AggregationMethod) -> Option<u32> {
    (1..).zip(METHODS).find(|(_, known)| *known == method).map(|(number, _)| number)
}

impl StoredArchive {
    /// Bytes of the archive.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        self.archive.point_count as usize * POINT_BYTES
    }

    fn end(&self) -> usize {
        self.offset.saturating_add(self.byte_count())
    }
}

impl Header {
    /// Reads the header of a file of these bytes.
    ///
    /// # Errors
    /// [`FileDamage`]: the file cannot be read.
    pub fn decode(bytes: &[u8]) -> Result<Header, FileDamage> {
        let mut r = ByteReader::new(bytes);
        let method = method_of(r.be_u32("aggregation method")?)?;
        r.be_u32("maximum retention")?;
        let x_files_factor = f32::from_bits(r.be_u32("xFilesFactor")?);
        if !(0.0..=1.0).contains(&x_files_factor) {
            return Err(FileDamage::new(8, format!("xFilesFactor: expected 0 to 1, found {x_files_factor}")));
        }
        let count = r.be_u32("number of archives")?;
        if !(1..=ARCHIVE_COUNT_MAX).contains(&count) {
            let what = format!("number of archives: expected 1 to {ARCHIVE_COUNT_MAX}, found {count}");
            return Err(FileDamage::new(12, what));
        }
        let mut archives = Vec::new();
        let mut entry_offsets = Vec::new();
        for _ in 0..count {
            entry_offsets.push(r.offset());
            archives.push(archive_of(&mut r)?);
        }
        let header_bytes = r.offset();
        for (archive, &at) in archives.iter().zip(&entry_offsets) {
            check_position(archive, header_bytes, bytes.len()).map_err(|what| FileDamage::new(at, what))?;
        }
        for (pair, &at) in archives.windows(2).zip(entry_offsets.iter().skip(1)) {
            if let [fine, coarse] = pair {
                check_neighbours(&fine.archive, &coarse.archive).map_err(|what| FileDamage::new(at, what))?;
            }
        }
        check_apart(&archives, &entry_offsets)?;
        Ok(Header { method, x_files_factor, archives })
    }
}

fn method_of(number: u32) -> Result<AggregationMethod, FileDamage> {
    let found = number.checked_sub(1).and_then(|idx| METHODS.get(idx as usize));
    found.copied().ok_or_else(|| {
        let what = match number {
            COMPRESSED_MAGIC => "a compressed file of go-carbon is refused: convert it to whisper".to_owned(),
            _ => format!("unknown aggregation method {number}: expected 1 to 8, the file is refused"),
        };
        FileDamage::new(0, what)
    })
}

fn archive_of(r: &mut ByteReader<'_>) -> Result<StoredArchive, FileDamage> {
    let at = r.offset();
    let offset = r.be_u32("offset of an archive")? as usize;
    let step_s = r.be_u32("seconds per point")?;
    let point_count = r.be_u32("number of points")?;
    if step_s == 0 || point_count == 0 {
        return Err(FileDamage::new(at, format!("an archive of {point_count} points every {step_s} s")));
    }
    let archive = Archive { step_s, point_count };
    if archive.retention_s() > u64::from(u32::MAX) {
        let what = format!("an archive of {point_count} points every {step_s} s covers more than 2^32 s");
        return Err(FileDamage::new(at, what));
    }
    Ok(StoredArchive { offset, archive })
}

fn check_position(archive: &StoredArchive, header_bytes: usize, file_bytes: usize) -> Result<(), String> {
    let start = archive.offset;
    let end = archive.end();
    if start < header_bytes {
        return Err(format!("an archive begins at {start}, within the header of {header_bytes} bytes"));
    }
    if end > file_bytes {
        return Err(format!("an archive ends at {end}, the file has {file_bytes} bytes"));
    }
    Ok(())
}

fn check_neighbours(fine: &Archive, coarse: &Archive) -> Result<(), String> {
    if coarse.step_s <= fine.step_s || !coarse.step_s.is_multiple_of(fine.step_s) {
        return Err(format!(
            "{} s per point is not a multiple of {} s before it",
            coarse.step_s, fine.step_s
        ));
    }
    if coarse.retention_s() <= fine.retention_s() {
        return Err(format!("{coarse} does not cover a longer time than {fine}"));
    }
    Ok(())
}

/// Checks that no two archives overlap.
fn check_apart(archives: &[StoredArchive], entry_offsets: &[usize]) -> Result<(), FileDamage> {
    let mut by_offset: Vec<(&StoredArchive, usize)> =
        archives.iter().zip(entry_offsets.iter().copied()).collect();
    by_offset.sort_by_key(|(archive, _)| archive.offset);
    for pair in by_offset.windows(2) {
        if let [(before, _), (archive, at)] = pair
            && archive.offset < before.end()
        {
            let start = archive.offset;
            let end = before.end();
            let what = format!("an archive begins at {start}, another one ends at {end}");
            return Err(FileDamage::new(*at, what));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
