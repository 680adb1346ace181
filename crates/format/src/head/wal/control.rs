//! Control file of the WAL: which frames and segments must exist. Without it a WAL that has lost its end
//! looks like one that was never longer.
//!
//! Invariant: a slot is valid only if its checksum matches; the valid slot with the highest generation is the
//! current one.
//! Not here: schedule of writing and syncing slots (`wal`). Layout: `docs/head/wal.md`.

use chronolith_base::ByteReader;
use chronolith_base::crc::crc32c;

/// Name of the file in the directory of the WAL.
pub const CONTROL_FILE: &str = "control";
/// Number of slots.
pub const SLOT_COUNT: usize = 3;
/// Each slot has a sector of its own, so that a torn write does not damage the others.
const SLOT_STRIDE: usize = 512;
/// Bytes of the file.
pub const CONTROL_BYTES: usize = SLOT_COUNT * SLOT_STRIDE;
const RECORD_BYTES: usize = 64;
const MAGIC: [u8; 4] = *b"CLWC";
const VERSION: u16 = 1;
const FLAG_CLOSED: u16 = 1;

/// Frames and segments that must exist.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ControlRecord {
    /// Random key of the WAL.
    pub key: u128,
    /// Ascends from record to record.
    pub generation: u64,
    /// Frames up to this one are not needed: their segments may be removed.
    pub start_sequence: u64,
    /// Frames up to this one are durable.
    pub sequence: u64,
    /// The newest segment that exists; 0 if there is none.
    pub last_segment: u32,
    /// Set if the WAL was closed by a clean stop and has not been opened since.
    pub is_closed: bool,
}

/// Frames that were durable and are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostFrames {
    /// First missing frame.
    pub first: u64,
    /// Last frame that is known to have existed.
    pub last: u64,
}

impl ControlRecord {
    /// Returns the offset of slot `slot` and the bytes to write there.
    #[must_use]
    pub fn encode(&self, slot: usize) -> (u64, [u8; RECORD_BYTES]) {
        let mut out = [0u8; RECORD_BYTES];
        out[..4].copy_from_slice(&MAGIC);
        out[4..6].copy_from_slice(&VERSION.to_le_bytes());
        let flags = if self.is_closed { FLAG_CLOSED } else { 0 };
        out[6..8].copy_from_slice(&flags.to_le_bytes());
        out[8..16].copy_from_slice(&self.generation.to_le_bytes());
        out[16..32].copy_from_slice(&self.key.to_le_bytes());
        out[32..40].copy_from_slice(&self.start_sequence.to_le_bytes());
        out[40..48].copy_from_slice(&self.sequence.to_le_bytes());
        out[48..52].copy_from_slice(&self.last_segment.to_le_bytes());
        let sum = crc32c(&out[..60]);
        out[60..].copy_from_slice(&sum.to_le_bytes());
        ((slot % SLOT_COUNT * SLOT_STRIDE) as u64, out)
    }

    /// Returns the current record of a control file; `None` if no slot is valid.
    #[must_use]
    pub fn newest(file: &[u8]) -> Option<ControlRecord> {
        let slots = (0..SLOT_COUNT).filter_map(|slot| ControlRecord::decode(file.get(slot * SLOT_STRIDE..)?));
        slots.max_by_key(|record| record.generation)
    }

    fn decode(bytes: &[u8]) -> Option<ControlRecord> {
        let bytes: &[u8; RECORD_BYTES] = bytes.first_chunk()?;
        let mut reader = ByteReader::new(bytes);
        let is_ours = reader.bytes("magic", 4).ok()? == MAGIC && reader.le_u16("version").ok()? == VERSION;
        let flags = reader.le_u16("flags").ok()?;
        let generation = reader.le_u64("generation").ok()?;
        let (low, high) = (reader.le_u64("key").ok()?, reader.le_u64("key").ok()?);
        let start_sequence = reader.le_u64("start sequence").ok()?;
        let sequence = reader.le_u64("sequence").ok()?;
        let last_segment = reader.le_u32("last segment").ok()?;
        reader.bytes("reserved", 8).ok()?;
        let is_whole = reader.le_u32("checksum").ok()? == crc32c(bytes.get(..60)?);
        (is_ours && is_whole).then_some(ControlRecord {
            key: u128::from(high) << 64 | u128::from(low),
            generation,
            start_sequence,
            sequence,
            last_segment,
            is_closed: flags & FLAG_CLOSED != 0,
        })
    }

    /// Returns the frames that are missing at the start of a WAL whose first frame is `first_found` (0: no
    /// frames).
    #[must_use]
    pub fn lost_before(&self, first_found: u64) -> Option<LostFrames> {
        let (first, last) = (self.start_sequence.saturating_add(1), first_found.saturating_sub(1));
        (first_found > 0 && first <= last).then_some(LostFrames { first, last })
    }

    /// Returns the frames that are missing at the end of a WAL whose last frame is `last_found` (0: no
    /// frames).
    #[must_use]
    pub fn lost_behind(&self, last_found: u64) -> Option<LostFrames> {
        let first = last_found.max(self.start_sequence).saturating_add(1);
        (first <= self.sequence).then_some(LostFrames { first, last: self.sequence })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(generation: u64) -> ControlRecord {
        ControlRecord {
            key: 7 << 90,
            generation,
            start_sequence: 10,
            sequence: 20,
            last_segment: 3,
            is_closed: generation.is_multiple_of(2),
        }
    }

    fn file(records: &[ControlRecord]) -> Vec<u8> {
        let mut file = vec![0; CONTROL_BYTES];
        for (slot, record) in records.iter().enumerate() {
            let (at, bytes) = record.encode(slot);
            file[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
        }
        file
    }

    #[test]
    fn the_newest_good_slot_counts_wherever_it_is_damaged() {
        let whole = file(&[record(5), record(6), record(4)]);
        assert_eq!(ControlRecord::newest(&whole), Some(record(6)));
        for at in (0..RECORD_BYTES).map(|at| at + SLOT_STRIDE) {
            let mut bad = whole.clone();
            bad[at] ^= 1;
            assert_eq!(ControlRecord::newest(&bad), Some(record(5)), "byte {at}");
        }
        for len in 0..whole.len() {
            assert!(ControlRecord::newest(&whole[..len]).is_none_or(|r| [record(5), record(6)].contains(&r)));
        }
        assert_eq!(ControlRecord::newest(&vec![0; CONTROL_BYTES]), None);
    }

    #[test]
    fn missing_frames_are_told_from_those_that_may_be_gone() {
        let lost = |first, last| Some(LostFrames { first, last });
        let record = record(1);
        assert_eq!([9, 11].map(|found| record.lost_before(found)), [None, None]);
        assert_eq!((record.lost_before(13), record.lost_before(0)), (lost(11, 12), None));
        assert_eq!([20, 25].map(|found| record.lost_behind(found)), [None, None]);
        assert_eq!((record.lost_behind(18), record.lost_behind(0)), (lost(19, 20), lost(11, 20)));
    }
}
