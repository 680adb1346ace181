//! Simulated replicated log: in memory, in simulated time, with faults chosen by a seed.
//!
//! Invariants: with one thread, the outcome depends on seed and calls alone; the fate of a record is decided
//! when it is appended; records of a partition arrive and are acknowledged in the order of their appends.
//! Not here: sockets, retries of a client, which the fates sum up.

mod broker;
mod fate;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::Clock;
use parking_lot::Mutex;

use crate::error::LogError;
use crate::log::ReplicatedLog;
use crate::position::{Bounds, PartitionId, Position, ReadLimits, Record, TopicId};
use crate::stats::{Counters, LogStats};
use crate::ticket::{PendingAppend, Ticket};
use broker::{Broker, SentRecord};
pub use fate::SimFaults;
use fate::{Fate, Resolution};

/// Settings of a simulated topic and of its clients.
#[derive(Debug, Clone)]
pub struct SimOptions {
    /// Number of partitions when the topic is made.
    pub partition_count: u32,
    /// Bytes of a record.
    pub record_bytes_max: usize,
    /// Bytes of records that wait for their acknowledgement, per client.
    pub in_flight_bytes_max: u64,
    /// Longest wait for an acknowledgement.
    pub ack_timeout: Duration,
    /// Frequencies of faults.
    pub faults: SimFaults,
    /// Seed of identity, delays and faults.
    pub seed: u64,
}

impl SimOptions {
    /// Returns a topic without faults.
    #[must_use]
    pub fn new(partition_count: u32, seed: u64) -> SimOptions {
        SimOptions {
            partition_count,
            record_bytes_max: 1 << 20,
            in_flight_bytes_max: 64 << 20,
            ack_timeout: Duration::from_secs(10),
            faults: SimFaults::default(),
            seed,
        }
    }
}

/// Topic of a simulated broker: survives its clients. Cheap to clone.
#[derive(Clone)]
pub struct SimTopic {
    clock: Arc<dyn Clock>,
    options: Arc<SimOptions>,
    broker: Arc<Mutex<Broker>>,
}

impl SimTopic {
    /// Makes a topic whose time is `clock`, a manual one: waits move it forward.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, options: SimOptions) -> SimTopic {
        let broker = Arc::new(Mutex::new(Broker::new(options.seed, options.partition_count)));
        SimTopic { clock, options: Arc::new(options), broker }
    }

    /// Returns a client of the topic.
    ///
    /// # Errors
    /// [`LogError::Unavailable`] while the broker cannot be reached.
    pub fn connect(&self) -> Result<SimLog, LogError> {
        let broker = self.broker.lock();
        broker.check_reachable()?;
        let identity = broker.identity();
        drop(broker);
        Ok(SimLog { topic: self.clone(), identity, counters: Arc::default(), in_flight: Arc::default() })
    }

    /// Cuts all clients off, or lets them reach the broker again.
    pub fn set_reachable(&self, is_reachable: bool) {
        self.settled().set_reachable(is_reachable);
    }

    /// Deletes the topic and makes it again: another identity, no records.
    pub fn replace(&self) {
        let partition_count = self.options.partition_count;
        self.settled().replace(partition_count);
    }

    /// Removes the records of a partition before `offset`, as retention does.
    pub fn trim(&self, partition: PartitionId, offset: u64) {
        self.settled().trim(partition, offset);
    }

    /// Adds partitions.
    pub fn add_partitions(&self, count: u32) {
        self.settled().add_partitions(count);
    }

    /// Returns every record of a partition, without faults: what a ledger compares with.
    #[must_use]
    pub fn records(&self, partition: PartitionId) -> Vec<Record> {
        self.settled().records(partition)
    }

    /// Moves the time past everything that is on its way to the broker.
    pub fn finish_arrivals(&self) {
        while let Some(due_ns) = self.settled().next_arrival_ns() {
            self.sleep_until(due_ns);
        }
    }

    /// Locks the broker, to which everything due has arrived.
    fn settled(&self) -> parking_lot::MutexGuard<'_, Broker> {
        let mut broker = self.broker.lock();
        broker.settle(self.clock.mono_ns(), self.clock.now_ms());
        broker
    }

    fn sleep_until(&self, due_ns: u64) {
        let left_ns = due_ns.saturating_sub(self.clock.mono_ns());
        self.clock.sleep(Duration::from_nanos(left_ns));
    }
}

/// Appends of a client without a known outcome: time of resolution and bytes.
type Unresolved = Arc<Mutex<Vec<(u64, u64)>>>;

/// Client of a simulated topic.
pub struct SimLog {
    topic: SimTopic,
    identity: TopicId,
    counters: Arc<Counters>,
    in_flight: Unresolved,
}

impl SimLog {
    /// Waits for room in simulated time.
    fn take_room(&self, record_bytes: u64) -> Result<(), LogError> {
        let options = &self.topic.options;
        let start_ns = self.topic.clock.mono_ns();
        let until_ns = start_ns.saturating_add(nanos(options.ack_timeout));
        loop {
            let now_ns = self.topic.clock.mono_ns();
            let mut unresolved = self.in_flight.lock();
            unresolved.retain(|(due_ns, _)| *due_ns > now_ns);
            let used_bytes: u64 = unresolved.iter().map(|(_, bytes)| bytes).sum();
            if used_bytes.saturating_add(record_bytes) <= options.in_flight_bytes_max {
                return Ok(());
            }
            let next_ns = unresolved.iter().map(|(due_ns, _)| *due_ns).min();
            drop(unresolved);
            match next_ns.filter(|next_ns| *next_ns <= until_ns) {
                Some(next_ns) => self.topic.sleep_until(next_ns),
                None => {
                    let bytes_max = options.in_flight_bytes_max;
                    let what = "the queue of appends";
                    return Err(LogError::Full { what, used_bytes, bytes_max, record_bytes });
                }
            }
        }
    }

