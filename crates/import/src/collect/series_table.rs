//! Series of a Prometheus head: ids by ref and by labels.
//!
//! Invariants: one id per label set, also if several refs have it (Prometheus assigns a new ref to a series
//! that returns); label pairs are stored as 4-byte ids of a dictionary.
//! Not here: samples (`open_chunks`, `ooo_buffer`).

use chronolith_base::hash::HashTable;
use chronolith_block::{LabelDictionary, LabelRanks};

use super::series_refs::{NO_SERIES, RefTable};

/// Odd multiplier of the hash (2^64 divided by the golden ratio).
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// Label bytes of a record.
pub(super) type RawPair<'a> = (&'a [u8], &'a [u8]);

/// Reason to leave out a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SeriesReject {
    /// A name or value is not UTF-8.
    NotUtf8,
    /// No labels, a duplicate name, or an empty name.
    Labels,
}

/// All series of the records.
#[derive(Default)]
pub(super) struct SeriesTable {
    dictionary: LabelDictionary,
    refs: RefTable,
    /// Label pairs of all series, by name within each.
    pairs: Vec<u32>,
    /// End of the pairs of each series in `pairs`.
    ends: Vec<u32>,
    /// Series with half of their hash, which the table needs when it grows.
    by_labels: HashTable<(u32, u32)>,
    /// Pairs of the previous record, in its order: adjacent series share most of them.
    previous: Vec<u32>,
    /// Pairs of the current record, by name.
    current: Vec<u32>,
}

impl SeriesTable {
    /// Returns the series of `series_ref`, or [`NO_SERIES`].
    #[inline]
    pub(super) fn of_ref(&self, series_ref: u64) -> u32 {
        self.refs.get(series_ref)
    }

    /// As [`SeriesTable::of_ref`], faster if the result is `guess`.
    #[inline]
    pub(super) fn of_ref_near(&self, series_ref: u64, guess: u32) -> u32 {
        self.refs.get_near(series_ref, guess)
    }

