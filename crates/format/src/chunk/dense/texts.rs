//! Text chunk (private encoding byte 0x47): times as in a packed chunk, a dictionary of the texts in the
//! order of their first use, and a column of indices into it.
//!
//! Invariants: any bytes round-trip; the decoder takes untrusted bytes, allocates for no more bytes of texts
//! than [`TEXT_BYTES_MAX`], and appends nothing when it fails.
//! Not here: number of texts per chunk (`block`).

use std::io::Read;
use std::sync::Arc;

use chronolith_base::bytes::put_uvarint;
use chronolith_base::hash::HashMap;
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::kind::{unsigned_of_word, word_of_unsigned};
use chronolith_model::{Columns, TimeRange};

use super::packed::{
    ChunkTimes, ENCODING_TEXTS, PackedChunk, TYPE_FLAG, append_times, put_head, put_values, read_flags,
};
use super::plain::{append_all_or_nothing, append_values};
use super::scratch::DenseScratch;
use super::values::ValueType;
use crate::chunk::RawChunk;

/// Bytes of the texts of a chunk at most, each distinct one counted once. A writer keeps to half of it, or to
/// one text.
pub const TEXT_BYTES_MAX: usize = 16 << 20;

const WHAT: &str = "text chunk";
/// Below this, a compressed dictionary gains less than its header takes.
const COMPRESSED_BYTES_MIN: usize = 64;

/// Appends one chunk with `texts` to `out`.
///
/// # Panics
/// As [`super::encode_packed`], and above [`TEXT_BYTES_MAX`] bytes of distinct texts.
pub fn encode_texts(
    times: ChunkTimes<'_>,
    texts: &[Arc<[u8]>],
    scratch: &mut DenseScratch,
    out: &mut Vec<u8>,
) -> PackedChunk {
    let (flags_at, mut flags) = put_head(times, texts.len(), scratch, out);
    let times_bytes = out.len() - flags_at - 1;
    let mut idx_of: HashMap<&[u8], u64> = HashMap::default();
    let mut dictionary: Vec<&[u8]> = Vec::new();
    let indices = texts.iter().map(|text| {
        let next = dictionary.len() as u64;
        let idx = *idx_of.entry(text).or_insert_with(|| {
            dictionary.push(text);
            next
        });
        f64::from_bits(word_of_unsigned(idx))
    });
    let indices: Vec<f64> = indices.collect();
    if put_dictionary(&dictionary, out) {
        flags |= TYPE_FLAG;
    }
    flags |= put_values(&indices, ValueType::Unsigned, scratch, out);
    if let Some(byte) = out.get_mut(flags_at) {
        *byte = flags;
    }
    PackedChunk { encoding: ENCODING_TEXTS, times_bytes }
}

/// Appends the number of texts, their lengths and their bytes; returns true if both are compressed.
fn put_dictionary(dictionary: &[&[u8]], out: &mut Vec<u8>) -> bool {
    let mut raw = Vec::new();
    for text in dictionary {
        put_uvarint(&mut raw, text.len() as u64);
    }
    dictionary.iter().for_each(|text| raw.extend_from_slice(text));
    let bytes: usize = dictionary.iter().map(|text| text.len()).sum();
    assert!(bytes <= TEXT_BYTES_MAX, "chunks of texts are cut by bytes");
    put_uvarint(out, dictionary.len() as u64);
    put_uvarint(out, raw.len() as u64);
    if raw.len() >= COMPRESSED_BYTES_MIN {
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        let compressed = ruzstd::encoding::compress_to_vec(raw.as_slice(), level);
        if compressed.len() + size_of::<u32>() < raw.len() {
            put_uvarint(out, compressed.len() as u64);
            out.extend_from_slice(&compressed);
            return true;
        }
    }
    out.extend_from_slice(&raw);
    false
}

