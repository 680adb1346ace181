//! Connection to the brokers: one pool for appends, reads and questions.

use std::time::Duration;

use chronolith_base::Env;
use krafka::{Kafka, KrafkaError};

use super::{failure, security};
use crate::error::LogError;
use crate::kafka::settings::KafkaSettings;
use crate::kafka::tls_probe;

/// Age at which topics and their leaders are looked up again.
const METADATA_AGE_MAX: Duration = Duration::from_secs(10);
/// Age at which certificates of this client are read again.
const CERTIFICATE_AGE_MAX: Duration = Duration::from_secs(60);

/// Pool of connections, with the words of its failures.
pub(super) struct Client {
    pub(super) kafka: Kafka,
    /// Addresses of the settings, for messages.
    pub(super) brokers: String,
}

impl Client {
    /// Connects to the first broker that answers.
    ///
    /// # Errors
    /// [`LogError`] by kind; a port that expects or lacks TLS is found by asking it.
    pub(super) async fn connect(env: &Env, settings: &KafkaSettings) -> Result<Client, LogError> {
        let brokers = settings.brokers();
        let mut builder = Kafka::builder(brokers.clone())
            .client_id(&settings.client_id)
            .request_timeout(settings.request_timeout())
            .connect_timeout(settings.connect_timeout())
            .metadata_max_age(METADATA_AGE_MAX)
            .metadata_topic_cache_ttl(None)
            .max_response_size(settings.fetch_bytes_max.saturating_add(1 << 20));
        if let Some(auth) = security::load(&env.disk, &settings.security)? {
            builder = builder.security(auth);
        }
        if settings.security.tls.as_ref().is_some_and(|tls| tls.cert_file.is_some()) {
            builder = builder.tls_reload_interval(Some(CERTIFICATE_AGE_MAX));
        }
        match builder.connect().await {
            Ok(kafka) => Ok(Client { kafka, brokers }),
            Err(error) => Err(explain(&error, settings).await),
        }
    }

    /// Words an error of a call.
    pub(super) fn failed(&self, error: &KrafkaError) -> LogError {
        failure::of_call(error, &self.brokers)
    }
}

/// Finds out why there is no connection: brokers close one that has TLS where they expect none, or none
/// where they expect it, without a reason.
async fn explain(error: &KrafkaError, settings: &KafkaSettings) -> LogError {
    let failed = failure::of_call(error, &settings.brokers());
    if !matches!(failed, LogError::Unavailable { .. }) {
        return failed;
    }
    tls_probe::find_mismatch(settings).await.unwrap_or(failed)
}
