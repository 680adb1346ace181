//! The log by librdkafka, the client in C that Kafka's other languages use (ADR 0148).
//!
//! Not here: settings, ports that have TLS or none (`kafka`).

mod administrator;
mod config;
mod connection;
mod connection_errors;
mod events;
mod failure;
mod native;
mod producer;
mod queued;
mod reader;
mod security;
mod topic;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::Env;
use rdkafka::producer::Producer as _;
use tokio::runtime::Handle;

use crate::error::LogError;
use crate::in_flight::InFlight;
use crate::kafka::settings::KafkaSettings;
use crate::kafka::tls_probe;
use crate::log::ReplicatedLog;
use crate::position::{Bounds, PartitionId, ReadLimits, Record, TopicId};
use crate::stats::{Counters, LogStats};
use crate::ticket::Ticket;
use administrator::Administrator;
use connection::{Configs, Connection};
use producer::Appender;
use reader::Readers;
use topic::{Found, Topic};

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
        // Questions to ports about TLS have the rest.
        let probe_within = settings.connect_timeout().min(settings.open_timeout / 5);
        let within = settings.open_timeout.saturating_sub(probe_within);
        let start_ns = env.clock.mono_ns();
        let left = || {
            let elapsed = Duration::from_nanos(env.clock.mono_ns().saturating_sub(start_ns));
            within.saturating_sub(elapsed)
        };
        match find_topic(env, runtime, &settings, &left) {
            Ok((topic, found)) => Ok(KafkaLog::new(runtime, settings, topic, &found)),
            Err(unavailable @ LogError::Unavailable { .. }) => {
                let asking = tls_probe::find_mismatch(&settings);
                let asked = runtime.block_on(async { tokio::time::timeout(probe_within, asking).await });
                Err(asked.ok().flatten().unwrap_or(unavailable))
            }
            Err(error) => Err(error),
        }
    }

    fn new(runtime: &Handle, settings: KafkaSettings, topic: Topic, found: &Found) -> KafkaLog {
        let topic = Arc::new(topic);
        let record_bytes_max = settings.record_bytes_max.min(found.record_bytes_max);
        let read_buffer_bytes = Arc::new(AtomicU64::new(0));
        tracing::info!(
            brokers = settings.brokers(),
            topic = settings.address.topic,
            id = %topic.identity(),
            partition_count = found.partition_count,
            record_bytes_max,
            client = "librdkafka",
            "opened a replicated log"
        );
        KafkaLog {
            runtime: runtime.clone(),
            partition_count: AtomicU32::new(found.partition_count),
            appender: Appender::new(topic.clone(), settings.ack_timeout, record_bytes_max),
            readers: Readers::new(topic.clone(), read_buffer_bytes.clone()),
            in_flight: InFlight::new(settings.in_flight_bytes_max),
            counters: Arc::new(Counters::default()),
            read_buffer_bytes,
            topic,
            settings,
        }
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

    fn queue(&self, partition: PartitionId, value: &Bytes) -> Result<Ticket, LogError> {
        self.topic.check_identity()?;
        self.check_partition(partition)?;
        self.appender.check_size(value.len())?;
        let permit = self.in_flight.take(partition, value.len() as u64, self.settings.ack_timeout)?;
        self.appender.queue(partition, value, permit, self.counters.clone())
    }
}

/// Starts the clients and finds the topic. Batches of the producer are as large as the topic allows.
fn find_topic(
    env: &Env,
    runtime: &Handle,
    settings: &KafkaSettings,
    left: &dyn Fn() -> Duration,
) -> Result<(Topic, Found), LogError> {
    let mut common = config::of_client(settings);
    let token = security::apply(&mut common, env, &settings.security, &settings.client_id)?;
    let configs = Configs {
        producer: config::of_producer(&common, settings, settings.record_bytes_max),
        consumer: config::of_consumer(&common, settings),
        administrator: common.clone(),
    };
    let connection = Connection::start(configs, settings.brokers(), token)?;
    let administrator = Administrator::new(runtime.clone());
    let (mut topic, found) = Topic::find(env, connection, settings, &administrator, left)?;
    if found.record_bytes_max < settings.batch_bytes.min(settings.record_bytes_max) {
        let producer = config::of_producer(&common, settings, found.record_bytes_max);
        topic.connection.restart_producer(producer)?;
    }
    Ok((topic, found))
}

impl ReplicatedLog for KafkaLog {
    fn identity(&self) -> TopicId {
        self.topic.identity()
    }

    fn partition_count(&self) -> Result<u32, LogError> {
        let found = self.topic.partition_count()?;
        self.partition_count.store(found, Ordering::Relaxed);
        Ok(found)
    }

    fn append(&self, partition: PartitionId, value: Bytes) -> Result<Ticket, LogError> {
        let queued = self.queue(partition, &value);
        if queued.is_err() {
            self.counters.note_append(value.len(), &queued);
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

impl Drop for KafkaLog {
    /// Waits until everything queued has its outcome; on a thread of the runtime it does not wait.
    fn drop(&mut self) {
        self.readers.close();
        let topic = self.topic.clone();
        let within = self.settings.ack_timeout;
        let close = move || {
            if let Err(error) = topic.connection.producer().flush(within) {
                tracing::warn!(%error, "closing the producer of a replicated log failed");
            }
        };
        if Handle::try_current().is_ok() {
            drop(self.runtime.spawn_blocking(close));
        } else {
            close();
        }
    }
}
