//! K-way merge: a min-heap of the next key of each source.
//!
//! Invariants: sources ascend by key. Keys come out ascending, each once, with all sources that have it,
//! ascending.
//! Not here: the values of a key, which stay with the sources.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Heap of the next key of each source. A source is an index that the caller chooses.
pub struct KWayMerge<K> {
    heads: BinaryHeap<Reverse<(K, usize)>>,
}

impl<K: Ord> KWayMerge<K> {
    /// A merge of at most `source_count` sources without keys.
    #[must_use]
    pub fn with_capacity(source_count: usize) -> KWayMerge<K> {
        KWayMerge { heads: BinaryHeap::with_capacity(source_count) }
    }

    /// Adds the next key of `source`, which has none in the merge. Cost: O(log sources).
    pub fn push(&mut self, key: K, source: usize) {
        self.heads.push(Reverse((key, source)));
    }

    /// Removes the least key and fills `sources` with those that have it, ascending; `None` if no key is
    /// left. The caller pushes the next key of each of them.
    pub fn pop(&mut self, sources: &mut Vec<usize>) -> Option<K> {
        sources.clear();
        let Reverse((key, first)) = self.heads.pop()?;
        sources.push(first);
        while let Some(Reverse((next, source))) = self.heads.peek()
            && *next == key
        {
            sources.push(*source);
            self.heads.pop();
        }
        Some(key)
    }

    /// Returns true if no source has a key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    fn merge(lists: &[Vec<u64>]) -> Vec<(u64, Vec<usize>)> {
        let mut rest: Vec<_> = lists.iter().map(|list| list.iter().copied()).collect();
        let mut merge = KWayMerge::with_capacity(lists.len());
        for (source, list) in rest.iter_mut().enumerate() {
            list.next().into_iter().for_each(|key| merge.push(key, source));
        }
        let (mut out, mut sources) = (Vec::new(), Vec::new());
        while let Some(key) = merge.pop(&mut sources) {
            for &source in &sources {
                rest[source].next().into_iter().for_each(|key| merge.push(key, source));
            }
            out.push((key, sources.clone()));
        }
        assert!(merge.is_empty());
        out
    }

    #[test]
    fn equal_keys_come_once_with_their_sources_in_order() {
        let merged = merge(&[vec![2, 5], vec![], vec![1, 2, 9], vec![2]]);
        assert_eq!(merged, [(1, vec![2]), (2, vec![0, 2, 3]), (5, vec![0]), (9, vec![2])]);
    }

    #[test]
    fn a_merge_agrees_with_a_sort() {
        let rng = Rng::from_seed(3);
        for _ in 0..200 {
            let list = || {
                let mut keys: Vec<u64> = (0..rng.next_u64() % 20).map(|_| rng.next_u64() % 30).collect();
                keys.sort_unstable();
                keys.dedup();
                keys
            };
            let lists: Vec<Vec<u64>> = (0..6).map(|_| list()).collect();
            let mut want: Vec<(u64, usize)> = Vec::new();
            for (source, keys) in lists.iter().enumerate() {
                want.extend(keys.iter().map(|&key| (key, source)));
            }
            want.sort_unstable();
            let merged = merge(&lists).into_iter();
            let got: Vec<_> = merged
                .flat_map(|(key, sources)| sources.into_iter().map(move |source| (key, source)))
                .collect();
            assert_eq!(got, want);
        }
    }
}
