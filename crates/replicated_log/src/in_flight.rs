//! Bytes in flight: records that were queued and not acknowledged yet, within a limit.
//!
//! Invariants: the sum never exceeds the limit; a permit gives its bytes back when it is dropped. A partition
//! takes at most as much as it leaves free, so that one whose records are not acknowledged leaves half of the
//! limit to others, and two of them a third (dynamic queue thresholds, Choudhury and Hahne 1998).
//! Not here: buffers of Kafka's client, which counts its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::error::LogError;
use crate::position::PartitionId;

/// Semaphore over bytes.
pub(crate) struct InFlight {
    bytes_max: u64,
    used: Mutex<Used>,
    freed: Condvar,
}

/// Bytes in use.
#[derive(Default)]
struct Used {
    bytes: u64,
    /// Partitions with records in flight.
    of_partitions: BTreeMap<PartitionId, u64>,
}

/// Bytes of one record; given back when it is dropped.
#[cfg_attr(
    not(any(feature = "kafka", feature = "kafka-librdkafka")),
    expect(unreachable_pub, reason = "a part of the interface of Kafka's clients")
)]
pub struct InFlightPermit {
    of: Arc<InFlight>,
    partition: PartitionId,
    bytes: u64,
}

impl Used {
    /// Returns why there is no room for a record, if there is none.
    fn refusal(&self, partition: PartitionId, bytes: u64, bytes_max: u64) -> Option<LogError> {
        let free_bytes = bytes_max.saturating_sub(self.bytes);
        let own_bytes = self.of_partitions.get(&partition).copied().unwrap_or(0);
        if bytes > free_bytes {
            let used_bytes = self.bytes;
            let what = "the queue of appends";
            return Some(LogError::Full { what, used_bytes, bytes_max, record_bytes: bytes });
        }
        // The first record of a partition needs room alone.
        if own_bytes > 0 && own_bytes.saturating_add(bytes) > free_bytes {
            let what = "the share of the partition in the queue of appends";
            return Some(LogError::Full {
                what,
                used_bytes: own_bytes,
                bytes_max: free_bytes,
                record_bytes: bytes,
            });
        }
        None
    }
}

impl InFlight {
    /// Returns a semaphore without permits in use.
    pub(crate) fn new(bytes_max: u64) -> Arc<InFlight> {
        Arc::new(InFlight { bytes_max, used: Mutex::default(), freed: Condvar::new() })
    }

    /// Takes `bytes` for a record of `partition`, waiting at most `within` for room.
    ///
    /// # Errors
    /// [`LogError::Full`]; nothing is taken.
    pub(crate) fn take(
        self: &Arc<InFlight>,
        partition: PartitionId,
        bytes: u64,
        within: Duration,
    ) -> Result<InFlightPermit, LogError> {
        let mut used = self.used.lock();
        let is_full = |used: &mut Used| used.refusal(partition, bytes, self.bytes_max).is_some();
        self.freed.wait_while_for(&mut used, is_full, within);
        if let Some(refusal) = used.refusal(partition, bytes, self.bytes_max) {
            return Err(refusal);
        }
        used.bytes += bytes;
        *used.of_partitions.entry(partition).or_default() += bytes;
        Ok(InFlightPermit { of: self.clone(), partition, bytes })
    }

    /// Returns the bytes in use.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used.lock().bytes
    }
}

impl Drop for InFlightPermit {
    fn drop(&mut self) {
        let mut used = self.of.used.lock();
        used.bytes -= self.bytes;
        if let Some(own) = used.of_partitions.get_mut(&self.partition) {
            *own -= self.bytes;
            if *own == 0 {
                used.of_partitions.remove(&self.partition);
            }
        }
        drop(used);
        self.of.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_WAIT: Duration = Duration::ZERO;

    /// A partition without acknowledgements took all of the limit, and writes to others waited and failed.
    #[test]
    fn a_partition_leaves_as_much_as_it_takes() {
        let all = InFlight::new(100);
        let take = |number, bytes| all.take(PartitionId(number), bytes, NO_WAIT);
        let mut held = Vec::new();
        while let Ok(permit) = take(0, 10) {
            held.push(permit);
        }
        assert_eq!(held.len(), 5);
        let what = "the share of the partition in the queue of appends";
        let want = LogError::Full { what, used_bytes: 50, bytes_max: 50, record_bytes: 10 };
        assert_eq!(take(0, 10).map(drop), Err(want));
        let others: Vec<InFlightPermit> = (0..2).map_while(|_| take(1, 10).ok()).collect();
        assert_eq!((others.len(), all.used_bytes()), (2, 70));
        assert!(take(1, 20).is_err(), "20 and 20 more are above the 30 that are free");
        let large = take(2, 30).expect("a first record needs room alone");
        let want =
            LogError::Full { what: "the queue of appends", used_bytes: 100, bytes_max: 100, record_bytes: 1 };
        assert_eq!(take(3, 1).map(drop), Err(want));
        drop((held, others, large));
        assert_eq!(all.used_bytes(), 0);
        assert!(all.used.lock().of_partitions.is_empty());
    }
}
