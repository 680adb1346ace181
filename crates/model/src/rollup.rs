//! Roll-ups: values that methods make of all samples in each window of an archive.
//!
//! Invariants: a window has the samples from its start to the next one, and starts at a multiple of the span;
//! of several samples in a slot the last one counts; NaN and staleness markers are no samples. Samples are
//! added in the order of their times, so a window has the same bits wherever it is computed.
//! Not here: rules that give a series its archives (`ingest::carbon`), files (`format::block::rollup`).

mod archive;
mod facts;
mod methods;
mod read;
mod windows;

pub use archive::{RollupArchive, RollupSpan};
pub use facts::{RollupFacts, is_small_integer};
pub use methods::{RollupMethod, RollupMethods};
pub use read::RollupRead;
pub use windows::RolledWindows;

use crate::Labels;

/// Rules that give a series its roll-ups and its retention.
pub trait RollupRules: Send + Sync {
    /// Appends the archives of a series, each span and slot once.
    fn archives_of(&self, labels: &Labels, out: &mut Vec<RollupArchive>);

    /// Returns how long samples of a series are kept after their time, in milliseconds; `None` for ever.
    fn retention_ms(&self, _labels: &Labels) -> Option<i64> {
        None
    }

    /// Returns the shortest of the retentions that a series may have; `None` if all are kept for ever.
    fn shortest_retention_ms(&self) -> Option<i64> {
        None
    }
}

#[cfg(test)]
mod tests;
