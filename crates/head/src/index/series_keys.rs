//! Series key cache: resolves wire keys to series without parsing. Hashes in order of arrival, and a hash
//! table into them.
//!
//! Invariant: a hit is the right series unless two keys share a 128-bit keyed hash. Senders repeat their
//! order, so the entries after the last hit are checked before the table: the usual lookup walks memory
//! sequentially.
//! Not here: hashing (`key_hash`), misses (`write::resolve`).

use crate::index::split_table::SplitTable;
use crate::memory_part::MemoryPart;

/// Id of an entry whose series has left, and of unknown series.
pub(crate) const ID_NONE: u32 = u32::MAX;
/// Cached keys per live series, plus [`KEY_COUNT_MIN`]: a series may have several spellings, but a client
/// that sends ever new ones must not fill the memory.
const KEYS_PER_SERIES_MAX: usize = 4;
const KEY_COUNT_MIN: usize = 1_000_000;
/// Entries that are checked before the table: one cache line of hashes.
const GUESS_COUNT: usize = 4;
/// Dead entries below which a rebuild is not worth it.
const DEAD_COUNT_MIN: usize = 4096;

/// Returns the number of keys to keep for `series_count` series.
pub(crate) fn key_count_max(series_count: u64) -> usize {
    KEY_COUNT_MIN + KEYS_PER_SERIES_MAX * series_count as usize
}

/// Keys of series files in their order, before the cache is built.
#[derive(Default)]
pub(crate) struct LoadedKeys {
    hashes: Vec<u128>,
    ids: Vec<u32>,
}

impl LoadedKeys {
    /// Reserves memory for exactly `count` more keys.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.hashes.reserve_exact(count);
        self.ids.reserve_exact(count);
    }

    pub(crate) fn push(&mut self, hash: u128, id: u32) {
        self.hashes.push(hash);
        self.ids.push(id);
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Removes all keys but the first `count`.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.hashes.truncate(count);
        self.ids.truncate(count);
    }

    /// Removes the keys of series for which `is_live` returns false.
    pub(crate) fn retain(&mut self, mut is_live: impl FnMut(u32) -> bool) {
        let mut kept = 0;
        for idx in 0..self.ids.len() {
            if is_live(self.ids[idx]) {
                (self.hashes[kept], self.ids[kept]) = (self.hashes[idx], self.ids[idx]);
                kept += 1;
            }
        }
        self.truncate(kept);
    }
}

/// Cache of wire keys, append-only between rebuilds.
#[derive(Default)]
pub(crate) struct SeriesKeyCache {
    hashes: Vec<u128>,
    ids: Vec<u32>,
    table: SplitTable,
    dead_count: usize,
    /// Entries at the front that a series file has.
    stored_count: usize,
}

impl SeriesKeyCache {
    /// Builds the cache of the keys of series files; of equal ones the last wins.
    pub(crate) fn load(keys: LoadedKeys) -> SeriesKeyCache {
        let LoadedKeys { hashes, mut ids } = keys;
        let (mut table, mut dead_count) = (SplitTable::default(), 0);
        let hash_of = |entry: u32| hashes[entry as usize] as u64;
        table.load(
            hashes.len(),
            (0..hashes.len() as u32).map(|entry| (hash_of(entry), entry)),
            |a, b| hashes[a as usize] == hashes[b as usize],
            hash_of,
            |older, _| {
                ids[older as usize] = ID_NONE;
                dead_count += 1;
            },
        );
        let stored_count = hashes.len();
        SeriesKeyCache { hashes, ids, table, dead_count, stored_count }
    }

    /// Visits at most `count` entries that no series file has, up to the first of an unknown series, and
    /// marks them as stored. Returns the number of visited entries.
    pub(crate) fn store(
        &mut self,
        count: usize,
        is_known: impl Fn(u32) -> bool,
        mut visit: impl FnMut(u128, u32),
    ) -> usize {
        let start = self.stored_count.min(self.ids.len());
        let end = start.saturating_add(count).min(self.ids.len());
        let mut at = start;
        while at < end && (self.ids[at] == ID_NONE || is_known(self.ids[at])) {
            if self.ids[at] != ID_NONE {
                visit(self.hashes[at], self.ids[at]);
            }
            at += 1;
        }
        self.stored_count = at;
        at - start
    }

    /// Returns true if [`SeriesKeyCache::store`] has entries to visit.
    pub(crate) fn has_unstored(&self) -> bool {
        self.stored_count < self.ids.len()
    }

    /// Marks all entries as not stored, before the series file is rewritten.
    pub(crate) fn forget_stored(&mut self) {
        self.stored_count = 0;
    }

