//! The log over a client of Kafka's protocol.
//!
//! Not here: requests (`client`), the topic and its identity (`topic`), reads (`readers`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bytes::Bytes;
use chronolith_base::Env;
use tokio::runtime::Handle;

use super::client::{Cause, Client};
use super::deadline::Deadline;
use super::failed_append::FailedAppend;
use super::kafka_ticket::KafkaTicket;
use super::readers::Readers;
use super::settings::KafkaSettings;
use super::tls_probe;
use super::topic::{self, Topic};
use crate::error::LogError;
use crate::in_flight::InFlight;
use crate::log::ReplicatedLog;
use crate::position::{Bounds, PartitionId, ReadLimits, Record, TopicId};
use crate::stats::{Counters, LogStats};
use crate::ticket::Ticket;

/// Replicated log of Kafka's protocol. Calls block and must come from threads that may: not from a task of
/// an async runtime.
pub struct KafkaLog<C: Client> {
    runtime: Handle,
    settings: KafkaSettings,
    topic: Arc<Topic<C>>,
    partition_count: AtomicU32,
    /// Limit of settings and topic.
    record_bytes_max: usize,
    readers: Readers<C>,
    in_flight: Arc<InFlight>,
    counters: Arc<Counters>,
    read_buffer_bytes: Arc<AtomicU64>,
}

impl<C: Client> KafkaLog<C> {
    /// Connects to the brokers and finds the topic, or creates it if the settings say so. Returns within
    /// `open_timeout`.
    ///
    /// # Errors
    /// [`LogError`] by kind: brokers that cannot be reached, credentials, certificates, a missing topic,
    /// settings.
    pub fn open(env: &Env, runtime: &Handle, settings: KafkaSettings) -> Result<KafkaLog<C>, LogError> {
        settings.check()?;
        // Questions to ports about TLS have the rest.
        let probe_within = settings.connect_timeout().min(settings.open_timeout / 5);
        let deadline = Deadline::after(&env.clock, settings.open_timeout.saturating_sub(probe_within));
        match KafkaLog::connect(env, runtime, settings.clone(), &deadline) {
            Err(unavailable @ LogError::Unavailable { .. }) => {
                let brokers = &settings.address.brokers;
                let has_tls = settings.security.tls.is_some();
                let mismatch = tls_probe::find_mismatch(brokers, has_tls, probe_within);
                Err(runtime.block_on(mismatch).unwrap_or(unavailable))
            }
            opened => opened,
        }
    }

    fn connect(
        env: &Env,
        runtime: &Handle,
        settings: KafkaSettings,
        deadline: &Deadline,
    ) -> Result<KafkaLog<C>, LogError> {
        let read_buffer_bytes = Arc::new(AtomicU64::new(0));
        let client = C::connect(env, runtime, &settings, &read_buffer_bytes, deadline)?;
        KafkaLog::find_topic(env, runtime, settings, client, read_buffer_bytes, deadline)
    }

    fn find_topic(
        env: &Env,
        runtime: &Handle,
        settings: KafkaSettings,
        mut client: C,
        read_buffer_bytes: Arc<AtomicU64>,
        deadline: &Deadline,
    ) -> Result<KafkaLog<C>, LogError> {
        let found = topic::find(&client, &*env.clock, &settings, deadline)?;
        client.prepare_appends(found.record_bytes_max, deadline.left())?;
        let record_bytes_max = settings.record_bytes_max.min(found.record_bytes_max);
        let partition_count = found.description.partition_count;
        let topic = Arc::new(Topic::new(env, client, &settings, found.description.id));
        tracing::info!(
            brokers = settings.brokers(),
            topic = settings.address.topic,
            id = %topic.identity(),
            partition_count,
            record_bytes_max,
            client = C::NAME,
            "opened a replicated log"
        );
        Ok(KafkaLog {
            runtime: runtime.clone(),
            partition_count: AtomicU32::new(partition_count),
            record_bytes_max,
            readers: Readers::new(topic.clone(), read_buffer_bytes.clone()),
            in_flight: InFlight::new(settings.in_flight_bytes_max),
            counters: Arc::new(Counters::default()),
            read_buffer_bytes,
            topic,
            settings,
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
        let record_bytes_max = self.record_bytes_max;
        let append = FailedAppend {
            partition,
            ack_timeout: self.settings.ack_timeout,
            record_bytes: value.len(),
            record_bytes_max,
        };
        if append.record_bytes > record_bytes_max {
            return Err(LogError::TooLarge { record_bytes: append.record_bytes, record_bytes_max });
        }
        let permit = self.in_flight.take(partition, append.record_bytes as u64, append.ack_timeout)?;
        match self.topic.client.enqueue(value, append, permit) {
            Ok(delivery) => Ok(KafkaTicket::issue(&self.topic, delivery, append, &self.counters)),
            Err(failure) => {
                if failure.cause == Cause::Topic {
                    self.topic.check_identity_within(C::READ_LOOK_AGE)?;
                }
                Err(failure.error)
            }
        }
    }
}

impl<C: Client> ReplicatedLog for KafkaLog<C> {
    fn identity(&self) -> TopicId {
        self.topic.identity()
    }

    fn partition_count(&self) -> Result<u32, LogError> {
        let found = self.topic.partition_count()?;
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
        let read = checked.and_then(|()| self.readers.read(partition, from, limits));
        self.counters.note_read(&read);
        read
    }

    fn bounds(&self, partition: PartitionId) -> Result<Bounds, LogError> {
        self.check_partition(partition)?;
        self.topic.bounds(partition)
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

impl<C: Client> Drop for KafkaLog<C> {
    /// Waits until everything queued has its outcome; on a thread of the runtime it does not wait.
    fn drop(&mut self) {
        self.readers.close();
        let close = self.topic.client.close(self.settings.ack_timeout);
        if Handle::try_current().is_ok() {
            drop(self.runtime.spawn_blocking(close));
        } else {
            close();
        }
    }
}

#[cfg(test)]
mod tests;
