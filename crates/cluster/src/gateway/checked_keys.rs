//! Check of the labels of a batch, with a cache of wire keys whose labels are valid.
//!
//! Invariants: a key is in the cache only if its labels were valid under the limits of its hash, which has a
//! secret seed; the cache has at most [`KEYS_MAX`] keys in each of two generations, of which the older one is
//! dropped when the younger one is full. A key that is forgotten is parsed again.
//! Not here: the rules of labels (`head`), limits that need an index.

use chronolith_base::hash::HashSet;
use chronolith_model::{LabelsBuilder, TenantLimits, WriteBatch, WriteOutcome};
use chronolith_tsdb::check_series;
use parking_lot::Mutex;
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128_with_seed};

/// Keys of a generation: 16 bytes each, and as much again for free slots.
const KEYS_MAX: usize = 1 << 20;

/// Hashes of keys with valid labels.
pub(super) struct CheckedKeys {
    seed: u64,
    keys_max: usize,
    generations: Mutex<Generations>,
}

#[derive(Default)]
struct Generations {
    young: HashSet<u128>,
    old: HashSet<u128>,
}

/// Buffers of one batch.
#[derive(Default)]
pub(super) struct KeyScratch {
    hashes: Vec<u128>,
    /// Series that are not in the cache.
    unknown: Vec<u32>,
    invalid: Vec<u32>,
    labels: LabelsBuilder,
}

impl KeyScratch {
    /// Series with invalid labels of the batch that was checked last, ascending.
    pub(super) fn invalid(&self) -> &[u32] {
        &self.invalid
    }
}

impl CheckedKeys {
    /// An empty cache; `seed` is secret.
    pub(super) fn new(seed: u64) -> CheckedKeys {
        CheckedKeys { seed, keys_max: KEYS_MAX, generations: Mutex::default() }
    }

    /// Number of keys in memory.
    pub(super) fn len(&self) -> usize {
        let generations = self.generations.lock();
        generations.young.len() + generations.old.len()
    }

    /// Checks the labels of all series of a batch. The outcome has the samples of valid ones as accepted, the
    /// others as rejected; `scratch` has the invalid series. Cost: one hash per series, and one parse of the
    /// keys that are not in the cache.
    pub(super) fn check(
        &self,
        batch: &WriteBatch,
        limits: &TenantLimits,
        scratch: &mut KeyScratch,
    ) -> WriteOutcome {
        let KeyScratch { hashes, unknown, invalid, labels } = scratch;
        self.hash_keys(batch, limits, hashes);
        unknown.clear();
        self.generations.lock().collect_unknown(hashes, unknown);
        invalid.clear();
        let mut outcome = WriteOutcome::default();
        for &series_idx in &*unknown {
            if !check_series(batch, series_idx, limits, labels, &mut outcome) {
                invalid.push(series_idx);
            }
        }
        let is_valid = |series_idx: &&u32| invalid.binary_search(series_idx).is_err();
        let valid = unknown.iter().filter(is_valid).filter_map(|idx| hashes.get(*idx as usize));
        self.generations.lock().insert_all(valid.copied(), self.keys_max);
        count_accepted(batch, invalid, &mut outcome);
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

    fn insert_all(&mut self, hashes: impl Iterator<Item = u128>, keys_max: usize) {
        self.young.extend(hashes);
        if self.young.len() >= keys_max {
            self.old = std::mem::take(&mut self.young);
        }
    }
}

/// Counts everything of valid series as accepted.
fn count_accepted(batch: &WriteBatch, invalid: &[u32], outcome: &mut WriteOutcome) {
    let mut histogram_count = batch.histograms.len();
    for &series_idx in invalid {
        if let Some(series) = batch.series.get(series_idx as usize) {
            histogram_count -= batch.histograms_of(series).len();
        }
    }
    let is_valid = |series_idx: u32| invalid.binary_search(&series_idx).is_err();
    outcome.accepted_count = batch.sample_count() as u64 - outcome.rejected_count();
    outcome.histograms_accepted = histogram_count as u64;
    outcome.exemplars_accepted = batch.exemplars.iter().filter(|one| is_valid(one.series_idx)).count() as u64;
}

#[cfg(test)]
mod tests;
