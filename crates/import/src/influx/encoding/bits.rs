//! Reader of bit fields, most significant bit first.
//!
//! Invariant: a read beyond the end is `None`. Not here: codes made of the fields (`floats`).

/// Bytes of the widest load.
const WINDOW_BYTES: usize = 16;

/// Reads forward over bits.
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    /// Offset of the next bit.
    at: usize,
}

impl<'a> BitReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> BitReader<'a> {
        BitReader { bytes, at: 0 }
    }

    /// Offset of the byte with the next bit.
    pub(super) fn byte_offset(&self) -> usize {
        self.at / 8
    }

    /// Reads the next `count` bits, 1 to 64.
    pub(super) fn read(&mut self, count: u32) -> Option<u64> {
        let end = self.at.checked_add(count as usize)?;
        if end.div_ceil(8) > self.bytes.len() {
            return None;
        }
        let start = self.at / 8;
        let mut window = [0; WINDOW_BYTES];
        match self.bytes.get(start..start + WINDOW_BYTES) {
            Some(whole) => window.copy_from_slice(whole),
            None => {
                let rest = self.bytes.get(start..)?;
                window.get_mut(..rest.len())?.copy_from_slice(rest);
            }
        }
        let aligned = u128::from_be_bytes(window) << (self.at % 8);
        self.at = end;
        Some((aligned >> (128 - count)) as u64)
    }
}
