//! Removal from the head: flushed windows, idle series, ids of departed series.
//!
//! Invariant: samples are removed only once they are durable elsewhere, or deleted.

pub(crate) mod drop_window;
pub(crate) mod idle;
pub(crate) mod reclaim;
