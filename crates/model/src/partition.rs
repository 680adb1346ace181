//! Partitions of the replicated log: which ones a tenant has, which one of them a series takes, and which
//! ones accept writes since when.
//!
//! Invariants: results depend on the arguments alone and are the same in every version and process, since
//! gateways and query nodes compute them apart: hashes are XXH3 with 64 bits, whose values are specified. A
//! change of the map moves only series of partitions that it adds or removes.
//! Not here: bytes of the map (`format::bucket::partitions`), the log itself.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::TenantId;

/// Partitions that a map may have.
pub const PARTITIONS_MAX: usize = 10_000;
/// Changes of the map that its history may have.
pub const PARTITION_EPOCHS_MAX: usize = 1_000;

/// Returns the number of partitions of a tenant that may have `series_max` series (0 = no limit): one for
/// each `series_per_partition`, at least `count_min`, at most `accepting_count`.
#[must_use]
pub fn tenant_partition_count(
    series_max: u64,
    series_per_partition: u64,
    count_min: usize,
    accepting_count: usize,
) -> usize {
    let by_series = match series_max {
        0 => u64::MAX,
        limit => limit.div_ceil(series_per_partition.max(1)),
    };
    let by_series = usize::try_from(by_series).unwrap_or(usize::MAX);
    by_series.max(count_min).max(1).min(accepting_count)
}

/// Part of its share by which a partition may have more series than it, in percent: hashes do not divide
/// series evenly.
const SHARE_SLACK_PERCENT: usize = 10;

/// Returns the series that one of a tenant's `partition_count` partitions may have, so that the tenant has
/// about `series_max`.
#[must_use]
pub fn partition_series_max(series_max: usize, partition_count: usize) -> usize {
    if partition_count <= 1 {
        return series_max;
    }
    let with_slack = (series_max as u128) * (100 + SHARE_SLACK_PERCENT as u128);
    let share = with_slack.div_ceil(partition_count as u128 * 100);
    usize::try_from(share).unwrap_or(usize::MAX)
}

/// Partitions of one tenant, by descending score: with fewer partitions it has the first ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantPartitions(Vec<u32>);

impl TenantPartitions {
    /// The `count` highest partitions of a rendezvous hash of tenant and partition; all of them if there are
    /// fewer. Cost: one hash per partition.
    #[must_use]
    pub fn of(tenant: &TenantId, accepting: &[u32], count: usize) -> TenantPartitions {
        let score = |number: u32| xxh3_64_with_seed(tenant.as_str().as_bytes(), u64::from(number));
        let mut scored: Vec<(u64, u32)> = accepting.iter().map(|&number| (score(number), number)).collect();
        scored.sort_unstable_by(|left, right| right.cmp(left));
        scored.truncate(count);
        TenantPartitions(scored.into_iter().map(|(_, number)| number).collect())
    }

    /// Numbers of the partitions.
    #[must_use]
    pub fn numbers(&self) -> &[u32] {
        &self.0
    }

    /// Returns the index within [`TenantPartitions::numbers`] of the partition of a series: the highest of a
    /// rendezvous hash of its wire key and partition. `raw` is the key without field and kind, so that the
    /// fields of a point, and values of another type for a field, meet at one owner. Cost: one hash of the
    /// key, and a short one per partition.
    #[must_use]
    pub fn idx_of(&self, raw: &[u8]) -> usize {
        if self.0.len() <= 1 {
            return 0;
        }
        let key = xxh3_64(raw).to_le_bytes();
        let mut best = 0;
        let mut best_score = 0;
        for (idx, &number) in self.0.iter().enumerate() {
            let score = xxh3_64_with_seed(&key, u64::from(number));
            if score >= best_score {
                best = idx;
                best_score = score;
            }
        }
        best
    }
}

/// Partitions that accept writes from a time on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionEpoch {
    /// Milliseconds since 1970. Gateways follow the map with a delay: writes before it may arrive later.
    pub since_ms: i64,
    /// Ascending numbers.
    pub accepting: Vec<u32>,
}

