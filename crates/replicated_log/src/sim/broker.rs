//! Broker of a simulated topic: records, and those on their way.
//!
//! Invariants: records arrive in the order of their times, then of their appends.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use chronolith_base::Rng;

use super::fate::{Fate, PartitionOrder, SimFaults, Timing};
use crate::error::LogError;
use crate::position::{Bounds, PartitionId, Record, TopicId};

/// Name of the topic in messages.
const TOPIC_NAME: &str = "simulated";

/// Offset of a sent record, once it has arrived.
#[derive(Clone, Default)]
pub(super) struct SentRecord(Arc<OnceLock<u64>>);

impl SentRecord {
    pub(super) fn offset(&self) -> Option<u64> {
        self.0.get().copied()
    }
}

/// A record on its way.
struct Arrival {
    partition: PartitionId,
    value: Bytes,
    sent: SentRecord,
    copy_count: u32,
}

/// Time of an arrival, and number of its append.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at_ns: u64,
    number: u64,
}

#[derive(Default)]
struct Partition {
    start: u64,
    records: VecDeque<Record>,
    order: PartitionOrder,
}

impl Partition {
    fn bounds(&self) -> Bounds {
        Bounds { start: self.start, end: self.start + self.records.len() as u64 }
    }
}

/// State of the broker.
pub(super) struct Broker {
    rng: Rng,
    identity: TopicId,
    partitions: Vec<Partition>,
    arrivals: BTreeMap<Due, Arrival>,
    sent_count: u64,
    is_reachable: bool,
}

impl Broker {
    pub(super) fn new(seed: u64, partition_count: u32) -> Broker {
        let rng = Rng::from_seed(seed);
        let identity = draw_identity(&rng);
        let partitions = (0..partition_count).map(|_| Partition::default()).collect();
        Broker { rng, identity, partitions, arrivals: BTreeMap::new(), sent_count: 0, is_reachable: true }
    }

    /// Stores everything that is due.
    pub(super) fn settle(&mut self, now_ns: u64, now_ms: i64) {
        while let Some(entry) = self.arrivals.first_entry()
            && entry.key().at_ns <= now_ns
        {
            let arrival = entry.remove();
            let Some(partition) = self.partitions.get_mut(arrival.partition.0 as usize) else { continue };
            for _ in 0..arrival.copy_count {
                let offset = partition.bounds().end;
                partition.records.push_back(Record {
                    offset,
                    timestamp_ms: now_ms,
                    value: arrival.value.clone(),
                });
                // The first copy counts.
                let _ = arrival.sent.0.set(offset);
            }
        }
    }

    pub(super) fn next_arrival_ns(&self) -> Option<u64> {
        self.arrivals.first_key_value().map(|(due, _)| due.at_ns)
    }

    pub(super) fn identity(&self) -> TopicId {
        self.identity
    }

    pub(super) fn partition_count(&self) -> u32 {
        self.partitions.len() as u32
    }

    pub(super) fn set_reachable(&mut self, is_reachable: bool) {
        self.is_reachable = is_reachable;
    }

    /// Makes the topic again. Records on their way were meant for the one before.
    pub(super) fn replace(&mut self, partition_count: u32) {
        self.identity = draw_identity(&self.rng);
        self.partitions = (0..partition_count).map(|_| Partition::default()).collect();
        self.arrivals.clear();
    }

    pub(super) fn trim(&mut self, partition: PartitionId, offset: u64) {
        let Some(partition) = self.partitions.get_mut(partition.0 as usize) else { return };
        while partition.start < offset && partition.records.pop_front().is_some() {
            partition.start += 1;
        }
    }

    pub(super) fn add_partitions(&mut self, count: u32) {
        self.partitions.extend((0..count).map(|_| Partition::default()));
    }

    pub(super) fn records(&self, partition: PartitionId) -> Vec<Record> {
        let partition = self.partitions.get(partition.0 as usize);
        partition.map(|partition| partition.records.iter().cloned().collect()).unwrap_or_default()
    }

    pub(super) fn check_reachable(&self) -> Result<(), LogError> {
        if self.is_reachable {
            return Ok(());
        }
        Err(LogError::Unavailable { why: "the simulated broker is cut off".to_owned() })
    }

    /// Returns an error if the topic is not the one of this identity. A broker that is cut off cannot say
    /// so.
    pub(super) fn check_identity(&self, identity: TopicId) -> Result<(), LogError> {
        if !self.is_reachable || identity == self.identity {
            return Ok(());
        }
        Err(replaced(identity, self.identity))
    }

    pub(super) fn check_partition(&self, partition: PartitionId) -> Result<(), LogError> {
        self.partition(partition).map(drop)
    }

    fn partition(&self, partition: PartitionId) -> Result<&Partition, LogError> {
        let partition_count = self.partition_count();
        self.partitions.get(partition.0 as usize).ok_or(LogError::NoPartition { partition, partition_count })
    }

    /// Draws the fate of the next record of a partition that exists.
    pub(super) fn draw_fate(&mut self, partition: PartitionId, faults: SimFaults, timing: Timing) -> Fate {
        let Broker { rng, partitions, is_reachable, .. } = self;
        let order = &mut partitions[partition.0 as usize].order;
        order.draw(rng, faults, timing, *is_reachable)
    }

    /// Sends a record to its fate.
    pub(super) fn send(&mut self, partition: PartitionId, value: Bytes, fate: &Fate) -> SentRecord {
        let sent = SentRecord::default();
        if let Some(at_ns) = fate.arrival_ns {
            self.sent_count += 1;
            let due = Due { at_ns, number: self.sent_count };
            let copy_count = if fate.is_stored_twice { 2 } else { 1 };
            self.arrivals.insert(due, Arrival { partition, value, sent: sent.clone(), copy_count });
        }
        sent
    }

    /// Draws if a read fails.
    pub(super) fn draw_read_fault(&self, faults: SimFaults) -> Result<(), LogError> {
        self.check_reachable()?;
        if self.rng.below(1000) < u64::from(faults.failed_reads) {
            return Err(LogError::Unavailable { why: "the simulated broker failed a read".to_owned() });
        }
        Ok(())
    }

    pub(super) fn read(
        &self,
        partition: PartitionId,
        from: u64,
        bytes_max: usize,
        faults: SimFaults,
    ) -> Result<Vec<Record>, LogError> {
        let of = self.partition(partition)?;
        let bounds = of.bounds();
        if from < bounds.start || from > bounds.end {
            return Err(LogError::OffsetOutOfRange { partition, offset: from, bounds });
        }
        let is_short = self.rng.below(1000) < u64::from(faults.short_reads);
        let count_max = if is_short { 1 } else { usize::MAX };
        let skipped = usize::try_from(from - bounds.start).unwrap_or(usize::MAX);
        let mut left_bytes = bytes_max;
        let mut records = Vec::new();
        for record in of.records.iter().skip(skipped).take(count_max) {
            if record.value.len() > left_bytes && !records.is_empty() {
                break;
            }
            left_bytes = left_bytes.saturating_sub(record.value.len());
            records.push(record.clone());
        }
        Ok(records)
    }

    pub(super) fn bounds(&self, partition: PartitionId) -> Result<Bounds, LogError> {
        self.check_reachable()?;
        Ok(self.partition(partition)?.bounds())
    }
}

pub(super) fn replaced(expected: TopicId, found: TopicId) -> LogError {
    LogError::TopicReplaced { topic: TOPIC_NAME.to_owned(), expected, found }
}

fn draw_identity(rng: &Rng) -> TopicId {
    let mut id = [0u8; 16];
    rng.fill(&mut id);
    TopicId(id)
}
