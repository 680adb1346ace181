//! Appends: one idempotent producer, made again after an error that ends it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use krafka::producer::{Acks, DeliveryHandle, Producer, RecordMetadata};
use krafka::{CloseOptions, KrafkaError, Record};
use parking_lot::Mutex;

use super::connection::Connection;
use crate::error::LogError;
use crate::in_flight::InFlightPermit;
use crate::kafka::client::{Closing, Delivery, Failure, offset, partition_number};
use crate::kafka::failed_append::FailedAppend;
use crate::kafka::settings::{Compression, KafkaSettings};

/// The producer in use; `None` before the first one, and after an error that ended it.
type Current = Arc<Mutex<Option<Arc<Producer>>>>;

/// Queue of records in front of the producer.
pub(super) struct Appender {
    connection: Arc<Connection>,
    settings: KafkaSettings,
    current: Current,
}

impl Appender {
    /// Returns a queue whose producer is not started.
    pub(super) fn new(connection: Arc<Connection>, settings: &KafkaSettings) -> Appender {
        Appender { connection, settings: settings.clone(), current: Current::default() }
    }

    /// Starts the producer.
    ///
    /// # Errors
    /// [`LogError`] of connection and rights.
    pub(super) fn start(&self, within: Duration) -> Result<(), LogError> {
        let building = build(&self.connection, &self.settings);
        let producer = self.connection.call(within, building).map_err(|failure| failure.error)?;
        *self.current.lock() = Some(Arc::new(producer));
        Ok(())
    }

    /// Queues a record after those that were queued before.
    ///
    /// # Errors
    /// [`Failure`]: it was not queued.
    pub(super) fn enqueue(
        &self,
        value: Bytes,
        append: FailedAppend,
        permit: InFlightPermit,
    ) -> Result<KrafkaDelivery, Failure> {
        let Connection { runtime, brokers, .. } = &*self.connection;
        let producer = self.producer().map_err(|error| append.before_queue(&error, brokers))?;
        let topic = self.settings.address.topic.clone();
        let record = Record::new(topic, value).partition(partition_number(append.partition));
        let queued = runtime.block_on(producer.enqueue(record));
        let handle = queued.map_err(|error| {
            retire_if_ended(&self.current, &producer, &error);
            append.before_queue(&error, brokers)
        })?;
        Ok(KrafkaDelivery {
            connection: self.connection.clone(),
            handle,
            outcome: None,
            append,
            current: self.current.clone(),
            producer,
            _permit: permit,
        })
    }

    /// Returns the producer, and starts one if there is none.
    fn producer(&self) -> Result<Arc<Producer>, KrafkaError> {
        if let Some(producer) = self.current.lock().clone() {
            return Ok(producer);
        }
        let within = self.settings.ack_timeout;
        let building = build(&self.connection, &self.settings);
        let started = self
            .connection
            .runtime
            .block_on(async { tokio::time::timeout(within, building).await })
            .unwrap_or_else(|_| Err(KrafkaError::timeout("starting a producer")))?;
        // Another thread may have been faster; then its producer is used and this one is closed by its drop.
        let mut current = self.current.lock();
        Ok(current.get_or_insert_with(|| Arc::new(started)).clone())
    }

    /// Returns the work that ends the producer once everything queued has its outcome, at most within
    /// `within`.
    pub(super) fn close(&self, within: Duration) -> Closing {
        let producer = self.current.lock().take();
        let runtime = self.connection.runtime.clone();
        Box::new(move || {
            if let Some(producer) = producer
                && let Err(error) = runtime.block_on(producer.close_with(CloseOptions::new().timeout(within)))
            {
                tracing::warn!(%error, "closing the producer of a replicated log failed");
            }
        })
    }
}

async fn build(connection: &Connection, settings: &KafkaSettings) -> Result<Producer, KrafkaError> {
    let in_flight_bytes_max = usize::try_from(settings.in_flight_bytes_max).unwrap_or(usize::MAX);
    let compression = match settings.compression {
        Compression::None => krafka::Compression::None,
        Compression::Zstd => krafka::Compression::Zstd,
    };
    connection
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
pub struct KrafkaDelivery {
    connection: Arc<Connection>,
    handle: DeliveryHandle,
    /// Set once the handle has returned it.
    outcome: Option<Result<RecordMetadata, KrafkaError>>,
    append: FailedAppend,
    current: Current,
    producer: Arc<Producer>,
    _permit: InFlightPermit,
}

impl KrafkaDelivery {
    fn outcome(&mut self, within: Duration) -> Option<Result<RecordMetadata, KrafkaError>> {
        if let Some(outcome) = self.outcome.take() {
            return Some(outcome);
        }
        let handle = &mut self.handle;
        self.connection.runtime.block_on(async { tokio::time::timeout(within, handle).await.ok() })
    }
}

impl Delivery for KrafkaDelivery {
    fn is_resolved(&mut self) -> bool {
        if self.outcome.is_none() {
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(outcome) = Pin::new(&mut self.handle).poll(&mut context) {
                self.outcome = Some(outcome);
            }
        }
        self.outcome.is_some()
    }

    fn wait(&mut self, within: Duration) -> Option<Result<Option<u64>, LogError>> {
        Some(match self.outcome(within)? {
            Ok(metadata) => Ok(metadata.is_success().then(|| offset(metadata.offset))),
            Err(error) => {
                retire_if_ended(&self.current, &self.producer, &error);
                Err(self.append.after_queue(&error, &self.connection.brokers))
            }
        })
    }
}
