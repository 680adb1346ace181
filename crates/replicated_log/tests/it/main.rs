//! Conformance of the implementations of a replicated log, through its public interface.

mod conformance;
mod dir;
#[cfg(any(feature = "kafka", feature = "kafka-librdkafka"))]
mod kafka;
mod ledger;
mod sim;
