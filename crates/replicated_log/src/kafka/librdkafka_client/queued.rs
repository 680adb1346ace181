//! A record in the queue of the library, until its outcome is known.
//!
//! Invariant: its bytes in flight are given back before its outcome is known.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::error::LogError;
use crate::in_flight::InFlightPermit;
use crate::kafka::client::Delivery;
use crate::kafka::failed_append::FailedAppend;
use crate::position::PartitionId;
use crate::ticket::Outcome;

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
    pub(super) append: FailedAppend,
    pub(super) acked_ends: Arc<AckedEnds>,
    pub(super) outcome: Arc<Outcome<Option<u64>>>,
    pub(super) permit: InFlightPermit,
}

impl Queued {
    /// Resolves the outcome of a record that is in the log; negative offsets are unknown.
    pub(super) fn acknowledge(self, offset: i64) {
        let offset = u64::try_from(offset).ok();
        if let Some(offset) = offset {
            self.acked_ends.note(self.append.partition, offset);
        }
        drop(self.permit);
        self.outcome.resolve(Ok(offset));
    }

    /// Resolves the outcome of a record that was not acknowledged.
    pub(super) fn fail(self, error: LogError) {
        drop(self.permit);
        self.outcome.resolve(Err(error));
    }
}

/// Append that the library has queued.
pub struct LibrdkafkaDelivery(Arc<Outcome<Option<u64>>>);

impl LibrdkafkaDelivery {
    /// Returns the append whose state the library has.
    pub(super) fn new(outcome: Arc<Outcome<Option<u64>>>) -> LibrdkafkaDelivery {
        LibrdkafkaDelivery(outcome)
    }
}

impl Delivery for LibrdkafkaDelivery {
    fn is_resolved(&mut self) -> bool {
        self.0.is_resolved()
    }

    fn wait(&mut self, within: Duration) -> Option<Result<Option<u64>, LogError>> {
        self.0.wait(within)
    }
}

#[cfg(test)]
mod tests;
