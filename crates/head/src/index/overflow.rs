//! Overflow table of a tenant: last samples of series that a limit of series refuses, and their sums per
//! metric.
//!
//! Invariants: the table changes only under its lock, under which the WAL frame of the change is queued, so
//! replay gives the same table; a sample that is not newer than the last one of its key changes nothing.
//! Not here: choice of folded series and samples of overflow series (`write::overflow`), files (`file`).

mod active;
pub(crate) mod file;
mod histogram_sums;
pub(crate) mod label_values;
mod last_histograms;
mod slot;
mod state;
mod table;

pub(crate) use slot::{SlotKind, ValueClass, step_of};
pub(crate) use state::{OverflowState, TenantOverflow};
pub(crate) use table::{Folded, OverflowTable};

/// Name of the label of overflow series.
pub(crate) const OVERFLOW_LABEL: &str = "__overflow__";
/// Time without a sample after which a series leaves the table.
pub(crate) const IDLE_MS: i64 = 60 * 60 * 1000;
/// Least time between two removals of idle series.
pub(crate) const SWEEP_MS: i64 = 5 * 60 * 1000;
