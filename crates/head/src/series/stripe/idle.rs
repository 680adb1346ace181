//! Idle series of a page, found with two bits per series as in the clock page replacement algorithm.
//!
//! Invariant: a series is idle once two generations have ended since its last sample, its creation or the
//! start of the process; any sample offered to it, duplicates and out-of-order samples included, makes it
//! active again.
//! Not here: the end of generations, the eviction of idle series (`crate::evict::idle`).

use super::layout::PAGE_SLOTS;

const WORD_COUNT: usize = PAGE_SLOTS / 64;

const _: () = assert!(PAGE_SLOTS.is_multiple_of(64));

/// Activity bits of one page. An append in id order finds them in the cache line that it has just written for
/// its neighbour. A timestamp would not fit the series record, and the sweep would have to read every record.
#[derive(Default)]
pub(super) struct ActivityBits {
    /// A sample was offered in this generation.
    touched: [u64; WORD_COUNT],
    /// No sample was offered in the whole previous generation.
    quiet: [u64; WORD_COUNT],
}

impl ActivityBits {
    /// Records a sample or the creation of the series.
    pub(super) fn touch(&mut self, slot: usize) {
        self.touched[slot / 64] |= 1 << (slot % 64);
    }

    /// Returns true if no sample was offered to the series in this generation and the one before.
    pub(super) fn is_idle(&self, slot: usize) -> bool {
        (self.quiet[slot / 64] & !self.touched[slot / 64]) >> (slot % 64) & 1 == 1
    }

    /// Ends the generation.
    pub(super) fn end_generation(&mut self) {
        for (touched, quiet) in self.touched.iter_mut().zip(&mut self.quiet) {
            *quiet = !*touched;
            *touched = 0;
        }
    }
}
