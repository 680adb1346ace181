//! Reads: a consumer per partition, for the partitions that were read last.
//!
//! Invariants: a consumer that reads on is left alone, and moved only if the offset is not the next one; an
//! error that came after records is returned by the next read, not lost; an empty answer was compared with
//! the bounds, so that a reader that gets nothing does not look like one at the end.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::{Offset, TopicPartitionList};

use super::events::Events;
use super::failure;
use super::topic::{IDENTITY_AGE, Topic, offset, partition_number};
use crate::error::LogError;
use crate::kafka::recent_readers::{RecentReaders, SharedReader};
use crate::position::{PartitionId, ReadLimits, Record};

/// Records of one read.
const RECORDS_MAX: usize = 10_000;
/// Longest wait for records that there are: a consumer that was moved may wait for a connection.
const FETCH_WITHIN: Duration = Duration::from_secs(2);
/// Longest wait until a consumer is at another offset.
const SEEK_WITHIN: Duration = Duration::from_secs(2);

/// Readers of the partitions that were read last.
pub(super) struct Readers {
    topic: Arc<Topic>,
    recent: RecentReaders<Reader>,
    queue_bytes: Arc<AtomicU64>,
}

/// Reader of one partition.
struct Reader {
    partition: PartitionId,
    consumer: BaseConsumer<Events>,
    /// Offset after the last record that was returned; `None` before the first read.
    next: Option<u64>,
    /// Record that did not fit in the last answer.
    held: Option<Record>,
    /// Error that came after the records of the last answer.
    pending: Option<LogError>,
    /// Time of the first of the reads that got nothing where there are records.
    starving_since_ns: Option<u64>,
}

impl Readers {
    /// Returns readers of no partition.
    pub(super) fn new(topic: Arc<Topic>, queue_bytes: Arc<AtomicU64>) -> Readers {
        Readers { topic, recent: RecentReaders::new(), queue_bytes }
    }

    /// Reads records from offset `from` on.
    ///
    /// # Errors
    /// As [`crate::ReplicatedLog::read`]; the reader begins again after an error.
    pub(super) fn read(
        &self,
        partition: PartitionId,
        from: u64,
        limits: ReadLimits,
    ) -> Result<Vec<Record>, LogError> {
        self.topic.check_identity()?;
        let reader = self.reader(partition)?;
        let read = reader.lock().read(&self.topic, from, limits);
        if read.is_err() {
            self.recent.remove(partition);
        }
        read
    }

    /// Returns the reader of a partition; a new one may replace the least recently used one.
    fn reader(&self, partition: PartitionId) -> Result<SharedReader<Reader>, LogError> {
        if let Some(reader) = self.recent.get(partition) {
            return Ok(reader);
        }
        let consumer = self.topic.connection.start_consumer(self.queue_bytes.clone())?;
        let reader =
            Reader { partition, consumer, next: None, held: None, pending: None, starving_since_ns: None };
        Ok(self.recent.add(partition, reader).0)
    }

    /// Ends all readers.
    pub(super) fn close(&self) {
        self.recent.take_all();
    }
}

impl Reader {
    fn read(&mut self, topic: &Topic, from: u64, limits: ReadLimits) -> Result<Vec<Record>, LogError> {
        if self.next != Some(from) {
            self.move_to(topic, from)?;
        }
        if let Some(error) = self.pending.take() {
            return Err(error);
        }
        let mut records = self.collect(topic, from, limits)?;
        if records.is_empty() && self.is_behind(topic, from)? {
            records = self.collect(topic, from, ReadLimits { wait: FETCH_WITHIN, ..limits })?;
        }
        let Some(last) = records.last() else { return self.check_starving(topic, from) };
        topic.check_identity_within(IDENTITY_AGE)?;
        self.next = Some(last.offset.saturating_add(1));
        self.starving_since_ns = None;
        Ok(records)
    }

    /// Moves the consumer to another offset. A seek fails while the library looks for the leader: then the
    /// partition is assigned again.
    fn move_to(&mut self, topic: &Topic, from: u64) -> Result<(), LogError> {
        self.held = None;
        self.pending = None;
        self.starving_since_ns = None;
        let number = partition_number(self.partition);
        let at = Offset::Offset(i64::try_from(from).unwrap_or(i64::MAX));
        let is_assigned = self.next.replace(from).is_some();
        if is_assigned && self.consumer.seek(&topic.name, number, at, SEEK_WITHIN).is_ok() {
            return Ok(());
        }
        let mut partitions = TopicPartitionList::new();
        let added = partitions.add_partition_offset(&topic.name, number, at);
        let assigned = added.and_then(|()| self.consumer.assign(&partitions));
        assigned.map_err(|error| {
            let brokers = &topic.connection.brokers;
            LogError::Unavailable { why: format!("{brokers}: {error}") }
        })
    }

