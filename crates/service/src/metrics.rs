//! Counters of writes, queries and tenants, and the tables that declare each metric.
//! Not here: the text of an exposition (`server`), counters within the store (`tsdb`).

pub mod admission;
pub mod definition;
mod family;
pub mod line_protocol;
pub mod query;
pub mod tenants;
pub mod write;

pub use definition::Metric;
pub use family::{Family, FamilyKind, FamilySample, unit_of};
