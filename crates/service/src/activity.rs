//! Recent activity for status pages: the costliest queries and the refused samples of the last hour, and the
//! metrics that queries select.
//!
//! Invariants: each list has a limit of entries and of bytes, whatever clients send; recording takes one
//! lock. All lists together have at most [`ACTIVITY_BYTES_MAX`].
//! Not here: counters since the start (`metrics`), the endpoints (`server::http::activity`).

pub mod active_queries;
pub mod advice;
pub mod entry;
pub mod metric_usage;
pub mod rejects;
pub mod top_queries;

#[cfg(test)]
mod tests;

/// Bytes of all lists.
#[cfg(test)]
const ACTIVITY_BYTES_MAX: u64 = 16 << 20;

const _: () = assert!(
    top_queries::BYTES_MAX + metric_usage::BYTES_MAX + rejects::BYTES_MAX <= 16 << 20,
    "the limits of the lists are within that of all"
);
