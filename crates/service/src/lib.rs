//! The floor between protocols and the store: writes and queries of clients and of the server itself,
//! permits and memory by tenant, access control, lists of running and costly queries, refused samples,
//! counters (ADR 0113).
//!
//! Invariants: all samples go to the store through `write`; a refusal is a value, and the protocol that
//! received the call chooses its status and text.
//! Not here: HTTP, sockets and bytes on the wire (`server`), storage (`tsdb`), languages (`promql`,
//! `influxql`, `graphite`).

pub mod access;
pub mod activity;
pub mod admission;
pub mod audit;
pub mod carbon;
pub mod counter;
pub mod evaluation;
pub mod graphite;
pub mod influx;
pub mod lifecycle;
pub mod limits;
pub mod metrics;
pub mod options;
pub mod query;
pub mod refusal;
pub mod rules;
pub mod service;
pub mod write;

pub use options::ServiceOptions;
pub use refusal::Refusal;
pub use service::{Service, limit_uses, set_accepting_partitions, set_gateway};
