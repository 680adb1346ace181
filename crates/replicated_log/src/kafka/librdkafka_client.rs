//! librdkafka, the client in C that Kafka's other languages use (ADR 0148).
//!
//! Invariant: appends name the topic, not its id, so an acknowledgement is believed after a look at the
//! identity: at once where an offset went back, else at most a second old.
//! Not here: the log over a client (`kafka_log`).

mod administrator;
mod appender;
mod config;
mod connection;
mod connection_errors;
mod events;
mod failure;
mod fetcher;
mod native;
mod queued;
mod security;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::{Clock, Env};
use rdkafka::ClientConfig;
use tokio::runtime::Handle;

use crate::error::LogError;
use crate::in_flight::InFlightPermit;
use crate::kafka::client::{Client, Closing, Description, Failure, Phase, offset, partition_number};
use crate::kafka::deadline::Deadline;
use crate::kafka::failed_append::FailedAppend;
use crate::kafka::settings::{KafkaSettings, NewTopic};
use crate::position::{Bounds, PartitionId, TopicId};
use administrator::Administrator;
use connection::{Configs, Connection};
use fetcher::LibrdkafkaFetcher;
use queued::{AckedEnds, LibrdkafkaDelivery};

/// Client of one topic.
pub struct LibrdkafkaClient {
    connection: Arc<Connection>,
    administrator: Administrator,
    settings: KafkaSettings,
    /// Settings of all clients of the library.
    common: ClientConfig,
    clock: Arc<dyn Clock>,
    acked_ends: Arc<AckedEnds>,
    read_buffer_bytes: Arc<AtomicU64>,
}

impl LibrdkafkaClient {
    fn topic(&self) -> &str {
        &self.settings.address.topic
    }
}

impl Client for LibrdkafkaClient {
    const NAME: &'static str = "librdkafka";
    const APPEND_LOOK_AGE: Duration = Duration::from_secs(1);
    const READ_LOOK_AGE: Duration = Duration::from_millis(50);
    const REFETCH_WITHIN: Duration = Duration::from_secs(2);

    type Delivery = LibrdkafkaDelivery;
    type Fetcher = LibrdkafkaFetcher;

    fn connect(
        env: &Env,
        runtime: &Handle,
        settings: &KafkaSettings,
        read_buffer_bytes: &Arc<AtomicU64>,
        // Connections are made in the background.
        _: &Deadline,
    ) -> Result<LibrdkafkaClient, LogError> {
        let mut common = config::of_client(settings);
        let token = security::apply(&mut common, env, &settings.security, &settings.client_id)?;
        let producer = config::of_producer(&common, settings, settings.record_bytes_max);
        let configs =
            Configs { consumer: config::of_consumer(&common, settings), administrator: common.clone() };
        Ok(LibrdkafkaClient {
            connection: Arc::new(Connection::start(producer, configs, settings.brokers(), token)?),
            administrator: Administrator::new(runtime.clone()),
            settings: settings.clone(),
            common,
            clock: env.clock.clone(),
            acked_ends: Arc::default(),
            read_buffer_bytes: read_buffer_bytes.clone(),
        })
    }

    fn describe(&self, within: Duration, phase: Phase) -> Result<Option<Description>, LogError> {
        match self.connection.describe(self.topic(), within, phase) {
            Ok(found) => Ok(Some(found)),
            Err(code) if failure::is_missing(code) => Ok(None),
            Err(code) => Err(self.connection.failed(code).error),
        }
    }

    fn recent_description(&self, within: Duration) -> Result<Description, Failure> {
        let described = self.connection.describe(self.topic(), within, Phase::Open);
        described.map_err(|code| self.connection.failed(code))
    }

    fn create_topic(&self, wanted: NewTopic, within: Duration) -> Result<(), LogError> {
        self.administrator.create(&self.connection, self.topic(), wanted, within)
    }

    fn batch_limit(&self, within: Duration) -> Option<String> {
        self.administrator.batch_limit(&self.connection, self.topic(), within)
    }

    /// Starts another producer where the topic takes no batches of the size of the settings.
    fn prepare_appends(&mut self, record_bytes_max: usize, _: Duration) -> Result<(), LogError> {
        if record_bytes_max >= self.settings.batch_bytes.min(self.settings.record_bytes_max) {
            return Ok(());
        }
        let producer = config::of_producer(&self.common, &self.settings, record_bytes_max);
        self.connection.restart_producer(producer)
    }

    fn identity_in_use(&self, within: Duration) -> Option<TopicId> {
        Some(self.connection.describe(self.topic(), within, Phase::Open).ok()?.id)
    }

    fn backward_count(&self) -> u64 {
        self.acked_ends.backward_count()
    }

    fn offsets(&self, partition: PartitionId, within: Duration) -> Result<Bounds, Failure> {
        let asked = self.connection.offsets(self.topic(), partition_number(partition), within);
        let (start, end) = asked.map_err(|code| self.connection.failed(code))?;
        Ok(Bounds { start: offset(start), end: offset(end) })
    }

    fn enqueue(
        &self,
        value: Bytes,
        append: FailedAppend,
        permit: InFlightPermit,
    ) -> Result<LibrdkafkaDelivery, Failure> {
        appender::enqueue(&self.connection, self.topic(), &self.acked_ends, &value, append, permit)
    }

    fn start_fetcher(&self, partition: PartitionId) -> Result<LibrdkafkaFetcher, Failure> {
        let connection = self.connection.clone();
        let consumer = connection.start_consumer(self.read_buffer_bytes.clone())?;
        let topic = self.topic().to_owned();
        Ok(LibrdkafkaFetcher::new(connection, consumer, topic, partition, self.clock.clone()))
    }

    fn starved_after(&self) -> Duration {
        self.settings.ack_timeout
    }

    fn close(&self, within: Duration) -> Closing {
        let connection = self.connection.clone();
        Box::new(move || connection.flush(within))
    }
}
