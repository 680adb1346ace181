//! Shard of a selection: the series whose hash of labels, modulo the number of shards, is its index.
//!
//! The hash is XXH64 over name, 0xff, value, 0xff of each label, as Mimir shards queries. The hashes of a
//! block are cached by series ref, so that a later selection reads the entries of its own shard alone.
//! Invariants: cached hashes ascend by ref; the hashes of all blocks have at most [`HASHES_BYTES_MAX`] bytes.

use std::num::NonZeroU64;
use std::sync::LazyLock;

use chronolith_base::{MemoryBudget, Reservation};
use chronolith_format::block::index::SeriesEntry;
use parking_lot::RwLock;
use xxhash_rust::xxh64::Xxh64;

/// Bytes of the cached hashes of all blocks of the process.
const HASHES_BYTES_MAX: u64 = 64 << 20;
const HASH_BYTES: u64 = size_of::<(u32, u64)>() as u64;
const SEPARATOR: &[u8] = &[0xff];

static HASHES: LazyLock<MemoryBudget> =
    LazyLock::new(|| MemoryBudget::new("series hashes of blocks", HASHES_BYTES_MAX));

/// A shard of the series of a selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// From 0.
    pub idx: u64,
    /// Number of shards.
    pub count: NonZeroU64,
}

impl Shard {
    pub(crate) fn has(self, hash: u64) -> bool {
        hash % self.count == self.idx
    }
}

/// Hash of the labels of an entry.
pub(crate) fn labels_hash(entry: &SeriesEntry) -> u64 {
    let mut hash = Xxh64::new(0);
    for (name, value) in entry.pairs() {
        hash.update(name.as_bytes());
        hash.update(SEPARATOR);
        hash.update(value.as_bytes());
        hash.update(SEPARATOR);
    }
    hash.digest()
}

/// Cached hashes of the series of one block.
#[derive(Default)]
pub(crate) struct HashCache(RwLock<Cached>);

#[derive(Default)]
struct Cached {
    /// In ascending order of refs, each at most once.
    hashes: Vec<(u32, u64)>,
    reserved: Option<Reservation>,
}

impl HashCache {
    /// Drops the refs, which ascend, that are known to be of other shards. Returns true if all were known.
    pub(crate) fn retain_shard(&self, refs: &mut Vec<u32>, shard: Shard) -> bool {
        let cached = self.0.read();
        let mut rest = cached.hashes.as_slice();
        let mut knows_all = true;
        refs.retain(|series_ref| {
            rest = skip_below(rest, *series_ref);
            match rest.first() {
                Some((found, hash)) if found == series_ref => shard.has(*hash),
                _ => {
                    knows_all = false;
                    true
                }
            }
        });
        knows_all
    }

    /// Adds hashes, by ref; drops them where the budget is exhausted.
    pub(crate) fn add(&self, new: &[(u32, u64)]) {
        if new.is_empty() {
            return;
        }
        let mut cached = self.0.write();
        let mut new = new.to_vec();
        new.retain(|(new_ref, _)| cached.hashes.binary_search_by_key(new_ref, |(known, _)| *known).is_err());
        let Some(first) = new.first() else { return };
        let bytes = HASH_BYTES * new.len() as u64;
        let reserved = match &mut cached.reserved {
            Some(reserved) => reserved.grow(bytes),
            none => HASHES.reserve(bytes).map(|reserved| *none = Some(reserved)),
        };
        if reserved.is_err() {
            return;
        }
        let is_ordered = cached.hashes.last().is_none_or(|last| last.0 < first.0);
        cached.hashes.append(&mut new);
        if !is_ordered {
            cached.hashes.sort_unstable();
        }
    }
}

/// The hashes from `series_ref` on: a galloping search, as refs are mostly near each other.
fn skip_below(hashes: &[(u32, u64)], series_ref: u32) -> &[(u32, u64)] {
    let mut step = 1;
    while hashes.get(step - 1).is_some_and(|(found, _)| *found < series_ref) {
        step *= 2;
    }
    let known_below = step / 2;
    let (_, rest) = hashes.split_at(known_below.min(hashes.len()));
    let near = rest.get(..step - known_below).unwrap_or(rest);
    rest.get(near.partition_point(|(found, _)| *found < series_ref)..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn shards_are_those_of_the_hashes(
            known in prop::collection::vec((0u32..500, any::<u64>()), 0..200),
            refs in prop::collection::btree_set(0u32..500, 0..100),
            count in 1u64..9,
        ) {
            let cache = HashCache::default();
            let hashes: std::collections::BTreeMap<u32, u64> = known.into_iter().collect();
            let sorted: Vec<(u32, u64)> = hashes.iter().map(|(k, v)| (*k, *v)).collect();
            // In two halves, the later one first.
            let (early, late) = sorted.split_at(sorted.len() / 3);
            cache.add(late);
            cache.add(early);
            let mut found: Vec<Vec<u32>> = Vec::new();
            for idx in 0..count {
                let shard = Shard { idx, count: NonZeroU64::new(count).unwrap() };
                let mut of_shard: Vec<u32> = refs.iter().copied().collect();
                cache.retain_shard(&mut of_shard, shard);
                let want = refs.iter().filter(|r| hashes.get(r).is_none_or(|h| h % count == idx));
                prop_assert_eq!(&of_shard, &want.copied().collect::<Vec<u32>>());
                found.push(of_shard);
            }
        }
    }
}
