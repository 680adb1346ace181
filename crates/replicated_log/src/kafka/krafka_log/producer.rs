//! Appends: one idempotent producer, made again after an error that ends it.
//!
//! Invariant: a ticket resolves within the acknowledgement timeout plus the wait for a connection.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use krafka::producer::{Acks, DeliveryHandle, Producer, RecordMetadata};
use krafka::{CloseOptions, KrafkaError, Record};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::topic::{Topic, offset, partition_number};
use crate::error::LogError;
use crate::in_flight::InFlightPermit;
use crate::kafka::failed_append::FailedAppend;
use crate::kafka::settings::{Compression, KafkaSettings};
use crate::position::{PartitionId, Position};
use crate::stats::Counters;
use crate::ticket::{PendingAppend, Ticket};

/// Beyond the timeout of the client: its timer looks once per second.
const OUTCOME_GRACE: Duration = Duration::from_secs(2);

/// The producer in use; `None` after an error that ended it.
type Current = Arc<Mutex<Option<Arc<Producer>>>>;

/// Queue of records in front of the producer.
pub(super) struct Appender {
    topic: Arc<Topic>,
    settings: KafkaSettings,
    record_bytes_max: usize,
    current: Current,
}

impl Appender {
    /// Starts the producer.
    ///
    /// # Errors
    /// [`LogError`] of the connection.
    pub(super) async fn start(
        topic: Arc<Topic>,
        settings: &KafkaSettings,
        record_bytes_max: usize,
    ) -> Result<Appender, LogError> {
        let started = start_producer(&topic, settings).await;
        let producer = started.map_err(|error| topic.client.failed(&error))?;
        let current = Arc::new(Mutex::new(Some(Arc::new(producer))));
        Ok(Appender { topic, settings: settings.clone(), record_bytes_max, current })
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
        runtime: &Handle,
        partition: PartitionId,
        value: Bytes,
        permit: InFlightPermit,
        counters: Arc<Counters>,
    ) -> Result<Ticket, LogError> {
        let failed = FailedAppend {
            partition,
            ack_timeout: self.settings.ack_timeout,
            record_bytes: value.len(),
            record_bytes_max: self.record_bytes_max,
        };
        let brokers = &self.topic.client.brokers;
        let producer = self.producer(runtime).map_err(|error| failed.before_queue(&error, brokers))?;
        let record = Record::new(self.topic.name.clone(), value).partition(partition_number(partition));
        let queued = runtime.block_on(producer.enqueue(record));
        let delivery = queued.map_err(|error| {
            retire_if_ended(&self.current, &producer, &error);
            failed.before_queue(&error, brokers)
        })?;
        Ok(Ticket::new(KafkaTicket {
            runtime: runtime.clone(),
            topic: self.topic.clone(),
            delivery,
            outcome: None,
            failed,
            current: self.current.clone(),
            producer,
            counters,
            _permit: permit,
        }))
    }

    /// Returns the producer, and starts one if there is none.
    fn producer(&self, runtime: &Handle) -> Result<Arc<Producer>, KrafkaError> {
        if let Some(producer) = self.current.lock().clone() {
            return Ok(producer);
        }
        let within = self.settings.ack_timeout;
        let starting = start_producer(&self.topic, &self.settings);
        let started = runtime
            .block_on(async { tokio::time::timeout(within, starting).await })
            .unwrap_or_else(|_| Err(KrafkaError::timeout("starting a producer")))?;
        // Another thread may have been faster; then its producer is used and this one is closed by its drop.
        let mut current = self.current.lock();
        Ok(current.get_or_insert_with(|| Arc::new(started)).clone())
    }

    /// Ends the producer once everything queued has its outcome, at most within `within`.
    pub(super) fn close(&self, within: Duration) -> impl Future<Output = ()> + Send + use<> {
        let producer = self.current.lock().take();
        async move {
            if let Some(producer) = producer
                && let Err(error) = producer.close_with(CloseOptions::new().timeout(within)).await
            {
                tracing::warn!(%error, "closing the producer of a replicated log failed");
            }
        }
    }
}

async fn start_producer(topic: &Topic, settings: &KafkaSettings) -> Result<Producer, KrafkaError> {
    let in_flight_bytes_max = usize::try_from(settings.in_flight_bytes_max).unwrap_or(usize::MAX);
    let compression = match settings.compression {
        Compression::None => krafka::Compression::None,
        Compression::Lz4 => krafka::Compression::Lz4,
        Compression::Zstd => krafka::Compression::Zstd,
    };
    topic
        .client
        .kafka
        .producer()
        .acks(Acks::All)
        .idempotent(true)
        .linger(settings.linger)
        .batch_size(settings.batch_bytes)
        .compression(compression)
        .delivery_timeout(settings.ack_timeout)
        .max_block(settings.ack_timeout)
        .buffer_memory(in_flight_bytes_max)
        .metrics_push(false)
        .build()
        .await
}

/// Drops a producer that an error has ended, so that the next append starts another one.
fn retire_if_ended(current: &Current, producer: &Arc<Producer>, error: &KrafkaError) {
    if !error.is_fatal() {
        return;
    }
    let mut current = current.lock();
    if current.as_ref().is_some_and(|used| Arc::ptr_eq(used, producer)) {
        tracing::warn!(%error, "the producer of a replicated log ended, the next append starts another one");
        *current = None;
    }
}

/// Append that the producer has queued.
struct KafkaTicket {
    runtime: Handle,
    topic: Arc<Topic>,
    delivery: DeliveryHandle,
    /// Set once the handle has returned it.
    outcome: Option<Result<RecordMetadata, KrafkaError>>,
    failed: FailedAppend,
    current: Current,
    producer: Arc<Producer>,
    counters: Arc<Counters>,
    _permit: InFlightPermit,
}

impl KafkaTicket {
    async fn finish(&mut self) -> Result<Position, LogError> {
        let within = self.failed.ack_timeout + OUTCOME_GRACE;
        let outcome = match self.outcome.take() {
            Some(outcome) => outcome,
            None => match tokio::time::timeout(within, &mut self.delivery).await {
                Ok(outcome) => outcome,
                Err(_) => return Err(self.failed.possibly_written("no outcome from the client".to_owned())),
            },
        };
        match outcome {
            Ok(metadata) => {
                self.topic.check_identity_now_and_then().await?;
                self.position(&metadata).await
            }
            Err(error) => {
                retire_if_ended(&self.current, &self.producer, &error);
                self.topic.check_identity_of_requests().await?;
                Err(self.failed.after_queue(&error, &self.topic.client.brokers))
            }
        }
    }

    /// Returns the position of a record that is in the log. The broker may have recognised a repeat without
    /// knowing its offset any more: then one after it.
    async fn position(&self, metadata: &RecordMetadata) -> Result<Position, LogError> {
        let partition = self.failed.partition;
        let offset = if metadata.is_success() {
            offset(metadata.offset)
        } else {
            self.topic.bounds(partition).await?.end
        };
        Ok(Position { topic: self.topic.identity(), partition, offset })
    }
}

impl PendingAppend for KafkaTicket {
    fn is_resolved(&mut self) -> bool {
        if self.outcome.is_none() {
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(outcome) = Pin::new(&mut self.delivery).poll(&mut context) {
                self.outcome = Some(outcome);
            }
        }
        self.outcome.is_some()
    }

    fn wait(mut self: Box<Self>) -> Result<Position, LogError> {
        let runtime = self.runtime.clone();
        let result = runtime.block_on(self.finish());
        self.counters.note_append(self.failed.record_bytes, &result);
        result
    }
}
