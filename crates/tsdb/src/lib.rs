//! Joins head and blocks: tenants, lifecycle, limits, retention, queries over both.
//!
//! Not here: bytes (`format`), how samples are kept (`head`, `block`), HTTP (`server`).

mod admin;
mod blocks;
mod catalogue;
mod changes;
pub mod check;
mod compaction;
mod encoding;
mod exemplars;
mod ingestion_rate;
mod limits;
mod load;
mod memory;
mod merge;
mod metadata;
mod metric;
mod options;
mod query;
mod scrub;
mod snapshot;
mod stats;
mod store;
mod tenant;
mod upkeep;

pub use admin::{AdminError, DeleteReport};
pub use chronolith_block::PoolLimits;
pub use chronolith_format::chunk::xor::EncodedChunk;
pub use chronolith_head::{
    Cardinality, HeadError, MemoryPart, ReplayProgress, SyncMode, TenantMemory, TenantStats, WalError,
    WriteError,
};
pub use chronolith_model::BlockEncoding;
pub use encoding::prometheus_chunks;
pub use limits::LimitsTable;
pub use memory::TsdbMemory;
pub use metric::{Metric, MetricKind};
pub use options::{HeadMemory, OpenError, TsdbOptions};
pub use snapshot::SnapshotHead;
pub use stats::TsdbStats;
pub use store::{Tsdb, lock_data_dir};
pub use tenant::tenant_dir;
