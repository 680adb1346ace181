//! Labels of one tenant: interned pairs, series as lists of pair ids, postings, values by name.
//!
//! Holds: a live label set has one id; rows are in order of creation; dead series stay in the tables, unseen,
//! until they are half as many as the live ones and some, and then everything is built anew.
//! Not here: samples (`stripe`), locking (`tenant`).

mod load;
mod lookup;
mod members;
mod memory;
mod order;
mod project;
mod runs;
mod search;

pub(crate) use load::LoadScratch;
pub use lookup::Cardinality;
pub(crate) use lookup::IdSet;
use members::Members;
pub(crate) use order::sort_by_labels;
pub(crate) use project::{Groups, LeastRows};
use search::Searches;

use chronolith_base::hash::{FixedState, HashTable};
use chronolith_model::Labels;
use chronolith_model::labels::{LabelsBuilder, LabelsKey};
use parking_lot::Mutex;
use std::hash::BuildHasher;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::postings::Postings;
use crate::split_table::SplitTable;

/// Dead series at which building anew is not worth it yet. There is a table for each tenant, so this is small.
const DEAD_COUNT_MIN: usize = 64;
/// Label text of one tenant in bytes; text is addressed by 32 bits.
const TEXT_BYTES_MAX: usize = u32::MAX as usize - (64 << 20);

struct Name {
    start: u32,
    len: u32,
    /// Pairs with this name, in order of creation.
    pairs: Vec<u32>,
    /// The first of them in order of value, as many as somebody has asked for.
    by_value: Mutex<Arc<[u32]>>,
    /// Patterns over the values.
    searches: Searches,
}

struct Pair {
    name: u32,
    start: u32,
    len: u32,
    /// Live series with this pair.
    live_count: u32,
    postings: Postings,
}

/// See the module.
pub(crate) struct Tables {
    seed: u64,
    /// How often the tables of this tenant were built anew: numbers of pairs and rows hold within a
    /// generation.
    generation: u32,
    text: String,
    names: Vec<Name>,
    name_table: HashTable<u32>,
    pairs: Vec<Pair>,
    pair_table: SplitTable,
    /// Ids by row, in order of creation; the other columns go by the same index.
    ids: Vec<u32>,
    /// Rows whose id is not above that of the row before.
    run_starts: Vec<u32>,
    /// Where the pair ids of a series start in `members`.
    starts: Vec<u32>,
    members: Members,
    dead: Vec<u64>,
    label_table: SplitTable,
    dead_count: usize,
    /// Heap bytes of all postings.
    postings_bytes: usize,
    /// Heap bytes of the pair lists of all names.
    name_list_bytes: usize,
}

impl Tables {
    /// Nothing in it; `seed` keeps clients from choosing colliding labels.
    pub(crate) fn new(seed: u64) -> Tables {
        Tables {
            seed,
            generation: 0,
            text: String::new(),
            names: Vec::new(),
            name_table: HashTable::new(),
            pairs: Vec::new(),
            pair_table: SplitTable::default(),
            ids: Vec::new(),
            run_starts: Vec::new(),
            starts: Vec::new(),
            members: Members::default(),
            dead: Vec::new(),
            label_table: SplitTable::default(),
            dead_count: 0,
            postings_bytes: 0,
            name_list_bytes: 0,
        }
    }

    /// Live series.
    pub(crate) fn live_count(&self) -> usize {
        self.ids.len() - self.dead_count
    }

    /// Whether a series of `text_len` label bytes more can be held.
    pub(crate) fn has_room(&self, text_len: usize) -> bool {
        self.text.len() + text_len < TEXT_BYTES_MAX && self.members.has_room()
    }

