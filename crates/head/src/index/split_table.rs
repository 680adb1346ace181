//! Hash table in parts, so that growth moves one part at a time: inserting has no long pauses. Parts have
//! different sizes, by a factor of up to nearly two, so that they do not grow all at the same time, and the
//! whole has never just doubled.
//!
//! Invariant: an entry is in the part that its hash selects; a small table is one part.

use chronolith_base::hash::{Entry, HashTable};

/// Entries at which a table is split.
const SPLIT_COUNT: usize = 1 << 15;
/// Parts of a split table.
const PART_COUNT: usize = 64;
/// Sum of the weights of all parts.
const WEIGHT_SUM: usize = PART_COUNT * PART_COUNT + PART_COUNT * (PART_COUNT - 1) / 2;
/// Each part as often as its weight.
static PART_BY_WEIGHT: [u8; WEIGHT_SUM] = part_by_weight();

/// Maps hashes to indexes of entries, which the caller stores.
pub(crate) struct SplitTable {
    /// One, or [`PART_COUNT`].
    parts: Vec<HashTable<u32>>,
}

impl Default for SplitTable {
    fn default() -> Self {
        SplitTable { parts: vec![HashTable::new()] }
    }
}

impl SplitTable {
    /// Returns the entry with this hash for which `is_it` returns true.
    pub(crate) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        self.parts[part_of(hash, self.parts.len())].find(hash, |&entry| is_it(entry)).copied()
    }

    /// Adds an entry that is not in the table; `hash_of` returns the hash of any entry.
    pub(crate) fn insert(&mut self, hash: u64, entry: u32, hash_of: impl Fn(u32) -> u64) {
        if self.parts.len() == 1 && self.parts[0].len() >= SPLIT_COUNT {
            self.split(self.parts[0].len(), &hash_of);
        }
        let part = part_of(hash, self.parts.len());
        self.parts[part].insert_unique(hash, entry, |&other| hash_of(other));
    }

    /// Adds `entry` unless there is one with this hash for which `is_it` returns true; returns that one.
    // PERF: one probe instead of two: a start with 200,000 series takes 933 instead of 970 M instructions,
    // with as many cache misses.  valgrind --tool=callgrind --cache-sim=yes
    // target/release/examples/restart_speed open DIR
    pub(crate) fn find_or_insert(
        &mut self,
        hash: u64,
        entry: u32,
        mut is_it: impl FnMut(u32) -> bool,
        hash_of: impl Fn(u32) -> u64,
    ) -> Option<u32> {
        if self.parts.len() == 1 && self.parts[0].len() >= SPLIT_COUNT {
            self.split(self.parts[0].len(), &hash_of);
        }
        let part = part_of(hash, self.parts.len());
        match self.parts[part].entry(hash, |&other| is_it(other), |&other| hash_of(other)) {
            Entry::Occupied(found) => Some(*found.get()),
            Entry::Vacant(vacant) => {
                vacant.insert(entry);
                None
            }
        }
    }

    /// Replaces the entry `from`, which has this hash, by `to`.
    pub(crate) fn replace(&mut self, hash: u64, from: u32, to: u32) {
        let part = part_of(hash, self.parts.len());
        if let Some(found) = self.parts[part].find_mut(hash, |&entry| entry == from) {
            *found = to;
        }
    }

    /// Removes the entry with this hash for which `is_it` returns true.
    pub(crate) fn remove(&mut self, hash: u64, mut is_it: impl FnMut(u32) -> bool) {
        let part = part_of(hash, self.parts.len());
        if let Ok(found) = self.parts[part].find_entry(hash, |&entry| is_it(entry)) {
            found.remove();
        }
    }

    /// Reserves memory for `count` more entries.
    pub(crate) fn reserve(&mut self, count: usize, hash_of: impl Fn(u32) -> u64) {
        if self.parts.len() == 1 && self.parts[0].len() + count >= SPLIT_COUNT {
            self.split(self.parts[0].len() + count, &hash_of);
            return;
        }
        if let [only] = &mut self.parts[..] {
            only.reserve(count, |&entry| hash_of(entry));
            return;
        }
        for (idx, part) in self.parts.iter_mut().enumerate() {
            part.reserve(share(idx, count), |&entry| hash_of(entry));
        }
    }

    #[cold]
    fn split(&mut self, count: usize, hash_of: &impl Fn(u32) -> u64) {
        let mut parts: Vec<HashTable<u32>> =
            (0..PART_COUNT).map(|idx| HashTable::with_capacity(share(idx, count))).collect();
        for &entry in self.parts.iter().flatten() {
            let hash = hash_of(entry);
            parts[part_of(hash, PART_COUNT)].insert_unique(hash, entry, |&other| hash_of(other));
        }
        self.parts = parts;
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.allocation_size() + size_of::<HashTable<u32>>()).sum()
    }
}

