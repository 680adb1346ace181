//! Report of an import: imported blocks and samples, and the number and reason of samples left out.
//!
//! Invariants: samples that are left out are counted here. Not here: printing (`chronolith`).

use std::collections::BTreeSet;
use std::path::PathBuf;

use chronolith_format::block::meta::Ulid;

/// Damage in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// File or directory.
    pub path: PathBuf,
    /// Byte offset in the file.
    pub offset: u64,
    /// Reason.
    pub what: String,
}

/// Damages that are listed; further ones are counted.
pub const DAMAGES_NAMED_MAX: usize = 1000;

/// Counts of samples of the head that were left out, by reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkippedSamples {
    /// The series has a sample with this timestamp and value (a repeated record).
    pub repeated: u64,
    /// In m-mapped chunks of the series.
    pub mapped: u64,
    /// The series has an earlier record with this timestamp and another value.
    pub conflicting: u64,
    /// Older than the end of the newest block, which holds them.
    pub in_block: u64,
    /// Samples whose series is in no record, and which are not older than the newest block.
    pub unknown_series: u64,
    /// Timestamp out of the range that can be stored.
    pub out_of_bounds: u64,
    /// Number of series that Prometheus wrote to a block and removed from its head.
    pub dropped_series: u64,
    /// Invalid native histograms.
    pub invalid_histograms: u64,
}

/// Counts of the records and samples of the head, by outcome.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeadCounts {
    /// Series with samples.
    pub series: u64,
    /// Samples written to blocks.
    pub samples: u64,
    /// Float samples among them that arrived out of order and are in blocks of their own.
    pub out_of_order_samples: u64,
    /// Native histograms among the written samples.
    pub histograms_written: u64,
    /// Samples that were left out.
    pub skipped: SkippedSamples,
    /// Left out: exemplars, which are kept in memory only.
    pub exemplars: u64,
    /// Left out: metadata entries, which senders send again.
    pub metadata: u64,
    /// Left out: series with invalid labels.
    pub rejected_series: u64,
    /// Left out: records of an unknown type.
    pub unknown_records: u64,
    /// The unknown types.
    pub unknown_record_types: BTreeSet<u8>,
    /// Left out: m-mapped chunks with an unknown encoding or damaged content; the WAL holds their samples
    /// too.
    pub unknown_chunks: u64,
    /// Left out: m-mapped chunks whose series is in no record.
    pub unknown_series_chunks: u64,
    /// Deleted intervals that were applied.
    pub tombstones: u64,
    /// Records read.
    pub records: u64,
}

/// Result of an import.
#[derive(Debug, Clone, Default)]
pub struct ImportReport {
    /// Copied blocks.
    pub blocks_copied: Vec<Ulid>,
    /// Blocks that an earlier import copied.
    pub blocks_present: u64,
    /// Blocks left out because they are compacted into another block of the source.
    pub blocks_replaced: u64,
    /// Samples of copied blocks, by their `meta.json`.
    pub block_samples: u64,
    /// Blocks that the head became.
    pub head_blocks: Vec<Ulid>,
    /// The head is unchanged since an earlier import.
    pub head_present: bool,
    /// Counts of the head's records and samples.
    pub head: HeadCounts,
    /// Findings without loss, such as a torn end of the WAL.
    pub notes: Vec<String>,
    /// Losses.
    pub damages: Vec<Damage>,
    /// Damages beyond [`DAMAGES_NAMED_MAX`].
    pub damages_unnamed: u64,
}

impl ImportReport {
    pub(crate) fn damage_count(&self) -> u64 {
        self.damages.len() as u64 + self.damages_unnamed
    }

    pub(crate) fn damage(&mut self, path: impl Into<PathBuf>, offset: u64, what: impl ToString) {
        if self.damages.len() < DAMAGES_NAMED_MAX {
            self.damages.push(Damage { path: path.into(), offset, what: what.to_string() });
        } else {
            self.damages_unnamed += 1;
        }
    }
}