    /// Takes records from the consumer: waits for the first one, and takes what else there is.
    fn collect(&mut self, topic: &Topic, from: u64, limits: ReadLimits) -> Result<Vec<Record>, LogError> {
        let start_ns = topic.clock.mono_ns();
        let mut records: Vec<Record> = self.held.take().into_iter().collect();
        let mut bytes: usize = records.iter().map(|record| record.value.len()).sum();
        while records.len() < RECORDS_MAX {
            let waited = Duration::from_nanos(topic.clock.mono_ns().saturating_sub(start_ns));
            let is_first = records.is_empty();
            let left = if is_first { limits.wait.saturating_sub(waited) } else { Duration::ZERO };
            let record = match self.consumer.poll(left) {
                None if is_first && waited < limits.wait => continue,
                None => break,
                Some(Ok(message)) => record(&message),
                Some(Err(error)) => match explain(topic, self.partition, from, &error) {
                    None if waited < limits.wait => continue,
                    None => break,
                    Some(error) if is_first => return Err(error),
                    Some(error) => {
                        self.pending = Some(error);
                        break;
                    }
                },
            };
            let expected = records.last().map_or(from, |last| last.offset.saturating_add(1));
            if record.offset < expected {
                // The leader's log ends before records that were read.
                let at = record.offset;
                let partition = self.partition;
                let why = format!("partition {partition} went back from offset {expected} to {at}");
                return Err(LogError::Unavailable { why });
            }
            bytes = bytes.saturating_add(record.value.len());
            if bytes > limits.bytes_max && !records.is_empty() {
                self.held = Some(record);
                break;
            }
            records.push(record);
        }
        Ok(records)
    }

    /// Returns true if the partition has records from `from` on.
    fn is_behind(&mut self, topic: &Topic, from: u64) -> Result<bool, LogError> {
        let partition = self.partition;
        let bounds = topic.bounds(partition)?;
        if from < bounds.start || from > bounds.end {
            return Err(LogError::OffsetOutOfRange { partition, offset: from, bounds });
        }
        if from == bounds.end {
            self.starving_since_ns = None;
            return Ok(false);
        }
        self.starving_since_ns.get_or_insert(topic.clock.mono_ns());
        Ok(true)
    }

    /// Returns no records; an error once there are some and none came for longer than the timeout of a call.
    fn check_starving(&self, topic: &Topic, from: u64) -> Result<Vec<Record>, LogError> {
        let now_ns = topic.clock.mono_ns();
        let since_ns = self.starving_since_ns.unwrap_or(now_ns);
        if Duration::from_nanos(now_ns.saturating_sub(since_ns)) > topic.call_timeout {
            let partition = self.partition;
            let why = format!("partition {partition} has records from {from} on, and reads return none");
            return Err(LogError::Unavailable { why });
        }
        Ok(Vec::new())
    }
}

fn record(message: &BorrowedMessage<'_>) -> Record {
    Record {
        offset: offset(message.offset()),
        timestamp_ms: message.timestamp().to_millis().unwrap_or(0),
        value: message.payload().map(Bytes::copy_from_slice).unwrap_or_default(),
    }
}

/// Words an error of a consumer; `None` for errors of connections and of the group, which no client joins:
/// the library goes on by itself.
fn explain(topic: &Topic, partition: PartitionId, from: u64, error: &KafkaError) -> Option<LogError> {
    let code = failure::code(error);
    match code {
        Code::AutoOffsetReset | Code::OffsetOutOfRange => Some(match topic.bounds(partition) {
            Ok(bounds) if from < bounds.start || from > bounds.end => {
                LogError::OffsetOutOfRange { partition, offset: from, bounds }
            }
            Ok(_) => topic.connection.failed(code),
            Err(error) => error,
        }),
        Code::TopicAuthorizationFailed | Code::BadMessage | Code::InvalidMessage | Code::Fatal => {
            Some(topic.connection.failed(code))
        }
        code if failure::is_of_topic(code) && code != Code::LeaderNotAvailable => Some(topic.failed(code)),
        _ => None,
    }
}
