//! Unpacking of gzip bodies within a size limit and a memory budget.

use std::io::Read as _;

use chronolith_base::Reservation;
use flate2::read::MultiGzDecoder;

/// Bytes that are unpacked before their memory is reserved.
const STEP_BYTES: usize = 1 << 20;

/// Reason why a body is not unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InflateError {
    /// No room in the memory budget.
    Memory,
    /// Larger than allowed.
    TooLarge,
    /// The body is cut.
    Cut,
    /// Not gzip, or damaged.
    Invalid(String),
}

/// Returns the size that the end of a gzip body, its last member, claims; at most `bytes_max`.
pub(crate) fn claimed_bytes(packed: &[u8], bytes_max: usize) -> usize {
    let claimed = packed.last_chunk::<4>().map_or(0, |size| u32::from_le_bytes(*size));
    usize::try_from(claimed).unwrap_or(usize::MAX).min(bytes_max)
}

/// Unpacks `packed` to at most `bytes_max` bytes. `held` grows by the bytes beyond `reserved_bytes`, which
/// are reserved already.
pub(crate) fn inflate(
    packed: &[u8],
    bytes_max: usize,
    reserved_bytes: usize,
    held: &mut Reservation,
) -> Result<Vec<u8>, InflateError> {
    let mut decoder = MultiGzDecoder::new(packed);
    let mut out = Vec::with_capacity(reserved_bytes);
    let mut covered_bytes = reserved_bytes;
    loop {
        if out.len() + STEP_BYTES > covered_bytes && out.len() >= reserved_bytes {
            held.grow(STEP_BYTES as u64).map_err(|_| InflateError::Memory)?;
            covered_bytes += STEP_BYTES;
        }
        let step = (&mut decoder).take(STEP_BYTES as u64).read_to_end(&mut out);
        let count = step.map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => InflateError::Cut,
            _ => InflateError::Invalid(error.to_string()),
        })?;
        if out.len() > bytes_max {
            return Err(InflateError::TooLarge);
        }
        if count < STEP_BYTES {
            return Ok(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use chronolith_base::MemoryBudget;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).expect("memory");
        encoder.finish().expect("memory")
    }

    #[track_caller]
    fn check(bytes: &[u8], bytes_max: usize, want: Result<&[u8], InflateError>) {
        let budget = MemoryBudget::new("test", 64 << 20);
        let mut held = budget.reserve(0).expect("room");
        for reserved_bytes in [0, claimed_bytes(bytes, bytes_max)] {
            let found = inflate(bytes, bytes_max, reserved_bytes, &mut held);
            assert_eq!(found.as_deref(), want.as_deref());
        }
    }

    #[test]
    fn a_body_is_unpacked_up_to_the_limit() {
        let body = vec![b'a'; 3 << 20];
        check(&packed(&body), body.len(), Ok(&body));
        check(&packed(&body), body.len() - 1, Err(InflateError::TooLarge));
        check(&packed(b""), 0, Ok(b""));
        let two = [packed(b"x"), packed(b"y")].concat();
        check(&two, 10, Ok(b"xy"));
        check(&packed(b"abc")[..15], 10, Err(InflateError::Cut));
    }
}
