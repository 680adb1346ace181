//! Offsets of errors: decoders count from the start of their slice, messages from the start of the file.

use chronolith_base::DecodeError;

/// Returns `error`, whose offset counts from the start of a slice, with an offset that counts from the start
/// of the file; the slice starts at `file_offset`.
#[cold]
pub(crate) fn in_file(error: DecodeError, file_offset: u64) -> DecodeError {
    let add = |offset: usize| offset.saturating_add(usize::try_from(file_offset).unwrap_or(usize::MAX));
    match error {
        DecodeError::Short { what, offset, needed, left } => {
            DecodeError::Short { what, offset: add(offset), needed, left }
        }
        DecodeError::Invalid { what, offset, expected, found } => {
            DecodeError::Invalid { what, offset: add(offset), expected, found }
        }
        DecodeError::Checksum { what, offset, expected, found } => {
            DecodeError::Checksum { what, offset: add(offset), expected, found }
        }
    }
}
