//! The replicated log: records in partitions, appended by gateways and read by owners; a directory, or a
//! simulation; Kafka's protocol follows (ADR 0133).
//!
//! Invariants: all implementations pass one conformance suite (`tests/it/conformance.rs`). Interfaces are
//! synchronous.
//! Not here: content of records (`format`), choice of partitions, owners.

pub mod dir;
mod error;
mod in_flight;
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
