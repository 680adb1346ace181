//! Result of a deletion.

/// Series and blocks of a deletion.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeleteReport {
    /// Series that had samples in the range, counted once per block.
    pub series_count: u64,
    /// Blocks that got tombstones.
    pub block_count: u64,
}
