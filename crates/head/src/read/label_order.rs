//! Radix sort of selected series by labels: at each position of a label the pairs that occur there are ranked
//! once, then series are sorted by one position after the other, the last first.
//!
//! Invariants: the order equals the order of `Labels`. The index is locked for a slice of pairs at a time,
//! and texts are compared without it; the numbers of pairs must be of one generation of the index.
//! Not here: series that are sorted while the index is not rebuilt (`index::tables::order`).

use chronolith_base::hash::HashMap;
use chronolith_base::sync::{RwLock, RwLockReadGuard};

use crate::index::tables::TenantIndex;

/// Pairs whose texts are copied under one lock.
const SLICE_COUNT: usize = 1024;
/// Bytes of memory per label of a series: its cell, and the cells of the sort.
pub(super) const LABEL_BYTES: usize = 8;

/// Pair numbers of series, each in the order of label names.
#[derive(Default)]
pub(super) struct PairRows {
    pairs: Vec<u32>,
    /// End of each series in `pairs`.
    ends: Vec<u32>,
}

impl PairRows {
    /// Adds a series.
    pub(super) fn push(&mut self, pairs: impl Iterator<Item = u32>) {
        self.pairs.extend(pairs);
        self.ends.push(self.pairs.len() as u32);
    }

    /// Number of labels of all series.
    pub(super) fn label_count(&self) -> usize {
        self.pairs.len()
    }

    fn iter(&self) -> impl Iterator<Item = &[u32]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.pairs[start as usize..end as usize])
    }
}

/// The labels at one position of all series.
#[derive(Default)]
struct Position {
    /// One per series: 0 without a label, else one more than the index of the pair in `pairs`.
    cells: Vec<u32>,
    /// Distinct pairs, in order of appearance.
    pairs: Vec<u32>,
    cell_of: HashMap<u32, u32>,
    /// The pair before, and its cell: series next to each other share most labels.
    last: Option<(u32, u32)>,
}

impl Position {
    fn push(&mut self, pair: u32) {
        let cell = match self.last {
            Some((last, cell)) if last == pair => cell,
            _ => *self.cell_of.entry(pair).or_insert_with(|| {
                self.pairs.push(pair);
                self.pairs.len() as u32
            }),
        };
        self.last = Some((pair, cell));
        self.cells.push(cell);
    }

    /// Returns true if all series have the same label.
    fn is_constant(&self) -> bool {
        self.pairs.len() == 1 && !self.cells.contains(&0)
    }
}

/// Returns the indices of the series of `pages`, counted over all of them, by labels; `None` if the index is
/// no longer of `generation`, the generation of the pairs.
pub(super) fn order_by_labels<'a>(
    tables: &RwLock<TenantIndex>,
    generation: u32,
    pages: impl Iterator<Item = &'a PairRows>,
) -> Option<Vec<u32>> {
    let mut positions: Vec<Position> = Vec::new();
    let mut series_count = 0;
    for row in pages.flat_map(PairRows::iter) {
        if positions.len() < row.len() {
            positions.resize_with(row.len(), Position::default);
        }
        for (position, &pair) in positions.iter_mut().zip(row) {
            position.cells.resize(series_count, 0);
            position.push(pair);
        }
        series_count += 1;
    }
    let mut order: Vec<u32> = (0..series_count as u32).collect();
    let mut sorted = vec![0; series_count];
    for position in positions.iter_mut().rev() {
        position.cells.resize(series_count, 0);
        if position.is_constant() {
            continue;
        }
        let ranks = rank(&PairTexts::copy(tables, generation, &position.pairs)?);
        counting_sort(
            &order,
            |series| ranks[position.cells[series as usize] as usize],
            ranks.len(),
            &mut sorted,
        );
        std::mem::swap(&mut order, &mut sorted);
    }
    Some(order)
}

/// Sorts `items` stably by `rank`, below `rank_count`, to `out`, which has the same length.
pub(super) fn counting_sort(items: &[u32], rank: impl Fn(u32) -> u32, rank_count: usize, out: &mut [u32]) {
    let mut next = vec![0u32; rank_count + 1];
    for &item in items {
        next[rank(item) as usize + 1] += 1;
    }
    for idx in 1..next.len() {
        next[idx] += next[idx - 1];
    }
    for &item in items {
        let at = &mut next[rank(item) as usize];
        out[*at as usize] = item;
        *at += 1;
    }
}

/// Names and values of pairs.
#[derive(Default)]
struct PairTexts {
    text: String,
    /// Start of the name, end of the name, end of the value in `text`.
    spans: Vec<(usize, usize, usize)>,
}

impl PairTexts {
    /// Copies the texts of `pairs`; `None` if the index is no longer of `generation`.
    fn copy(tables: &RwLock<TenantIndex>, generation: u32, pairs: &[u32]) -> Option<PairTexts> {
        let mut texts = PairTexts { spans: Vec::with_capacity(pairs.len()), ..PairTexts::default() };
        for slice in pairs.chunks(SLICE_COUNT) {
            let tables = tables.read();
            if tables.generation() != generation {
                return None;
            }
            slice.iter().for_each(|&pair| texts.push(tables.pair_text(pair)));
            RwLockReadGuard::unlock_fair(tables);
        }
        Some(texts)
    }

