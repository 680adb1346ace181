//! Reads: a consumer without a group per partition, for the partitions that were read last.
//!
//! Invariants: buffers are bounded by readers and bytes of a fetch; a reader returns records of the topic
//! that was opened alone, from the offset that was asked for on; an empty answer was compared with the
//! bounds, so that a reader that gets nothing does not look like one at the end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use krafka::consumer::{AutoOffsetReset, Consumer, ConsumerRecord};
use krafka::{CloseOptions, KrafkaError};
use tokio::runtime::Handle;

use super::topic::{Topic, offset, partition_number};
use crate::error::LogError;
use crate::kafka::recent_readers::{RecentReaders, SharedReader};
use crate::kafka::settings::KafkaSettings;
use crate::position::{PartitionId, ReadLimits, Record};

/// Records that a reader decodes at once.
const RECORDS_MAX: i32 = 500;
/// Bytes of a batch after decompression: a defence against batches of other programs.
const BATCH_BYTES_MAX: usize = 64 << 20;
/// Longest wait of the broker for one answer, so that a read that ends early is noticed.
const FETCH_WAIT_MAX: Duration = Duration::from_millis(500);
/// Wait for a consumer that is closed.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);
/// A shorter read may get nothing although there are records.
const MEANINGFUL_WAIT: Duration = Duration::from_millis(250);

/// Readers of the partitions that were read last.
pub(super) struct Readers {
    topic: Arc<Topic>,
    fetch_bytes_max: usize,
    fetch_wait: Duration,
    recent: RecentReaders<Reader>,
    buffer_bytes: Arc<AtomicU64>,
}

/// Reader of one partition.
struct Reader {
    consumer: Consumer,
    /// Offset that the consumer is at.
    next: u64,
    buffer: VecDeque<Record>,
    buffer_bytes: Arc<AtomicU64>,
    /// End of the partition when the last read at `next` got nothing.
    missed_end: Option<u64>,
}

impl Readers {
    /// Returns readers of no partition.
    pub(super) fn new(topic: Arc<Topic>, settings: &KafkaSettings, buffer_bytes: Arc<AtomicU64>) -> Readers {
        Readers {
            topic,
            fetch_bytes_max: settings.fetch_bytes_max,
            fetch_wait: FETCH_WAIT_MAX.min(settings.request_timeout() / 2),
            recent: RecentReaders::new(),
            buffer_bytes,
        }
    }

    /// Reads records from offset `from` on.
    ///
    /// # Errors
    /// As [`crate::ReplicatedLog::read`]; the reader begins again after an error.
    pub(super) fn read(
        &self,
        runtime: &Handle,
        partition: PartitionId,
        from: u64,
        limits: ReadLimits,
    ) -> Result<Vec<Record>, LogError> {
        self.topic.check_identity()?;
        let reader = self.reader(runtime, partition)?;
        let mut reader = reader.lock();
        let read = runtime.block_on(reader.read(&self.topic, partition, from, limits));
        if read.is_err() {
            reader.clear();
            self.recent.remove(partition);
        }
        read
    }

    /// Returns the reader of a partition; a new one may replace the least recently used one.
    fn reader(&self, runtime: &Handle, partition: PartitionId) -> Result<SharedReader<Reader>, LogError> {
        if let Some(reader) = self.recent.get(partition) {
            return Ok(reader);
        }
        let (reader, dropped) = self.recent.add(partition, runtime.block_on(self.start(partition))?);
        if let Some(dropped) = dropped {
            runtime.spawn(close(dropped));
        }
        Ok(reader)
    }

    async fn start(&self, partition: PartitionId) -> Result<Reader, LogError> {
        let fetch_bytes = i32::try_from(self.fetch_bytes_max).unwrap_or(i32::MAX);
        let kafka = &self.topic.client.kafka;
        let built = kafka
            .consumer_without_group()
            .auto_offset_reset(AutoOffsetReset::None)
            .enable_auto_commit(false)
            .fetch_max_bytes(fetch_bytes)
            .max_partition_fetch_bytes(fetch_bytes)
            .fetch_max_wait(self.fetch_wait)
            .max_poll_records(RECORDS_MAX)
            .max_buffered_records(RECORDS_MAX)
            .max_decompressed_size(BATCH_BYTES_MAX)
            .metrics_push(false)
            .build()
            .await;
        let consumer = built.map_err(|error| self.topic.client.failed(&error))?;
        if let Err(error) = consumer.assign(&self.topic.name, vec![partition_number(partition)]).await {
            return Err(self.topic.failed(&error).await);
        }
        let buffer_bytes = self.buffer_bytes.clone();
        // No offset: the first read seeks.
        Ok(Reader { consumer, next: u64::MAX, buffer: VecDeque::new(), buffer_bytes, missed_end: None })
    }

