//! Objects of a bucket: the sidecar of each block, the catalogue of a tenant, the partition map, the
//! offsets to resume from and the deletions of a cluster, files of Mimir and Thanos; and segments of the
//! directory that caches them.
//!
//! Not here: requests (`bucket`), files of blocks (`block`).

pub mod cache_segment;
pub mod catalogue;
pub mod databases;
pub mod deletions;
pub mod mimir;
mod numbered;
mod packed;
pub mod partitions;
pub mod resume;
pub mod sidecar;
mod texts;

pub use numbered::{Hint, NumberedSnapshot, SnapshotKey, SnapshotNames, Stamp};
pub use packed::Unpacker;