    #[inline]
    pub(super) fn has_ref(&self, series: u32, series_ref: u64) -> bool {
        self.refs.has_ref(series, series_ref)
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Label pairs of a series, by name.
    pub(super) fn pairs_of(&self, series: u32) -> &[u32] {
        pairs_of(&self.pairs, &self.ends, series)
    }

    /// Assigns `series_ref` to the series with these labels, which is added if it is new. `previous` are the
    /// labels of the previous call if that succeeded: pairs that are equal are not looked up again.
    pub(super) fn resolve(
        &mut self,
        series_ref: u64,
        labels: &[RawPair<'_>],
        previous: &[RawPair<'_>],
    ) -> Result<u32, SeriesReject> {
        self.number_pairs(labels, previous)?;
        let half = hash_of(&self.current);
        let (pairs, ends, current) = (&self.pairs, &self.ends, &self.current);
        let same = |&(series, other): &(u32, u32)| {
            other == half && pairs_of(pairs, ends, series) == current.as_slice()
        };
        let series = match self.by_labels.find(spread(half), same) {
            Some(&(series, _)) => series,
            None => self.add(half),
        };
        self.refs.set(series_ref, series);
        Ok(series)
    }

    /// Removes a series from the table: its labels get a new id if they appear again.
    pub(super) fn forget(&mut self, series_ref: u64) -> Option<u32> {
        let series = self.refs.get(series_ref);
        if series == NO_SERIES {
            return None;
        }
        let half = hash_of(self.pairs_of(series));
        if let Ok(entry) = self.by_labels.find_entry(spread(half), |&(other, _)| other == series) {
            entry.remove();
        }
        self.refs.set(series_ref, NO_SERIES);
        Some(series)
    }

    fn add(&mut self, half: u32) -> u32 {
        let series = u32::try_from(self.ends.len()).expect("fewer than 2^32 series");
        self.pairs.extend_from_slice(&self.current);
        self.ends.push(u32::try_from(self.pairs.len()).expect("fewer than 2^32 label pairs of series"));
        self.by_labels.insert_unique(spread(half), (series, half), |&(_, half)| spread(half));
        series
    }

    /// Sets `current` to the ids of the pairs, by name.
    fn number_pairs(&mut self, labels: &[RawPair<'_>], previous: &[RawPair<'_>]) -> Result<(), SeriesReject> {
        self.current.clear();
        let is_comparable = previous.len() == self.previous.len();
        for (idx, pair) in labels.iter().enumerate() {
            let number = match (previous.get(idx), self.previous.get(idx)) {
                (Some(same), Some(&number)) if is_comparable && same == pair => number,
                _ => number_of(&mut self.dictionary, pair)?,
            };
            self.current.push(number);
        }
        self.previous.clone_from(&self.current);
        // An empty value is equal to a missing label.
        if labels.iter().any(|(_, value)| value.is_empty()) {
            let dictionary = &self.dictionary;
            self.current.retain(|&pair| !dictionary.texts(pair).1.is_empty());
        }
        if !labels.is_sorted_by(|a, b| a.0 < b.0) {
            let name = |&pair: &u32| self.dictionary.texts(pair).0;
            self.current.sort_by_key(name);
            if self.current.windows(2).any(|pair| name(&pair[0]) == name(&pair[1])) {
                return Err(SeriesReject::Labels);
            }
        }
        if self.current.is_empty() { Err(SeriesReject::Labels) } else { Ok(()) }
    }

    /// Frees the memory that only lookups need.
    pub(super) fn freeze(&mut self) {
        self.refs = RefTable::default();
        self.by_labels = HashTable::new();
        self.dictionary.freeze();
    }

    pub(super) fn dictionary(&self) -> &LabelDictionary {
        &self.dictionary
    }

    /// Returns `series` sorted by labels.
    pub(super) fn sorted(&self, ranks: &LabelRanks, series: impl Iterator<Item = u32>) -> Vec<u32> {
        let mut series: Vec<u32> = series.collect();
        let mut keyed = Vec::with_capacity(series.len());
        sort_from(self, ranks, &mut series, 0, &mut keyed);
        series
    }
}

/// Sorts series that share their first `depth` pairs by multi-key quicksort: by the ranks of the next two
/// pairs, then runs of equal keys by the two after them. Keys are contiguous, so that each level reads the
/// pairs of a series once.
fn sort_from(
    table: &SeriesTable,
    ranks: &LabelRanks,
    series: &mut [u32],
    depth: usize,
    keyed: &mut Vec<(u64, u32)>,
) {
    // A label set that ends here comes before one that continues.
    let rank = |pairs: &[u32], at: usize| pairs.get(at).map_or(0, |&pair| u64::from(ranks.of(pair)) + 1);
    keyed.clear();
    keyed.extend(series.iter().map(|&one| {
        let pairs = table.pairs_of(one);
        (rank(pairs, depth) << 32 | rank(pairs, depth + 1), one)
    }));
    keyed.sort_unstable_by_key(|(key, _)| *key);
    let mut runs = Vec::new();
    let mut start = 0;
    for at in 1..=keyed.len() {
        if at == keyed.len() || keyed[at].0 != keyed[start].0 {
            // 0 in the lower half: the label sets end here, and no two sets are equal.
            if at - start > 1 && keyed[start].0 as u32 != 0 {
                runs.push(start..at);
            }
            start = at;
        }
    }
    for (target, (_, one)) in series.iter_mut().zip(keyed.iter()) {
        *target = *one;
    }
    for run in runs {
        sort_from(table, ranks, &mut series[run], depth + 2, keyed);
    }
}

fn pairs_of<'a>(pairs: &'a [u32], ends: &[u32], series: u32) -> &'a [u32] {
    let series = series as usize;
    let start = series.checked_sub(1).map_or(0, |previous| ends[previous] as usize);
    &pairs[start..ends[series] as usize]
}

fn number_of(dictionary: &mut LabelDictionary, pair: &RawPair<'_>) -> Result<u32, SeriesReject> {
    let name = std::str::from_utf8(pair.0).map_err(|_| SeriesReject::NotUtf8)?;
    let value = std::str::from_utf8(pair.1).map_err(|_| SeriesReject::NotUtf8)?;
    if name.is_empty() { Err(SeriesReject::Labels) } else { Ok(dictionary.number(name, value)) }
}

/// Multiplicative hash of pair ids. Clients cannot choose the ids, so no key is needed.
fn hash_of(pairs: &[u32]) -> u32 {
    let mixed = pairs.iter().fold(MIX, |hash, &pair| {
        let mixed = u128::from(hash ^ u64::from(pair)) * u128::from(MIX);
        (mixed as u64) ^ (mixed >> 64) as u64
    });
    (mixed >> 32) as u32
}

/// Hash for the table, from the stored half.
fn spread(half: u32) -> u64 {
    u64::from(half).wrapping_mul(MIX)
}
