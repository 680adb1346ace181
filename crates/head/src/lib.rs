//! Accepts samples durably and serves the newest hours: log, stripes, late samples, sealed chunks, checkpoint,
//! replay.
//!
//! Holds: what [`Head::wait`] has acknowledged survives power loss (in the default mode); a series has one value
//! a time; a chunk never crosses an aligned window. Everything is synchronous.
//! Not here: blocks and when windows become some (`tsdb`), bytes on disk (`format`).

mod append;
mod chain;
mod checkpoint;
mod commit;
mod delete;
mod drop;
mod head;
mod idle;
mod ids;
mod key_hash;
mod label_lists;
mod memory;
mod memory_limit;
mod options;
mod poison;
mod postings;
mod presence;
mod progress;
mod raw_keys;
mod reclaim;
pub mod reorder;
mod replay;
mod resolve;
mod sealed;
mod select;
mod slots;
mod snapshot;
mod source;
mod split_table;
mod stats;
mod stripe;
mod sync;
mod tables;
mod tenant;
mod wal;
mod window_list;
mod windows;

pub use checkpoint::CheckpointStats;
pub use delete::{DeleteProgress, DeleteStats};
pub use drop::DropStats;
pub use head::Head;
pub use idle::IdleSeries;
pub use memory::{MemoryPart, TenantMemory};
pub use options::{HeadError, HeadOptions, SyncMode, WriteError};
pub use progress::{ReplayProgress, ReplayReport};
pub use snapshot::{WindowSeries, WindowSnapshot};
pub use stats::{HeadStats, TenantStats};
pub use tables::Cardinality;
pub use wal::Ticket;
pub use windows::WindowStat;
