//! Files as a whole: limits of their length, gzip, JSON, and why one is refused.
//!
//! Invariant: no more than the limit of a file is unpacked.

use std::io::Read;

use flate2::bufread::GzDecoder;

/// Bytes of a bucket index or sparse index header when unpacked: some 500,000 blocks.
pub const UNPACKED_BYTES_MAX: u64 = 128 << 20;
/// Bytes of a marker.
pub const MARK_BYTES_MAX: usize = 1 << 20;

/// Reason for refusing a file of Mimir or Thanos.
#[derive(Debug, thiserror::Error)]
pub enum MimirError {
    /// Not JSON, or a field is missing or of another type.
    #[error("{file}: {error}")]
    Json {
        /// Name of the file.
        file: &'static str,
        /// The parser's words.
        error: serde_json::Error,
    },
    /// Not gzip, damaged, or cut.
    #[error("{file}: {error}")]
    Gzip {
        /// Name of the file.
        file: &'static str,
        /// The decompressor's words.
        error: std::io::Error,
    },
    /// Not the protobuf message that is expected.
    #[error("{file}: {error}")]
    Protobuf {
        /// Name of the file.
        file: &'static str,
        /// Item and offset in the unpacked bytes.
        error: chronolith_base::DecodeError,
    },
    /// Longer than its limit.
    #[error("{file}: more than {bytes_max} bytes")]
    TooLong {
        /// Name of the file.
        file: &'static str,
        /// Largest number of bytes that is read.
        bytes_max: u64,
    },
    /// Written by something newer.
    #[error("{file}: version {found}, expected {expected}")]
    Version {
        /// Name of the file.
        file: &'static str,
        /// Versions that are read.
        expected: &'static str,
        /// Version in the file.
        found: i64,
    },
}

/// Unpacks a gzip file of any number of members.
pub(super) fn gunzip(file: &'static str, bytes: &[u8]) -> Result<Vec<u8>, MimirError> {
    gunzip_within(file, bytes, UNPACKED_BYTES_MAX)
}

pub(super) fn gunzip_within(file: &'static str, bytes: &[u8], bytes_max: u64) -> Result<Vec<u8>, MimirError> {
    let mut out = Vec::new();
    let mut decoder = GzDecoder::new(bytes).take(bytes_max + 1);
    decoder.read_to_end(&mut out).map_err(|error| MimirError::Gzip { file, error })?;
    if out.len() as u64 > bytes_max {
        return Err(MimirError::TooLong { file, bytes_max });
    }
    Ok(out)
}

/// Parses a small JSON file.
pub(super) fn parse_mark<T: serde::de::DeserializeOwned>(
    file: &'static str,
    text: &[u8],
) -> Result<T, MimirError> {
    if text.len() > MARK_BYTES_MAX {
        return Err(MimirError::TooLong { file, bytes_max: MARK_BYTES_MAX as u64 });
    }
    serde_json::from_slice(text).map_err(|error| MimirError::Json { file, error })
}
