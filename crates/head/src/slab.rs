//! Bytes of open chunks in slots of a few size classes, so that a chunk costs what it uses.
//! Holds: a handle is valid from `alloc` to `free`; slots of a freed handle are reused. Not here: what the bytes mean.

use chronolith_format::xor;

/// Slot sizes; each is about 1.4 times the last, so a chunk wastes little and moves seldom.
const CLASS_BYTES: [usize; 14] = [24, 40, 56, 80, 112, 160, 224, 320, 448, 640, 896, 1280, 1792, 2432];
/// Bytes taken from the allocator at once.
const PAGE_BYTES: usize = 16 << 10;
const CLASS_SHIFT: u32 = 28;

const _: () = assert!(CLASS_BYTES[CLASS_BYTES.len() - 1] >= xor::CHUNK_BYTES_MAX);
const _: () = assert!(CLASS_BYTES.len() < 1 << (32 - CLASS_SHIFT));

/// A slot: class in the upper four bits, index below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlabHandle(u32);

impl SlabHandle {
    /// No slot.
    pub(crate) const NONE: SlabHandle = SlabHandle(u32::MAX);

    pub(crate) fn is_none(self) -> bool {
        self == SlabHandle::NONE
    }

    fn class(self) -> usize {
        (self.0 >> CLASS_SHIFT) as usize
    }

    fn slot(self) -> usize {
        (self.0 & ((1 << CLASS_SHIFT) - 1)) as usize
    }
}

#[derive(Default)]
struct Class {
    pages: Vec<Box<[u8]>>,
    free: Vec<u32>,
    slot_count: u32,
}

/// All slots of one stripe.
pub(crate) struct Slabs {
    classes: [Class; CLASS_BYTES.len()],
}

impl Slabs {
    pub(crate) fn new() -> Slabs {
        Slabs { classes: std::array::from_fn(|_| Class::default()) }
    }

    /// A slot of at least `len` bytes, which hold anything.
    pub(crate) fn alloc(&mut self, len: usize) -> SlabHandle {
        let class_idx = CLASS_BYTES.partition_point(|&size| size < len);
        assert!(class_idx < CLASS_BYTES.len(), "no chunk is longer than the largest class");
        let class = &mut self.classes[class_idx];
        let slot = class.free.pop().unwrap_or_else(|| {
            let slot = class.slot_count;
            assert!(slot < (1 << CLASS_SHIFT) - 1, "slots of a class are addressed by 28 bits");
            if (slot as usize).is_multiple_of(PAGE_BYTES / CLASS_BYTES[class_idx]) {
                class.pages.push(vec![0; PAGE_BYTES].into_boxed_slice());
            }
            class.slot_count += 1;
            slot
        });
        SlabHandle((class_idx as u32) << CLASS_SHIFT | slot)
    }

    pub(crate) fn get(&self, handle: SlabHandle) -> &[u8] {
        let (page, start, size) = place(handle);
        &self.classes[handle.class()].pages[page][start..start + size]
    }

    pub(crate) fn get_mut(&mut self, handle: SlabHandle) -> &mut [u8] {
        let (page, start, size) = place(handle);
        &mut self.classes[handle.class()].pages[page][start..start + size]
    }

    /// Moves `used` bytes to a slot of at least `len`.
    #[cold]
    pub(crate) fn grow(&mut self, from: SlabHandle, used: usize, len: usize) -> SlabHandle {
        let to = self.alloc(len);
        let (from_page, from_start, _) = place(from);
        let (to_page, to_start, _) = place(to);
        let (low, high) = self.classes.split_at_mut(to.class());
        let source = &low[from.class()].pages[from_page][from_start..from_start + used];
        high[0].pages[to_page][to_start..to_start + used].copy_from_slice(source);
        self.free(from);
        to
    }

    pub(crate) fn free(&mut self, handle: SlabHandle) {
        self.classes[handle.class()].free.push(handle.slot() as u32);
    }

    pub(crate) fn heap_bytes(&self) -> u64 {
        self.classes.iter().map(|c| (c.pages.len() * PAGE_BYTES + 4 * c.free.capacity()) as u64).sum()
    }
}

/// Page, offset in it, size.
fn place(handle: SlabHandle) -> (usize, usize, usize) {
    let size = CLASS_BYTES[handle.class()];
    let per_page = PAGE_BYTES / size;
    (handle.slot() / per_page, handle.slot() % per_page * size, size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_do_not_overlap_and_come_back() {
        let mut slabs = Slabs::new();
        let handles: Vec<SlabHandle> = (0..2000).map(|i| slabs.alloc(1 + i % 300)).collect();
        for (i, &handle) in handles.iter().enumerate() {
            slabs.get_mut(handle).fill(i as u8);
        }
        for (i, &handle) in handles.iter().enumerate() {
            assert!(slabs.get(handle).iter().all(|&b| b == i as u8));
        }
        let grown = slabs.grow(handles[0], 24, 600);
        assert!(slabs.get(grown)[..24].iter().all(|&b| b == 0));
        assert_eq!(slabs.alloc(10), handles[0], "the freed slot is used again");
    }
}
