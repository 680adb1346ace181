//! Where the in-order samples of a series left a gap: a late sample that falls into one needs no look at chunks.
//!
//! Holds: between the two times of a gap no chunk has a sample. One gap a series, the youngest, in a table of
//! fixed size where a series may push another out: what is not known costs a look, never a wrong answer.

/// Gaps of a stripe that are remembered.
const GAP_COUNT: usize = 4096;

#[derive(Clone, Copy)]
struct Gap {
    after: i64,
    before: i64,
    id: u32,
}

const NO_GAP: Gap = Gap { after: 0, before: 0, id: u32::MAX };

/// See the module.
#[derive(Default)]
pub(super) struct Gaps {
    /// Empty until the first gap.
    slots: Box<[Gap]>,
}

impl Gaps {
    /// Notes that nothing lies between two neighbours of series `id`.
    #[cold]
    pub(super) fn note(&mut self, id: u32, after: i64, before: i64) {
        if self.slots.is_empty() {
            self.slots = vec![NO_GAP; GAP_COUNT].into_boxed_slice();
        }
        self.slots[slot_of(id)] = Gap { after, before, id };
    }

    /// Whether no chunk of the series has a sample of `time`, for certain.
    pub(super) fn covers(&self, id: u32, time: i64) -> bool {
        let Some(gap) = self.slots.get(slot_of(id)) else { return false };
        gap.id == id && gap.after < time && time < gap.before
    }

    /// Chunks of the series are no longer what in-order samples made of them.
    pub(super) fn forget(&mut self, id: u32) {
        if let Some(gap) = self.slots.get_mut(slot_of(id)).filter(|gap| gap.id == id) {
            *gap = NO_GAP;
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.slots.len() * size_of::<Gap>()
    }
}

fn slot_of(id: u32) -> usize {
    const { assert!(GAP_COUNT.is_power_of_two()) };
    (id.wrapping_mul(0x9e37_79b1) >> (u32::BITS - GAP_COUNT.ilog2())) as usize
}
