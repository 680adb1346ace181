//! Idle series of a page, found with two bits per series as in the clock page replacement algorithm.
//!
//! Invariant: a series is idle once two generations have ended since its last sample, its creation or the
//! start of the process; any sample offered to it, duplicates and out-of-order samples included, makes it
//! active again.
//! Not here: the end of generations, the eviction of idle series (`crate::evict::idle`).

use super::{NONE, PAGE_SLOTS, Stripe, slot_of};

const WORD_COUNT: usize = PAGE_SLOTS / 64;

const _: () = assert!(PAGE_SLOTS.is_multiple_of(64));

/// Activity bits of one page. An append in id order finds them in the cache line that it has just written for
/// its neighbour. A timestamp would not fit the hot record, and the sweep would have to read every record.
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

    fn is_idle(&self, slot: usize) -> bool {
        (self.quiet[slot / 64] & !self.touched[slot / 64]) >> (slot % 64) & 1 == 1
    }

    fn end_generation(&mut self) {
        for (touched, quiet) in self.touched.iter_mut().zip(&mut self.quiet) {
            *quiet = !*touched;
            *touched = 0;
        }
    }
}

impl Stripe {
    /// Returns true if no sample was offered to the series in this generation and the one before.
    pub(crate) fn is_idle(&self, id: u32) -> bool {
        let (page_idx, slot) = slot_of(id);
        let Some(Some(page)) = self.pages.get(page_idx) else { return false };
        page.slots[slot].tenant != NONE && page.activity.is_idle(slot)
    }

    /// Calls `visit` with tenant and slot of each idle series of page `page_idx` and ends the generation of
    /// the page; `None` after the last page.
    pub(crate) fn age_page(&mut self, page_idx: usize, mut visit: impl FnMut(u32, usize)) -> Option<()> {
        if let Some(page) = self.pages.get_mut(page_idx)? {
            for (slot, series) in page.slots.iter().enumerate() {
                if page.activity.is_idle(slot) && series.tenant != NONE {
                    visit(series.tenant, slot);
                }
            }
            page.activity.end_generation();
        }
        Some(())
    }
}
