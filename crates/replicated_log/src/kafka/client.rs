//! The calls of a client of Kafka's protocol that the log is made of.
//!
//! Invariants, for every client: calls block, at most the time that they are given; one batch order per
//! partition, sent by an idempotent producer with `acks=all`; no text has a secret.
//! Not here: limits, identity of the topic, repeats of questions, positions (`topic`, `kafka_log`).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::Env;
use tokio::runtime::Handle;

use super::deadline::Deadline;
use super::failed_append::FailedAppend;
use super::settings::{KafkaSettings, NewTopic};
use crate::error::LogError;
use crate::in_flight::InFlightPermit;
use crate::position::{Bounds, PartitionId, Record, TopicId};

/// Blocking work that ends a client.
pub(super) type Closing = Box<dyn FnOnce() + Send>;

/// A topic as brokers describe it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Description {
    /// Zeros from brokers that know no ids.
    pub id: TopicId,
    pub partition_count: u32,
    /// True if each partition has a leader.
    pub has_leaders: bool,
}

/// Question of the caller of a client before it passes an error on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The topic may be missing, or another one.
    Topic,
    /// The leader of a partition changes: the same question may succeed a moment later.
    Leader,
    /// The offset of the reader is not in the log.
    Offset,
    /// Nothing.
    Other,
}

/// Error of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub cause: Cause,
    pub error: LogError,
}

impl From<LogError> for Failure {
    fn from(error: LogError) -> Failure {
        Failure { cause: Cause::Other, error }
    }
}

/// Time of a question: brokers that are down at the start are not waited for once no attempt can succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The log is opened.
    Start,
    /// The log is open; brokers that are down come back.
    Open,
}

/// A client of one topic.
pub trait Client: Send + Sync + Sized + 'static {
    /// Name for messages.
    const NAME: &'static str;
    /// Age of the identity at which an acknowledged append looks at it again.
    const APPEND_LOOK_AGE: Duration;
    /// Age of the identity at which a read, bounds or a failed append look at it again.
    const READ_LOOK_AGE: Duration;
    /// Further wait of a read that got nothing although there are records: a reader that was moved may wait
    /// for a connection.
    const REFETCH_WITHIN: Duration;

    /// Append that the client has queued.
    type Delivery: Delivery;
    /// Reader of one partition.
    type Fetcher: Fetcher;

    /// Connects to the first broker that answers, or begins to. Readers add the bytes that they have fetched
    /// and not returned to `read_buffer_bytes`.
    ///
    /// # Errors
    /// [`LogError`] by kind: brokers that cannot be reached, credentials, certificates, settings.
    fn connect(
        env: &Env,
        runtime: &Handle,
        settings: &KafkaSettings,
        read_buffer_bytes: &Arc<AtomicU64>,
        deadline: &Deadline,
    ) -> Result<Self, LogError>;

    /// Asks the brokers for the topic; `None` if there is none.
    ///
    /// # Errors
    /// [`LogError`] of connection and rights.
    fn describe(&self, within: Duration, phase: Phase) -> Result<Option<Description>, LogError>;

    /// Returns the topic as brokers described it some seconds ago at most.
    ///
    /// # Errors
    /// [`Failure`] of topic, connection and rights.
    fn recent_description(&self, within: Duration) -> Result<Description, Failure>;

    /// Creates the topic; another process may do so at the same time.
    ///
    /// # Errors
    /// [`LogError`] of connection and rights.
    fn create_topic(&self, wanted: NewTopic, within: Duration) -> Result<(), LogError>;

    /// Returns the setting of the topic with the limit of a batch; `None` if this client may not ask.
    fn batch_limit(&self, within: Duration) -> Option<String>;

    /// Starts the producer for a topic whose largest record has `record_bytes_max`.
    ///
    /// # Errors
    /// [`LogError`] of connection and rights.
    fn prepare_appends(&mut self, record_bytes_max: usize, within: Duration) -> Result<(), LogError>;

    /// Returns the identity of the topic that requests go to; `None` if no broker answers.
    fn identity_in_use(&self, within: Duration) -> Option<TopicId>;

    /// Returns how often an acknowledged offset went back, a sign of another topic; 0 where requests name the
    /// topic by its id.
    fn backward_count(&self) -> u64 {
        0
    }

    /// Asks the leader of a partition for its offsets.
    ///
    /// # Errors
    /// [`Failure`] of topic, leader, connection and rights.
    fn offsets(&self, partition: PartitionId, within: Duration) -> Result<Bounds, Failure>;

    /// Queues a record. The client keeps the permit while it keeps the record.
    ///
    /// # Errors
    /// [`Failure`]: the record was not queued.
    fn enqueue(
        &self,
        value: Bytes,
        append: FailedAppend,
        permit: InFlightPermit,
    ) -> Result<Self::Delivery, Failure>;

    /// Starts a reader of a partition.
    ///
    /// # Errors
    /// [`Failure`] of topic, connection and rights.
    fn start_fetcher(&self, partition: PartitionId) -> Result<Self::Fetcher, Failure>;

    /// Returns the time after which a reader that gets nothing although there are records has failed.
    fn starved_after(&self) -> Duration;

    /// Returns the work that ends the producer once everything queued has its outcome, at most within
    /// `within`.
    fn close(&self, within: Duration) -> Closing;
}

/// Append that a client has queued.
pub trait Delivery: Send + 'static {
    /// Returns true once the outcome is known, without waiting.
    fn is_resolved(&mut self) -> bool;

    /// Waits for the outcome; `None` if there is none within `within`. The offset of a record that is in the
    /// log is unknown if the broker recognised a repeat and knows it no more.
    fn wait(&mut self, within: Duration) -> Option<Result<Option<u64>, LogError>>;
}

/// Reader of one partition; ends in the background when it is dropped.
pub trait Fetcher: Send + 'static {
    /// Moves the reader: the next poll returns records from `offset` on.
    ///
    /// # Errors
    /// [`LogError`] of the connection.
    fn seek(&mut self, offset: u64) -> Result<(), LogError>;

    /// Returns the identity of the topic that polls go to; `None` if it is the one of the client.
    fn identity_in_use(&self) -> Option<TopicId> {
        None
    }

    /// Waits at most `wait` for a record. Returns it with further ones that are there, up to about
    /// `bytes_max`; none mean that none came.
    ///
    /// # Errors
    /// [`Failure`]; one that came after records is returned by the next poll.
    fn poll(&mut self, wait: Duration, bytes_max: usize) -> Result<Vec<Record>, Failure>;
}

/// Returns the number of a partition as the protocol has it.
pub(super) fn partition_number(partition: PartitionId) -> i32 {
    i32::try_from(partition.0).unwrap_or(i32::MAX)
}

/// Returns an offset of the protocol, in which negative ones mean none.
pub(super) fn offset(offset: i64) -> u64 {
    u64::try_from(offset).unwrap_or(0)
}
