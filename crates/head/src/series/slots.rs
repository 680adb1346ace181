//! Slab allocator: slots of equal size in pages, for objects of which a stripe has millions: nodes of open
//! chunks, references to sealed chunks.
//!
//! Invariants: an index is valid from `alloc` to `free`; the lowest page with room is filled first, so pages
//! above it empty out after a peak; an entirely free page is returned to the system allocator, except for one
//! spare.
//! Not here: the content of slots.

/// Reference to no slot.
pub(crate) const SLOT_NONE: u32 = u32::MAX;
/// Entirely free pages that are kept, so that one chunk at a page border does not allocate and free a page
/// repeatedly.
const SPARE_COUNT_MAX: usize = 1;

/// Content of a slot. The link belongs to the owner while the slot is in use, and to the free list otherwise.
pub(crate) trait Slot: Copy {
    /// Initial value of the slots of a page.
    const EMPTY: Self;
    /// Low bits of an index that address the slot in its page. Pages of 64 to 128 KiB are large enough that
    /// the 4 KiB which an allocator may add to each do not matter, and small enough to become entirely free.
    const PAGE_BITS: u32;

    /// Returns the linked slot, or [`SLOT_NONE`].
    fn link(&self) -> u32;

    /// Links to another slot.
    fn set_link(&mut self, link: u32);
}

struct Page<T> {
    slots: Box<[T]>,
    /// First free slot of the page; start of its free list.
    free: u32,
    used_count: u32,
}

/// Slab allocator of `T`.
pub(crate) struct Slots<T> {
    pages: Vec<Option<Page<T>>>,
    /// Bitmap of pages that exist and have a free slot.
    with_room: Vec<u64>,
    /// Lower bound: no earlier word has a bit set.
    word_first: usize,
    /// Indexes in `pages` without a page.
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

    /// Allocates a slot with `value`; returns its index.
    pub(crate) fn alloc(&mut self, value: T) -> u32 {
        let page_idx = self.page_with_room();
        let page = self.pages[page_idx].as_mut().expect("pages with room exist");
        if page.used_count == 0 {
            self.spare_count -= 1;
        }
        let slot = page.free;
        let slot_value = &mut page.slots[slot as usize];
        page.free = slot_value.link();
        *slot_value = value;
        page.used_count += 1;
        self.used_count += 1;
        if page.free == SLOT_NONE {
            self.with_room[page_idx / 64] &= !(1 << (page_idx % 64));
        }
        (page_idx as u32) << T::PAGE_BITS | slot
    }

    /// Frees a slot.
    pub(crate) fn free(&mut self, idx: u32) {
        let (page_idx, slot) = locate::<T>(idx);
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
        let (page, slot) = locate::<T>(idx);
        self.pages.get(page)?.as_ref()?.slots.get(slot)
    }

    pub(crate) fn get_mut(&mut self, idx: u32) -> Option<&mut T> {
        let (page, slot) = locate::<T>(idx);
        self.pages.get_mut(page)?.as_mut()?.slots.get_mut(slot)
    }

    /// Number of slots in use.
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
        for (slot, slot_value) in slots.iter_mut().enumerate() {
            slot_value.set_link(if slot + 1 < 1 << T::PAGE_BITS { slot as u32 + 1 } else { SLOT_NONE });
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

/// Returns page and slot of an index.
fn locate<T: Slot>(idx: u32) -> (usize, usize) {
    ((idx >> T::PAGE_BITS) as usize, idx as usize % (1 << T::PAGE_BITS))
}

#[cfg(test)]
mod tests;
