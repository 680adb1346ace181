//! Replicated log of Kafka's protocol, by one of two clients: `krafka` (ADR 0133), or librdkafka in builds
//! with the feature `kafka-librdkafka` (ADR 0148), also where a build has both features.
//!
//! Invariants, for both: records are acknowledged by all in-sync replicas, and sent by an idempotent
//! producer, so that retries neither repeat nor reorder them; positions are of the topic whose identity was
//! found when the log was opened; no message has a secret.
//! Not here: consumer groups and committed offsets; the position of a reader is its own.

mod address;
mod failed_append;
mod identity;
#[cfg(not(feature = "kafka-librdkafka"))]
mod krafka_log;
#[cfg(feature = "kafka-librdkafka")]
mod librdkafka_log;
mod recent_readers;
mod secret;
mod settings;
mod tls_probe;
mod topic_settings;

pub use address::KafkaAddress;
#[cfg(not(feature = "kafka-librdkafka"))]
pub use krafka_log::KafkaLog;
#[cfg(feature = "kafka-librdkafka")]
pub use librdkafka_log::KafkaLog;
pub use settings::{Compression, KafkaSettings, Login, NewTopic, Security, TlsFiles};

#[cfg(test)]
mod tests;
