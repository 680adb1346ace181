//! A record in the queue of the library, until its outcome is known.
//!
//! Invariant: its bytes in flight are given back before its ticket resolves.
//! Not here: tickets (`producer`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::error::LogError;
use crate::in_flight::InFlightPermit;
use crate::kafka::failed_append::FailedAppend;
use crate::position::{PartitionId, Position, TopicId};
use crate::ticket::Outcome;

/// Offset of a record that a broker recognised as a repeat, and whose offset it does not know any more.
pub(super) const OFFSET_UNKNOWN: u64 = u64::MAX;

/// Ends of partitions by acknowledgements. Appends of the library name the topic, not its id: an offset that
/// goes back is the sign of another topic.
#[derive(Default)]
pub(super) struct AckedEnds {
    ends: Mutex<BTreeMap<PartitionId, u64>>,
    backward_count: AtomicU64,
}

impl AckedEnds {
    /// Records the offset of an acknowledged record.
    fn note(&self, partition: PartitionId, offset: u64) {
        let mut ends = self.ends.lock();
        let end = ends.entry(partition).or_default();
        if offset < *end {
            self.backward_count.fetch_add(1, Ordering::Release);
        }
        *end = offset.saturating_add(1);
    }

    /// Returns how often an offset went back.
    pub(super) fn backward_count(&self) -> u64 {
        self.backward_count.load(Ordering::Acquire)
    }
}

/// State of an append that the library returns with its outcome.
pub(super) struct Queued {
    pub(super) topic: TopicId,
    pub(super) failed: FailedAppend,
    pub(super) acked_ends: Arc<AckedEnds>,
    pub(super) outcome: Arc<Outcome>,
    pub(super) permit: InFlightPermit,
}

impl Queued {
    /// Resolves the ticket of a record that is in the log; negative offsets are unknown.
    pub(super) fn acknowledge(self, offset: i64) {
        let partition = self.failed.partition;
        let offset = u64::try_from(offset).unwrap_or(OFFSET_UNKNOWN);
        if offset != OFFSET_UNKNOWN {
            self.acked_ends.note(partition, offset);
        }
        drop(self.permit);
        self.outcome.resolve(Ok(Position { topic: self.topic, partition, offset }));
    }

    /// Resolves the ticket of a record that was not acknowledged.
    pub(super) fn fail(self, error: LogError) {
        drop(self.permit);
        self.outcome.resolve(Err(error));
    }
}

#[cfg(test)]
mod tests;
