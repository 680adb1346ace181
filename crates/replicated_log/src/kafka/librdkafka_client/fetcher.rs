//! Reader of one partition: a consumer.
//!
//! Invariants: a consumer that reads on is left alone, and moved only if the offset is not the next one; an
//! error that came after records is returned by the next poll, not lost.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::Clock;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::{Offset, TopicPartitionList};

use super::connection::Connection;
use super::events::Events;
use super::failure;
use crate::error::LogError;
use crate::kafka::client::{Failure, Fetcher, offset, partition_number};
use crate::position::{PartitionId, Record};

/// Records of one poll.
const RECORDS_MAX: usize = 10_000;
/// Longest wait until a consumer is at another offset.
const SEEK_WITHIN: Duration = Duration::from_secs(2);

/// Reader of one partition.
pub struct LibrdkafkaFetcher {
    connection: Arc<Connection>,
    consumer: BaseConsumer<Events>,
    topic: String,
    partition: PartitionId,
    clock: Arc<dyn Clock>,
    is_assigned: bool,
    /// Error that came after the records of the last poll.
    pending: Option<Failure>,
}

impl LibrdkafkaFetcher {
    /// Returns a reader without an offset.
    pub(super) fn new(
        connection: Arc<Connection>,
        consumer: BaseConsumer<Events>,
        topic: String,
        partition: PartitionId,
        clock: Arc<dyn Clock>,
    ) -> LibrdkafkaFetcher {
        LibrdkafkaFetcher { connection, consumer, topic, partition, clock, is_assigned: false, pending: None }
    }

    /// Words an error of a consumer; `None` for errors of connections and of the group, which no client
    /// joins: the library goes on by itself.
    fn failed(&self, error: &KafkaError) -> Option<Failure> {
        match failure::code(error) {
            Code::LeaderNotAvailable | Code::NotLeaderForPartition => None,
            code @ (Code::AutoOffsetReset
            | Code::OffsetOutOfRange
            | Code::TopicAuthorizationFailed
            | Code::BadMessage
            | Code::InvalidMessage
            | Code::Fatal) => Some(self.connection.failed(code)),
            code if failure::is_of_topic(code) => Some(self.connection.failed(code)),
            _ => None,
        }
    }
}

impl Fetcher for LibrdkafkaFetcher {
    /// Moves the consumer. A seek fails while the library looks for the leader: then the partition is
    /// assigned again.
    fn seek(&mut self, offset: u64) -> Result<(), LogError> {
        self.pending = None;
        let number = partition_number(self.partition);
        let at = Offset::Offset(i64::try_from(offset).unwrap_or(i64::MAX));
        if self.is_assigned && self.consumer.seek(&self.topic, number, at, SEEK_WITHIN).is_ok() {
            return Ok(());
        }
        let mut partitions = TopicPartitionList::new();
        let added = partitions.add_partition_offset(&self.topic, number, at);
        let assigned = added.and_then(|()| self.consumer.assign(&partitions));
        self.is_assigned = assigned.is_ok();
        assigned.map_err(|error| {
            let brokers = &self.connection.brokers;
            LogError::Unavailable { why: format!("{brokers}: {error}") }
        })
    }

    fn poll(&mut self, wait: Duration, bytes_max: usize) -> Result<Vec<Record>, Failure> {
        if let Some(failure) = self.pending.take() {
            return Err(failure);
        }
        let start_ns = self.clock.mono_ns();
        let mut records: Vec<Record> = Vec::new();
        let mut bytes: usize = 0;
        while records.len() < RECORDS_MAX && (records.is_empty() || bytes < bytes_max) {
            let waited = Duration::from_nanos(self.clock.mono_ns().saturating_sub(start_ns));
            let is_first = records.is_empty();
            let left = if is_first { wait.saturating_sub(waited) } else { Duration::ZERO };
            match self.consumer.poll(left) {
                None if is_first && waited < wait => {}
                None => break,
                Some(Ok(message)) => {
                    let record = record(&message);
                    bytes = bytes.saturating_add(record.value.len());
                    records.push(record);
                }
                Some(Err(error)) => match self.failed(&error) {
                    None if waited < wait => {}
                    None => break,
                    Some(failure) if is_first => return Err(failure),
                    Some(failure) => {
                        self.pending = Some(failure);
                        break;
                    }
                },
            }
        }
        Ok(records)
    }
}

fn record(message: &BorrowedMessage<'_>) -> Record {
    Record {
        offset: offset(message.offset()),
        timestamp_ms: message.timestamp().to_millis().unwrap_or(0),
        value: message.payload().map(Bytes::copy_from_slice).unwrap_or_default(),
    }
}