    /// Returns the entry of `hash`; checks `guess` and the entries after it first.
    // A sender that skips a series, because its sample comes later, continues with the next one.
    pub(crate) fn find(&self, hash: u128, guess: usize) -> Option<usize> {
        let near = self.hashes.get(guess..).unwrap_or(&[]).iter().take(GUESS_COUNT);
        if let Some(ahead) = near.copied().position(|near| near == hash)
            && self.ids[guess + ahead] != ID_NONE
        {
            return Some(guess + ahead);
        }
        let found = self.table.find(hash as u64, |i| self.hashes[i as usize] == hash)?;
        Some(found as usize)
    }

    /// Returns the series of an entry.
    pub(crate) fn id(&self, entry: usize) -> u32 {
        self.ids[entry]
    }

    /// Maps `hash` to `id`, replacing its mapping. Not cached beyond `count_max` keys.
    pub(crate) fn insert(&mut self, hash: u128, id: u32, count_max: usize) {
        if let Some(entry) = self.find(hash, usize::MAX) {
            self.ids[entry] = id;
            return;
        }
        if self.hashes.len() >= count_max {
            return;
        }
        let entry = self.hashes.len() as u32;
        self.hashes.push(hash);
        self.ids.push(id);
        let hashes = &self.hashes;
        self.table.insert(hash as u64, entry, |i| hashes[i as usize] as u64);
    }

    /// Reserves memory for `count` more keys.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.hashes.reserve(count);
        self.ids.reserve(count);
        let hashes = &self.hashes;
        self.table.reserve(count, |i| hashes[i as usize] as u64);
    }

    /// Removes the keys of series for which `is_gone` returns true, among `count` entries from `start` on;
    /// returns the start of the next call.
    pub(crate) fn remove(
        &mut self,
        start: usize,
        count: usize,
        is_gone: impl Fn(u32) -> bool,
    ) -> Option<usize> {
        let end = start.saturating_add(count).min(self.ids.len());
        for entry in start..end {
            let id = self.ids[entry];
            if id == ID_NONE || !is_gone(id) {
                continue;
            }
            let hash = self.hashes[entry];
            self.table.remove(hash as u64, |i| i as usize == entry);
            self.ids[entry] = ID_NONE;
            self.dead_count += 1;
        }
        (end < self.ids.len()).then_some(end)
    }

    /// Returns true if a rebuild is worth it.
    pub(crate) fn is_sparse(&self) -> bool {
        let live_count = self.live_count();
        self.dead_count > DEAD_COUNT_MIN.max(live_count / 2) || live_count == 0 && self.dead_count > 0
    }

    /// Number of keys with a series.
    pub(crate) fn live_count(&self) -> usize {
        self.ids.len() - self.dead_count
    }

    /// Number of entries, dead ones included.
    pub(crate) fn entry_count(&self) -> usize {
        self.ids.len()
    }

    /// Visits at most `count` entries from `start` on, in order of arrival; returns the start of the next
    /// call.
    pub(crate) fn visit(
        &self,
        start: usize,
        count: usize,
        mut visit: impl FnMut(u128, u32),
    ) -> Option<usize> {
        let end = start.saturating_add(count).min(self.ids.len());
        for entry in start..end {
            if self.ids[entry] != ID_NONE {
                visit(self.hashes[entry], self.ids[entry]);
            }
        }
        (end < self.ids.len()).then_some(end)
    }

    pub(crate) fn memory(&self) -> [MemoryPart; 2] {
        let count = self.ids.len() as u64;
        let key_bytes = self.hashes.capacity() * size_of::<u128>() + self.ids.capacity() * size_of::<u32>();
        [
            MemoryPart::new("wire_key_cache", key_bytes as u64, count),
            MemoryPart::new("raw_key_table", self.table.heap_bytes() as u64, count),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_lookups_and_removal() {
        let mut keys = SeriesKeyCache::default();
        for i in 0..10_000u32 {
            keys.insert(u128::from(i) << 60 | 7, i, 10_000);
        }
        let entry = keys.find(7, usize::MAX).unwrap();
        assert_eq!(keys.find(1 << 60 | 7, entry + 1), Some(1));
        assert_eq!(keys.find(9 << 60 | 7, entry + 1), Some(9), "a wrong guess falls back to the table");
        let mut from = Some(0);
        while let Some(start) = from {
            from = keys.remove(start, 999, |id| id % 4 != 0);
        }
        assert!(keys.is_sparse());
        assert_eq!((keys.live_count(), keys.entry_count()), (2500, 10_000));
        assert_eq!(keys.find(1 << 60 | 7, 1), None);
        let entry = keys.find(8 << 60 | 7, usize::MAX).unwrap();
        assert_eq!(keys.id(entry), 8);
        let mut count = 0;
        assert_eq!(keys.visit(0, usize::MAX, |_, _| count += 1), None);
        assert_eq!(count, 2500);
        keys.insert(5, 5, 0);
        assert_eq!(keys.find(5, 0), None, "a full cache takes no more");
    }
}
