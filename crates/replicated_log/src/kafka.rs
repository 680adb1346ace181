//! Replicated log of Kafka's protocol, by the client `krafka` (ADR 0133).
//!
//! Invariants: records are acknowledged by all in-sync replicas, and sent by an idempotent
//! producer, so that retries neither repeat nor reorder them; positions are of the topic whose identity was
//! found when the log was opened; no message has a secret.
//! Not here: consumer groups and committed offsets; the position of a reader is its own.

mod address;
mod failed_append;
mod identity;
mod krafka_log;
mod recent_readers;
mod secret;
mod settings;
mod tls_probe;
mod topic_settings;

pub use address::KafkaAddress;
pub use krafka_log::KafkaLog;
pub use settings::{Compression, KafkaSettings, Login, NewTopic, Security, TlsFiles};

#[cfg(test)]
mod tests;
