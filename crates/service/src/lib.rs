//! The floor between protocols and the store: every write and every query of a client, a rule or the server
//! itself enters here, so that permits, limits, budgets, lists and counters hold for all of them (ADR 0113).
//!
//! Invariants: no work runs without a permit, a deadline and a memory budget; a refusal is a value, and the
//! protocol that received the call chooses its status and text.
//! Not here: HTTP, sockets and bytes on the wire (`server`), storage (`tsdb`), languages.

pub mod activity;
pub mod admission;
pub mod counter;
pub mod lifecycle;
pub mod limits;
pub mod metrics;
pub mod options;
pub mod query;
pub mod refusal;
pub mod write;

pub use options::ServiceOptions;
pub use refusal::Refusal;
