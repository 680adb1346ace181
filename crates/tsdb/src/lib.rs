//! Joins head and blocks: tenants, lifecycle, limits, retention, queries over both.
//!
//! Not here: bytes (`format`), how samples are kept (`head`, `block`), HTTP (`server`).

mod changes;
pub mod check;
mod compaction;
pub mod encoding;
mod exemplars;
mod merge;
mod metadata;
mod options;
mod query;
mod stats;
mod store;
mod tenant;
mod upkeep;

pub use chronolith_head::{Cardinality, HeadError, ReplayProgress, SyncMode, WriteError};
pub use encoding::BlockEncoding;
pub use options::{OpenError, TsdbOptions};
pub use stats::TsdbStats;
pub use store::Tsdb;
