//! Hash maps with a fixed, fast hasher, so that iteration order does not depend on the process.
//! Not for keys that clients choose, unless a secret key is mixed in (as `head` does for series keys).

use std::hash::BuildHasher;

/// Fixed-seed hasher for in-memory tables.
pub type FixedState = foldhash::fast::FixedState;
/// Map with the fixed hasher.
pub type HashMap<K, V> = hashbrown::HashMap<K, V, FixedState>;
/// Set with the fixed hasher.
pub type HashSet<K> = hashbrown::HashSet<K, FixedState>;
/// Table keyed by caller-supplied hashes.
pub type HashTable<T> = hashbrown::HashTable<T>;
/// Entry of a [`HashTable`], found with one probe.
pub use hashbrown::hash_table::Entry;

/// 64-bit in-memory hash of `bytes`; not stable between versions, never stored.
#[must_use]
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    FixedState::default().hash_one(bytes)
}
