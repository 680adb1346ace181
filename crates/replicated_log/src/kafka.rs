//! Replicated log of Kafka's protocol, by one of two clients: `krafka` (ADR 0133), or librdkafka in builds
//! with the feature `kafka-librdkafka` (ADR 0148), also where a build has both features.
//!
//! Invariants, for both: records are acknowledged by all in-sync replicas, and sent by an idempotent
//! producer, so that retries neither repeat nor reorder them; positions are of the topic whose identity was
//! found when the log was opened; no message has a secret.
//! Not here: consumer groups and committed offsets; the position of a reader is its own.

mod address;
mod client;
mod deadline;
mod failed_append;
#[cfg(test)]
mod fake_client;
mod identity;
mod kafka_log;
mod kafka_ticket;
#[cfg(not(feature = "kafka-librdkafka"))]
mod krafka_client;
#[cfg(feature = "kafka-librdkafka")]
mod librdkafka_client;
mod readers;
mod recent_readers;
mod secret;
mod settings;
mod single_flight;
mod tls_probe;
mod topic;
mod topic_settings;

pub use address::KafkaAddress;
pub use settings::{Compression, KafkaSettings, Login, NewTopic, Security, TlsFiles};

/// The log over the client of the build.
#[cfg(not(feature = "kafka-librdkafka"))]
pub type KafkaLog = kafka_log::KafkaLog<krafka_client::KrafkaClient>;
/// The log over the client of the build.
#[cfg(feature = "kafka-librdkafka")]
pub type KafkaLog = kafka_log::KafkaLog<librdkafka_client::LibrdkafkaClient>;

#[cfg(test)]
mod tests;
