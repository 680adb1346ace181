//! Inverted index of one tenant: interned label pairs, series as lists of pair ids, postings, values by name.
//!
//! Invariants: a live label set has one id; rows are in order of creation; dead series stay in the index,
//! hidden, until they are more than half as many as the live ones plus a minimum, and then the index is
//! rebuilt.
//! Not here: samples (`series`), locking (`tenant`).

use chronolith_base::MemoryBudget;
use chronolith_base::hash::{FixedState, HashTable};
use chronolith_model::Labels;
use chronolith_model::index::{RegexCache, RegexCacheLimits};
use chronolith_model::labels::{LabelsBuilder, LabelsKey};
use parking_lot::Mutex;
use std::cmp::Ordering;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, LazyLock};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::members::{MemberIds, MemberIter, Members};
use super::rows::Rows;
use super::tag_values::TagValueSets;
use crate::index::postings::Postings;
use crate::index::split_table::SplitTable;
use crate::memory_part::MemoryPart;

/// Dead series below which a rebuild is not worth it. There is an index per tenant, so this is small.
pub(super) const DEAD_COUNT_MIN: usize = 64;
/// Limit of the label text of one tenant in bytes; text is addressed by 32 bits.
const TEXT_BYTES_MAX: usize = u32::MAX as usize - (64 << 20);

/// Regexes that are cached per tenant, and over how many values and with how many results.
const REGEX_CACHE_LIMITS: RegexCacheLimits =
    RegexCacheLimits { regex_count_max: 64, value_count_min: 1024, found_count_max: 1 << 16 };
/// Bytes of the regex caches of all tenants of the process.
const REGEX_CACHES_BYTES_MAX: u64 = 64 << 20;

static REGEX_CACHES: LazyLock<MemoryBudget> =
    LazyLock::new(|| MemoryBudget::new("regex caches of the head", REGEX_CACHES_BYTES_MAX));

pub(super) struct Name {
    pub(super) start: u32,
    pub(super) len: u32,
    /// Pairs with this name, in order of creation.
    pub(super) pairs: Vec<u32>,
    /// Pairs with this name that live series have.
    pub(super) live_count: u32,
    /// A prefix of `pairs`, sorted by value: as many as existed at the last request.
    pub(super) by_value: Mutex<Arc<[u32]>>,
}

pub(super) struct Pair {
    pub(super) name: u32,
    pub(super) start: u32,
    pub(super) len: u32,
    /// Live series with this pair.
    pub(super) live_count: u32,
    pub(super) postings: Postings,
}

/// Inverted index of one tenant.
pub(crate) struct TenantIndex {
    pub(super) seed: u64,
    /// Number of rebuilds: numbers of pairs and rows are valid within one generation.
    pub(super) generation: u32,
    pub(super) text: String,
    pub(super) names: Vec<Name>,
    pub(super) name_table: HashTable<u32>,
    pub(super) pairs: Vec<Pair>,
    pub(super) pair_table: SplitTable,
    /// Ids in order of creation; the other columns have the same rows.
    pub(super) rows: Rows,
    /// Start of the pair ids of a series in `members`.
    pub(super) starts: Vec<u32>,
    pub(super) members: Members,
    pub(super) label_table: SplitTable,
    /// Heap bytes of all postings.
    pub(super) postings_bytes: usize,
    /// Heap bytes of the pair lists of all names.
    pub(super) name_list_bytes: usize,
    /// Pairs whose values a regex matches; pairs of a name are only appended.
    pub(super) regex_cache: RegexCache,
    /// Values of tags that are near their limit.
    pub(super) tag_values: TagValueSets,
}

impl TenantIndex {
    /// Returns an empty index; `seed` keeps clients from choosing colliding labels.
    pub(crate) fn new(seed: u64) -> TenantIndex {
        TenantIndex {
            seed,
            generation: 0,
            text: String::new(),
            names: Vec::new(),
            name_table: HashTable::new(),
            pairs: Vec::new(),
            pair_table: SplitTable::default(),
            rows: Rows::default(),
            starts: Vec::new(),
            members: Members::default(),
            label_table: SplitTable::default(),
            postings_bytes: 0,
            name_list_bytes: 0,
            regex_cache: RegexCache::new(REGEX_CACHE_LIMITS, REGEX_CACHES.clone()),
            tag_values: TagValueSets::default(),
        }
    }

