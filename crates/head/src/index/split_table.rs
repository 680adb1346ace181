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
/// Entries that [`SplitTable::load`] partitions at a time: 8 MiB of memory.
const LOAD_RUN_COUNT: usize = 1 << 18;
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
    // target/release/deps/restart_speed-* open DIR
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

    /// Adds `count` entries, each with its hash. Of entries for which `is_same` returns true the last one
    /// stays; `replaced` is called with each other one and its successor.
    // PERF: entries are partitioned by part before they are inserted, so that the part being filled stays in
    // the cache: building the tables of 1M label sets and as many wire keys takes 75 instead of 165 ms of CPU
    // time.  cargo bench -p chronolith-head --bench restart_speed -- 1000000 24 2
    pub(crate) fn load(
        &mut self,
        count: usize,
        mut entries: impl Iterator<Item = (u64, u32)>,
        is_same: impl Fn(u32, u32) -> bool,
        hash_of: impl Fn(u32) -> u64,
        mut replaced: impl FnMut(u32, u32),
    ) {
        self.reserve(count, &hash_of);
        let mut run = Vec::with_capacity(count.min(LOAD_RUN_COUNT));
        let mut by_part = Vec::new();
        loop {
            run.clear();
            run.extend(entries.by_ref().take(LOAD_RUN_COUNT));
            if run.is_empty() {
                return;
            }
            let ends = partition(&run, self.parts.len(), &mut by_part);
            let mut start = 0;
            for (part, end) in self.parts.iter_mut().zip(ends) {
                for &(hash, entry) in &by_part[start..end] {
                    match part.entry(hash, |&other| is_same(other, entry), |&other| hash_of(other)) {
                        Entry::Occupied(mut found) => {
                            replaced(std::mem::replace(found.get_mut(), entry), entry);
                        }
                        Entry::Vacant(vacant) => drop(vacant.insert(entry)),
                    }
                }
                start = end;
            }
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

/// Replaces `out` by the entries of `run` in order of their parts; returns the end of each part. Entries of a
/// part stay in their order.
fn partition(run: &[(u64, u32)], part_count: usize, out: &mut Vec<(u64, u32)>) -> [usize; PART_COUNT] {
    let mut ends = [0; PART_COUNT];
    for &(hash, _) in run {
        ends[part_of(hash, part_count)] += 1;
    }
    let mut start = 0;
    for end in &mut ends {
        start += std::mem::replace(end, start);
    }
    out.resize(run.len(), (0, 0));
    for &(hash, entry) in run {
        let end = &mut ends[part_of(hash, part_count)];
        out[*end] = (hash, entry);
        *end += 1;
    }
    ends
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

    #[test]
    fn load_keeps_the_last_of_equal_entries() {
        for count in [100, LOAD_RUN_COUNT as u32 + 1000] {
            let mut table = SplitTable::default();
            // Entry `i` of the second half equals entry `i - count` of the first.
            let key = |entry: u32| entry % count;
            let hash_of = |entry: u32| hash_of(key(entry));
            let mut replaced = Vec::new();
            table.load(
                2 * count as usize,
                (0..count).chain((count..2 * count).filter(|entry| entry % 3 == 0)).map(|e| (hash_of(e), e)),
                |a, b| key(a) == key(b),
                hash_of,
                |older, younger| replaced.push((older, younger)),
            );
            replaced.sort_unstable();
            let younger = (count..2 * count).filter(|entry| entry % 3 == 0);
            assert_eq!(replaced, younger.map(|entry| (entry - count, entry)).collect::<Vec<_>>());
            for entry in 0..count {
                let want = if (entry + count).is_multiple_of(3) { entry + count } else { entry };
                assert_eq!(table.find(hash_of(entry), |e| key(e) == entry), Some(want));
            }
        }
    }
}
