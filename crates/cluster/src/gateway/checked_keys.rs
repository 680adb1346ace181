//! Check of the labels of a batch, with a cache of wire keys whose labels are valid.
//!
//! A series whose key was not seen lately is new, and is refused if its tenant is full.
//!
//! Invariants: a key is in the cache only if its labels were valid under the limits of its hash, which has a
//! secret seed; the cache has at most [`KEYS_MAX`] keys in each of two generations, of which the older one is
//! dropped when the younger one is full. A key that is forgotten is parsed again. No series is refused unless
//! the cache has all keys of the last [`KNOWN_TIME_NS`].
//! Not here: the rules of labels (`head`), series counts (`series_counts`), limits that need an index.

use chronolith_base::hash::HashSet;
use chronolith_model::batch::ReachedLimit;
use chronolith_model::{LabelsBuilder, Reject, TenantLimits, WriteBatch, WriteOutcome};
use chronolith_tsdb::{check_series, reject_series};
use parking_lot::Mutex;
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128_with_seed};

/// Keys of a generation: 16 bytes each, and as much again for free slots.
const KEYS_MAX: usize = 1 << 20;

/// Time for which the cache has to know all keys before one that it does not have is taken for new: series
/// with samples further apart are taken for new ones.
const KNOWN_TIME_NS: u64 = 15 * 60 * 1_000_000_000;

/// Hashes of keys with valid labels.
pub(super) struct CheckedKeys {
    seed: u64,
    keys_max: usize,
    generations: Mutex<Generations>,
}

struct Generations {
    young: HashSet<u128>,
    old: HashSet<u128>,
    /// Monotonic time of the first keys of each generation.
    young_since_ns: u64,
    old_since_ns: u64,
}

/// A tenant that has as many series as its limit allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FullTenant {
    pub(super) used: u64,
    pub(super) limit: u64,
}

/// Terms under which the series of a batch are checked.
#[derive(Clone, Copy)]
pub(super) struct CheckTerms<'a> {
    pub(super) limits: &'a TenantLimits,
    /// `None` = new series are taken.
    pub(super) full: Option<FullTenant>,
    /// Monotonic time of the check.
    pub(super) now_ns: u64,
}

/// Buffers of one batch.
#[derive(Default)]
pub(super) struct KeyScratch {
    hashes: Vec<u128>,
    /// Series that are not in the cache.
    unknown: Vec<u32>,
    refused: Vec<u32>,
    labels: LabelsBuilder,
}

impl KeyScratch {
    /// Series of the batch that was checked last that are not written, ascending.
    pub(super) fn refused(&self) -> &[u32] {
        &self.refused
    }
}

impl CheckedKeys {
    /// An empty cache at monotonic time `now_ns`; `seed` is secret.
    pub(super) fn new(seed: u64, now_ns: u64) -> CheckedKeys {
        let generations = Generations {
            young: HashSet::default(),
            old: HashSet::default(),
            young_since_ns: now_ns,
            old_since_ns: now_ns,
        };
        CheckedKeys { seed, keys_max: KEYS_MAX, generations: Mutex::new(generations) }
    }

    /// Number of keys in memory.
    pub(super) fn len(&self) -> usize {
        let generations = self.generations.lock();
        generations.young.len() + generations.old.len()
    }