    /// Ends all readers.
    pub(super) fn close(&self) -> impl Future<Output = ()> + Send + use<> {
        let used = self.recent.take_all();
        async move {
            for (_, reader) in used {
                close(reader).await;
            }
        }
    }
}

async fn close(reader: SharedReader<Reader>) {
    // A read that still runs has the last reference, and ends the consumer by its drop.
    let Some(reader) = Arc::into_inner(reader) else { return };
    let mut reader = reader.into_inner();
    reader.clear();
    let _ = reader.consumer.close_with(CloseOptions::new().timeout(CLOSE_WITHIN)).await;
}

impl Reader {
    async fn read(
        &mut self,
        topic: &Topic,
        partition: PartitionId,
        from: u64,
        limits: ReadLimits,
    ) -> Result<Vec<Record>, LogError> {
        let buffered = self.buffer.front().map_or(self.next, |record| record.offset);
        if buffered != from {
            self.clear();
            let position = i64::try_from(from).unwrap_or(i64::MAX);
            let sought = self.consumer.seek(&topic.name, partition_number(partition), position).await;
            sought.map_err(|error| topic.client.failed(&error))?;
            self.next = from;
        }
        if self.buffer.is_empty() {
            let polled = self.consumer.poll(limits.wait).await;
            let records = match polled {
                Ok(records) => records,
                Err(error) => return Err(self.explain(topic, partition, error).await),
            };
            topic.check_identity_of_requests().await?;
            if records.is_empty() {
                return self.compare_with_bounds(topic, partition, limits.wait).await;
            }
            self.missed_end = None;
            self.fill(partition, records)?;
        }
        Ok(self.take(limits.bytes_max))
    }

    fn fill(&mut self, partition: PartitionId, records: Vec<ConsumerRecord>) -> Result<(), LogError> {
        for record in records {
            let at = offset(record.offset);
            if at < self.next {
                // The client went back because the leader's log ends before the records it has read.
                let why = format!("partition {partition} went back from offset {} to {at}", self.next);
                return Err(LogError::Unavailable { why });
            }
            self.next = at.saturating_add(1);
            let value = record.value.unwrap_or(Bytes::new());
            self.buffer_bytes.fetch_add(value.len() as u64, Ordering::Relaxed);
            self.buffer.push_back(Record { offset: at, timestamp_ms: record.timestamp, value });
        }
        Ok(())
    }

    fn take(&mut self, bytes_max: usize) -> Vec<Record> {
        let mut left_bytes = bytes_max;
        let mut taken = Vec::new();
        while let Some(record) = self.buffer.front() {
            let bytes = record.value.len();
            if bytes > left_bytes && !taken.is_empty() {
                break;
            }
            left_bytes = left_bytes.saturating_sub(bytes);
            self.buffer_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
            taken.extend(self.buffer.pop_front());
        }
        taken
    }

    fn clear(&mut self) {
        let bytes: u64 = self.buffer.drain(..).map(|record| record.value.len() as u64).sum();
        self.buffer_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.missed_end = None;
    }

    /// Returns no records if there are none; an error where there should be some, because the client keeps
    /// errors of fetches to itself.
    async fn compare_with_bounds(
        &mut self,
        topic: &Topic,
        partition: PartitionId,
        waited: Duration,
    ) -> Result<Vec<Record>, LogError> {
        let bounds = topic.bounds(partition).await?;
        let offset = self.next;
        if offset < bounds.start || offset > bounds.end {
            return Err(LogError::OffsetOutOfRange { partition, offset, bounds });
        }
        if self.missed_end.is_some_and(|end| end > offset) {
            let why = format!(
                "partition {partition} has offsets up to {}, and reads from {offset} on return none: \
                 does this client have the right READ?",
                bounds.end
            );
            return Err(LogError::Unavailable { why });
        }
        self.missed_end = (waited >= MEANINGFUL_WAIT).then_some(bounds.end);
        Ok(Vec::new())
    }

    async fn explain(&self, topic: &Topic, partition: PartitionId, error: KrafkaError) -> LogError {
        if matches!(error, KrafkaError::NoOffset { .. }) {
            let offset = self.next;
            return match topic.bounds(partition).await {
                Ok(bounds) if offset < bounds.start || offset > bounds.end => {
                    LogError::OffsetOutOfRange { partition, offset, bounds }
                }
                Ok(_) => topic.client.failed(&error),
                Err(error) => error,
            };
        }
        topic.failed(&error).await
    }
}
