//! Equal small slots in pages, for everything of which a stripe has millions: pieces of open chunks, places of
//! sealed ones.
//!
//! Holds: an index is valid from `alloc` to `free`; the lowest page with room is filled first, so that pages
//! above it empty out after a peak; a wholly free page goes back to the allocator, except for one.
//! Not here: what is in a slot.

/// No slot.
pub(crate) const SLOT_NONE: u32 = u32::MAX;
/// Wholly free pages that are kept, so that one chunk at the edge does not make and drop a page over and over.
const SPARE_COUNT_MAX: usize = 1;

/// What can be in a slot. The link belongs to the owner while the slot is in use, and to the arena otherwise.
pub(crate) trait Slot: Copy {
    /// What a page is filled with.
    const EMPTY: Self;
    /// Low bits of an index that address the slot in its page. Pages of 64 to 128 KiB are large enough that
    /// the 4 KiB which an allocator may add to each are little, and small enough to become wholly free.
    const PAGE_BITS: u32;

    /// The linked slot, or [`SLOT_NONE`].
    fn link(&self) -> u32;

    /// Links another slot.
    fn set_link(&mut self, link: u32);
}

struct Page<T> {
    slots: Box<[T]>,
    /// First free slot of the page.
    free: u32,
    used_count: u32,
}

/// See the module.
pub(crate) struct Slots<T> {
    pages: Vec<Option<Page<T>>>,
    /// A bit a page: it exists and has a free slot.
    with_room: Vec<u64>,
    /// No word before this one has a bit.
    word_first: usize,
    /// Positions in `pages` without a page.
    vacant: Vec<u32>,
    spare_count: usize,
    used_count: u64,
}

impl<T: Slot> Slots<T> {
    pub(crate) fn new() -> Slots<T> {
        Slots {
            pages: Vec::new(),
            with_room: Vec::new(),
            word_first: 0,
            vacant: Vec::new(),
            spare_count: 0,
            used_count: 0,
        }
    }

    /// A slot that holds `value`.
    pub(crate) fn alloc(&mut self, value: T) -> u32 {
        let page_idx = self.page_with_room();
        let page = self.pages[page_idx].as_mut().expect("pages with room exist");
        if page.used_count == 0 {
            self.spare_count -= 1;
        }
        let slot = page.free;
        let place = &mut page.slots[slot as usize];
        page.free = place.link();
        *place = value;
        page.used_count += 1;
        self.used_count += 1;
        if page.free == SLOT_NONE {
            self.with_room[page_idx / 64] &= !(1 << (page_idx % 64));
        }
        (page_idx as u32) << T::PAGE_BITS | slot
    }

    /// Takes a slot back.
    pub(crate) fn free(&mut self, idx: u32) {
        let (page_idx, slot) = place::<T>(idx);
        let page = self.pages[page_idx].as_mut().expect("a slot is freed once");
        page.slots[slot].set_link(page.free);
        page.free = slot as u32;
        page.used_count -= 1;
        let is_empty = page.used_count == 0;
        self.used_count -= 1;
        let word = page_idx / 64;
        self.with_room[word] |= 1 << (page_idx % 64);
        self.word_first = self.word_first.min(word);
        if is_empty {
            self.give_back(page_idx);
        }
    }

    pub(crate) fn get(&self, idx: u32) -> Option<&T> {
        let (page, slot) = place::<T>(idx);
        self.pages.get(page)?.as_ref()?.slots.get(slot)
    }

    pub(crate) fn get_mut(&mut self, idx: u32) -> Option<&mut T> {
        let (page, slot) = place::<T>(idx);
        self.pages.get_mut(page)?.as_mut()?.slots.get_mut(slot)
    }

    /// Slots in use.
    pub(crate) fn used_count(&self) -> u64 {
        self.used_count
    }

    pub(crate) fn heap_bytes(&self) -> u64 {
        let pages = (self.pages.len() - self.vacant.len()) * (size_of::<T>() << T::PAGE_BITS);
        let lists = self.pages.capacity() * size_of::<Option<Page<T>>>()
            + 8 * self.with_room.capacity()
            + 4 * self.vacant.capacity();
        (pages + lists) as u64
    }

    fn page_with_room(&mut self) -> usize {
        while let Some(&word) = self.with_room.get(self.word_first) {
            if word != 0 {
                return self.word_first * 64 + word.trailing_zeros() as usize;
            }
            self.word_first += 1;
        }
        self.add_page()
    }

    #[cold]
    fn add_page(&mut self) -> usize {
        let mut slots = vec![T::EMPTY; 1 << T::PAGE_BITS].into_boxed_slice();
        for (slot, place) in slots.iter_mut().enumerate() {
            place.set_link(if slot + 1 < 1 << T::PAGE_BITS { slot as u32 + 1 } else { SLOT_NONE });
        }
        let page_idx = match self.vacant.pop() {
            Some(page_idx) => page_idx as usize,
            None => {
                self.pages.push(None);
                self.pages.len() - 1
            }
        };
        assert!(page_idx < (u32::MAX >> T::PAGE_BITS) as usize, "slots are addressed by 32 bits");
        self.pages[page_idx] = Some(Page { slots, free: 0, used_count: 0 });
        self.spare_count += 1;
        let word = page_idx / 64;
        if self.with_room.len() <= word {
            self.with_room.resize(word + 1, 0);
        }
        self.with_room[word] |= 1 << (page_idx % 64);
        self.word_first = word;
        page_idx
    }

    #[cold]
    fn give_back(&mut self, page_idx: usize) {
        if self.spare_count < SPARE_COUNT_MAX {
            self.spare_count += 1;
            return;
        }
        self.pages[page_idx] = None;
        self.with_room[page_idx / 64] &= !(1 << (page_idx % 64));
        self.vacant.push(page_idx as u32);
    }
}

/// Page and slot of an index.
fn place<T: Slot>(idx: u32) -> (usize, usize) {
    ((idx >> T::PAGE_BITS) as usize, idx as usize % (1 << T::PAGE_BITS))
}

#[cfg(test)]
mod tests;