/// Returns the part of a hash, by its middle bits: a part uses the lowest and the highest bits itself.
fn part_of(hash: u64, part_count: usize) -> usize {
    if part_count == 1 {
        return 0;
    }
    let middle = u64::from((hash >> 24) as u32);
    usize::from(PART_BY_WEIGHT[((middle * WEIGHT_SUM as u64) >> 32) as usize])
}

const fn weight(part: usize) -> usize {
    PART_COUNT + part
}

/// Returns the expected entries of a part out of `count`, plus a sixteenth: hashes spread evenly, but not
/// exactly.
fn share(part: usize, count: usize) -> usize {
    let mean = count * weight(part) / WEIGHT_SUM;
    mean + mean / 16
}

const fn part_by_weight() -> [u8; WEIGHT_SUM] {
    let mut parts = [0; WEIGHT_SUM];
    let (mut part, mut end, mut at) = (0, weight(0), 0);
    while at < WEIGHT_SUM {
        if at == end {
            part += 1;
            end += weight(part);
        }
        parts[at] = part as u8;
        at += 1;
    }
    parts
}

#[cfg(test)]
mod tests {
    use chronolith_base::hash::hash_bytes;

    use super::*;

    fn hash_of(entry: u32) -> u64 {
        hash_bytes(&entry.to_le_bytes())
    }

    fn check(table: &SplitTable, count: u32) {
        for entry in 0..count {
            let want = if entry % 3 == 0 { None } else { Some(entry) };
            assert_eq!(table.find(hash_of(entry), |e| e == entry), want);
        }
    }

    #[test]
    fn entries_are_found_before_and_after_the_split() {
        let mut table = SplitTable::default();
        let count = 3 * SPLIT_COUNT as u32;
        for entry in 0..count {
            table.insert(hash_of(entry), entry, hash_of);
            if entry % 3 == 0 {
                table.remove(hash_of(entry), |e| e == entry);
            }
            if entry + 1 == 1000 || entry + 1 == count {
                check(&table, entry + 1);
            }
        }
        assert_eq!(table.parts.len(), PART_COUNT);
        let lens: Vec<usize> = table.parts.iter().map(HashTable::len).collect();
        let (small, large) = (lens[..8].iter().sum::<usize>(), lens[56..].iter().sum::<usize>());
        assert!(small * 5 < large * 3, "the last parts are nearly twice the first: {lens:?}");
        table.reserve(4 * SPLIT_COUNT, hash_of);
        check(&table, count);
        let mut reserved = SplitTable::default();
        reserved.reserve(2 * SPLIT_COUNT, hash_of);
        assert_eq!(reserved.parts.len(), PART_COUNT);
        let before = reserved.heap_bytes();
        (0..2 * SPLIT_COUNT as u32).for_each(|e| reserved.insert(hash_of(e), e, hash_of));
        assert!(reserved.heap_bytes() <= before + before / 8, "room was made before");
    }
}
