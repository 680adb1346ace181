//! Values per tag of a measurement, for their limit: sets that exist only where the limit is near.
//!
//! Invariants: a set has the values of all live series of its measurement; it may have values of dead series
//! until it is counted again, which happens before it refuses anything.
//! Not here: counting (`lookup`), the limit (`write::resolve`).

use chronolith_base::hash::{HashMap, HashSet};

/// Distinct values of one tag of one measurement.
#[derive(Default)]
pub(super) struct TagValues {
    /// Pairs of the tag.
    pub(super) pairs: HashSet<u32>,
    /// First row that has not been looked at.
    pub(super) next_row: usize,
    /// Dead series when it was counted from the start.
    pub(super) dead_count: usize,
}

/// Sets of values by the pair of the measurement and the name of the tag.
#[derive(Default)]
pub(super) struct TagValueSets(pub(super) HashMap<(u32, u32), TagValues>);

/// A tag that has as many values as it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FullTag<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: &'a str,
    /// Number of values.
    pub(crate) value_count: usize,
}

impl TagValueSets {
    pub(super) fn heap_bytes(&self) -> usize {
        let sets = self.0.values().map(|values| values.pairs.capacity() * (size_of::<u32>() + 1));
        sets.sum::<usize>() + self.0.capacity() * size_of::<((u32, u32), TagValues)>()
    }
}
