//! Conformance of the implementations of a replicated log, through its public interface.

mod conformance;
mod dir;
#[cfg(feature = "kafka")]
mod kafka;
mod ledger;
mod sim;
