//! The log by the client `krafka`, in Rust (ADR 0133).
//!
//! Invariant: one batch per partition is on its way.
//! Not here: settings, ports that have TLS or none (`kafka`).

mod client;
mod failure;
mod producer;
mod reader;
mod security;
mod topic;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bytes::Bytes;
use chronolith_base::Env;
use tokio::runtime::Handle;

use crate::error::LogError;
use crate::in_flight::InFlight;
use crate::kafka::settings::KafkaSettings;
use crate::log::ReplicatedLog;
use crate::position::{Bounds, PartitionId, ReadLimits, Record, TopicId};
use crate::stats::{Counters, LogStats};
use crate::ticket::Ticket;
use client::Client;
use producer::Appender;
use reader::Readers;
use topic::Topic;

/// Replicated log of Kafka's protocol. Calls block and must come from threads that may: not from a task of
/// an async runtime.
pub struct KafkaLog {
    runtime: Handle,
    settings: KafkaSettings,
    topic: Arc<Topic>,
    partition_count: AtomicU32,
    appender: Appender,
    readers: Readers,
    in_flight: Arc<InFlight>,
    counters: Arc<Counters>,
    read_buffer_bytes: Arc<AtomicU64>,
}

impl KafkaLog {
    /// Connects to the brokers and finds the topic, or creates it if the settings say so. Returns within
    /// `open_timeout`.
    ///
    /// # Errors
    /// [`LogError`] by kind: brokers that cannot be reached, credentials, certificates, a missing topic,
    /// settings.
    pub fn open(env: &Env, runtime: &Handle, settings: KafkaSettings) -> Result<KafkaLog, LogError> {
        settings.check()?;
        let within = settings.open_timeout;
        let opening = KafkaLog::connect(env, runtime, settings.clone());
        let opened = runtime.block_on(async { tokio::time::timeout(within, opening).await });
        opened.unwrap_or_else(|_| {
            let why = format!("{} did not answer within {within:?}", settings.brokers());
            Err(LogError::Unavailable { why })
        })
    }

    async fn connect(env: &Env, runtime: &Handle, settings: KafkaSettings) -> Result<KafkaLog, LogError> {
        let client = Client::connect(env, &settings).await?;
        let (topic, found) = Topic::find(env, client, &settings).await?;
        let topic = Arc::new(topic);
        let in_flight = InFlight::new(settings.in_flight_bytes_max);
        let counters = Arc::new(Counters::default());
        let read_buffer_bytes = Arc::new(AtomicU64::new(0));
        let record_bytes_max = settings.record_bytes_max.min(found.record_bytes_max);
        let appender = Appender::start(topic.clone(), &settings, record_bytes_max).await?;
        let readers = Readers::new(topic.clone(), &settings, read_buffer_bytes.clone());
        tracing::info!(
            brokers = settings.brokers(),
            topic = settings.address.topic,
            id = %topic.identity(),
            partition_count = found.partition_count,
            record_bytes_max,
            "opened a replicated log"
        );
        Ok(KafkaLog {
            runtime: runtime.clone(),
            settings,
            topic,
            partition_count: AtomicU32::new(found.partition_count),
            appender,
            readers,
            in_flight,
            counters,
            read_buffer_bytes,
        })
    }

    /// Checks that the partition exists; partitions may have been added since the log was opened.
    fn check_partition(&self, partition: PartitionId) -> Result<(), LogError> {
        if partition.0 < self.partition_count.load(Ordering::Relaxed) {
            return Ok(());
        }
        let partition_count = self.partition_count()?;
        if partition.0 < partition_count {
            return Ok(());
        }
        Err(LogError::NoPartition { partition, partition_count })
    }

    fn queue(&self, partition: PartitionId, value: Bytes) -> Result<Ticket, LogError> {
        self.topic.check_identity()?;
        self.check_partition(partition)?;
        self.appender.check_size(value.len())?;
        let permit = self.in_flight.take(partition, value.len() as u64, self.settings.ack_timeout)?;
        self.appender.queue(&self.runtime, partition, value, permit, self.counters.clone())
    }
}

impl ReplicatedLog for KafkaLog {
    fn identity(&self) -> TopicId {
        self.topic.identity()
    }

    fn partition_count(&self) -> Result<u32, LogError> {
        let found = self.runtime.block_on(self.topic.partition_count())?;
        self.partition_count.store(found, Ordering::Relaxed);
        Ok(found)
    }

    fn append(&self, partition: PartitionId, value: Bytes) -> Result<Ticket, LogError> {
        let bytes = value.len();
        let queued = self.queue(partition, value);
        if queued.is_err() {
            self.counters.note_append(bytes, &queued);
        }
        queued
    }

    fn read(&self, partition: PartitionId, from: u64, limits: ReadLimits) -> Result<Vec<Record>, LogError> {
        let checked = self.check_partition(partition);
        let read = checked.and_then(|()| self.readers.read(&self.runtime, partition, from, limits));
        self.counters.note_read(&read);
        read
    }

    fn bounds(&self, partition: PartitionId) -> Result<Bounds, LogError> {
        self.check_partition(partition)?;
        self.runtime.block_on(self.topic.bounds(partition))
    }

    fn stats(&self) -> LogStats {
        LogStats {
            in_flight_bytes: self.in_flight.used_bytes(),
            in_flight_bytes_max: self.settings.in_flight_bytes_max,
            read_buffer_bytes: self.read_buffer_bytes.load(Ordering::Relaxed),
            ..self.counters.stats()
        }
    }
}

impl Drop for KafkaLog {
    /// Waits until everything queued has its outcome; on a thread of the runtime it does not wait.
    fn drop(&mut self) {
        let closing = self.appender.close(self.settings.ack_timeout);
        let readers = self.readers.close();
        let close = async {
            closing.await;
            readers.await;
        };
        if Handle::try_current().is_ok() {
            self.runtime.spawn(close);
        } else {
            self.runtime.block_on(close);
        }
    }
}

#[cfg(test)]
mod tests;
