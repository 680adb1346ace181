//! Ticket of an append over a client.
//!
//! Invariant: an acknowledged record is in the topic that was opened.

use std::sync::Arc;
use std::time::Duration;

use super::client::{Client, Delivery};
use super::failed_append::FailedAppend;
use super::topic::Topic;
use crate::error::LogError;
use crate::position::Position;
use crate::stats::Counters;
use crate::ticket::{PendingAppend, Ticket};

/// Beyond the timeout of the clients, which look for records over it once per second.
const OUTCOME_GRACE: Duration = Duration::from_secs(2);

/// Append that the client has queued.
pub(super) struct KafkaTicket<C: Client> {
    topic: Arc<Topic<C>>,
    delivery: C::Delivery,
    append: FailedAppend,
    counters: Arc<Counters>,
}

impl<C: Client> KafkaTicket<C> {
    /// Returns the ticket of an append that was queued.
    pub(super) fn issue(
        topic: &Arc<Topic<C>>,
        delivery: C::Delivery,
        append: FailedAppend,
        counters: &Arc<Counters>,
    ) -> Ticket {
        let topic = topic.clone();
        let counters = counters.clone();
        Ticket::new(KafkaTicket { topic, delivery, append, counters })
    }

    fn finish(&mut self) -> Result<Position, LogError> {
        match self.delivery.wait(self.append.ack_timeout + OUTCOME_GRACE) {
            None => Err(self.append.possibly_written("no outcome from the client".to_owned())),
            Some(Ok(offset)) => self.confirm(offset),
            Some(Err(error)) => Err(self.explain(error)),
        }
    }

    /// Returns the error of an append, after a look if the topic has still its identity.
    fn explain(&self, error: LogError) -> LogError {
        if let Err(replaced @ LogError::TopicReplaced { .. }) =
            self.topic.check_identity_within(C::READ_LOOK_AGE)
        {
            return replaced;
        }
        let LogError::TooLarge { record_bytes, record_bytes_max } = error else { return error };
        // The limit of the topic was lowered after the log was opened.
        let record_bytes_max = record_bytes_max.min(self.topic.record_bytes_max());
        LogError::TooLarge { record_bytes, record_bytes_max }
    }

    /// Returns the position of an acknowledged record, if it is in the topic that was opened. The broker may
    /// have recognised a repeat without knowing its offset any more: then one after it.
    fn confirm(&self, offset: Option<u64>) -> Result<Position, LogError> {
        let partition = self.append.partition;
        let confirmed = self.topic.check_identity_within(C::APPEND_LOOK_AGE).and_then(|()| match offset {
            Some(offset) => Ok(offset),
            None => Ok(self.topic.bounds(partition)?.end),
        });
        match confirmed {
            Ok(offset) => Ok(Position { topic: self.topic.identity(), partition, offset }),
            Err(replaced @ LogError::TopicReplaced { .. }) => Err(replaced),
            // The record was acknowledged, so the error of a question would be the wrong one.
            Err(error) => Err(self.append.possibly_written(error.to_string())),
        }
    }
}

impl<C: Client> PendingAppend for KafkaTicket<C> {
    fn is_resolved(&mut self) -> bool {
        self.delivery.is_resolved()
    }

    fn wait(mut self: Box<Self>) -> Result<Position, LogError> {
        let result = self.finish();
        self.counters.note_append(self.append.record_bytes, &result);
        result
    }
}
