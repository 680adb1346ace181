//! Prometheus's XOR float chunk (encoding 1): contract first, bodies follow.

use chronolith_base::DecodeError;
use chronolith_model::{Columns, TimeRange};

/// Encoding byte of an XOR chunk in Prometheus's files.
pub const ENCODING_XOR: u8 = 1;
/// Samples in a chunk, as Prometheus cuts them.
pub const SAMPLES_PER_CHUNK: usize = 120;

/// A finished chunk with what readers must know without decoding it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedChunk {
    /// Encoding byte.
    pub encoding: u8,
    /// Time of the first sample.
    pub min_time: i64,
    /// Time of the last sample.
    pub max_time: i64,
    /// Samples.
    pub count: u16,
    /// Chunk data: big-endian u16 count, then the bit stream.
    pub bytes: Vec<u8>,
}

/// Appends the samples of `bytes` that lie in `range` to `out`.
///
/// # Errors
/// [`DecodeError`] when the stream ends early or its times do not ascend; samples before have been appended.
pub fn decode(bytes: &[u8], range: TimeRange, out: &mut Columns) -> Result<(), DecodeError> {
    let _ = (bytes, range, out);
    Ok(())
}

/// Encodes ascending samples into chunks of at most [`SAMPLES_PER_CHUNK`].
///
/// # Panics
/// If times do not ascend strictly or the lengths differ.
#[must_use]
pub fn encode(times: &[i64], values: &[f64]) -> Vec<EncodedChunk> {
    let _ = (times, values);
    Vec::new()
}
