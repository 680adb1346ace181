//! Limits of one batch of a decoder, which bound its memory.
//!
//! Invariant: beyond the hard limits, only the line or metric at hand is added.

use chronolith_model::{MetadataEntry, WriteBatch};

/// Series from which a batch ends at the next border of families or start times.
pub(super) const SERIES_COUNT_SOFT: usize = 1 << 14;
/// Series from which a batch ends anywhere.
pub(super) const SERIES_COUNT_HARD: usize = 1 << 17;
/// Bytes of wire keys and of histograms from which a batch ends at the next border.
pub(super) const BYTES_SOFT: usize = 8 << 20;
/// Bytes of wire keys from which a batch ends anywhere.
pub(super) const BYTES_HARD: usize = 64 << 20;
/// Exemplars, and metadata entries, from which a batch ends at the next border.
pub(super) const ENTRY_COUNT_SOFT: usize = 1 << 12;
/// Exemplars, and metadata entries, from which a batch ends anywhere.
pub(super) const ENTRY_COUNT_HARD: usize = 1 << 13;

/// Bytes of the metadata in a batch, counted as entries are added.
#[derive(Debug, Default)]
pub(super) struct MetadataBytes {
    bytes: usize,
}

impl MetadataBytes {
    /// Counts `entry` before it is added to `out`.
    pub(super) fn add(&mut self, entry: &MetadataEntry, out: &[MetadataEntry]) {
        if out.is_empty() {
            self.bytes = 0;
        }
        self.bytes += entry.metric.len() + entry.help.len() + entry.unit.len();
    }

    /// Returns true if the entries in `out` end a batch.
    pub(super) fn has_limit(&self, out: &[MetadataEntry]) -> bool {
        self.bytes >= BYTES_SOFT && !out.is_empty()
    }
}

/// Returns true if a batch ends at the next border.
pub(super) fn has_soft_limit(batch: &WriteBatch) -> bool {
    batch.series.len() >= SERIES_COUNT_SOFT
        || batch.raw.len() >= BYTES_SOFT
        || batch.exemplars.len() >= ENTRY_COUNT_SOFT
        || batch.metadata.len() >= ENTRY_COUNT_SOFT
}

/// Returns true if a batch ends here.
pub(super) fn has_hard_limit(batch: &WriteBatch) -> bool {
    batch.series.len() >= SERIES_COUNT_HARD
        || batch.raw.len() >= BYTES_HARD
        || batch.exemplars.len() >= ENTRY_COUNT_HARD
        || batch.metadata.len() >= ENTRY_COUNT_HARD
}
