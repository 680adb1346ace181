//! Errors of the decoders, and the limit of what they make of untrusted bytes.

use chronolith_base::DecodeError;

/// Points of a block at most. InfluxDB writes 1000, and 10 000 in its later versions.
pub(crate) const BLOCK_POINTS_MAX: usize = 1 << 20;

/// Returns the error for a value that the format does not allow.
pub(crate) fn invalid(what: &'static str, offset: usize, expected: &'static str, found: u64) -> DecodeError {
    DecodeError::Invalid { what, offset, expected, found }
}

/// Returns the error with its offset moved by `by`.
pub(crate) fn shifted(mut error: DecodeError, by: usize) -> DecodeError {
    match &mut error {
        DecodeError::Short { offset, .. }
        | DecodeError::Invalid { offset, .. }
        | DecodeError::Checksum { offset, .. } => *offset = offset.saturating_add(by),
    }
    error
}