    fn queue(&self, partition: PartitionId, value: Bytes) -> Result<Ticket, LogError> {
        let options = &self.topic.options;
        if value.len() > options.record_bytes_max {
            let record_bytes_max = options.record_bytes_max;
            return Err(LogError::TooLarge { record_bytes: value.len(), record_bytes_max });
        }
        self.take_room(value.len() as u64)?;
        let mut broker = self.topic.settled();
        broker.check_identity(self.identity)?;
        broker.check_partition(partition)?;
        let bytes = value.len();
        let now_ns = self.topic.clock.mono_ns();
        let timing = fate::Timing { now_ns, timeout_ns: nanos(options.ack_timeout) };
        let fate = broker.draw_fate(partition, options.faults, timing);
        let sent = broker.send(partition, value, &fate);
        drop(broker);
        self.in_flight.lock().push((fate.resolved_ns, bytes as u64));
        Ok(Ticket::new(SimTicket {
            topic: self.topic.clone(),
            identity: self.identity,
            counters: self.counters.clone(),
            partition,
            fate,
            sent,
            bytes,
        }))
    }

    fn read_settled(
        &self,
        partition: PartitionId,
        from: u64,
        limits: ReadLimits,
    ) -> Result<Vec<Record>, LogError> {
        let until_ns = self.topic.clock.mono_ns().saturating_add(nanos(limits.wait));
        loop {
            let broker = self.topic.settled();
            broker.check_identity(self.identity)?;
            broker.draw_read_fault(self.topic.options.faults)?;
            let records = broker.read(partition, from, limits.bytes_max, self.topic.options.faults)?;
            let next_ns = broker.next_arrival_ns();
            drop(broker);
            let now_ns = self.topic.clock.mono_ns();
            if !records.is_empty() || now_ns >= until_ns {
                return Ok(records);
            }
            self.topic.sleep_until(next_ns.unwrap_or(until_ns).min(until_ns));
        }
    }
}

impl ReplicatedLog for SimLog {
    fn identity(&self) -> TopicId {
        self.identity
    }

    fn partition_count(&self) -> Result<u32, LogError> {
        let broker = self.topic.settled();
        broker.check_reachable()?;
        broker.check_identity(self.identity)?;
        Ok(broker.partition_count())
    }

    fn append(&self, partition: PartitionId, value: Bytes) -> Result<Ticket, LogError> {
        let bytes = value.len();
        let queued = self.queue(partition, value);
        if queued.is_err() {
            self.counters.note_append(bytes, &queued);
        }
        queued
    }

    fn read(&self, partition: PartitionId, from: u64, limits: ReadLimits) -> Result<Vec<Record>, LogError> {
        let read = self.read_settled(partition, from, limits);
        self.counters.note_read(&read);
        read
    }

    fn bounds(&self, partition: PartitionId) -> Result<Bounds, LogError> {
        let broker = self.topic.settled();
        broker.check_identity(self.identity)?;
        broker.bounds(partition)
    }

    fn stats(&self) -> LogStats {
        let now_ns = self.topic.clock.mono_ns();
        let unresolved = self.in_flight.lock();
        let in_flight_bytes = unresolved.iter().filter(|(due_ns, _)| *due_ns > now_ns).map(|(_, b)| b).sum();
        let in_flight_bytes_max = self.topic.options.in_flight_bytes_max;
        LogStats { in_flight_bytes, in_flight_bytes_max, ..self.counters.stats() }
    }
}

/// Append whose outcome is due at a known time.
struct SimTicket {
    topic: SimTopic,
    identity: TopicId,
    counters: Arc<Counters>,
    partition: PartitionId,
    fate: Fate,
    sent: SentRecord,
    bytes: usize,
}

impl PendingAppend for SimTicket {
    fn is_resolved(&mut self) -> bool {
        self.topic.clock.mono_ns() >= self.fate.resolved_ns
    }

    fn wait(self: Box<Self>) -> Result<Position, LogError> {
        while self.topic.clock.mono_ns() < self.fate.resolved_ns {
            self.topic.sleep_until(self.fate.resolved_ns);
        }
        let identity = self.topic.settled().identity();
        let partition = self.partition;
        let within = self.topic.options.ack_timeout;
        let possibly = |why: &str| LogError::PossiblyWritten { partition, within, why: why.to_owned() };
        let result = match self.fate.resolution {
            Resolution::Acknowledged => match self.sent.offset() {
                Some(offset) => Ok(Position { topic: self.identity, partition, offset }),
                None if identity == self.identity => Err(possibly("the broker lost the record")),
                None => Err(broker::replaced(self.identity, identity)),
            },
            Resolution::TimedOut => Err(possibly("no answer")),
            Resolution::NotSent => {
                let why = "earlier records of the partition were not acknowledged".to_owned();
                Err(LogError::NotWritten { partition, why })
            }
            Resolution::Refused => {
                Err(LogError::NotWritten { partition, why: "the broker refused it".to_owned() })
            }
        };
        self.counters.note_append(self.bytes, &result);
        result
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
