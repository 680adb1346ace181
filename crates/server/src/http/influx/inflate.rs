//! Unpacking of gzip bodies within a size limit and a memory budget.

use std::io::Read as _;

use axum::http::StatusCode;
use chronolith_base::Reservation;
use flate2::read::MultiGzDecoder;

use super::reply::InfluxError;

/// Bytes that are unpacked before their memory is reserved.
const STEP_BYTES: usize = 1 << 20;

/// Returns the size that the end of a gzip body claims, at most `bytes_max`: that of its last member.
pub(super) fn claimed_bytes(packed: &[u8], bytes_max: usize) -> usize {
    let claimed = packed.last_chunk::<4>().map_or(0, |size| u32::from_le_bytes(*size));
    usize::try_from(claimed).unwrap_or(usize::MAX).min(bytes_max)
}

/// Unpacks `packed` to at most `bytes_max` bytes. `held` grows by what is more than `reserved_bytes`, which
/// are reserved already.
pub(super) fn inflate(
    packed: &[u8],
    bytes_max: usize,
    reserved_bytes: usize,
    held: &mut Reservation,
) -> Result<Vec<u8>, InfluxError> {
    let mut decoder = MultiGzDecoder::new(packed);
    let mut out = Vec::with_capacity(reserved_bytes);
    let mut covered_bytes = reserved_bytes;
    loop {
        if out.len() + STEP_BYTES > covered_bytes && out.len() >= reserved_bytes {
            held.grow(STEP_BYTES as u64).map_err(|_| InfluxError::no_memory())?;
            covered_bytes += STEP_BYTES;
        }
        let step = (&mut decoder).take(STEP_BYTES as u64).read_to_end(&mut out);
        let count = step.map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => InfluxError::bad_request("unexpected EOF"),
            _ => InfluxError::bad_request(format_args!("gzip: {error}")),
        })?;
        if out.len() > bytes_max {
            return Err(InfluxError::new(StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large"));
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
    fn check(bytes: &[u8], bytes_max: usize, want: Result<&[u8], &str>) {
        let budget = MemoryBudget::new("test", 64 << 20);
        let mut held = budget.reserve(0).expect("room");
        for reserved_bytes in [0, claimed_bytes(bytes, bytes_max)] {
            let found = inflate(bytes, bytes_max, reserved_bytes, &mut held).map_err(|error| error.message);
            assert_eq!(found.as_deref().map_err(String::as_str), want);
        }
    }

    #[test]
    fn a_body_is_unpacked_up_to_the_limit() {
        let body = vec![b'a'; 3 << 20];
        check(&packed(&body), body.len(), Ok(&body));
        check(&packed(&body), body.len() - 1, Err("Request Entity Too Large"));
        check(&packed(b""), 0, Ok(b""));
        let two = [packed(b"x"), packed(b"y")].concat();
        check(&two, 10, Ok(b"xy"));
        check(&packed(b"abc")[..15], 10, Err("unexpected EOF"));
    }
}
