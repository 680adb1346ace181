//! Bytes that the references of a 2.0 request unfold to, bounded so that a small body cannot become a large
//! batch.
//!
//! Invariant: bytes are charged to the write budget before they are written.

use chronolith_base::Reservation;

use crate::remote_write::DecodeError;
use crate::remote_write::charge::Charge;

/// Text that references unfold to: bounded, and charged before it is written.
pub(super) struct Unfolded<'a> {
    bytes: usize,
    bytes_max: usize,
    charge: Charge<'a>,
}

impl<'a> Unfolded<'a> {
    pub(super) fn new(bytes_max: usize, held: &'a mut Reservation) -> Unfolded<'a> {
        Unfolded { bytes: 0, bytes_max, charge: Charge::new(held) }
    }

    /// Admits `count` bytes more.
    pub(super) fn take(&mut self, count: usize) -> Result<(), DecodeError> {
        self.bytes = self.bytes.saturating_add(count);
        if self.bytes > self.bytes_max {
            return Err(self.too_large());
        }
        // Twice, because the buffer that they go to doubles when it is full.
        Ok(self.charge.take(2 * count)?)
    }

    #[cold]
    fn too_large(&self) -> DecodeError {
        let found = self.bytes as u64;
        let limit = self.bytes_max as u64;
        DecodeError::TooLarge { what: "request with its symbols written out", found, limit }
    }
}
