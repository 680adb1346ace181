//! Out-of-order samples of series that buffer many of them: one B-tree by time per series, so that finding,
//! adding and removing a sample costs O(log n) for any arrival order.
//!
//! Invariants: a tree is never empty; its number is reused only after it is removed.
//! Not here: the conversion of a list to a tree (`ooo_buffer`).

use std::collections::BTreeMap;

use chronolith_model::{Columns, TimeRange};

/// Bytes per sample: nodes of 11 keys and values are about three quarters full.
const SAMPLE_BYTES: usize = 24;
/// Set in the id of every tree; ids of list nodes are below it.
const TREE_BIT: u32 = 1 << 31;

/// Trees of one stripe.
#[derive(Default)]
pub(super) struct Trees {
    /// `None` for a number that is not in use.
    trees: Vec<Option<BTreeMap<i64, u64>>>,
    vacant: Vec<u32>,
    sample_count: usize,
}

/// Returns the index of a tree in the list. [`super::NONE`] has the bit as well, but no list is that long.
fn slot_of(name: u32) -> Option<usize> {
    (name & TREE_BIT != 0).then_some((name & !TREE_BIT) as usize)
}

impl Trees {
    /// Creates a tree of `samples`, which must not be empty; returns its id.
    pub(super) fn add(&mut self, samples: impl Iterator<Item = (i64, u64)>) -> u32 {
        let tree: BTreeMap<i64, u64> = samples.collect();
        self.sample_count += tree.len();
        let idx = self.vacant.pop().unwrap_or(self.trees.len() as u32);
        if idx as usize == self.trees.len() {
            self.trees.push(None);
        }
        self.trees[idx as usize] = Some(tree);
        idx | TREE_BIT
    }

    pub(super) fn get(&self, name: u32) -> Option<&BTreeMap<i64, u64>> {
        self.trees.get(slot_of(name)?)?.as_ref()
    }

    fn get_mut(&mut self, name: u32) -> Option<&mut BTreeMap<i64, u64>> {
        self.trees.get_mut(slot_of(name)?)?.as_mut()
    }

    /// Adds a sample or replaces its value; returns the count of the tree, `None` if there is no such tree.
    pub(super) fn insert(&mut self, name: u32, time: i64, value_bits: u64) -> Option<usize> {
        let tree = self.get_mut(name)?;
        let is_new = tree.insert(time, value_bits).is_none();
        let count = tree.len();
        self.sample_count += usize::from(is_new);
        Some(count)
    }

    /// Returns the samples in `range`, ascending.
    pub(super) fn range(&self, name: u32, range: TimeRange) -> impl Iterator<Item = (i64, u64)> {
        let tree = self.get(name).into_iter();
        tree.flat_map(move |t| t.range(range.start..range.end.max(range.start)))
            .map(|(&time, &bits)| (time, bits))
    }

    /// Removes and returns the samples in `range`, ascending; the flag is false once the tree is empty and
    /// removed.
    pub(super) fn take(&mut self, name: u32, range: TimeRange) -> (bool, Columns) {
        let mut taken = Columns::default();
        let Some(tree) = self.get_mut(name) else { return (false, taken) };
        let inside = range.start..range.end.max(range.start);
        for (time, bits) in tree.extract_if(inside, |_, _| true) {
            taken.push(time, f64::from_bits(bits));
        }
        let is_left = !tree.is_empty();
        self.sample_count -= taken.len();
        if !is_left {
            self.remove(name);
        }
        (is_left, taken)
    }

    /// Removes a tree; returns false if there is none.
    pub(super) fn remove(&mut self, name: u32) -> bool {
        let Some(idx) = slot_of(name) else { return false };
        let Some(tree) = self.trees.get_mut(idx).and_then(Option::take) else { return false };
        self.sample_count -= tree.len();
        self.vacant.push(idx as u32);
        true
    }

    pub(super) fn heap_bytes(&self) -> usize {
        SAMPLE_BYTES * self.sample_count
            + size_of::<Option<BTreeMap<i64, u64>>>() * self.trees.capacity()
            + size_of::<u32>() * self.vacant.capacity()
    }

    pub(super) fn sample_bytes(&self) -> usize {
        SAMPLE_BYTES * self.sample_count
    }
}
