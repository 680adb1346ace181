//! Reads: series and samples for queries, label lists, windows and snapshots for flushes.
//!
//! Invariant: no lock is held while samples are decoded.

pub(crate) mod copy;
pub(crate) mod label_lists;
mod label_order;
pub(crate) mod label_search;
pub(crate) mod presence;
pub(crate) mod samples;
pub(crate) mod select;
pub(crate) mod snapshot;
pub(crate) mod source;
