//! Reader of one partition: a consumer without a group.
//!
//! Invariant: an answer of the broker is decoded in parts of [`RECORDS_MAX`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use krafka::consumer::{AutoOffsetReset, Consumer, ConsumerRecord};
use krafka::{CloseOptions, KrafkaError};

use super::connection::Connection;
use crate::error::LogError;
use crate::kafka::client::{Failure, Fetcher, offset, partition_number};
use crate::kafka::settings::KafkaSettings;
use crate::position::{PartitionId, Record, TopicId};

/// Records that a reader decodes at once.
const RECORDS_MAX: i32 = 500;
/// Bytes of a batch after decompression: a defence against batches of other programs.
const BATCH_BYTES_MAX: usize = 64 << 20;
/// Longest wait of the broker for one answer, so that a read that ends early is noticed.
const FETCH_WAIT_MAX: Duration = Duration::from_millis(500);
/// Wait for a consumer that is closed.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// Settings of readers.
pub(super) struct FetchOptions {
    topic: String,
    bytes_max: i32,
    wait: Duration,
    call_timeout: Duration,
}

impl FetchOptions {
    /// Returns the readers' part of the settings.
    pub(super) fn new(settings: &KafkaSettings) -> FetchOptions {
        FetchOptions {
            topic: settings.address.topic.clone(),
            bytes_max: i32::try_from(settings.fetch_bytes_max).unwrap_or(i32::MAX),
            wait: FETCH_WAIT_MAX.min(settings.request_timeout() / 2),
            call_timeout: settings.ack_timeout,
        }
    }
}

/// Reader of one partition.
pub struct KrafkaFetcher {
    connection: Arc<Connection>,
    topic: String,
    partition: PartitionId,
    call_timeout: Duration,
    /// `None` once it was dropped.
    consumer: Option<Consumer>,
}

impl KrafkaFetcher {
    /// Starts a reader without an offset: the first read seeks.
    ///
    /// # Errors
    /// [`Failure`] of topic and connection.
    pub(super) fn start(
        connection: &Arc<Connection>,
        options: &FetchOptions,
        partition: PartitionId,
    ) -> Result<KrafkaFetcher, Failure> {
        let kafka = connection.reading()?;
        let building = kafka
            .consumer_without_group()
            .auto_offset_reset(AutoOffsetReset::None)
            .enable_auto_commit(false)
            .fetch_max_bytes(options.bytes_max)
            .max_partition_fetch_bytes(options.bytes_max)
            .fetch_max_wait(options.wait)
            .max_poll_records(RECORDS_MAX)
            .max_buffered_records(RECORDS_MAX)
            .max_decompressed_size(BATCH_BYTES_MAX)
            .metrics_push(false)
            .build();
        let consumer = connection.call(options.call_timeout, building)?;
        let fetcher = KrafkaFetcher {
            connection: connection.clone(),
            topic: options.topic.clone(),
            partition,
            call_timeout: options.call_timeout,
            consumer: Some(consumer),
        };
        let assigning = fetcher.consumer().assign(&options.topic, vec![partition_number(partition)]);
        connection.call(options.call_timeout, assigning)?;
        Ok(fetcher)
    }

    async fn known_identity(&self) -> Result<Option<TopicId>, KrafkaError> {
        let known = self.consumer().fetch_metadata(None).await?;
        let topic = known.topics.into_iter().find(|topic| topic.name == self.topic);
        Ok(topic.map(|topic| TopicId(topic.topic_id)))
    }

    fn consumer(&self) -> &Consumer {
        self.consumer.as_ref().expect("there is a consumer until the drop")
    }
}

impl Fetcher for KrafkaFetcher {
    fn seek(&mut self, offset: u64) -> Result<(), LogError> {
        let position = i64::try_from(offset).unwrap_or(i64::MAX);
        let seeking = self.consumer().seek(&self.topic, partition_number(self.partition), position);
        self.connection.call(self.call_timeout, seeking).map_err(|failure| failure.error)
    }

    /// Reads what the consumer knows, without a request.
    fn identity_in_use(&self) -> Option<TopicId> {
        self.connection.call(self.call_timeout, self.known_identity()).ok().flatten()
    }

    fn poll(&mut self, wait: Duration, _: usize) -> Result<Vec<Record>, Failure> {
        let polled = self.connection.runtime.block_on(self.consumer().poll(wait));
        let records = polled.map_err(|error| self.connection.failed(&error))?;
        Ok(records.into_iter().map(record).collect())
    }
}

impl Drop for KrafkaFetcher {
    fn drop(&mut self) {
        if let Some(consumer) = self.consumer.take() {
            self.connection.runtime.spawn(close(consumer));
        }
    }
}

async fn close(consumer: Consumer) {
    if let Err(error) = consumer.close_with(CloseOptions::new().timeout(CLOSE_WITHIN)).await {
        tracing::debug!(%error, "closing a reader of a replicated log failed");
    }
}

fn record(record: ConsumerRecord) -> Record {
    Record {
        offset: offset(record.offset),
        timestamp_ms: record.timestamp,
        value: record.value.unwrap_or(Bytes::new()),
    }
}
