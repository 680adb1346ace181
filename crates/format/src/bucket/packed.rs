//! Packed section: bytes that are compressed by zstd where that makes them shorter, under a checksum.
//!
//! Invariants: the checksum is verified before anything is decompressed; a section that unpacks to more than
//! the limit of its kind is refused before memory is taken.
//! Layout: `codec u8, uvarint length when unpacked, content, u32 CRC-32C of all before it`, little-endian.

use chronolith_base::bytes::put_uvarint;
use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};
use ruzstd::decoding::FrameDecoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

const CODEC_PLAIN: u8 = 0;
const CODEC_ZSTD: u8 = 1;
const CHECKSUM_BYTES: usize = 4;
/// Window of the frames that are read; those that are written have 128 KiB.
const WINDOW_BYTES_MAX: u64 = 1 << 20;

/// Appends `raw` as a packed section.
pub(super) fn put_packed(raw: &[u8], out: &mut Vec<u8>) {
    let compressed = compress_to_vec(raw, CompressionLevel::Fastest);
    if compressed.len() < raw.len() {
        put_content(CODEC_ZSTD, raw.len(), &compressed, out);
    } else {
        put_plain(raw, out);
    }
}

/// Appends `raw`, which does not compress, as a packed section.
pub(super) fn put_plain(raw: &[u8], out: &mut Vec<u8>) {
    put_content(CODEC_PLAIN, raw.len(), raw, out);
}

fn put_content(codec: u8, raw_len: usize, content: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.push(codec);
    put_uvarint(out, raw_len as u64);
    out.extend_from_slice(content);
    let sum = crc32c(out.get(start..).unwrap_or_default());
    out.extend_from_slice(&sum.to_le_bytes());
}

/// Decompressor of packed sections; reuses its tables.
pub struct Unpacker(FrameDecoder);

impl Default for Unpacker {
    fn default() -> Unpacker {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_BYTES_MAX);
        Unpacker(decoder)
    }
}

impl Unpacker {
    /// Replaces `out` by the content of the packed section `bytes`, at most `raw_bytes_max` long.
    ///
    /// # Errors
    /// [`DecodeError`] with an offset of `bytes`; `out` is empty then.
    pub(super) fn unpack(
        &mut self,
        what: &'static str,
        bytes: &[u8],
        raw_bytes_max: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        out.clear();
        let content = verified(what, bytes)?;
        let mut reader = ByteReader::new(content);
        let codec = reader.u8(what)?;
        let offset = reader.offset();
        let raw_len = reader.uvarint(what)?;
        let invalid = |expected, found| DecodeError::Invalid { what, offset, expected, found };
        let raw_len = usize::try_from(raw_len)
            .ok()
            .filter(|&len| len <= raw_bytes_max)
            .ok_or_else(|| invalid("a length within the limit", raw_len))?;
        let left = reader.remaining();
        let packed = reader.bytes(what, left)?;
        match codec {
            CODEC_PLAIN if packed.len() == raw_len => out.extend_from_slice(packed),
            CODEC_PLAIN => return Err(invalid("the length of the content", raw_len as u64)),
            CODEC_ZSTD => {
                out.resize(raw_len, 0);
                let unpacked_len = self.0.decode_all(packed, out).unwrap_or(usize::MAX);
                if unpacked_len != raw_len {
                    out.clear();
                    return Err(invalid("a zstd frame of this length", raw_len as u64));
                }
            }
            codec => {
                let expected = "codec 0 or 1";
                return Err(DecodeError::Invalid { what, offset: 0, expected, found: u64::from(codec) });
            }
        }
        Ok(())
    }
}

/// Returns the bytes before the checksum at the end of `bytes`, verified.
pub(super) fn verified<'a>(what: &'static str, bytes: &'a [u8]) -> Result<&'a [u8], DecodeError> {
    let Some(offset) = bytes.len().checked_sub(CHECKSUM_BYTES) else {
        return Err(DecodeError::Short { what, offset: 0, needed: CHECKSUM_BYTES, left: bytes.len() });
    };
    let mut reader = ByteReader::new(bytes);
    let content = reader.bytes(what, offset)?;
    let found = reader.le_u32(what)?;
    let expected = crc32c(content);
    if found != expected {
        return Err(DecodeError::Checksum { what, offset, expected, found });
    }
    Ok(content)
}
