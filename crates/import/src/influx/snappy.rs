//! Snappy blocks of untrusted bytes.
//!
//! Invariant: memory is at most [`EXPANSION_MAX`] times the compressed bytes.

use chronolith_base::DecodeError;

/// An element of three bytes makes at most 64.
const EXPANSION_MAX: usize = 22;
/// Bytes of the length, and of a first element.
const SLACK_BYTES: usize = 64;

/// Returns the bytes of a snappy block.
pub(crate) fn decompress(bytes: &[u8], what: &'static str) -> Result<Vec<u8>, DecodeError> {
    let fault = |expected, found| DecodeError::Invalid { what, offset: 0, expected, found };
    let len = snap::raw::decompress_len(bytes).map_err(|_| fault("a snappy block", bytes.len() as u64))?;
    if len > bytes.len().saturating_mul(EXPANSION_MAX).saturating_add(SLACK_BYTES) {
        return Err(fault("a length that the block can have", len as u64));
    }
    let decompressed = snap::raw::Decoder::new().decompress_vec(bytes);
    decompressed.map_err(|_| fault("a snappy block", bytes.len() as u64))
}
