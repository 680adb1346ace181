//! Immutable blocks on disk, in Prometheus's layout: written from sorted series, read as a `Queryable`.
//!
//! Holds: a directory named by a ULID is a complete, synced block; a reader survives any bytes in it.
//! Not here: which blocks exist and when they go (`tsdb`), byte layouts (`format`).

mod block;
mod compact;
mod delete;
mod dictionary;
mod directory;
mod entry;
mod error;
mod link;
mod pool;
mod searches;
mod select;
mod series;
mod verify;
mod writer;

pub use block::Block;
pub use compact::{CompactError, MergeRules, Pace, compact, precedence};
pub use delete::{DeleteError, Deleted};
pub use dictionary::{LabelDictionary, LabelRanks};
pub use directory::{is_leftover, open_dir, remove};
pub use entry::{BlockEntry, FileSizes, block_dir, damaged_record, read_record};
pub use error::BlockError;
pub use link::link_block;
pub use pool::{BlockPool, PoolLimits, PoolStats, open_error};
pub use verify::{BlockVerification, Damage};
pub use writer::{BlockSource, BlockWriter, BulkSeries, BulkVisit, WrittenBlock, publish};

/// Suffix of a block's directory while it is written.
pub const SUFFIX_CREATING: &str = ".tmp-for-creation";
/// Suffix of a block's directory while it is removed.
pub const SUFFIX_DELETING: &str = ".tmp-for-deletion";

const INDEX_FILE: &str = "index";
const META_FILE: &str = "meta.json";
const TOMBSTONES_FILE: &str = "tombstones";
const CHUNKS_DIR: &str = "chunks";

#[cfg(test)]
mod tests;
