//! The replicated log: records in partitions, appended by gateways and read by owners; Kafka's protocol, a
//! directory, or a simulation (ADR 0133).
//!
//! Invariants: all implementations pass one conformance suite (`tests/it/conformance.rs`). Interfaces are
//! synchronous; only `kafka` knows an async runtime.
//! Not here: content of records (`format`), choice of partitions, owners.

pub mod dir;
mod error;
mod in_flight;
#[cfg(any(feature = "kafka", feature = "kafka-librdkafka"))]
pub mod kafka;
mod log;
mod position;
pub mod sim;
mod stats;
mod ticket;

pub use error::LogError;
pub use log::ReplicatedLog;
pub use position::{Bounds, PartitionId, Position, ReadLimits, Record, TopicId};
pub use stats::LogStats;
pub use ticket::{PendingAppend, Ticket};
