//! Immutable blocks on disk, in Prometheus's layout: written from sorted series, read as a `Queryable`.
//!
//! Invariant: a directory named by a ULID is a complete, synced block; a reader survives any bytes in it.
//! Not here: creation and removal of blocks (`tsdb`), byte layouts (`format`).

mod block;
mod chunk;
mod chunk_stats;
mod compact;
mod contents;
mod damage;
mod delete;
mod dictionary;
mod directory;
mod entry;
mod error;
mod label_queries;
mod label_search;
mod layout;
mod link;
mod metric_bytes;
mod open;
mod open_counts;
mod own_times;
mod pool;
mod postings;
mod record;
mod rollup;
mod rollup_writer;
mod select;
mod selection;
mod series;
mod series_chunks;
mod series_reader;
mod shard;
pub mod sidecar;
pub mod source;
mod strings;
mod verify;
mod waves;
mod writer;

pub use block::Block;
pub use chunk_stats::{ChunkStats, visit_chunks};
pub use compact::{CompactError, MergeRules, Pace, compact};
pub use damage::Damage;
pub use delete::{DeleteError, Deleted};
pub use dictionary::{LabelDictionary, LabelRanks};
pub use directory::{is_leftover, open_dir, remove};
pub use entry::BlockEntry;
pub use error::BlockError;
pub use label_search::BlockValues;
pub use layout::{SUFFIX_CREATING, SUFFIX_DELETING, TOMBSTONES_FILE, block_dir};
pub use link::link_block;
pub use metric_bytes::{VisitMetricBytes, metric_bytes, visit_metric_bytes};
pub use open::{INDEX_END_BYTES, INDEX_START_BYTES, read_block_meta};
pub use pool::{BlockPool, PoolLimits, PoolStats, open_error};
pub use postings::PostingsPlan;
pub use record::{FileSizes, damaged_record, precedence, read_record};
pub use rollup::{FetchedRollups, RollupVerification};
pub use rollup_writer::{RolledUp, has_rollups, write_rollups};
pub use selection::{ChunkCounts, Selection};
pub use shard::Shard;
pub use sidecar::{IndexSidecar, SidecarBlock, SidecarSelection, write_sidecar};
pub use verify::BlockVerification;
pub use writer::{BlockSource, BlockWriter, BulkSeries, BulkVisit, WrittenBlock, encoding_for, publish};

#[cfg(test)]
mod tests;
