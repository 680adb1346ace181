//! Conformance of the implementations of a replicated log, through its public interface.

mod conformance;
mod dir;
mod ledger;
mod sim;
