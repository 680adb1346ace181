//! Label pairs of many series by number, shared by the blocks that these series go to.
//!
//! Invariant: each distinct pair has one number, each distinct string is stored once.
//! Memory: the strings, 8 bytes per pair and two hash entries.
//! Not here: series, the pairs of one block (`writer::bulk`).

use chronolith_base::hash::{HashTable, hash_bytes};

use crate::strings::Strings;

/// Label pairs by number.
#[derive(Default)]
pub struct LabelDictionary {
    strings: Strings,
    pairs: Vec<(u32, u32)>,
    by_strings: HashTable<u32>,
}

impl LabelDictionary {
    /// A dictionary without pairs.
    #[must_use]
    pub fn new() -> LabelDictionary {
        LabelDictionary::default()
    }

    /// Returns the number of a pair, adding it if it is new; numbers ascend from 0.
    ///
    /// # Panics
    /// Beyond 2^32 strings or pairs.
    pub fn number(&mut self, name: &str, value: &str) -> u32 {
        let key = (self.strings.number(name), self.strings.number(value));
        let pairs = &mut self.pairs;
        let hash = hash_of(key);
        if let Some(&number) = self.by_strings.find(hash, |&n| pairs[n as usize] == key) {
            return number;
        }
        let number = u32::try_from(pairs.len()).expect("fewer than 2^32 label pairs");
        pairs.push(key);
        self.by_strings.insert_unique(hash, number, |&n| hash_of(pairs[n as usize]));
        number
    }

    /// Name and value of a pair.
    ///
    /// # Panics
    /// If there is no such pair.
    #[must_use]
    pub fn texts(&self, pair: u32) -> (&str, &str) {
        let (name, value) = self.pairs[pair as usize];
        (self.strings.get(name), self.strings.get(value))
    }

    /// Number of pairs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Returns true if there are no pairs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Frees the hash tables: no pair may be numbered afterwards.
    pub fn freeze(&mut self) {
        self.by_strings = HashTable::new();
        self.strings.freeze();
    }

    /// Ranks all strings and pairs. Cost: sorts both.
    #[must_use]
    pub fn ranks(&self) -> LabelRanks {
        let strings = &self.strings;
        let mut by_text: Vec<u32> = (0u32..).take(strings.len()).collect();
        by_text.sort_unstable_by(|&a, &b| strings.get(a).cmp(strings.get(b)));
        let mut string_ranks = vec![0u32; by_text.len()];
        for (rank, &number) in (0u32..).zip(&by_text) {
            string_ranks[number as usize] = rank;
        }
        let rank_of =
            |&(name, value): &(u32, u32)| (string_ranks[name as usize], string_ranks[value as usize]);
        let mut by_pair: Vec<u32> = (0u32..).take(self.pairs.len()).collect();
        by_pair.sort_unstable_by_key(|&pair| rank_of(&self.pairs[pair as usize]));
        let mut pair_ranks = vec![0u32; by_pair.len()];
        for (rank, &number) in (0u32..).zip(&by_pair) {
            pair_ranks[number as usize] = rank;
        }
        LabelRanks { by_text, by_pair, pair_ranks }
    }

    pub(crate) fn string(&self, number: u32) -> &str {
        self.strings.get(number)
    }

    pub(crate) fn string_count(&self) -> usize {
        self.strings.len()
    }

    pub(crate) fn strings_of(&self, pair: u32) -> (u32, u32) {
        self.pairs[pair as usize]
    }
}

/// Order of a [`LabelDictionary`].
#[derive(Debug, Default)]
pub struct LabelRanks {
    pub(crate) by_text: Vec<u32>,
    /// Pairs by name and value.
    pub(crate) by_pair: Vec<u32>,
    pair_ranks: Vec<u32>,
}

impl LabelRanks {
    /// Rank of a pair among all pairs, by name and value: label sets sort like the sequences of ranks of
    /// their pairs.
    ///
    /// # Panics
    /// If the pair was numbered after the ranks were computed.
    #[must_use]
    pub fn of(&self, pair: u32) -> u32 {
        self.pair_ranks[pair as usize]
    }
}

fn hash_of((name, value): (u32, u32)) -> u64 {
    hash_bytes(&(u64::from(name) << 32 | u64::from(value)).to_le_bytes())
}
