//! WAL sequences up to which slices and the series file have the content of the WAL.

use chronolith_base::hash::HashMap;

use crate::checkpoint::slice_of;
use crate::series::stripe::PAGE_SLOTS;

/// Sequences between which a slice was copied.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SlicePosition {
    /// The slice has all samples up to here.
    pub(super) sequence: u64,
    /// The slice has no samples after here.
    pub(super) copied_until: u64,
}

/// Sequences covered by the checkpoint.
pub(super) struct Positions {
    /// By slice. A series that is younger than the slice has no samples up to its sequence.
    slices: HashMap<u32, SlicePosition>,
    /// No slice needs frames up to here.
    pub(super) oldest: u64,
    /// Series records up to here are in the series file.
    pub(super) defined_sequence: u64,
    /// Series below this id are in the series file, or left the head before it was extended.
    defined_end: u32,
}

impl Positions {
    pub(super) fn new(
        slices: HashMap<u32, SlicePosition>,
        oldest: u64,
        defined_sequence: u64,
        defined_end: u32,
    ) -> Positions {
        Positions { slices, oldest, defined_sequence, defined_end }
    }

    /// Returns true if samples of this series without a series record are no loss.
    pub(super) fn is_known_dead(&self, id: u32) -> bool {
        self.defined_sequence > 0 && id < self.defined_end
    }

    /// Returns true if a series record with this id that is not in the series file has a reused id.
    pub(super) fn is_reused(&self, id: u32) -> bool {
        id < self.defined_end
    }

    /// Returns a cursor for lookups of ids in roughly ascending order.
    pub(super) fn cursor(&self) -> Cursor<'_> {
        Cursor { positions: self, page: u32::MAX, found: SlicePosition::default() }
    }
}

/// Lookup that caches the last page.
pub(super) struct Cursor<'a> {
    positions: &'a Positions,
    page: u32,
    found: SlicePosition,
}

impl Cursor<'_> {
    /// Returns the sequence up to which the slice of series `id` has its samples.
    pub(super) fn of(&mut self, id: u32) -> u64 {
        self.slice_of(id).sequence
    }

    /// Returns the position of the slice of series `id`.
    pub(super) fn slice_of(&mut self, id: u32) -> SlicePosition {
        let page = id / PAGE_SLOTS as u32;
        if page != self.page {
            self.page = page;
            self.found = self.positions.slices.get(&slice_of(id)).copied().unwrap_or_default();
        }
        self.found
    }
}
