//! Partitions as the partition map has them: which ones accept writes since when, and which drained ones may
//! have samples that are in no block.
//!
//! Not here: reads of the map (`partition_maps`), changes of it (`partition_changes`).

use std::time::Duration;

use chronolith_model::log_position::PartitionId;
use chronolith_model::partition::{PartitionEpoch, PartitionMap};

/// Time after its last write in which a partition may have samples that are in no block: windows of two hours
/// are cut within an hour after their end. Its owner has to run for this time.
pub const DRAINED_TIME: Duration = Duration::from_secs(12 * 3600);

/// State of a partition of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionState {
    /// The partition.
    pub partition: PartitionId,
    /// True if it accepts writes.
    pub is_accepting: bool,
    /// Time since which it does, or no longer does, milliseconds since 1970.
    pub since_ms: i64,
}

impl PartitionState {
    /// Returns the time until which an owner is needed whose partition accepts no writes, milliseconds since
    /// 1970; `None` while it accepts them.
    #[must_use]
    pub fn owner_needed_until_ms(&self) -> Option<i64> {
        (!self.is_accepting).then(|| self.since_ms.saturating_add(drained_ms()))
    }
}

fn drained_ms() -> i64 {
    i64::try_from(DRAINED_TIME.as_millis()).unwrap_or(i64::MAX)
}

/// Returns partitions that may have samples in no block at `now_ms`, by the time of their first change.
#[must_use]
pub fn recent_partitions(map: &PartitionMap, now_ms: i64) -> Vec<PartitionId> {
    let since_ms = now_ms.saturating_sub(drained_ms());
    let epochs = map.epochs();
    let ended_count = epochs.iter().skip(1).take_while(|next| next.since_ms <= since_ms).count();
    let mut partitions = Vec::new();
    for number in epochs.iter().skip(ended_count).flat_map(|epoch| &epoch.accepting) {
        if !partitions.contains(&PartitionId(*number)) {
            partitions.push(PartitionId(*number));
        }
    }
    partitions
}

/// Returns the state of each partition in the history of a map, ascending by number.
#[must_use]
pub fn partition_states(map: &PartitionMap) -> Vec<PartitionState> {
    let epochs = map.epochs();
    let mut numbers: Vec<u32> = epochs.iter().flat_map(|epoch| &epoch.accepting).copied().collect();
    numbers.sort_unstable();
    numbers.dedup();
    let accepts = |epoch: &PartitionEpoch, number| epoch.accepting.binary_search(&number).is_ok();
    let state = |number: u32| {
        let is_accepting = epochs.last().is_some_and(|last| accepts(last, number));
        let newest_first = epochs.iter().rev().take_while(|epoch| accepts(epoch, number) == is_accepting);
        let since_ms = newest_first.last().map_or(0, |epoch| epoch.since_ms);
        PartitionState { partition: PartitionId(number), is_accepting, since_ms }
    };
    numbers.into_iter().map(state).collect()
}

#[cfg(test)]
mod tests;
