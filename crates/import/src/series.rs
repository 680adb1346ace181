//! The series of a Prometheus head: labels by number, found by ref or by labels.
//!
//! Holds: one number for one label set, whatever refs name it (Prometheus writes a series again under a new
//! ref when it comes back); labels are kept as numbers of a dictionary, 4 bytes a pair.
//! Not here: samples (`open`, `output`).

use chronolith_base::hash::HashTable;
use chronolith_block::{LabelDictionary, LabelRanks};

use crate::refs::{NONE, RefTable};

/// Odd, without pattern.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// A label as the log has it.
pub(crate) type RawPair<'a> = (&'a [u8], &'a [u8]);

/// Why a series of the log is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeriesReject {
    /// A name or value is not UTF-8.
    NotUtf8,
    /// No labels, a name twice, or an empty name.
    Labels,
}

/// All series seen.
#[derive(Default)]
pub(crate) struct SeriesTable {
    dictionary: LabelDictionary,
    refs: RefTable,
    /// Label pairs of all series, by name within each.
    pairs: Vec<u32>,
    /// Where the pairs of each series end; they start where those of the one before end.
    ends: Vec<u32>,
    /// With half of the hash, from which the table finds the place again when it grows.
    by_labels: HashTable<(u32, u32)>,
    /// Pairs of the series resolved last, in the order of its record: neighbours share most of them.
    last: Vec<u32>,
    next: Vec<u32>,
}

impl SeriesTable {
    /// The series that `series_ref` names, or [`NONE`].
    #[inline]
    pub(crate) fn of_ref(&self, series_ref: u64) -> u32 {
        self.refs.get(series_ref)
    }

    /// As [`SeriesTable::of_ref`], faster if it is `guess`.
    #[inline]
    pub(crate) fn of_ref_near(&self, series_ref: u64, guess: u32) -> u32 {
        self.refs.get_near(series_ref, guess)
    }

    /// Returns true if `series_ref` is known to name `series`; false proves nothing.
    #[inline]
    pub(crate) fn has_ref(&self, series: u32, series_ref: u64) -> bool {
        self.refs.has_ref(series, series_ref)
    }

    /// How many series there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Pairs of a series, by name.
    pub(crate) fn pairs_of(&self, series: u32) -> &[u32] {
        pairs_of(&self.pairs, &self.ends, series)
    }

    /// Makes `series_ref` name the series with these labels. `before` are those of the call before, if it is
    /// known that they were: what is equal is not looked up again.
    pub(crate) fn resolve(
        &mut self,
        series_ref: u64,
        labels: &[RawPair<'_>],
        before: &[RawPair<'_>],
    ) -> Result<u32, SeriesReject> {
        self.number_pairs(labels, before)?;
        let half = hash_of(&self.next);
        let (pairs, ends, next) = (&self.pairs, &self.ends, &self.next);
        let same =
            |&(series, other): &(u32, u32)| other == half && pairs_of(pairs, ends, series) == next.as_slice();
        let series = match self.by_labels.find(spread(half), same) {
            Some(&(series, _)) => series,
            None => self.add(half),
        };
        self.refs.set(series_ref, series);
        Ok(series)
    }

    /// Takes a series out of the table: its labels are a new series when they come again.
    pub(crate) fn forget(&mut self, series_ref: u64) -> Option<u32> {
        let series = self.refs.get(series_ref);
        if series == NONE {
            return None;
        }
        let half = hash_of(self.pairs_of(series));
        if let Ok(entry) = self.by_labels.find_entry(spread(half), |&(other, _)| other == series) {
            entry.remove();
        }
        self.refs.set(series_ref, NONE);
        Some(series)
    }

    fn add(&mut self, half: u32) -> u32 {
        let series = u32::try_from(self.ends.len()).expect("fewer than 2^32 series");
        self.pairs.extend_from_slice(&self.next);
        self.ends.push(u32::try_from(self.pairs.len()).expect("fewer than 2^32 label pairs of series"));
        self.by_labels.insert_unique(spread(half), (series, half), |&(_, half)| spread(half));
        series
    }

    /// Puts the numbers of the pairs into `next`, by name.
    fn number_pairs(&mut self, labels: &[RawPair<'_>], before: &[RawPair<'_>]) -> Result<(), SeriesReject> {
        self.next.clear();
        let comparable = before.len() == self.last.len();
        for (place, pair) in labels.iter().enumerate() {
            let number = match (before.get(place), self.last.get(place)) {
                (Some(same), Some(&number)) if comparable && same == pair => number,
                _ => number_of(&mut self.dictionary, pair)?,
            };
            self.next.push(number);
        }
        self.last.clone_from(&self.next);
        // A label without a value is no label.
        if labels.iter().any(|(_, value)| value.is_empty()) {
            let dictionary = &self.dictionary;
            self.next.retain(|&pair| !dictionary.texts(pair).1.is_empty());
        }
        if !labels.is_sorted_by(|a, b| a.0 < b.0) {
            let name = |&pair: &u32| self.dictionary.texts(pair).0;
            self.next.sort_by_key(name);
            if self.next.windows(2).any(|two| name(&two[0]) == name(&two[1])) {
                return Err(SeriesReject::Labels);
            }
        }
        if self.next.is_empty() { Err(SeriesReject::Labels) } else { Ok(()) }
    }

    /// Gives back what only finding series needs.
    pub(crate) fn freeze(&mut self) {
        self.refs = RefTable::default();
        self.by_labels = HashTable::new();
        self.dictionary.freeze();
    }

    pub(crate) fn dictionary(&self) -> &LabelDictionary {
        &self.dictionary
    }

    /// Sorts `series` by labels.
    pub(crate) fn sort(&self, ranks: &LabelRanks, series: &mut [u32]) {
        let mut keyed = Vec::with_capacity(series.len());
        sort_from(self, ranks, series, 0, &mut keyed);
    }
}

/// Sorts series that share their first `depth` pairs: by the ranks of the next two, then what is still equal
/// by the two behind them. Keys stand side by side, so that sorting touches the pairs of a series once a
/// level.
fn sort_from(
    table: &SeriesTable,
    ranks: &LabelRanks,
    series: &mut [u32],
    depth: usize,
    keyed: &mut Vec<(u64, u32)>,
) {
    // A set that ends comes before one that goes on.
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
            // Key 0 in its lower half: the sets end here, and sets are told apart by their pairs.
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
    let start = series.checked_sub(1).map_or(0, |before| ends[before] as usize);
    &pairs[start..ends[series] as usize]
}

fn number_of(dictionary: &mut LabelDictionary, pair: &RawPair<'_>) -> Result<u32, SeriesReject> {
    let name = std::str::from_utf8(pair.0).map_err(|_| SeriesReject::NotUtf8)?;
    let value = std::str::from_utf8(pair.1).map_err(|_| SeriesReject::NotUtf8)?;
    if name.is_empty() { Err(SeriesReject::Labels) } else { Ok(dictionary.number(name, value)) }
}

/// Mixes pair numbers by multiplication: they are our own, nobody chooses them.
fn hash_of(pairs: &[u32]) -> u32 {
    let mixed = pairs.iter().fold(MIX, |hash, &pair| {
        let mixed = u128::from(hash ^ u64::from(pair)) * u128::from(MIX);
        (mixed as u64) ^ (mixed >> 64) as u64
    });
    (mixed >> 32) as u32
}

/// The hash that the table works with.
fn spread(half: u32) -> u64 {
    u64::from(half).wrapping_mul(MIX)
}