    /// Number of live series.
    pub(crate) fn live_count(&self) -> usize {
        self.rows.live_count()
    }

    /// Returns true if there is room for one more series of `text_len` label bytes.
    pub(crate) fn has_room(&self, text_len: usize) -> bool {
        self.text.len() + text_len < TEXT_BYTES_MAX && self.members.has_room()
    }

    /// Returns the live series with exactly these labels (sorted by name). `scratch` is overwritten.
    pub(crate) fn find<'a>(
        &self,
        labels: impl Iterator<Item = (&'a str, &'a str)>,
        scratch: &mut Vec<u32>,
    ) -> Option<u32> {
        scratch.clear();
        for (name, value) in labels {
            let pair = match self.recent_pair(scratch.len(), name, value) {
                Some(pair) => pair,
                None => self.find_pair(self.find_name(name)?, value)?,
            };
            scratch.push(pair);
        }
        let is_it = |row: u32| self.members_of(row as usize).iter().eq(scratch.iter().copied());
        let found = self.label_table.find(hash_members(scratch.iter().copied()), is_it)?;
        Some(self.rows.id(found as usize))
    }

    /// Adds a series that [`TenantIndex::find`] has not found, and whose id no other has.
    pub(crate) fn insert<'a>(
        &mut self,
        id: u32,
        labels: impl Iterator<Item = (&'a str, &'a str)>,
        scratch: &mut Vec<u32>,
    ) {
        scratch.clear();
        for (name, value) in labels {
            let pair_id = match self.recent_pair(scratch.len(), name, value) {
                Some(pair) => pair,
                None => {
                    let name = self.intern_name(name);
                    self.intern_pair(name, value)
                }
            };
            let pair = &mut self.pairs[pair_id as usize];
            self.postings_bytes += pair.postings.push(id);
            self.names[pair.name as usize].live_count += u32::from(pair.live_count == 0);
            pair.live_count += 1;
            scratch.push(pair_id);
        }
        let idx = self.rows.len();
        self.rows.push(id);
        // From here on this series is the youngest.
        self.starts.push(self.members.push(scratch));
        let (starts, members) = (&self.starts, &self.members);
        let hash = |i: u32| hash_members(members_in(starts, members, i as usize).iter());
        self.label_table.insert(hash_members(scratch.iter().copied()), idx as u32, hash);
    }

    /// Hides a series and counts it as dead.
    pub(crate) fn remove(&mut self, id: u32) {
        let Some(idx) = self.rows.live_row(id) else { return };
        let hash = hash_members(self.members_of(idx).iter());
        self.label_table.remove(hash, |i| i as usize == idx);
        for pair in members_in(&self.starts, &self.members, idx).iter() {
            release_pair(&mut self.pairs, &mut self.names, pair);
        }
        self.rows.kill(idx);
    }

    /// Returns true if a rebuild is worth it: its cost is proportional to the dead series.
    pub(crate) fn is_sparse(&self) -> bool {
        let (live_count, dead_count) = (self.live_count(), self.rows.dead_count());
        dead_count > DEAD_COUNT_MIN + live_count / 2 || live_count == 0 && dead_count > 0
    }

    /// Returns an empty index with room for the live series of this one.
    pub(crate) fn empty_copy(&self) -> TenantIndex {
        let mut fresh = TenantIndex::new(self.seed);
        fresh.generation = self.generation.wrapping_add(1);
        // One eighth of spare capacity: the next series does not trigger growth.
        let live_count = self.live_count() + self.live_count() / 8;
        fresh.rows.reserve(live_count);
        fresh.starts.reserve(live_count);
        fresh.label_table.reserve(live_count, |_| 0);
        let live_pairs = self.pairs.iter().filter(|p| p.live_count > 0).count();
        let pair_count = live_pairs + live_pairs / 8;
        fresh.pairs.reserve(pair_count);
        fresh.pair_table.reserve(pair_count, |_| 0);
        fresh
    }

    /// Adds at most `count` live series of `other` from row `start` on; returns the start of the next call.
    pub(crate) fn copy_from(&mut self, other: &TenantIndex, start: usize, count: usize) -> Option<usize> {
        let mut scratch = Vec::new();
        for (left, (row, id, members)) in (0..=count).rev().zip(other.live_members_from(start)) {
            if left == 0 {
                return Some(row);
            }
            self.insert(id, members.iter().map(|pair| other.pair_text(pair)), &mut scratch);
        }
        None
    }

    /// Returns the bytes of text, pairs, lists and tables, each counted once.
    pub(crate) fn memory(&self) -> [MemoryPart; 8] {
        let part = |name, bytes: usize, count: usize| MemoryPart::new(name, bytes as u64, count as u64);
        let name_bytes = self.names.capacity() * size_of::<Name>()
            + self.name_list_bytes
            + self.names.iter().map(|name| 4 * name.by_value.lock().len()).sum::<usize>()
            + self.regex_cache.heap_bytes()
            + self.tag_values.heap_bytes()
            + self.name_table.allocation_size();
        let (series, pairs) = (self.rows.len(), self.pairs.len());
        let index_bytes = 4 * self.starts.capacity() + self.rows.heap_bytes();
        [
            part("label_text", self.text.capacity(), pairs),
            part("label_names", name_bytes, self.names.len()),
            part("label_pairs", self.pairs.capacity() * size_of::<Pair>(), pairs),
            part("label_pair_table", self.pair_table.heap_bytes(), pairs),
            part("series_members", self.members.heap_bytes(), series),
            part("series_index", index_bytes, series),
            part("series_table", self.label_table.heap_bytes(), series),
            part("postings", self.postings_bytes, pairs),
        ]
    }

    /// Iterates over live series from `row` on in order of creation, with the numbers of their pairs.
    pub(crate) fn live_members_from(&self, row: usize) -> impl Iterator<Item = (usize, u32, MemberIds<'_>)> {
        self.rows.live_from(row).map(|idx| (idx, self.rows.id(idx), self.members_of(idx)))
    }

    /// Returns the first row whose series `is_known` does not know; it knows all before.
    pub(crate) fn row_after(&self, is_known: impl Fn(u32) -> bool) -> usize {
        self.rows.row_after(is_known)
    }

    /// Number of series, dead ones included.
    pub(crate) fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if a series, dead or alive, has this id.
    pub(crate) fn has_row(&self, id: u32) -> bool {
        self.rows.has(id)
    }

    /// Returns an id above all ids.
    pub(crate) fn id_end(&self) -> u32 {
        self.rows.id_end()
    }

    /// Copies live ids of the tenant as [`Rows::copy_live_ids`] does.
    pub(crate) fn copy_live_ids(&self, start: u32, count: usize, out: &mut Vec<u32>) -> Option<u32> {
        self.rows.copy_live_ids(start, count, out)
    }

    /// Compares the labels of two rows, by name and value.
    pub(crate) fn compare_rows(&self, a: usize, b: usize) -> Ordering {
        let (a, b) = (self.members_of(a), self.members_of(b));
        match a.iter().zip(b.iter()).find(|(a, b)| a != b) {
            Some((a, b)) => self.pair_text(a).cmp(&self.pair_text(b)),
            None => a.len().cmp(&b.len()),
        }
    }

    /// Returns the row of a live series; `last_row` is 0 at first and holds the last position, for ids that
    /// ascend from call to call.
    pub(crate) fn row_from(&self, last_row: &mut usize, id: u32) -> Option<usize> {
        self.rows.live_row_from(last_row, id)
    }

    /// Returns the labels of a live series.
    pub(crate) fn labels(&self, id: u32, builder: &mut LabelsBuilder) -> Option<Labels> {
        let idx = self.rows.live_row(id)?;
        builder.clear();
        for (name, value) in self.pairs_of(idx) {
            builder.push(name, value);
        }
        Some(builder.finish())
    }

    /// Returns the numbers of the pairs of a row, in the order of label names; valid for this generation.
    pub(crate) fn pairs_of_row(&self, idx: usize) -> MemberIter<'_> {
        self.members_of(idx).iter()
    }

    /// Returns the labels of the series in a row.
    pub(crate) fn labels_of_row(&self, idx: usize, scratch: &mut LabelsKey) -> Labels {
        scratch.set_sorted(self.pairs_of(idx));
        scratch.to_labels()
    }

    /// Returns the number of rebuilds.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns true if the series is live.
    pub(crate) fn is_live(&self, id: u32) -> bool {
        self.rows.live_row(id).is_some()
    }

    pub(super) fn pairs_of(&self, idx: usize) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.members_of(idx).iter().map(|pair| self.pair_text(pair))
    }

    /// Returns name and value of a pair by its number, which is valid until the index is rebuilt.
    pub(crate) fn pair_text(&self, pair: u32) -> (&str, &str) {
        let pair = &self.pairs[pair as usize];
        (self.name_text(pair.name), self.slice(pair.start, pair.len))
    }

    pub(super) fn name_text(&self, name: u32) -> &str {
        let name = &self.names[name as usize];
        self.slice(name.start, name.len)
    }

    pub(super) fn slice(&self, start: u32, len: u32) -> &str {
        &self.text[start as usize..(start + len) as usize]
    }

    pub(super) fn members_of(&self, idx: usize) -> MemberIds<'_> {
        members_in(&self.starts, &self.members, idx)
    }

    pub(super) fn find_name(&self, name: &str) -> Option<u32> {
        let hash = hash_text(self.seed, u32::MAX, name);
        self.name_table.find(hash, |&n| self.name_text(n) == name).copied()
    }

    pub(super) fn find_pair(&self, name: u32, value: &str) -> Option<u32> {
        let is_it = |p: u32| {
            let pair = &self.pairs[p as usize];
            pair.name == name && self.slice(pair.start, pair.len) == value
        };
        self.pair_table.find(hash_text(self.seed, name, value), is_it)
    }

    pub(super) fn intern_name(&mut self, name: &str) -> u32 {
        if let Some(found) = self.find_name(name) {
            return found;
        }
        let (start, len) = self.add_text(name);
        let id = self.names.len() as u32;
        self.names.push(Name { start, len, pairs: Vec::new(), live_count: 0, by_value: Mutex::default() });
        let (text, names, seed) = (&self.text, &self.names, self.seed);
        let hash = |&n: &u32| {
            let n = &names[n as usize];
            hash_text(seed, u32::MAX, &text[n.start as usize..(n.start + n.len) as usize])
        };
        self.name_table.insert_unique(hash_text(seed, u32::MAX, name), id, hash);
        id
    }

    pub(super) fn intern_pair(&mut self, name: u32, value: &str) -> u32 {
        let id = self.pairs.len() as u32;
        let (text, pairs, seed) = (&self.text, &self.pairs, self.seed);
        let text_of = |p: &Pair| &text[p.start as usize..(p.start + p.len) as usize];
        let is_it = |p: u32| {
            let p = &pairs[p as usize];
            p.name == name && text_of(p) == value
        };
        let hash_of = |p: u32| hash_text(seed, pairs[p as usize].name, text_of(&pairs[p as usize]));
        let hash = hash_text(seed, name, value);
        if let Some(known) = self.pair_table.find_or_insert(hash, id, is_it, hash_of) {
            return known;
        }
        let (start, len) = self.add_text(value);
        self.pairs.push(Pair { name, start, len, live_count: 0, postings: Postings::default() });
        let list = &mut self.names[name as usize].pairs;
        let before = list.capacity();
        list.push(id);
        self.name_list_bytes += 4 * (list.capacity() - before);
        id
    }

    /// Returns the pair at this position of the youngest series, if it is equal: the series of a scrape
    /// target share most of their labels, and comparing is cheaper than two table lookups.
    pub(super) fn recent_pair(&self, position: usize, name: &str, value: &str) -> Option<u32> {
        let recent = self.members.get(*self.starts.last()?, None).get(position)?;
        (self.pair_text(recent) == (name, value)).then_some(recent)
    }

    pub(super) fn add_text(&mut self, text: &str) -> (u32, u32) {
        let start = self.text.len();
        self.text.push_str(text);
        assert!(self.text.len() <= u32::MAX as usize, "room was checked before");
        (start as u32, text.len() as u32)
    }
}

/// Takes one live series off the count of a pair.
pub(super) fn release_pair(pairs: &mut [Pair], names: &mut [Name], pair: u32) {
    let pair = &mut pairs[pair as usize];
    pair.live_count -= 1;
    names[pair.name as usize].live_count -= u32::from(pair.live_count == 0);
}

pub(super) fn members_in<'a>(starts: &[u32], members: &'a Members, idx: usize) -> MemberIds<'a> {
    members.get(starts[idx], starts.get(idx + 1).copied())
}

pub(super) fn hash_text(seed: u64, name: u32, text: &str) -> u64 {
    xxh3_64_with_seed(text.as_bytes(), seed ^ u64::from(name).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

pub(super) fn hash_members(members: impl Iterator<Item = u32>) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    members.for_each(|pair| hasher.write_u32(pair));
    hasher.finish()
}
