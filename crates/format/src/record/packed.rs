//! Packed records: the body is compressed by LZ4, the header is not.
//!
//! Invariants: the packed form is shorter than the record; a reader unpacks to at most 900,000
//! bytes, whatever the bytes claim, and memory for it does not depend on them.
//! Not here: the body (`encode`, `events`), codecs of the log, which has batches of several records.

use chronolith_base::ByteReader;
use chronolith_base::bytes::put_uvarint;
use chronolith_base::crc::crc32c;
use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};

use super::content::RecordError;
use super::frame::{
    CHECKSUM_BYTES, CONTENT_BYTES_MAX, HEADER_BYTES, VERSION_OFFSET, VERSION_PACKED, invalid,
};

/// Bytes of the shortest record that is packed: a shorter one has little to find again.
const PACKED_BYTES_MIN: usize = 256;
const WHAT: &str = "packed body of a record";

/// Packer of records; keeps its memory from record to record.
#[derive(Debug, Default)]
pub(super) struct RecordPacker {
    /// Never shrinks, so that its bytes are set to 0 once.
    packed: Vec<u8>,
    /// Header and length of the body.
    head: Vec<u8>,
}

impl RecordPacker {
    /// Returns the packed form, with its checksum, of a record without one; `None` if the record is too short
    /// for it, or no longer than it. Cost: LZ4 of its body, about 1 ns per byte.
    pub(super) fn pack(&mut self, content: &[u8]) -> Option<&[u8]> {
        let (header, body) = content.split_at_checked(HEADER_BYTES)?;
        if content.len() < PACKED_BYTES_MIN {
            return None;
        }
        self.head.clear();
        self.head.extend_from_slice(header);
        self.head[VERSION_OFFSET] = VERSION_PACKED;
        put_uvarint(&mut self.head, body.len() as u64);
        let start = self.head.len();
        let len_max = start + get_maximum_output_size(body.len()) + CHECKSUM_BYTES;
        if self.packed.len() < len_max {
            self.packed.resize(len_max, 0);
        }
        self.packed[..start].copy_from_slice(&self.head);
        let packed_len = compress_into(body, &mut self.packed[start..]).expect("room for the longest output");
        let end = start + packed_len;
        if end >= content.len() {
            return None;
        }
        let sum = crc32c(&self.packed[..end]);
        self.packed[end..end + CHECKSUM_BYTES].copy_from_slice(&sum.to_le_bytes());
        Some(&self.packed[..end + CHECKSUM_BYTES])
    }
}

/// Unpacks a body: `out` begins with a header and the body, and is no shorter than before. Returns the
/// length of both.
///
/// # Errors
/// [`RecordError::Bytes`].
pub(super) fn unpack(
    header: &[u8],
    mut body: ByteReader<'_>,
    out: &mut Vec<u8>,
) -> Result<usize, RecordError> {
    let offset = body.offset();
    let found = body.uvarint(WHAT)?;
    let len = found.saturating_add(header.len() as u64);
    if len > CONTENT_BYTES_MAX as u64 {
        return Err(invalid(WHAT, offset, "at most 900000 bytes with header and checksum", found).into());
    }
    let len = len as usize;
    if out.len() < len {
        out.resize(len, 0);
    }
    let offset = body.offset();
    let block = body.bytes(WHAT, body.remaining())?;
    let Some((to_header, to_body)) =
        out.get_mut(..len).and_then(|out| out.split_at_mut_checked(header.len()))
    else {
        return Err(invalid(WHAT, offset, "a body", found).into());
    };
    to_header.copy_from_slice(header);
    match decompress_into(block, to_body) {
        Ok(unpacked) if unpacked as u64 == found => Ok(len),
        Ok(unpacked) => {
            Err(invalid(WHAT, offset, "as many bytes as its length says", unpacked as u64).into())
        }
        Err(_) => Err(invalid(WHAT, offset, "a block of LZ4", block.len() as u64).into()),
    }
}
