//! Key memory: from the bytes that name a series in OTLP to the translated key or the verdict of a rule.
//!
//! An identity is a keyed 128-bit hash: of a resource over its bytes, of a scope, metric, point and series
//! over their bytes and the identity before. So a known series costs one lookup, and nothing is kept of
//! resources and attributes.
//! Invariants: without the secret no client can make two identities collide; the memory is at most
//! `bytes_max` (two generations of a half each: used entries move to the newer one, the older one is
//! dropped when the newer is full); a change of the version empties it.
//! Not here: the translation, rules.

#[cfg(test)]
mod tests;

use chronolith_base::hash::HashTable;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::refused::PointReject;

/// Bytes of an entry, with free slots of its table.
const ENTRY_BYTES: usize = 2 * (size_of::<Entry>() + 1);
/// Odd number with well-mixed bits: seeds of parts differ in many bits.
const PART_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
/// Length that marks an entry without a key.
const DROPPED: u32 = u32::MAX;
/// Smallest number of a rule in [`Verdict::Dropped`]; smaller ones are reasons of rejected points.
pub const RULE_NUMBER_MIN: u32 = 256;

const _: () = assert!(size_of::<Entry>() == 24, "a dropped series costs about 50 bytes with its free slot");
const _: () = assert!(PointReject::COUNT <= RULE_NUMBER_MIN as usize);

/// Record of an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// Key of the series, or other bytes for which an identity stands.
    Key(&'a [u8]),
    /// The series is not stored; number of the reason or rule.
    Dropped(u32),
}

/// Identity of a resource, scope, metric, point or series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Identity(u128);

/// Part of the name of a series that an identity is made for. Equal bytes of different parts differ.
#[derive(Debug, Clone, Copy)]
#[repr(u64)]
pub(super) enum Part {
    Resource = 1,
    Scope,
    Schema,
    MetricName,
    Unit,
    MetricType,
    Attributes,
    ScatteredAttributes,
    Series,
    Target,
    Help,
}

#[derive(Debug)]
struct Entry {
    /// Low and high half, so that the entry has no padding.
    identity: [u64; 2],
    /// Offset of the key, or the number of a dropped series.
    start: u32,
    /// Length of the key, or [`DROPPED`].
    len: u32,
}

#[derive(Debug, Default)]
struct Generation {
    table: HashTable<Entry>,
    keys: Vec<u8>,
}

/// Bounded memory of translated keys, of one tenant.
#[derive(Debug)]
pub struct KeyMemory {
    secret: u64,
    version: u64,
    bytes_max: usize,
    current: Generation,
    previous: Generation,
    hit_count: u64,
    miss_count: u64,
}

impl KeyMemory {
    /// An empty memory of at most `bytes_max` bytes; `secret` is random, and unknown to clients.
    #[must_use]
    pub fn new(bytes_max: usize, secret: u64) -> KeyMemory {
        KeyMemory {
            secret,
            version: 0,
            bytes_max: bytes_max.min(u32::MAX as usize),
            current: Generation::default(),
            previous: Generation::default(),
            hit_count: 0,
            miss_count: 0,
        }
    }

    /// Empties the memory if the settings or rules have another version than before.
    pub fn set_version(&mut self, version: u64) {
        if self.version != version {
            self.version = version;
            self.current = Generation::default();
            self.previous = Generation::default();
        }
    }

