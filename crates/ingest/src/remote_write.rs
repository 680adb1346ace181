//! Remote write 1.0 (contract first; the decoder follows).

use chronolith_model::WriteBatch;

/// Why a body is refused as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The compressed or the decompressed body is larger than allowed.
    #[error("{what} of {found} bytes is larger than the limit of {limit} bytes")]
    TooLarge {
        /// Which body.
        what: &'static str,
        /// Its size.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// Not a snappy block.
    #[error("snappy: {0}")]
    Snappy(String),
    /// Not a `prometheus.WriteRequest`.
    #[error("protobuf: {0}")]
    Protobuf(String),
}

/// An empty batch for this protocol.
#[must_use]
pub fn new_batch() -> WriteBatch {
    WriteBatch::from_labels()
}

/// Decompresses `body` and fills `batch` (cleared first). `scratch` and `batch` keep their memory between calls.
///
/// # Errors
/// [`DecodeError`]; the batch is then to be thrown away.
pub fn decode(body: &[u8], decompressed_bytes_max: usize, batch: &mut WriteBatch) -> Result<(), DecodeError> {
    let _ = (body, decompressed_bytes_max, batch);
    Err(DecodeError::Snappy("no decoder yet".to_owned()))
}