/// A change of the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionChange<'a> {
    /// Partitions that begin to accept writes.
    Add(&'a [u32]),
    /// Partitions that accept no further writes; an owner runs until its last window is a block.
    Drain(&'a [u32]),
    /// Drained partitions whose samples are all in blocks: they leave the history, no query asks for them.
    Remove(&'a [u32]),
}

/// Reason why a map cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PartitionMapError {
    /// A partition to add that accepts writes.
    #[error("partition {0} accepts writes already")]
    Accepting(u32),
    /// A partition to drain that accepts none.
    #[error("partition {0} does not accept writes")]
    NotAccepting(u32),
    /// A partition to remove that accepts writes.
    #[error("partition {0} accepts writes, drain it first")]
    NotDrained(u32),
    /// A partition to remove that the map does not have.
    #[error("partition {0} is not in the partition map")]
    Unknown(u32),
    /// No partition would be left.
    #[error("no partition would accept writes")]
    NoneLeft,
    /// More partitions than a map may have.
    #[error("{0} partitions, at most {PARTITIONS_MAX} are allowed")]
    TooMany(usize),
    /// More changes than a history may have.
    #[error("{0} changes of the partition map, at most {PARTITION_EPOCHS_MAX} are kept")]
    TooManyChanges(usize),
    /// Times of changes, or numbers of partitions, that do not ascend.
    #[error("times of changes and numbers of partitions must ascend")]
    NotAscending,
}

/// Partitions that accept writes, and since when; the map before the first change has none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartitionMap(Vec<PartitionEpoch>);

impl PartitionMap {
    /// The map with this history, oldest change first.
    ///
    /// # Errors
    /// [`PartitionMapError`].
    pub fn from_epochs(epochs: Vec<PartitionEpoch>) -> Result<PartitionMap, PartitionMapError> {
        if epochs.len() > PARTITION_EPOCHS_MAX {
            return Err(PartitionMapError::TooManyChanges(epochs.len()));
        }
        if !epochs.is_sorted_by(|left, right| left.since_ms < right.since_ms) {
            return Err(PartitionMapError::NotAscending);
        }
        for PartitionEpoch { accepting, .. } in &epochs {
            if accepting.is_empty() {
                return Err(PartitionMapError::NoneLeft);
            }
            if accepting.len() > PARTITIONS_MAX {
                return Err(PartitionMapError::TooMany(accepting.len()));
            }
            if !accepting.is_sorted_by(|left, right| left < right) {
                return Err(PartitionMapError::NotAscending);
            }
        }
        Ok(PartitionMap(epochs))
    }

    /// The history, oldest change first.
    #[must_use]
    pub fn epochs(&self) -> &[PartitionEpoch] {
        &self.0
    }

    /// Partitions that accept writes, ascending.
    #[must_use]
    pub fn accepting(&self) -> &[u32] {
        self.0.last().map_or(&[], |epoch| &epoch.accepting)
    }

    /// Returns the map after a change at `now_ms`, or one millisecond after the last change if that is later.
    /// Epochs that ended before `forget_before_ms` leave the history.
    ///
    /// # Errors
    /// [`PartitionMapError`].
    pub fn changed(
        &self,
        change: PartitionChange<'_>,
        now_ms: i64,
        forget_before_ms: i64,
    ) -> Result<PartitionMap, PartitionMapError> {
        let mut accepting = self.accepting().to_vec();
        match change {
            PartitionChange::Remove(numbers) => return self.without(numbers),
            PartitionChange::Add(numbers) => {
                for &number in numbers {
                    let Err(place) = accepting.binary_search(&number) else {
                        return Err(PartitionMapError::Accepting(number));
                    };
                    accepting.insert(place, number);
                }
            }
            PartitionChange::Drain(numbers) => {
                for &number in numbers {
                    let Ok(place) = accepting.binary_search(&number) else {
                        return Err(PartitionMapError::NotAccepting(number));
                    };
                    accepting.remove(place);
                }
            }
        }
        let since_ms = match self.0.last() {
            Some(last) => now_ms.max(last.since_ms.saturating_add(1)),
            None => now_ms,
        };
        let ended_count = self.0.iter().skip(1).take_while(|next| next.since_ms <= forget_before_ms).count();
        let mut epochs = self.0.get(ended_count..).unwrap_or_default().to_vec();
        epochs.push(PartitionEpoch { since_ms, accepting });
        PartitionMap::from_epochs(epochs)
    }

    /// Returns the map without drained partitions, as if they had never been.
    fn without(&self, numbers: &[u32]) -> Result<PartitionMap, PartitionMapError> {
        for &number in numbers {
            if self.accepting().contains(&number) {
                return Err(PartitionMapError::NotDrained(number));
            }
            if !self.0.iter().any(|epoch| epoch.accepting.contains(&number)) {
                return Err(PartitionMapError::Unknown(number));
            }
        }
        let mut epochs: Vec<PartitionEpoch> = Vec::new();
        for PartitionEpoch { since_ms, accepting } in &self.0 {
            let mut accepting = accepting.clone();
            accepting.retain(|number| !numbers.contains(number));
            // An epoch in which others accepted nothing is none, and equal ones are one.
            let is_needed = epochs.last().is_none_or(|last| last.accepting != accepting);
            if !accepting.is_empty() && is_needed {
                epochs.push(PartitionEpoch { since_ms: *since_ms, accepting });
            }
        }
        PartitionMap::from_epochs(epochs)
    }

    /// Partitions of a tenant for writes.
    #[must_use]
    pub fn tenant(&self, tenant: &TenantId, count: usize) -> TenantPartitions {
        TenantPartitions::of(tenant, self.accepting(), count)
    }

    /// Partitions that a tenant has or had at `since_ms` or later, each once: by the time of their first
    /// change, and then by score. The order decides between equal timestamps of a series that has moved: the
    /// value of the partition that is earlier in the list counts as the first one. `count_max` is the largest
    /// number of partitions that the tenant had in that time.
    #[must_use]
    pub fn tenant_since(&self, tenant: &TenantId, count_max: usize, since_ms: i64) -> Vec<u32> {
        let ended_count = self.0.iter().skip(1).take_while(|next| next.since_ms <= since_ms).count();
        let mut numbers = Vec::new();
        for epoch in self.0.iter().skip(ended_count) {
            for number in TenantPartitions::of(tenant, &epoch.accepting, count_max).0 {
                if !numbers.contains(&number) {
                    numbers.push(number);
                }
            }
        }
        numbers
    }
}

#[cfg(test)]
mod tests;
