//! Sealed chunk files: header, then chunk records, appended only. Layout: `docs/head/sealed.md`.
//!
//! Invariants: a record is readable by its offset alone and carries its own checksum; a file can be walked.
//! Not here: sealing of chunks, deletion of files (`head`).

use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};

/// First bytes of a file.
pub const FILE_MAGIC: [u8; 4] = *b"CLSC";
/// Version of the layout.
pub const FILE_VERSION: u16 = 1;
/// Bytes of the file header.
pub const FILE_HEADER_BYTES: usize = 20;
/// Bytes of a record before its chunk data.
pub const RECORD_HEADER_BYTES: usize = 28;
/// Bytes of a record besides its chunk data.
pub const RECORD_OVERHEAD_BYTES: usize = RECORD_HEADER_BYTES + 4;

/// Header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// Series of the chunk.
    pub series_id: u32,
    /// Encoding byte.
    pub encoding: u8,
    /// Samples.
    pub count: u16,
    /// Time of the first sample.
    pub min_time: i64,
    /// Time of the last sample.
    pub max_time: i64,
}

/// The header of file `number`.
#[must_use]
pub fn encode_file_header(number: u64) -> [u8; FILE_HEADER_BYTES] {
    let mut out = [0u8; FILE_HEADER_BYTES];
    out[..4].copy_from_slice(&FILE_MAGIC);
    out[4..6].copy_from_slice(&FILE_VERSION.to_le_bytes());
    out[8..16].copy_from_slice(&number.to_le_bytes());
    let sum = crc32c(&out[..16]);
    out[16..].copy_from_slice(&sum.to_le_bytes());
    out
}

/// Reads a file header; gives the file's number.
///
/// # Errors
/// [`DecodeError`] for short, foreign, damaged or later-version bytes.
pub fn decode_file_header(bytes: &[u8]) -> Result<u64, DecodeError> {
    let head = ByteReader::new(bytes).bytes("sealed file header", FILE_HEADER_BYTES)?;
    let mut reader = ByteReader::new(head);
    let magic = reader.be_u32("sealed file magic")?;
    if magic != u32::from_be_bytes(FILE_MAGIC) {
        let (what, found) = ("sealed file magic", u64::from(magic));
        return Err(DecodeError::Invalid { what, offset: 0, expected: "CLSC", found });
    }
    let version = reader.le_u16("sealed file version")?;
    reader.bytes("sealed file reserved", 2)?;
    let number = reader.le_u64("sealed file number")?;
    let found = reader.le_u32("sealed file checksum")?;
    let expected = crc32c(head.get(..16).unwrap_or(&[]));
    if found != expected {
        return Err(DecodeError::Checksum { what: "sealed file header", offset: 16, expected, found });
    }
    if version != FILE_VERSION {
        let (what, found) = ("sealed file version", u64::from(version));
        return Err(DecodeError::Invalid { what, offset: 4, expected: "1", found });
    }
    Ok(number)
}

/// Appends a record.
///
/// # Panics
/// If the chunk is 4 GiB or longer.
pub fn encode_record(header: &RecordHeader, chunk: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    let len = u32::try_from(chunk.len()).expect("chunks are far below 4 GiB");
    out.extend_from_slice(&header.series_id.to_le_bytes());
    out.extend_from_slice(&[header.encoding, 0]);
    out.extend_from_slice(&header.count.to_le_bytes());
    out.extend_from_slice(&header.min_time.to_le_bytes());
    out.extend_from_slice(&header.max_time.to_le_bytes());
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(chunk);
    let sum = crc32c(&out[start..]);
    out.extend_from_slice(&sum.to_le_bytes());
}

/// Reads the bytes of chunk data of a record from its header; what follows is not checked.
///
/// # Errors
/// [`DecodeError`] if the header is cut.
pub fn record_chunk_len(header: &[u8]) -> Result<usize, DecodeError> {
    let mut reader = ByteReader::new(header);
    reader.bytes("sealed chunk header", RECORD_HEADER_BYTES - 4)?;
    Ok(reader.le_u32("sealed chunk length")? as usize)
}

/// Reads the record at `offset` of a file (or of a part of one); gives it with its chunk data.
///
/// # Errors
/// [`DecodeError`]: the end comes first, or the checksum does not fit.
pub fn decode_record(bytes: &[u8], offset: usize) -> Result<(RecordHeader, &[u8]), DecodeError> {
    let mut reader = ByteReader::at(bytes, offset);
    let header = RecordHeader {
        series_id: reader.le_u32("sealed chunk series")?,
        encoding: reader.u8("sealed chunk encoding")?,
        count: {
            reader.u8("sealed chunk reserved")?;
            reader.le_u16("sealed chunk count")?
        },
        min_time: reader.le_u64("sealed chunk first time")?.cast_signed(),
        max_time: reader.le_u64("sealed chunk last time")?.cast_signed(),
    };
    let len = reader.le_u32("sealed chunk length")? as usize;
    let chunk = reader.bytes("sealed chunk", len)?;
    let end = reader.offset();
    let found = reader.le_u32("sealed chunk checksum")?;
    let expected = crc32c(bytes.get(offset..end).unwrap_or(&[]));
    if found != expected {
        return Err(DecodeError::Checksum { what: "sealed chunk", offset, expected, found });
    }
    Ok((header, chunk))
}

/// Walks the records of a whole file: offset, header, chunk data of each.
///
/// # Errors
/// [`DecodeError`] at the first record that is cut or damaged; those before have been visited.
pub fn walk(bytes: &[u8], mut visit: impl FnMut(usize, &RecordHeader, &[u8])) -> Result<(), DecodeError> {
    decode_file_header(bytes)?;
    let mut offset = FILE_HEADER_BYTES;
    while offset < bytes.len() {
        let (header, chunk) = decode_record(bytes, offset)?;
        visit(offset, &header, chunk);
        offset += RECORD_OVERHEAD_BYTES + chunk.len();
    }
    Ok(())
}

#[cfg(test)]
mod tests;
