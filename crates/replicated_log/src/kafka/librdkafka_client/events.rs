//! Events of the library's clients: errors of connections, outcomes of appends, tokens, lines of its log.
//!
//! Invariant: nothing here waits; these functions run on the thread that polls a client.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rdkafka::client::{ClientContext, OAuthToken};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::producer::{DeliveryResult, ProducerContext};
use rdkafka::statistics::Statistics;

use super::connection_errors::ConnectionErrors;
use super::failure;
use super::native;
use super::queued::Queued;
use super::security::TokenFile;

/// Bytes in the queue of a consumer, a part of the sum over all of them.
pub(super) struct QueueBytes {
    own: AtomicU64,
    sum: Arc<AtomicU64>,
}

impl QueueBytes {
    /// Returns the bytes of an empty queue.
    pub(super) fn new(sum: Arc<AtomicU64>) -> QueueBytes {
        QueueBytes { own: AtomicU64::new(0), sum }
    }

    fn set(&self, bytes: u64) {
        let before = self.own.swap(bytes, Ordering::Relaxed);
        self.sum.fetch_add(bytes, Ordering::Relaxed);
        self.sum.fetch_sub(before, Ordering::Relaxed);
    }
}

impl Drop for QueueBytes {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Receiver of the events of one client.
pub(super) struct Events {
    pub(super) errors: Arc<ConnectionErrors>,
    pub(super) token: Option<Arc<TokenFile>>,
    pub(super) brokers: String,
    /// `None` for a producer and an administrator.
    pub(super) queue_bytes: Option<QueueBytes>,
}

impl ClientContext for Events {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        match level {
            RDKafkaLogLevel::Emerg
            | RDKafkaLogLevel::Alert
            | RDKafkaLogLevel::Critical
            | RDKafkaLogLevel::Error => tracing::warn!(facility, "librdkafka: {line}"),
            _ => tracing::debug!(facility, "librdkafka: {line}"),
        }
    }

    fn stats(&self, statistics: Statistics) {
        let Some(queue_bytes) = &self.queue_bytes else { return };
        let partitions = statistics.topics.values().flat_map(|topic| topic.partitions.values());
        queue_bytes.set(partitions.map(|partition| partition.fetchq_size).sum());
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.errors.note(failure::code(&error), reason);
    }

    fn generate_oauth_token(&self, _: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        let file = self.token.as_ref().ok_or("this client has no token")?;
        Ok(file.read()?)
    }
}

impl ProducerContext for Events {
    type DeliveryOpaque = Box<Queued>;

    fn delivery(&self, result: &DeliveryResult<'_>, queued: Box<Queued>) {
        match result {
            Ok(message) => {
                self.errors.note_success();
                queued.acknowledge(message.offset());
            }
            Err((error, message)) => {
                let is_not_written = native::is_not_written(message);
                let reason = self.errors.reason();
                let code = failure::code(error);
                let error = queued.append.after_queue(code, is_not_written, reason.as_deref(), &self.brokers);
                queued.fail(error);
            }
        }
    }
}

impl ConsumerContext for Events {}