    fn push(&mut self, pair: (&str, &str)) {
        let start = self.text.len();
        self.text.push_str(pair.0);
        let middle = self.text.len();
        self.text.push_str(pair.1);
        self.spans.push((start, middle, self.text.len()));
    }

    /// Returns name and value of the pair with this index.
    fn get(&self, idx: usize) -> (&[u8], &[u8]) {
        let (start, middle, end) = self.spans[idx];
        let bytes = self.text.as_bytes();
        (&bytes[start..middle], &bytes[middle..end])
    }
}

/// Returns the rank of each pair by name and value, counted from 1, at one more than its index; a missing
/// label has 0, which is first.
fn rank(texts: &PairTexts) -> Vec<u32> {
    let count = texts.spans.len();
    let Some((first_name, first_value)) = (count > 0).then(|| texts.get(0)) else { return vec![0] };
    // PERF: most texts differ within a few bytes after their common prefix, which compare as an integer.
    //   cargo xtask bench queries --head --only chronolith --shapes avg_by,max_over_time
    let has_one_name = (1..count).all(|idx| texts.get(idx).0 == first_name);
    let same = |prefix: usize, idx: usize| {
        let value = texts.get(idx).1;
        value.iter().zip(first_value).take(prefix).take_while(|(a, b)| a == b).count()
    };
    let prefix = if has_one_name { (1..count).fold(first_value.len(), same) } else { 0 };
    let key = |idx: usize| {
        let value = if has_one_name { texts.get(idx).1 } else { &[] };
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(value.iter().skip(prefix)).for_each(|(to, from)| *to = *from);
        u128::from_be_bytes(bytes)
    };
    let mut order: Vec<(u128, usize)> = (0..count).map(|idx| (key(idx), idx)).collect();
    order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| texts.get(a.1).cmp(&texts.get(b.1))));
    let mut ranks = vec![0; count + 1];
    for (rank, (_, idx)) in order.into_iter().enumerate() {
        ranks[idx + 1] = rank as u32 + 1;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use chronolith_base::Rng;
    use chronolith_model::Labels;

    use super::*;

    /// Random label sets with shared prefixes, missing labels and names in any position.
    fn random_sets(rng: &Rng, count: usize) -> Vec<Labels> {
        let values =
            ["", "a", "a\0", "ab", "b", "/v1/objects/1", "/v1/objects/12", "/v1/objects/2", "\u{e9}"];
        let long = "/v1/objects/0123456789abcdef".to_owned();
        let mut sets: Vec<Labels> = (0..count)
            .map(|_| {
                let value = |idx: u64| match rng.below(12) {
                    at if at < values.len() as u64 => values[at as usize].to_owned(),
                    _ => format!("{long}{}", idx + rng.below(5)),
                };
                let pairs: Vec<(String, String)> = (0..1 + rng.below(5))
                    .map(|idx| {
                        (["__name__", "job", "jobs", "a", "z"][rng.below(5) as usize].to_owned(), value(idx))
                    })
                    .collect();
                Labels::from_pairs(pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())))
            })
            .collect();
        sets.sort();
        sets.dedup();
        sets
    }

    #[test]
    fn series_are_in_the_order_of_their_labels() {
        for seed in 0..300 {
            let rng = Rng::from_seed(seed);
            let sets = random_sets(&rng, 1 + rng.below(60) as usize);
            let mut shuffled: Vec<usize> = (0..sets.len()).collect();
            for idx in (1..shuffled.len()).rev() {
                shuffled.swap(idx, rng.below(idx as u64 + 1) as usize);
            }
            let mut index = TenantIndex::new(seed);
            let mut scratch = Vec::new();
            let mut pages = vec![PairRows::default()];
            for (id, &at) in shuffled.iter().enumerate() {
                index.insert(id as u32, sets[at].iter(), &mut scratch);
                if rng.below(7) == 0 {
                    pages.push(PairRows::default());
                }
                pages.last_mut().expect("one at least").push(scratch.iter().copied());
            }
            let generation = index.generation();
            let tables = RwLock::new(index);
            let order = order_by_labels(&tables, generation, pages.iter()).expect("the same generation");
            let sorted: Vec<usize> = order.iter().map(|&series| shuffled[series as usize]).collect();
            assert_eq!(sorted, (0..sets.len()).collect::<Vec<_>>(), "seed {seed}");
            if sets.len() > 1 && sets.iter().any(|set| set.iter().next() != sets[0].iter().next()) {
                assert_eq!(order_by_labels(&tables, generation + 1, pages.iter()), None);
            }
        }
    }

    #[test]
    fn no_series_have_an_order() {
        let tables = RwLock::new(TenantIndex::new(1));
        assert_eq!(order_by_labels(&tables, 0, std::iter::empty()), Some(Vec::new()));
        let mut rows = PairRows::default();
        rows.push(std::iter::empty());
        assert_eq!(order_by_labels(&tables, 0, std::iter::once(&rows)), Some(vec![0]));
    }
}
