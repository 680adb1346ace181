//! What an import did, and what it left out and why.
//! Holds: nothing is left out without being counted here. Not here: how it is printed (`chronolith`).

use std::path::PathBuf;

use chronolith_format::block::meta::Ulid;

/// Damage in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// File or directory.
    pub path: PathBuf,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// What is wrong there.
    pub what: String,
}

/// Damages that are named one by one; the rest is counted.
pub const DAMAGES_NAMED_MAX: usize = 1000;

/// What became of the records and samples of the head.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeadCounts {
    /// Series that got samples.
    pub series: u64,
    /// Samples written to blocks.
    pub samples: u64,
    /// Of them, in blocks of their own because they came late.
    pub late_samples: u64,
    /// Left out: the series has this sample already (a repeated record).
    pub repeated_samples: u64,
    /// Left out: the m-mapped chunks of the series hold them.
    pub mapped_samples: u64,
    /// Left out: an earlier sample of the series has this time and another value; the first stays.
    pub conflicting_samples: u64,
    /// Left out: older than the newest block, which holds them.
    pub in_block_samples: u64,
    /// Left out: no record says which series they belong to.
    pub unknown_series_samples: u64,
    /// Left out: time cannot be stored.
    pub out_of_bounds_samples: u64,
    /// Left out: they belong to a series that the log says was written to a block and left memory.
    pub dropped_series_samples: u64,
    /// Of those written, native histograms.
    pub histograms_written: u64,
    /// Left out: native histograms that contradict themselves.
    pub invalid_histograms: u64,
    /// Left out: exemplars, which live in memory only.
    pub exemplars: u64,
    /// Left out: metadata entries, which senders repeat.
    pub metadata: u64,
    /// Left out: series whose labels cannot be stored.
    pub rejected_series: u64,
    /// Left out: records of a kind that is not known.
    pub unknown_records: u64,
    /// Left out: m-mapped chunks of an encoding that is not read; the log holds their samples too.
    pub unknown_chunks: u64,
    /// Left out: m-mapped chunks of no known series.
    pub unknown_series_chunks: u64,
    /// Deleted intervals that were applied.
    pub tombstones: u64,
    /// Records read.
    pub records: u64,
}

/// What an import did.
#[derive(Debug, Clone, Default)]
pub struct ImportReport {
    /// Blocks that were copied.
    pub blocks_copied: Vec<Ulid>,
    /// Blocks that an earlier import brought.
    pub blocks_present: u64,
    /// Blocks that were merged into another one of the source.
    pub blocks_replaced: u64,
    /// Samples of copied blocks, as their `meta.json` says.
    pub block_samples: u64,
    /// Blocks made of the head.
    pub head_blocks: Vec<Ulid>,
    /// Whether an earlier import brought the head as it is.
    pub head_present: bool,
    /// What became of the head.
    pub head: HeadCounts,
    /// Worth saying, but no loss.
    pub notes: Vec<String>,
    /// Loss.
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
