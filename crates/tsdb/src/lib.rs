//! Joins head and blocks: tenants, lifecycle, limits, maintenance, queries over both.
//!
//! Invariants: a sample is in the head, in a block, or in both, from its acknowledgement on.
//! Not here: bytes (`format`), how samples are stored (`head`, `block`), HTTP (`server`).

mod admin;
mod block_list;
mod blocks;
mod bucket;
mod bucket_maintenance;
mod bucket_sources;
mod changes;
pub mod check;
mod data_dir;
mod databases;
mod encoding;
mod exemplars;
mod frame_log;
mod graphite;
mod ingestion_rate;
mod limits;
mod maintenance;
mod memory;
mod merge;
mod metadata;
mod metric;
mod metric_disk;
mod options;
mod query;
mod schema_retention;
mod storage;
mod tenant_deletions;
mod tenant_usage;
mod tsdb;
mod upload;
mod window;

pub use admin::Admin;
pub use admin::error::AdminError;
pub use admin::report::DeleteReport;
pub use admin::snapshot::SnapshotHead;
pub use admin::tenant_deletion::TenantDeletionJobs;
pub use block_list::{BlockList, BlockLocation, BlockSummary};
pub use blocks::tenant::tenant_dir;
pub use bucket::{Bucket, BucketOptions};
pub use bucket_sources::BucketSources;
pub use changes::Writer;
pub use chronolith_block::PoolLimits;
pub use chronolith_bucket::store::meter::{MeterSnapshot, Outcome};
pub use chronolith_bucket::{BucketError, CatalogOptions, StoreConfig};
pub use chronolith_bucket::{CacheSnapshot, FolderSummary};
pub use chronolith_format::chunk::xor::EncodedChunk;
pub use chronolith_format::graphite::{StoredEvent, StoredMetaTags};
pub use chronolith_format::select::{
    CALL_BYTES_MAX, SelectCall, SelectError, SelectLimits, SelectQuestion, SelectView, decode_call,
    encode_call,
};
pub use chronolith_format::store_name;
pub use chronolith_head::{
    Cardinality, HeadError, MemoryPart, OverflowMetric, ReplayProgress, SyncMode, TenantMemory, TenantStats,
    WalError, WindowStat, WriteError, check_series, discard_log_cache, reject_series,
};
pub use chronolith_model::BlockEncoding;
pub use data_dir::{is_data_dir_locked, lock_data_dir};
pub use databases::{CatalogEditor, limits_of_policies};
pub use encoding::prometheus_chunks;
pub use graphite::{EventTags, GraphiteEvent, GraphiteLog, GraphiteLogError};
pub use ingestion_rate::{IngestionRates, RequestSize};
pub use limits::LimitsTable;
pub use maintenance::{JobKind, JobStats, Maintenance};
pub use memory::TsdbMemory;
pub use metric::{Metric, MetricKind};
pub use metric_disk::{MetricDiskBytes, MetricFilter};
pub use options::{
    CompactionOptions, FlushOptions, HeadMemory, HeadMemoryOptions, IdleOptions, OpenError, RetentionOptions,
    TextOptions, TsdbOptions, WalOptions,
};
pub use query::answer::{AnswerEnd, SendFrames, StoredRecords, send_answer, send_records};
pub use query::fanout::{SourcePart, fanout};
pub use query::peer::sources::{PeerList, PeerSources};
pub use query::peer::transport::{PeerStream, PeerTransport};
pub use query::peer::{PeerSource, PeerStore};
pub use query::unit::in_milliseconds;
pub use tenant_deletions::{DeletionProgress, DeletionState, DeletionStep};
pub use tenant_usage::{LimitUse, TenantSize};
pub use tsdb::{
    Applied, ApplyRecordError, BucketJobs, CutBlock, CutError, CutWindow, Cuts, Databases, MaintenanceStats,
    OwnPolicyError, RecordEffect, Records, ReplayStats, Settings, Tsdb, TsdbReader, TsdbStatistics,
    TsdbStats, WalJobs,
};
