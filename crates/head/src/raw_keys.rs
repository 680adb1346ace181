//! Raw bytes to series without parsing: hashes in order of arrival, and a table into them.
//!
//! Holds: a hit is the right series unless two keys share a 128-bit keyed hash. Senders repeat their order, so
//! the entry behind the last hit is looked at before the table: the usual lookup walks memory forward.
//! Not here: hashing, what a miss costs (`resolve`).

use crate::memory::MemoryPart;
use crate::split_table::SplitTable;

/// Id of an entry whose series is gone, and of series that are not known.
pub(crate) const ID_NONE: u32 = u32::MAX;
/// Keys that are kept per live series, and some: a series may have several spellings, but a client that
/// sends ever new ones does not fill the memory.
const KEYS_PER_SERIES_MAX: usize = 4;
const KEY_COUNT_MIN: usize = 1_000_000;
/// Entries that are looked at before the table: one cache line of hashes.
const GUESS_COUNT: usize = 4;
/// Dead entries at which a rebuild is not worth it yet.
const DEAD_COUNT_MIN: usize = 4096;

/// How many keys to keep for `series_count` series.
pub(crate) fn key_count_max(series_count: u64) -> usize {
    KEY_COUNT_MIN + KEYS_PER_SERIES_MAX * series_count as usize
}

/// See the module.
#[derive(Default)]
pub(crate) struct RawKeys {
    hashes: Vec<u128>,
    ids: Vec<u32>,
    table: SplitTable,
    dead_count: usize,
    /// Entries at the front that a definitions file holds.
    stored_count: usize,
}

impl RawKeys {
    /// The keys of definitions files, in their order; of equal ones the last counts.
    pub(crate) fn load(keys: impl Iterator<Item = (u128, u32)>) -> RawKeys {
        let (hashes, ids): (Vec<u128>, Vec<u32>) = keys.unzip();
        let mut loaded = RawKeys { hashes, ids, ..RawKeys::default() };
        let RawKeys { hashes, ids, table, dead_count, .. } = &mut loaded;
        table.reserve(hashes.len(), |_| 0);
        for entry in 0..hashes.len() {
            let hash = hashes[entry];
            match table.find(hash as u64, |i| hashes[i as usize] == hash) {
                Some(known) => {
                    ids[known as usize] = ids[entry];
                    ids[entry] = ID_NONE;
                    *dead_count += 1;
                }
                None => table.insert(hash as u64, entry as u32, |i| hashes[i as usize] as u64),
            }
        }
        loaded.stored_count = loaded.hashes.len();
        loaded
    }

    /// Visits entries that no definitions file holds, at most `count`, up to the first of a series that is
    /// not known; they count as held from then on. Gives how many were visited.
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

    /// Whether [`RawKeys::store`] has something to visit.
    pub(crate) fn has_unstored(&self) -> bool {
        self.stored_count < self.ids.len()
    }

    /// Forgets what definitions files hold: they are written anew.
    pub(crate) fn forget_stored(&mut self) {
        self.stored_count = 0;
    }

    /// The entry of `hash`; `guess` and those behind it are looked at first.
    // A sender that leaves out a series, because its sample comes late, goes on with the one behind it.
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

    /// Series of an entry.
    pub(crate) fn id(&self, entry: usize) -> u32 {
        self.ids[entry]
    }

    /// Maps `hash` to `id`, replacing what it was mapped to. Beyond `count_max` keys it is not remembered.
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

    /// Makes room for `count` keys more.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.hashes.reserve(count);
        self.ids.reserve(count);
        let hashes = &self.hashes;
        self.table.reserve(count, |i| hashes[i as usize] as u64);
    }

    /// Forgets the keys of series for which `is_gone` holds, among `count` entries from `start` on; gives where to
    /// go on.
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

    /// Returns true if building anew is worth it.
    pub(crate) fn is_sparse(&self) -> bool {
        let live_count = self.live_count();
        self.dead_count > DEAD_COUNT_MIN.max(live_count / 2) || live_count == 0 && self.dead_count > 0
    }

    /// Keys of series.
    pub(crate) fn live_count(&self) -> usize {
        self.ids.len() - self.dead_count
    }

    /// Entries, dead ones included.
    pub(crate) fn entry_count(&self) -> usize {
        self.ids.len()
    }

    /// Visits at most `count` entries from `start` on, in order of arrival; gives where to go on.
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
            MemoryPart::new("raw_keys", key_bytes as u64, count),
            MemoryPart::new("raw_key_table", self.table.heap_bytes() as u64, count),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_lookups_and_removal() {
        let mut keys = RawKeys::default();
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
