//! Appends: records in the queue of the producer, and their tickets.
//!
//! Invariant: a ticket resolves within the acknowledgement timeout, some seconds more where brokers do not
//! answer the question for the identity of the topic.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::producer::BaseRecord;

use super::failure;
use super::queued::{OFFSET_UNKNOWN, Queued};
use super::topic::{APPEND_IDENTITY_AGE, IDENTITY_AGE, Topic, partition_number};
use crate::error::LogError;
use crate::in_flight::InFlightPermit;
use crate::kafka::failed_append::FailedAppend;
use crate::position::{PartitionId, Position};
use crate::stats::Counters;
use crate::ticket::{Outcome, PendingAppend, Ticket};

/// Beyond the timeout of the library, which looks for records over it once per second.
const OUTCOME_GRACE: Duration = Duration::from_secs(2);

/// Queue of records in front of the producer.
pub(super) struct Appender {
    topic: Arc<Topic>,
    ack_timeout: Duration,
    record_bytes_max: usize,
}

impl Appender {
    /// Returns a queue for records of at most `record_bytes_max`.
    pub(super) fn new(topic: Arc<Topic>, ack_timeout: Duration, record_bytes_max: usize) -> Appender {
        Appender { topic, ack_timeout, record_bytes_max }
    }

    /// Checks the size of a record against the limits of settings and topic.
    ///
    /// # Errors
    /// [`LogError::TooLarge`].
    pub(super) fn check_size(&self, record_bytes: usize) -> Result<(), LogError> {
        let record_bytes_max = self.record_bytes_max;
        if record_bytes > record_bytes_max {
            return Err(LogError::TooLarge { record_bytes, record_bytes_max });
        }
        Ok(())
    }

    /// Queues a record after those that were queued before.
    ///
    /// # Errors
    /// [`LogError`]: it was not queued.
    pub(super) fn queue(
        &self,
        partition: PartitionId,
        value: &Bytes,
        permit: InFlightPermit,
        counters: Arc<Counters>,
    ) -> Result<Ticket, LogError> {
        let topic = &self.topic;
        let failed = FailedAppend {
            partition,
            ack_timeout: self.ack_timeout,
            record_bytes: value.len(),
            record_bytes_max: self.record_bytes_max,
        };
        let outcome = Arc::<Outcome>::default();
        let queued = Box::new(Queued {
            topic: topic.identity(),
            failed,
            acked_ends: topic.acked_ends.clone(),
            outcome: outcome.clone(),
            permit,
        });
        if let Err((code, queued)) = self.send(partition, value, queued) {
            if !failure::is_of_topic(code) {
                return Err(failed.before_queue(code));
            }
            // The library may not know of a partition that was added since it looked last.
            topic.connection.refresh(&topic.name, topic.call_timeout / 2);
            if let Err((code, _)) = self.send(partition, value, queued) {
                topic.check_identity_within(IDENTITY_AGE)?;
                return Err(failed.before_queue(code));
            }
        }
        Ok(Ticket::new(LibrdkafkaTicket { topic: topic.clone(), outcome, failed, counters }))
    }

    /// Gives the library a copy of the value; it takes the state over, or returns it with the error.
    fn send(
        &self,
        partition: PartitionId,
        value: &Bytes,
        queued: Box<Queued>,
    ) -> Result<(), (Code, Box<Queued>)> {
        let producer = match self.topic.connection.producer_of_append() {
            Ok(producer) => producer,
            Err(error) => {
                tracing::warn!(%error, "no producer of a replicated log");
                return Err((Code::Fatal, queued));
            }
        };
        let record: BaseRecord<'_, (), [u8], Box<Queued>> =
            BaseRecord::with_opaque_to(&self.topic.name, queued)
                .partition(partition_number(partition))
                .payload(value);
        producer.send(record).map_err(|(error, record)| (failure::code(&error), record.delivery_opaque))
    }
}

/// Append that the library has queued.
struct LibrdkafkaTicket {
    topic: Arc<Topic>,
    outcome: Arc<Outcome>,
    failed: FailedAppend,
    counters: Arc<Counters>,
}

impl LibrdkafkaTicket {
    fn finish(&self) -> Result<Position, LogError> {
        let within = self.failed.ack_timeout + OUTCOME_GRACE;
        match self.outcome.wait(within) {
            None => Err(self.failed.possibly_written("no outcome from the client".to_owned())),
            Some(Ok(position)) => self.confirm(position),
            Some(Err(error)) => {
                if let Err(replaced @ LogError::TopicReplaced { .. }) =
                    self.topic.check_identity_within(IDENTITY_AGE)
                {
                    return Err(replaced);
                }
                Err(error)
            }
        }
    }

    /// Returns the position of an acknowledged record, if it is in the topic that was opened. The broker may
    /// have recognised a repeat without knowing its offset any more: then one after it.
    fn confirm(&self, position: Position) -> Result<Position, LogError> {
        match self.topic.check_identity_within(APPEND_IDENTITY_AGE) {
            Ok(()) => {}
            Err(replaced @ LogError::TopicReplaced { .. }) => return Err(replaced),
            // An offset went back, and no broker knows if the topic is the same.
            Err(error) => return Err(self.failed.possibly_written(error.to_string())),
        }
        if position.offset != OFFSET_UNKNOWN {
            return Ok(position);
        }
        let offset = self.topic.bounds(position.partition)?.end;
        Ok(Position { offset, ..position })
    }
}

impl PendingAppend for LibrdkafkaTicket {
    fn is_resolved(&mut self) -> bool {
        self.outcome.is_resolved()
    }

    fn wait(self: Box<Self>) -> Result<Position, LogError> {
        let result = self.finish();
        self.counters.note_append(self.failed.record_bytes, &result);
        result
    }
}
