//! `retention-clock`: the time that retention went by last, so that a restart does not make it forget that
//! the clock has jumped (`docs/block/retention_clock.md`).
//!
//! Invariant: fixed length, checksum over all. Not here: trust in a jump (`tsdb`).

use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};

const MAGIC: u32 = 0x4352_5443;
const VERSION: u8 = 1;
/// Stands for "the clock is trusted".
const WAITED_NONE: u64 = u64::MAX;

/// Clock of retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionClock {
    /// Milliseconds since 1970 by which blocks expire.
    pub trusted_ms: i64,
    /// Time for which removal has waited since the clock jumped; `None` if the clock is trusted.
    pub waited_ms: Option<u64>,
}

impl RetentionClock {
    /// Appends the file's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.push(VERSION);
        out.extend_from_slice(&self.trusted_ms.to_le_bytes());
        out.extend_from_slice(&self.waited_ms.unwrap_or(WAITED_NONE).to_le_bytes());
        let crc = crc32c(out.get(start..).unwrap_or_default());
        out.extend_from_slice(&crc.to_le_bytes());
    }

    /// Reads the file's bytes.
    ///
    /// # Errors
    /// [`DecodeError`]: too short or too long, another magic or version, or a checksum that does not fit.
    pub fn decode(bytes: &[u8]) -> Result<RetentionClock, DecodeError> {
        let mut r = ByteReader::new(bytes);
        let invalid = |what, offset, expected, found| DecodeError::Invalid { what, offset, expected, found };
        let magic = r.le_u32("magic")?;
        if magic != MAGIC {
            return Err(invalid("magic", 0, "0x43525443", u64::from(magic)));
        }
        let version = r.u8("version")?;
        if version != VERSION {
            return Err(invalid("version", 4, "1", u64::from(version)));
        }
        let trusted_ms = r.le_u64("trusted time")?.cast_signed();
        let waited_ms = r.le_u64("waited time")?;
        let end = r.offset();
        let found = r.le_u32("checksum")?;
        if crc32c(bytes.get(..end).unwrap_or_default()) != found {
            return Err(invalid("checksum", end, "that of the bytes before it", u64::from(found)));
        }
        if !r.is_empty() {
            return Err(invalid("length", r.offset(), "the end of the file", r.remaining() as u64));
        }
        Ok(RetentionClock { trusted_ms, waited_ms: (waited_ms != WAITED_NONE).then_some(waited_ms) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back_and_any_damage_is_found() {
        for waited_ms in [None, Some(0), Some(86_400_000)] {
            let clock = RetentionClock { trusted_ms: -5, waited_ms };
            let mut bytes = Vec::new();
            clock.encode(&mut bytes);
            assert_eq!(RetentionClock::decode(&bytes).unwrap(), clock);
            for bit in 0..bytes.len() * 8 {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(RetentionClock::decode(&damaged).is_err(), "bit {bit}");
            }
            for len in 0..bytes.len() {
                assert!(RetentionClock::decode(&bytes[..len]).is_err(), "{len} bytes");
            }
            bytes.push(0);
            assert!(RetentionClock::decode(&bytes).is_err(), "grown");
        }
    }
}
