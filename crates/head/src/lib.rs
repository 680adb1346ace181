//! In-memory head of the database: accepts samples durably and serves the newest hours.
//!
//! Invariants: samples acknowledged by [`Head::wait`] survive a power failure (in the default mode); a series
//! has one value per timestamp; a chunk never crosses an aligned window. Everything is synchronous.
//! Not here: the write-ahead log (`wal`), blocks and the schedule of flushes (`tsdb`), bytes on disk
//! (`format`).

mod checkpoint;
mod counters;
mod evict;
mod field_history;
mod head;
mod index;
mod log_cache;
mod memory_account;
mod memory_part;
mod metric_kinds;
mod options;
mod read;
mod recovery;
pub mod reorder;
mod series;
mod state;
mod statistics;
mod store_owners;
mod text_cleanup;
mod texts;
mod windows;
mod write;

pub use checkpoint::{CheckpointStats, Checkpointer};
pub use evict::drop_window::DropStats;
pub use evict::idle::IdleSeries;
pub use field_history::{FieldHistory, KindsOfName};
pub use head::Head;
pub use index::tables::{Cardinality, LargestUses};
pub use log_cache::{CachedLog, RecordGuard};
pub use memory_part::MemoryPart;
pub use metric_kinds::MetricKinds;
pub use options::{HeadError, HeadOptions, WriteError};
pub use read::label_search::HeadValues;
pub use read::select::HeadReader;
pub use read::snapshot::{WindowSeries, WindowSnapshot};
pub use recovery::log_cache::discard_log_cache;
pub use recovery::progress::{ReplayProgress, ReplayReport};
pub use series::windows::WindowStat;
pub use statistics::{
    CheckpointTotals, HeadStatistics, HeadStats, HistogramStats, OverflowMetric, OverflowStats, SampleStats,
    TenantMemory, TenantStats, TextStats, TextWindow,
};
pub use store_owners::StoreOwners;
pub use texts::HeadTexts;
pub use windows::HeadWindows;
pub use write::check::{check_series, reject_series};
pub use write::decode::DecodedSeries;
pub use write::delete::{DeleteProgress, DeleteStats};

pub use chronolith_wal::{SyncMode, WalError, WalPosition, WalStats, queued_bytes_of_thread};
