//! Strings and label pairs of a block being written, numbered in order of occurrence and sorted at the end.
//!
//! Invariant: each distinct string is stored once, each distinct pair has one number.

use chronolith_base::bytes::put_uvarint;
use chronolith_base::hash::HashMap;
use chronolith_model::Labels;

use crate::strings::Strings;

struct Pair {
    name: u32,
    value: u32,
    series_count: u32,
}

/// All label pairs seen.
#[derive(Default)]
pub(super) struct LabelPairs {
    strings: Strings,
    pairs: Vec<Pair>,
    by_strings: HashMap<(u32, u32), u32>,
}

impl LabelPairs {
    /// Counts the pairs of a series and appends their count and numbers to `out`.
    pub(super) fn put_series(&mut self, labels: &Labels, out: &mut Vec<u8>) {
        put_uvarint(out, labels.len() as u64);
        for (name, value) in labels.iter() {
            let key = (self.strings.number(name), self.strings.number(value));
            let fresh = u32::try_from(self.pairs.len()).expect("a block has fewer than 2^32 label pairs");
            let number = *self.by_strings.entry(key).or_insert(fresh);
            if number == fresh {
                self.pairs.push(Pair { name: key.0, value: key.1, series_count: 0 });
            }
            self.pairs[number as usize].series_count += 1;
            out.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// Ends numbering, frees the hash tables and sorts.
    pub(super) fn sort(&mut self) -> Sorted<'_> {
        // Nothing refers to the empty string, but Prometheus has it (as key of "all series") among its
        // symbols.
        self.strings.number("");
        self.by_strings = HashMap::default();
        self.strings.freeze();
        let strings = &self.strings;
        let mut by_text: Vec<u32> = (0u32..).take(strings.len()).collect();
        by_text.sort_unstable_by(|&a, &b| strings.get(a).cmp(strings.get(b)));
        let mut symbol_of = vec![0u32; by_text.len()];
        for (symbol, &number) in (0u32..).zip(&by_text) {
            symbol_of[number as usize] = symbol;
        }
        let mut order: Vec<u32> = (0u32..).take(self.pairs.len()).collect();
        let key = |&pair: &u32| {
            let pair = &self.pairs[pair as usize];
            (symbol_of[pair.name as usize], symbol_of[pair.value as usize])
        };
        order.sort_unstable_by_key(key);
        Sorted { pairs: self, by_text, symbol_of, order }
    }
}

/// [`LabelPairs`] with their order in the index.
pub(super) struct Sorted<'a> {
    pairs: &'a LabelPairs,
    by_text: Vec<u32>,
    symbol_of: Vec<u32>,
    order: Vec<u32>,
}

impl<'a> Sorted<'a> {
    pub(super) fn symbols(&self) -> impl Iterator<Item = &str> + Clone {
        self.by_text.iter().map(|&number| self.pairs.strings.get(number))
    }

    /// Pairs by name and value.
    pub(super) fn order(&self) -> &[u32] {
        &self.order
    }

    /// Series of each pair, by number of the pair.
    pub(super) fn pair_counts(&self) -> impl Iterator<Item = u32> {
        self.pairs.pairs.iter().map(|p| p.series_count)
    }

    /// Symbols of a pair's name and value: their indices among the sorted strings.
    pub(super) fn symbols_of(&self, pair: u32) -> (u32, u32) {
        let pair = &self.pairs.pairs[pair as usize];
        (self.symbol_of[pair.name as usize], self.symbol_of[pair.value as usize])
    }

    /// Name and value of a pair.
    pub(super) fn texts(&self, pair: u32) -> (&'a str, &'a str) {
        let strings = &self.pairs.strings;
        let pair = &self.pairs.pairs[pair as usize];
        (strings.get(pair.name), strings.get(pair.value))
    }
}
