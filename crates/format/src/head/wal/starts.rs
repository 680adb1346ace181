//! Payload of a frame of start times: when the counters of samples of one stripe began.
//!
//! Holds: entries come back in the order they were written in, which decides where two speak of one series and time.

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::{ByteReader, DecodeError};

/// When the counter of one sample began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartEntry {
    /// Series.
    pub id: u32,
    /// Of the sample, in milliseconds.
    pub time: i64,
    /// Milliseconds; 0 where nobody knows.
    pub start_ms: i64,
}

/// Writes entries over `out`, each as the difference to the one before: those of a batch mostly share time and start.
///
/// # Panics
/// If there is none.
pub fn encode_starts(entries: &[StartEntry], out: &mut Vec<u8>) {
    assert!(!entries.is_empty(), "a frame has entries");
    out.clear();
    put_uvarint(out, entries.len() as u64);
    let mut before = StartEntry { id: 0, time: 0, start_ms: 0 };
    for entry in entries {
        put_varint(out, i64::from(entry.id) - i64::from(before.id));
        put_varint(out, entry.time.wrapping_sub(before.time));
        put_varint(out, entry.start_ms.wrapping_sub(before.start_ms));
        before = *entry;
    }
}

/// Decoded start times of one stripe.
#[derive(Debug, Default)]
pub struct StartsRef {
    /// In the order of the log.
    pub entries: Vec<StartEntry>,
}

impl StartsRef {
    /// Reads a payload.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(payload: &[u8]) -> Result<StartsRef, DecodeError> {
        let mut reader = ByteReader::new(payload);
        // Every entry has at least three bytes, so the count is bounded by the bytes.
        let count = reader.length("start time count")?;
        let mut entries = Vec::with_capacity(count.min(payload.len() / 3));
        let (mut id, mut time, mut start_ms) = (0i64, 0i64, 0i64);
        for _ in 0..count {
            let offset = reader.offset();
            id = id.wrapping_add(reader.varint("series id")?);
            let Ok(narrow) = u32::try_from(id) else {
                let found = id.cast_unsigned();
                return Err(DecodeError::Invalid { what: "series id", offset, expected: "32 bits", found });
            };
            time = time.wrapping_add(reader.varint("sample time")?);
            start_ms = start_ms.wrapping_add(reader.varint("start time")?);
            entries.push(StartEntry { id: narrow, time, start_ms });
        }
        if reader.is_empty() {
            return Ok(StartsRef { entries });
        }
        let (offset, found) = (reader.offset(), reader.remaining() as u64);
        Err(DecodeError::Invalid { what: "start times", offset, expected: "the end of the payload", found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Vec<StartEntry> {
        let at = |(id, time, start_ms)| StartEntry { id, time, start_ms };
        let t0 = 1_700_000_000_000;
        [(7, t0, t0 - 5), (8, t0, t0 - 5), (3, t0 - 15_000, 0), (u32::MAX - 1, i64::MAX, i64::MIN), (0, 0, 0)]
            .map(at)
            .to_vec()
    }

    #[test]
    fn entries_round_trip_in_order() {
        let mut payload = Vec::new();
        encode_starts(&entries(), &mut payload);
        assert_eq!(StartsRef::decode(&payload).unwrap().entries, entries());
        for len in 0..payload.len() {
            assert!(StartsRef::decode(&payload[..len]).is_err(), "{len} bytes");
        }
        payload.push(0);
        assert!(StartsRef::decode(&payload).is_err());
    }

    /// The layout is on disks: these bytes never change.
    #[test]
    fn the_bytes_are_pinned() {
        let mut payload = Vec::new();
        encode_starts(&entries()[..3], &mut payload);
        let hex: String = payload.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, concat!("03", "0e80a0abfef962f69fabfef962", "020000", "09afea01f59fabfef962"));
    }

    #[test]
    fn flipped_payloads_are_errors_or_entries() {
        let mut payload = Vec::new();
        encode_starts(&entries(), &mut payload);
        for at in 0..payload.len() {
            for bit in 0..8 {
                let mut bad = payload.clone();
                bad[at] ^= 1 << bit;
                if let Ok(read) = StartsRef::decode(&bad) {
                    assert!(read.entries.len() <= bad.len() / 3);
                }
            }
        }
    }
}