    /// Checks the labels of all series of a batch, and refuses new series of a full tenant. The outcome has
    /// the samples of the others as accepted; `scratch` has the refused series. Cost: one hash per series,
    /// and one parse of the keys that are not in the cache.
    pub(super) fn check(
        &self,
        batch: &WriteBatch,
        terms: CheckTerms<'_>,
        scratch: &mut KeyScratch,
    ) -> WriteOutcome {
        let KeyScratch { hashes, unknown, refused, labels } = scratch;
        let CheckTerms { limits, full, now_ns } = terms;
        self.hash_keys(batch, limits, hashes);
        unknown.clear();
        let knows_all = {
            let mut generations = self.generations.lock();
            generations.collect_unknown(hashes, unknown);
            now_ns.saturating_sub(generations.old_since_ns) >= KNOWN_TIME_NS
        };
        let full = full.filter(|_| knows_all);
        refused.clear();
        let mut outcome = WriteOutcome::default();
        for &series_idx in &*unknown {
            if !check_series(batch, series_idx, limits, labels, &mut outcome) {
                refused.push(series_idx);
            } else if full.is_some() {
                reject_series(batch, series_idx, Reject::SeriesLimit, &mut outcome);
                refused.push(series_idx);
            }
        }
        if let Some(FullTenant { used, limit }) = full
            && outcome.rejected[Reject::SeriesLimit as usize] > 0
        {
            let name = String::new();
            outcome.note_reached(ReachedLimit { kind: Reject::SeriesLimit, name, used, limit });
        }
        let is_taken = |series_idx: &&u32| refused.binary_search(series_idx).is_err();
        let taken = unknown.iter().filter(is_taken).filter_map(|idx| hashes.get(*idx as usize));
        self.generations.lock().insert_all(taken.copied(), self.keys_max, now_ns);
        count_accepted(batch, refused, &mut outcome);
        outcome
    }

    fn hash_keys(&self, batch: &WriteBatch, limits: &TenantLimits, hashes: &mut Vec<u128>) {
        let mut context = vec![batch.source.protocol];
        let numbers = [limits.label_count_max, limits.label_name_bytes_max, limits.label_value_bytes_max];
        numbers.iter().for_each(|number| context.extend_from_slice(&(*number as u64).to_le_bytes()));
        let seed = xxh3_64_with_seed(&context, self.seed);
        hashes.clear();
        let mut last = u32::MAX..u32::MAX;
        let mut of_raw = 0;
        for (series_idx, series) in batch.series.iter().enumerate() {
            if series.raw != last {
                last = series.raw.clone();
                of_raw = xxh3_128_with_seed(batch.raw_of(series), seed);
            }
            let field = batch.field_of(series_idx);
            let folded = of_raw as u64 ^ (of_raw >> 64) as u64;
            hashes.push(if field.is_empty() { of_raw } else { xxh3_128_with_seed(field, folded) });
        }
    }
}

impl Generations {
    /// Appends the indices of the keys that are in neither generation.
    fn collect_unknown(&mut self, hashes: &[u128], unknown: &mut Vec<u32>) {
        for (idx, hash) in (0u32..).zip(hashes) {
            if self.young.contains(hash) {
                continue;
            }
            // A key in use moves to the younger generation when it is inserted again.
            if self.old.remove(hash) {
                self.young.insert(*hash);
                continue;
            }
            unknown.push(idx);
        }
    }

    fn insert_all(&mut self, hashes: impl Iterator<Item = u128>, keys_max: usize, now_ns: u64) {
        self.young.extend(hashes);
        if self.young.len() >= keys_max {
            self.old = std::mem::take(&mut self.young);
            self.old_since_ns = std::mem::replace(&mut self.young_since_ns, now_ns);
        }
    }
}

/// Counts everything of series that are not refused as accepted.
fn count_accepted(batch: &WriteBatch, refused: &[u32], outcome: &mut WriteOutcome) {
    let mut histogram_count = batch.histograms.len();
    for &series_idx in refused {
        if let Some(series) = batch.series.get(series_idx as usize) {
            histogram_count -= batch.histograms_of(series).len();
        }
    }
    let is_valid = |series_idx: u32| refused.binary_search(&series_idx).is_err();
    outcome.accepted_count = batch.sample_count() as u64 - outcome.rejected_count();
    outcome.histograms_accepted = histogram_count as u64;
    outcome.exemplars_accepted = batch.exemplars.iter().filter(|one| is_valid(one.series_idx)).count() as u64;
}

#[cfg(test)]
mod tests;
