//! Frame log: a file that is appended to in frames of the WAL's layout, in two copies with equal bytes. The
//! series file and the metadata file are frame logs.
//!
//! Invariant: the sequences of the frames ascend from 1 on; every byte after the header belongs to a frame.
//! Not here: payloads and headers (`series_file`, `metadata`), writing the copies (`base::AppendFile`),
//! reading frames (`wal::scan_segment_from`, the crate `wal`).

use super::wal::{Damage, FrameHeader, STRIPE_NONE};

/// Frames to be appended to a file, in order.
pub struct FrameWriter {
    key: u128,
    sequence: u64,
    bytes: Vec<u8>,
}

impl FrameWriter {
    /// Returns an empty queue of frames under `key`, of which the file has those up to `sequence`.
    #[must_use]
    pub fn new(key: u128, sequence: u64) -> FrameWriter {
        FrameWriter { key, sequence, bytes: Vec::new() }
    }

    /// Returns a queue for a new file, which begins with `header`.
    #[must_use]
    pub fn with_header(key: u128, header: &[u8]) -> FrameWriter {
        FrameWriter { bytes: header.to_vec(), ..FrameWriter::new(key, 0) }
    }

    /// Adds a frame.
    pub fn put(&mut self, kind: u8, payload: &[u8]) {
        self.sequence += 1;
        let header = FrameHeader::for_payload(kind, STRIPE_NONE, payload);
        FrameHeader { sequence: self.sequence, ..header }.put_frame(self.key, payload, &mut self.bytes);
    }

    /// Takes the bytes of the queued frames; later ones continue their sequence.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Returns the key of the file.
    #[must_use]
    pub fn key(&self) -> u128 {
        self.key
    }

    /// Returns the sequence of the last frame.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns the bytes of the queued frames.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns true if no frame is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Result of verifying one copy. Error texts are for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyState {
    /// Damage of the header.
    pub header_damage: Option<String>,
    /// First damage that is followed by valid frames.
    pub damage: Option<String>,
    /// Returns true if the last valid frame is followed by bytes of no frame: an append was cut.
    pub has_cut_end: bool,
    /// End of the last valid frame.
    pub frames_end: u64,
    /// Bytes of the file.
    pub len: u64,
}

impl CopyState {
    /// Returns the state of a copy of `len` bytes whose frames end at `frames_end`.
    #[must_use]
    pub fn new(header_damage: Option<String>, found: &[Damage], frames_end: u64, len: u64) -> CopyState {
        let damage = found.iter().find(|damage| damage.followed);
        let damage = damage.map(|d| format!("{} bytes at offset {} are damaged", d.len, d.offset));
        let has_cut_end = found.iter().any(|damage| !damage.followed);
        CopyState { header_damage, damage, has_cut_end, frames_end, len }
    }

    /// Returns the damage, apart from a cut end.
    #[must_use]
    pub fn damage(&self) -> Option<&str> {
        self.header_damage.as_deref().or(self.damage.as_deref())
    }

    /// Returns true if every byte belongs to a valid frame.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.damage().is_none() && !self.has_cut_end && self.frames_end == self.len
    }
}

#[cfg(test)]
mod tests {
    use super::super::wal::scan_segment_from;
    use super::*;

    const KEY: u128 = 7;
    const HEADER: [u8; 16] = [9; 16];

    fn state_of(bytes: &[u8]) -> CopyState {
        let scan = scan_segment_from(bytes, KEY, HEADER.len(), 0);
        CopyState::new(None, &scan.damage, scan.end as u64, bytes.len() as u64)
    }

    fn file() -> Vec<u8> {
        let mut frames = FrameWriter::with_header(KEY, &HEADER);
        (1..=3).for_each(|kind| frames.put(kind, &[kind; 20]));
        assert_eq!((frames.sequence(), frames.len(), frames.key()), (3, frames.bytes.len(), KEY));
        let mut bytes = frames.take();
        assert!(frames.is_empty());
        // After a restart the sequence continues.
        let mut later = FrameWriter::new(KEY, frames.sequence());
        later.put(4, &[4; 20]);
        bytes.extend(later.take());
        bytes
    }

    #[test]
    fn frames_continue_after_a_restart() {
        let bytes = file();
        let scan = scan_segment_from(&bytes, KEY, HEADER.len(), 0);
        let found: Vec<_> =
            scan.frames.iter().map(|frame| (frame.header.kind, frame.header.sequence)).collect();
        assert_eq!(found, [(1, 1), (2, 2), (3, 3), (4, 4)]);
        assert!(state_of(&bytes).is_clean());
    }

    #[test]
    fn damage_and_a_cut_end_are_told_apart() {
        let mut bytes = file();
        let cut = state_of(&bytes[..bytes.len() - 30]);
        assert!(!cut.is_clean() && cut.damage().is_none() && cut.has_cut_end);
        bytes[HEADER.len() + 40] ^= 1;
        let damaged = state_of(&bytes);
        assert!(!damaged.is_clean() && !damaged.has_cut_end);
        assert!(damaged.damage().is_some_and(|what| what.contains("at offset 16 are damaged")));
        let header_damage = CopyState { header_damage: Some("is missing".to_owned()), ..damaged };
        assert_eq!(header_damage.damage(), Some("is missing"));
    }
}
