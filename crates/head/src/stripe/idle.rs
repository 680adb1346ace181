//! Which series of a page take no samples: two bits a series, as page replacement by a clock has them.
//!
//! Holds: a series counts as idle once two generations have ended since its last sample, its making or the start of
//! the process; any sample that is offered to it, a repeat or a late one, makes it busy again.
//! Not here: when a generation ends, what becomes of idle series (`crate::idle`).

use super::{NONE, PAGE_SLOTS, Stripe, place_of};

const WORD_COUNT: usize = PAGE_SLOTS / 64;

const _: () = assert!(PAGE_SLOTS.is_multiple_of(64));

/// The bits of one page. An append in id order finds them in the line that it has just written for its neighbour; a time in
/// the hot record would have no room there, and the sweep would have to read every record.
#[derive(Default)]
pub(super) struct Stamps {
    /// Offered a sample in this generation.
    touched: [u64; WORD_COUNT],
    /// Not offered one in the whole generation before.
    quiet: [u64; WORD_COUNT],
}

impl Stamps {
    /// A sample came, or the series.
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
    /// Whether no sample was offered to the series in this generation and the one before.
    pub(crate) fn is_idle(&self, id: u32) -> bool {
        let (page_idx, slot) = place_of(id);
        let Some(Some(page)) = self.pages.get(page_idx) else { return false };
        page.slots[slot].tenant != NONE && page.stamps.is_idle(slot)
    }

    /// Gives tenant and slot of each idle series of page `page_idx` to `visit` and ends the page's generation;
    /// `None` behind the last page.
    pub(crate) fn age_page(&mut self, page_idx: usize, mut visit: impl FnMut(u32, usize)) -> Option<()> {
        if let Some(page) = self.pages.get_mut(page_idx)? {
            for (slot, hot) in page.slots.iter().enumerate() {
                if page.stamps.is_idle(slot) && hot.tenant != NONE {
                    visit(hot.tenant, slot);
                }
            }
            page.stamps.end_generation();
        }
        Some(())
    }
}
