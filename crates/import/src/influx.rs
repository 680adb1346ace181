//! Imports the data directory of a stopped InfluxDB 1.x into the stores of its retention policies.
//!
//! A shard is the unit of an import: its TSM files, tombstones and WAL become blocks in one pass that
//! bypasses our own head and WAL (ADR 0018). The state file of a store names the shards that are done.
//! Invariants: points that are left out are counted in the report; a repeated or interrupted import stores no
//! point twice.
//! Not here: applying changes to the catalogue, and locking the data directory (the caller).

mod catalog;
mod encoding;
mod error;
mod fault;
mod key;
mod meta;
mod paths;
mod report;
mod run;
mod series_merge;
mod series_table;
mod shard;
mod snappy;
mod source;
mod tombstone;
mod tsm;
mod wal;
mod wal_points;
mod windows;

pub use error::InfluxError;
pub use key::KeyReject;
pub use meta::{Meta, MetaDatabase, MetaPolicy, MetaUser};
pub use paths::{InfluxPaths, StoreTarget};
pub use report::{FieldCounts, InfluxReport, KIND_NAMES, RejectedSeries};
pub use run::run;
pub use series_merge::LeftOutPoints;
pub use source::{InfluxSource, SourceShard};
