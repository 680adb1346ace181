//! The producer of the library, whose connections answer questions as well; made again after an error that
//! ended it.
//!
//! Invariant: its events are polled by a thread of its own as long as it lives.
//! Not here: appends (`appender`), consumers (`fetcher`).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use rdkafka::ClientConfig;
use rdkafka::consumer::BaseConsumer;
use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::producer::{Producer as _, ThreadedProducer};

use super::connection_errors::ConnectionErrors;
use super::events::{Events, QueueBytes};
use super::failure;
use super::native;
use super::security::TokenFile;
use crate::error::LogError;
use crate::kafka::client::{Description, Failure, Phase};

/// Producer of the library.
pub(super) type Producer = ThreadedProducer<Events>;

/// Settings of the library's clients: of a consumer, of an administrator.
pub(super) struct Configs {
    pub(super) consumer: ClientConfig,
    pub(super) administrator: ClientConfig,
}

/// The producer in use, with its settings.
struct Current {
    config: ClientConfig,
    producer: Arc<Producer>,
}

/// The connections of a log.
pub(super) struct Connection {
    configs: Configs,
    /// Addresses of the settings, for messages.
    pub(super) brokers: String,
    pub(super) token: Option<Arc<TokenFile>>,
    errors: Arc<ConnectionErrors>,
    producer: Mutex<Current>,
}

impl Connection {
    /// Starts the producer; connections are made in the background.
    ///
    /// # Errors
    /// [`LogError::Setting`] for settings that the library does not take.
    pub(super) fn start(
        config_of_producer: ClientConfig,
        configs: Configs,
        brokers: String,
        token: Option<Arc<TokenFile>>,
    ) -> Result<Connection, LogError> {
        let errors = Arc::<ConnectionErrors>::default();
        let events = Events {
            errors: errors.clone(),
            token: token.clone(),
            brokers: brokers.clone(),
            queue_bytes: None,
        };
        let producer = start_producer(&config_of_producer, events)?;
        let producer = Mutex::new(Current { config: config_of_producer, producer });
        Ok(Connection { configs, brokers, token, errors, producer })
    }

    /// Replaces the settings of the producer, and starts another one.
    ///
    /// # Errors
    /// As [`Connection::start`].
    pub(super) fn restart_producer(&self, config: ClientConfig) -> Result<(), LogError> {
        let producer = start_producer(&config, self.events(None))?;
        *self.producer.lock() = Current { config, producer };
        Ok(())
    }

    /// Returns the settings of an administrator.
    pub(super) fn administrator_config(&self) -> &ClientConfig {
        &self.configs.administrator
    }

    /// Returns the producer in use.
    pub(super) fn producer(&self) -> Arc<Producer> {
        self.producer.lock().producer.clone()
    }

    /// Returns the producer for an append; another one if an error has ended the one before.
    ///
    /// # Errors
    /// As [`Connection::start`].
    pub(super) fn producer_of_append(&self) -> Result<Arc<Producer>, LogError> {
        let mut current = self.producer.lock();
        if let Some((code, why)) = current.producer.client().fatal_error() {
            tracing::warn!(%code, why, "the producer of a replicated log ended, this append starts another one");
            current.producer = start_producer(&current.config, self.events(None))?;
        }
        Ok(current.producer.clone())
    }

    /// Starts a consumer, whose bytes in its queue are added to `sum`.
    ///
    /// # Errors
    /// As [`Connection::start`].
    pub(super) fn start_consumer(&self, sum: Arc<AtomicU64>) -> Result<BaseConsumer<Events>, LogError> {
        let events = self.events(Some(QueueBytes::new(sum)));
        let started = self.configs.consumer.create_with_context(events);
        started.map_err(|error| failure::of_settings(&error))
    }

    /// Asks the brokers for a topic. Ends early at the start of a log once no attempt can succeed.
    ///
    /// # Errors
    /// Code of the library or of the brokers.
    pub(super) fn describe(&self, topic: &str, within: Duration, phase: Phase) -> Result<Description, Code> {
        let producer = self.producer();
        let is_over = || phase == Phase::Start && self.errors.is_hopeless();
        let described = native::describe_topic(producer.client(), topic, within, &is_over);
        if described.is_ok() {
            self.errors.note_success();
        }
        described
    }

    /// Returns the offsets that a partition has: start and end.
    ///
    /// # Errors
    /// Code of the library or of the brokers.
    pub(super) fn offsets(&self, topic: &str, partition: i32, within: Duration) -> Result<(i64, i64), Code> {
        let offsets = self.producer().client().fetch_watermarks(topic, partition, within);
        offsets.map_err(|error| failure::code(&error))
    }

    /// Waits until everything queued has its outcome.
    pub(super) fn flush(&self, within: Duration) {
        if let Err(error) = self.producer().flush(within) {
            tracing::warn!(%error, "closing the producer of a replicated log failed");
        }
    }

    /// Looks up partitions that were added.
    pub(super) fn refresh(&self, topic: &str, within: Duration) {
        if let Err(error) = self.producer().client().fetch_metadata(Some(topic), within) {
            tracing::debug!(%error, topic, "looking up a topic failed");
        }
    }

    /// Words the code of a call, with the last error of a connection: a refusal is the reason of a timeout.
    pub(super) fn failed(&self, code: Code) -> Failure {
        Failure { cause: failure::cause(code), error: self.log_error(code) }
    }

    fn log_error(&self, code: Code) -> LogError {
        let reason = self.errors.reason();
        if matches!(code, Code::OperationTimedOut | Code::BrokerTransportFailure | Code::AllBrokersDown)
            && let Some((last, reason)) = self.errors.last()
        {
            return failure::of_call(last, Some(&reason), &self.brokers);
        }
        failure::of_call(code, reason.as_deref(), &self.brokers)
    }

    /// Returns the receiver of the events of one more client.
    pub(super) fn events(&self, queue_bytes: Option<QueueBytes>) -> Events {
        Events {
            errors: self.errors.clone(),
            token: self.token.clone(),
            brokers: self.brokers.clone(),
            queue_bytes,
        }
    }
}

fn start_producer(config: &ClientConfig, events: Events) -> Result<Arc<Producer>, LogError> {
    let started = config.create_with_context::<_, Producer>(events);
    started.map(Arc::new).map_err(|error| failure::of_settings(&error))
}
