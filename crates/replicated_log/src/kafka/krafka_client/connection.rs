//! Connections to the brokers: one pool for appends and questions, another one for reads.
//!
//! Invariant: no append and no question waits for a fetch. A broker answers the requests of a connection in
//! their order, and keeps a fetch at the end of a partition for half a second.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use chronolith_base::{Disk, Env};
use krafka::{Kafka, KrafkaError};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::{failure, security};
use crate::error::LogError;
use crate::kafka::client::Failure;
use crate::kafka::deadline::Deadline;
use crate::kafka::settings::KafkaSettings;

/// Age at which topics and their leaders are looked up again.
const METADATA_AGE_MAX: Duration = Duration::from_secs(10);
/// Age at which certificates of this client are read again.
const CERTIFICATE_AGE_MAX: Duration = Duration::from_secs(60);

/// Pools of connections, with the words of their failures.
pub(super) struct Connection {
    pub(super) runtime: Handle,
    /// Pool of appends and questions.
    pub(super) kafka: Kafka,
    /// Addresses of the settings, for messages.
    pub(super) brokers: String,
    settings: KafkaSettings,
    disk: Arc<dyn Disk>,
    /// Pool of reads; gateways have none.
    reading: Mutex<Option<Kafka>>,
}

impl Connection {
    /// Connects to the first broker that answers.
    ///
    /// # Errors
    /// [`LogError`] by kind.
    pub(super) fn open(
        env: &Env,
        runtime: &Handle,
        settings: &KafkaSettings,
        deadline: &Deadline,
    ) -> Result<Connection, LogError> {
        let kafka =
            connect(&env.disk, runtime, settings, deadline.left()).map_err(|failure| failure.error)?;
        Ok(Connection {
            runtime: runtime.clone(),
            kafka,
            brokers: settings.brokers(),
            settings: settings.clone(),
            disk: env.disk.clone(),
            reading: Mutex::default(),
        })
    }

    /// Returns the pool of reads. The first call connects.
    ///
    /// # Errors
    /// As [`Connection::open`].
    pub(super) fn reading(&self) -> Result<Kafka, Failure> {
        let mut reading = self.reading.lock();
        if let Some(kafka) = &*reading {
            return Ok(kafka.clone());
        }
        let kafka = connect(&self.disk, &self.runtime, &self.settings, self.settings.ack_timeout)?;
        Ok(reading.insert(kafka).clone())
    }

    /// Waits for a call at most `within`.
    ///
    /// # Errors
    /// [`Failure`] of the call, or that there was no answer.
    pub(super) fn call<T>(
        &self,
        within: Duration,
        call_to: impl Future<Output = Result<T, KrafkaError>>,
    ) -> Result<T, Failure> {
        call(&self.runtime, &self.brokers, within, call_to)
    }

    /// Words an error of a call.
    pub(super) fn failed(&self, error: &KrafkaError) -> Failure {
        failure::of_call(error, &self.brokers)
    }
}

fn connect(
    disk: &Arc<dyn Disk>,
    runtime: &Handle,
    settings: &KafkaSettings,
    within: Duration,
) -> Result<Kafka, Failure> {
    let brokers = settings.brokers();
    let mut builder = Kafka::builder(brokers.clone())
        .client_id(&settings.client_id)
        .request_timeout(settings.request_timeout())
        .connect_timeout(settings.connect_timeout())
        .metadata_max_age(METADATA_AGE_MAX)
        .metadata_topic_cache_ttl(None)
        .max_response_size(settings.fetch_bytes_max.saturating_add(1 << 20));
    if let Some(auth) = security::load(disk, &settings.security)? {
        builder = builder.security(auth);
    }
    if settings.security.tls.as_ref().is_some_and(|tls| tls.cert_file.is_some()) {
        builder = builder.tls_reload_interval(Some(CERTIFICATE_AGE_MAX));
    }
    call(runtime, &brokers, within, builder.connect())
}

fn call<T>(
    runtime: &Handle,
    brokers: &str,
    within: Duration,
    call: impl Future<Output = Result<T, KrafkaError>>,
) -> Result<T, Failure> {
    match runtime.block_on(async { tokio::time::timeout(within, call).await }) {
        Ok(answer) => answer.map_err(|error| failure::of_call(&error, brokers)),
        Err(_) => {
            Err(LogError::Unavailable { why: format!("{brokers}: no answer within {within:?}") }.into())
        }
    }
}