    /// The series with exactly these labels (sorted by name), if it is alive. `scratch` is overwritten.
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
        let found =
            self.label_table.find(hash_members(scratch), |i| self.members_of(i as usize) == *scratch)?;
        Some(self.ids[found as usize])
    }

    /// Adds a series that [`Tables::find`] has not found, and whose id no other has.
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
            pair.live_count += 1;
            scratch.push(pair_id);
        }
        let idx = self.ids.len();
        self.push_id(id);
        // From here on this series is the youngest.
        self.starts.push(self.members.push(scratch));
        if idx / 64 == self.dead.len() {
            self.dead.push(0);
        }
        let (starts, members) = (&self.starts, &self.members);
        let hash = |i: u32| hash_members(members_in(starts, members, i as usize));
        self.label_table.insert(hash_members(scratch), idx as u32, hash);
    }

    /// Takes the series out of sight.
    pub(crate) fn remove(&mut self, id: u32) {
        let Some(idx) = self.live_idx(id) else { return };
        let hash = hash_members(self.members_of(idx));
        self.label_table.remove(hash, |i| i as usize == idx);
        for &pair in members_in(&self.starts, &self.members, idx) {
            self.pairs[pair as usize].live_count -= 1;
        }
        self.dead[idx / 64] |= 1 << (idx % 64);
        self.dead_count += 1;
    }

    /// Returns true if building anew is worth it: the work is in proportion to the series that have left.
    pub(crate) fn is_sparse(&self) -> bool {
        let live_count = self.live_count();
        self.dead_count > DEAD_COUNT_MIN + live_count / 2 || live_count == 0 && self.dead_count > 0
    }

    /// Empty tables with room for the live series of these.
    pub(crate) fn empty_copy(&self) -> Tables {
        let mut fresh = Tables::new(self.seed);
        fresh.generation = self.generation.wrapping_add(1);
        // And for some more, so that the next series does not pay for growth at once.
        let live_count = self.live_count() + self.live_count() / 8;
        fresh.ids.reserve(live_count);
        fresh.starts.reserve(live_count);
        fresh.label_table.reserve(live_count, |_| 0);
        let live_pairs = self.pairs.iter().filter(|p| p.live_count > 0).count();
        let pair_count = live_pairs + live_pairs / 8;
        fresh.pairs.reserve(pair_count);
        fresh.pair_table.reserve(pair_count, |_| 0);
        fresh
    }

    /// Labels of a live series.
    pub(crate) fn labels(&self, id: u32, builder: &mut LabelsBuilder) -> Option<Labels> {
        let idx = self.live_idx(id)?;
        builder.clear();
        for (name, value) in self.pairs_of(idx) {
            builder.push(name, value);
        }
        Some(builder.finish())
    }

    /// As [`Tables::labels`] for ids that ascend from call to call: `place` is 0 at first and says where the last one was.
    pub(crate) fn labels_from(&self, place: &mut usize, id: u32, scratch: &mut LabelsKey) -> Option<Labels> {
        let idx = self.live_idx_from(place, id)?;
        Some(self.labels_of_row(idx, scratch))
    }

    /// Labels of the series in a row.
    fn labels_of_row(&self, idx: usize, scratch: &mut LabelsKey) -> Labels {
        scratch.set_sorted(self.pairs_of(idx));
        scratch.to_labels()
    }

    /// See the field.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Whether the series is there.
    pub(crate) fn is_live(&self, id: u32) -> bool {
        self.live_idx(id).is_some()
    }

    fn pairs_of(&self, idx: usize) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.members_of(idx).iter().map(|&p| self.pair_text(p))
    }

    /// Name and value of a pair by its number, which holds until the tables are built anew.
    pub(crate) fn pair_text(&self, pair: u32) -> (&str, &str) {
        let pair = &self.pairs[pair as usize];
        (self.name_text(pair.name), self.slice(pair.start, pair.len))
    }

    fn name_text(&self, name: u32) -> &str {
        let name = &self.names[name as usize];
        self.slice(name.start, name.len)
    }

    fn slice(&self, start: u32, len: u32) -> &str {
        &self.text[start as usize..(start + len) as usize]
    }

    fn members_of(&self, idx: usize) -> &[u32] {
        members_in(&self.starts, &self.members, idx)
    }

    fn is_dead(&self, idx: usize) -> bool {
        self.dead[idx / 64] >> (idx % 64) & 1 == 1
    }

    fn find_name(&self, name: &str) -> Option<u32> {
        let hash = hash_text(self.seed, u32::MAX, name);
        self.name_table.find(hash, |&n| self.name_text(n) == name).copied()
    }

    fn find_pair(&self, name: u32, value: &str) -> Option<u32> {
        let is_it = |p: u32| {
            let pair = &self.pairs[p as usize];
            pair.name == name && self.slice(pair.start, pair.len) == value
        };
        self.pair_table.find(hash_text(self.seed, name, value), is_it)
    }

    fn intern_name(&mut self, name: &str) -> u32 {
        if let Some(found) = self.find_name(name) {
            return found;
        }
        let (start, len) = self.add_text(name);
        let id = self.names.len() as u32;
        self.names.push(Name {
            start,
            len,
            pairs: Vec::new(),
            by_value: Mutex::default(),
            searches: Searches::default(),
        });
        let (text, names, seed) = (&self.text, &self.names, self.seed);
        let hash = |&n: &u32| {
            let n = &names[n as usize];
            hash_text(seed, u32::MAX, &text[n.start as usize..(n.start + n.len) as usize])
        };
        self.name_table.insert_unique(hash_text(seed, u32::MAX, name), id, hash);
        id
    }

    fn intern_pair(&mut self, name: u32, value: &str) -> u32 {
        if let Some(found) = self.find_pair(name, value) {
            return found;
        }
        let (start, len) = self.add_text(value);
        let id = self.pairs.len() as u32;
        self.pairs.push(Pair { name, start, len, live_count: 0, postings: Postings::default() });
        let list = &mut self.names[name as usize].pairs;
        let before = list.capacity();
        list.push(id);
        self.name_list_bytes += 4 * (list.capacity() - before);
        let (text, pairs, seed) = (&self.text, &self.pairs, self.seed);
        let hash = |p: u32| {
            let p = &pairs[p as usize];
            hash_text(seed, p.name, &text[p.start as usize..(p.start + p.len) as usize])
        };
        self.pair_table.insert(hash_text(seed, name, value), id, hash);
        id
    }

    /// The pair at this position of the youngest series, if it is this one: the series of a scrape target share
    /// most of their labels, and comparing is cheaper than two table lookups.
    fn recent_pair(&self, position: usize, name: &str, value: &str) -> Option<u32> {
        let recent = self.members.get(*self.starts.last()?, None).get(position)?;
        (self.pair_text(*recent) == (name, value)).then_some(*recent)
    }

    fn add_text(&mut self, text: &str) -> (u32, u32) {
        let start = self.text.len();
        self.text.push_str(text);
        assert!(self.text.len() <= u32::MAX as usize, "room was checked before");
        (start as u32, text.len() as u32)
    }
}

fn members_in<'a>(starts: &[u32], members: &'a Members, idx: usize) -> &'a [u32] {
    members.get(starts[idx], starts.get(idx + 1).copied())
}

fn hash_text(seed: u64, name: u32, text: &str) -> u64 {
    xxh3_64_with_seed(text.as_bytes(), seed ^ u64::from(name).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn hash_members(members: &[u32]) -> u64 {
    FixedState::default().hash_one(members)
}

#[cfg(test)]
mod tests;