    /// Bytes in use.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.current.bytes() + self.previous.bytes()
    }

    /// Lookups that found something, and lookups that did not.
    #[must_use]
    pub fn lookup_counts(&self) -> (u64, u64) {
        (self.hit_count, self.miss_count)
    }

    /// Returns the identity of `bytes` alone.
    pub(super) fn identity(&self, part: Part, bytes: &[u8]) -> Identity {
        let seed = self.secret ^ (part as u64).wrapping_mul(PART_MULTIPLIER);
        Identity(xxh3_128_with_seed(bytes, seed))
    }

    /// Returns the identity of `bytes` within `parent`.
    pub(super) fn within(&self, parent: Identity, part: Part, bytes: &[u8]) -> Identity {
        Identity(parent.0.rotate_left(29) ^ self.identity(part, bytes).0)
    }

    /// Returns what the memory has for an identity.
    pub(super) fn find(&mut self, identity: Identity) -> Option<Verdict<'_>> {
        let mut found = self.current.find(identity);
        if found.is_none()
            && let Some((start, len)) = self.previous.find(identity)
        {
            found = Some(self.promote(identity, start, len));
        }
        let Some((start, len)) = found else {
            self.miss_count += 1;
            return None;
        };
        self.hit_count += 1;
        Some(self.current.verdict(start, len))
    }

    /// Records a verdict; one that would take a quarter of the memory is not recorded.
    pub(super) fn insert(&mut self, identity: Identity, verdict: Verdict<'_>) {
        let key_len = match verdict {
            Verdict::Key(key) => key.len(),
            Verdict::Dropped(_) => 0,
        };
        if cost(1, key_len) > self.bytes_max / 4 {
            return;
        }
        self.make_room(key_len);
        self.current.push(identity, verdict);
        debug_assert!(self.bytes() <= self.bytes_max, "two generations of a half each");
    }

    /// Moves an entry to the newer generation.
    fn promote(&mut self, identity: Identity, start: u32, len: u32) -> (u32, u32) {
        if len == DROPPED {
            self.make_room(0);
            self.current.push(identity, Verdict::Dropped(start));
            return (start, len);
        }
        let range = start as usize..start as usize + len as usize;
        if self.current.is_full_with(len as usize, self.bytes_max) {
            // The older generation is dropped with the key, so the key is copied first.
            let key = self.previous.keys.get(range).unwrap_or(&[]).to_vec();
            self.make_room(key.len());
            self.current.push(identity, Verdict::Key(&key));
            return (0, len);
        }
        let at = self.current.keys.len() as u32;
        let key = self.previous.keys.get(range).unwrap_or(&[]);
        self.current.push(identity, Verdict::Key(key));
        (at, len)
    }

    fn make_room(&mut self, key_len: usize) {
        if self.current.is_full_with(key_len, self.bytes_max) {
            std::mem::swap(&mut self.current, &mut self.previous);
            self.current.clear();
        }
    }
}

/// Bytes of entries and keys; vectors double when they are full.
fn cost(entry_count: usize, key_bytes: usize) -> usize {
    entry_count * ENTRY_BYTES + 2 * key_bytes
}

impl Generation {
    fn bytes(&self) -> usize {
        cost(self.table.len(), self.keys.len())
    }

    fn is_full_with(&self, key_len: usize, bytes_max: usize) -> bool {
        self.bytes() + cost(1, key_len) > bytes_max / 2
    }

    fn clear(&mut self) {
        self.table.clear();
        self.keys.clear();
    }

    fn find(&self, identity: Identity) -> Option<(u32, u32)> {
        let halves = halves(identity);
        let entry = self.table.find(halves[0], |entry| entry.identity == halves)?;
        Some((entry.start, entry.len))
    }

    fn verdict(&self, start: u32, len: u32) -> Verdict<'_> {
        if len == DROPPED {
            return Verdict::Dropped(start);
        }
        let range = start as usize..start as usize + len as usize;
        debug_assert!(range.end <= self.keys.len(), "an entry points into its own generation");
        Verdict::Key(self.keys.get(range).unwrap_or(&[]))
    }

    fn push(&mut self, identity: Identity, verdict: Verdict<'_>) {
        debug_assert!(self.find(identity).is_none(), "an identity is recorded once");
        let identity = halves(identity);
        let (start, len) = match verdict {
            Verdict::Key(key) => {
                let start = self.keys.len() as u32;
                self.keys.extend_from_slice(key);
                (start, key.len() as u32)
            }
            Verdict::Dropped(number) => (number, DROPPED),
        };
        let hash = |entry: &Entry| entry.identity[0];
        self.table.insert_unique(identity[0], Entry { identity, start, len }, hash);
    }
}

fn halves(identity: Identity) -> [u64; 2] {
    [identity.0 as u64, (identity.0 >> 64) as u64]
}
