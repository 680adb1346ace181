//! The pairs of a label name in the order of their values, and a position among them.
//!
//! Invariant: a position is valid for one generation of the index.
//! Not here: series of a pair (`lookup`), locking (`read::label_search`).

use std::sync::Arc;

use super::tenant_index::TenantIndex;

/// Returns the pairs `sorted` and `added` in the order of their values. Cost: sorting `added`, a search for
/// each of them, and a copy of all numbers.
pub(super) fn merged_by_value(tables: &TenantIndex, sorted: &[u32], added: &[u32]) -> Arc<[u32]> {
    let mut added = added.to_vec();
    added.sort_unstable_by(|&a, &b| value_of(tables, a).cmp(value_of(tables, b)));
    let mut merged = Vec::with_capacity(sorted.len() + added.len());
    let mut rest = sorted;
    for pair in added {
        let value = value_of(tables, pair);
        let (before, after) = rest.split_at(distance(rest, |pair| value_of(tables, pair) < value));
        merged.extend_from_slice(before);
        merged.push(pair);
        rest = after;
    }
    merged.extend_from_slice(rest);
    merged.into()
}

/// Returns the number of items at the start for which `is_before` returns true, after which it is false.
/// Cost: the logarithm of the result (exponential search, Bentley and Yao 1976).
fn distance(items: &[u32], is_before: impl Fn(u32) -> bool) -> usize {
    let mut step = 1;
    let mut low = 0;
    while items.get(low + step - 1).is_some_and(|&item| is_before(item)) {
        low += step;
        step *= 2;
    }
    let high = (low + step - 1).min(items.len());
    low + items[low..high].partition_point(|&item| is_before(item))
}

/// Position among the values of a label.
pub(crate) struct ValuePosition {
    pairs: Arc<[u32]>,
    generation: u32,
    idx: usize,
}

impl ValuePosition {
    /// Returns the start of the values of a label.
    pub(crate) fn new(tables: &TenantIndex, name: &str) -> ValuePosition {
        ValuePosition { pairs: tables.pairs_of_name(name), generation: tables.generation(), idx: 0 }
    }

    /// Returns true if the numbers of pairs still refer to the index.
    pub(crate) fn is_valid(&self, tables: &TenantIndex) -> bool {
        self.generation == tables.generation()
    }

    /// Moves to the first value that is at least `start`.
    pub(crate) fn seek(&mut self, tables: &TenantIndex, start: &str) {
        let start = start.as_bytes();
        let is_before = |pair: u32| value_of(tables, pair) < start;
        let (passed, ahead) = self.pairs.split_at(self.idx);
        self.idx = match passed.last() {
            Some(&last) if !is_before(last) => passed.partition_point(|&pair| is_before(pair)),
            _ => self.idx + distance(ahead, is_before),
        };
    }

    /// Moves to the next value.
    pub(crate) fn skip(&mut self) {
        self.idx += 1;
    }

    /// Returns the number of live series with the value at the position.
    pub(crate) fn live_count(&self, tables: &TenantIndex) -> u64 {
        self.pairs.get(self.idx).map_or(0, |&pair| u64::from(tables.pairs[pair as usize].live_count))
    }

    /// Returns true if a live series has the value at the position, and no other label.
    pub(crate) fn is_sole(&self, tables: &TenantIndex) -> bool {
        let is_sole = |pair: &u32| match tables.names.len() {
            1 => tables.pairs[*pair as usize].live_count > 0,
            _ => tables.sole_series(*pair).is_some(),
        };
        self.pairs.get(self.idx).is_some_and(is_sole)
    }

    /// Returns the live series that has the value at the position, and no other label.
    pub(crate) fn sole_series(&self, tables: &TenantIndex) -> Option<u32> {
        self.pairs.get(self.idx).and_then(|&pair| tables.sole_series(pair))
    }

    /// Returns the value at the position; `None` after the last.
    pub(crate) fn value<'a>(&self, tables: &'a TenantIndex) -> Option<&'a str> {
        self.pairs.get(self.idx).map(|&pair| tables.pair_text(pair).1)
    }
}

/// Returns the value of a pair. Bytes order as texts do.
// PERF: neither the name nor the ends of characters are looked at: this is most of the time of a search.
fn value_of(tables: &TenantIndex, pair: u32) -> &[u8] {
    let pair = &tables.pairs[pair as usize];
    &tables.text.as_bytes()[pair.start as usize..][..pair.len as usize]
}

#[cfg(test)]
mod tests;