/// Appends the samples of `bytes` in `range`, their values as indices into the dictionary, whose texts
/// replace those in `dictionary`; nothing when it fails. `chunk_at` is the same as in
/// [`super::decode_packed`].
///
/// # Errors
/// As [`super::decode_packed`].
pub fn decode_texts<'a>(
    bytes: &'a [u8],
    range: TimeRange,
    chunk_at: impl FnOnce(u32) -> Result<RawChunk<'a>, DecodeError>,
    dictionary: &mut Vec<Arc<[u8]>>,
    out: &mut Columns,
) -> Result<(), DecodeError> {
    dictionary.clear();
    append_all_or_nothing(out, |out| {
        let mut reader = ByteReader::new(bytes);
        let head = read_flags(&mut reader, |_| true)?;
        let wanted = append_times(&head, &mut reader, range, chunk_at, &mut out.times)?;
        if wanted.is_empty() {
            return Ok(());
        }
        let start = out.values.len();
        read_dictionary(&mut reader, usize::from(head.count), head.type_flag, dictionary)?;
        append_values(&mut reader, head.column(ValueType::Unsigned), wanted, out)?;
        for value in out.values.get_mut(start..).unwrap_or_default() {
            let idx = unsigned_of_word(value.to_bits());
            if idx >= dictionary.len() as u64 {
                let offset = bytes.len();
                let expected = "the index of a text";
                return Err(DecodeError::Invalid { what: WHAT, offset, expected, found: idx });
            }
            *value = f64::from_bits(idx);
        }
        Ok(())
    })
}

fn read_dictionary(
    reader: &mut ByteReader<'_>,
    sample_count: usize,
    is_compressed: bool,
    out: &mut Vec<Arc<[u8]>>,
) -> Result<(), DecodeError> {
    let offset = reader.offset();
    let invalid = |expected, found| DecodeError::Invalid { what: WHAT, offset, expected, found };
    let count = reader.uvarint(WHAT)?;
    let count = usize::try_from(count)
        .ok()
        .filter(|count| (1..=sample_count).contains(count))
        .ok_or_else(|| invalid("no more texts than samples", count))?;
    let raw_len = reader.uvarint(WHAT)?;
    // A length takes five bytes at most.
    let raw_len = usize::try_from(raw_len)
        .ok()
        .filter(|&len| len <= TEXT_BYTES_MAX + 5 * count)
        .ok_or_else(|| invalid("texts within the limit", raw_len))?;
    let mut unpacked = Vec::new();
    let raw = if is_compressed {
        let len = reader.length(WHAT)?;
        let compressed = reader.bytes(WHAT, len)?;
        unpack(compressed, raw_len, &mut unpacked)
            .ok_or_else(|| invalid("a zstd frame of this length", len as u64))?;
        unpacked.as_slice()
    } else {
        reader.bytes(WHAT, raw_len)?
    };
    let mut raw = ByteReader::new(raw);
    let mut lens = Vec::with_capacity(count);
    for _ in 0..count {
        lens.push(raw.uvarint(WHAT)?);
    }
    for len in lens {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        out.push(Arc::from(raw.bytes(WHAT, len)?));
    }
    if raw.is_empty() { Ok(()) } else { Err(invalid("the end of the texts", raw.remaining() as u64)) }
}

/// Replaces `out` by the `len` bytes that a zstd frame holds; `None` if it is damaged or holds others.
fn unpack(frame: &[u8], len: usize, out: &mut Vec<u8>) -> Option<()> {
    let decoder = ruzstd::decoding::StreamingDecoder::new(frame).ok()?;
    out.clear();
    decoder.take(len as u64 + 1).read_to_end(out).ok()?;
    (out.len() == len).then_some(())
}

/// Offset of the chunk whose times the chunk `bytes` shares, or `None` if its times are its own.
///
/// # Errors
/// [`DecodeError`] when the head is cut or contains values that no encoder writes.
pub fn shared_times_offset_of_texts(bytes: &[u8]) -> Result<Option<u32>, DecodeError> {
    Ok(read_flags(&mut ByteReader::new(bytes), |_| true)?.shared_offset)
}

#[cfg(test)]
mod tests;
