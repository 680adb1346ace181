//! Blocks in object storage: S3 and compatible servers, Google Cloud Storage, Azure Blob Storage, a local
//! directory.
//!
//! Invariants: each request is counted, limited and retried within the deadline of its context; the only
//! conditional write is create-if-absent; bytes from the bucket never panic; a query never gets less than the
//! blocks have: it fails if one of them cannot be read.
//! Not here: bytes of blocks (`format`), the waves of a selection (`block`), the merge of blocks (`tsdb`).

mod block;
mod buffers;
mod cache;
mod catalog;
pub mod error;
mod external_labels;
mod folder;
mod folders;
mod layout;
pub mod lease;
pub mod maintenance;
mod meta;
mod object_tags;
mod ranges;
mod recovery;
mod remote;
mod select;
mod sidecar;
mod sidecar_builder;
mod sidecar_queue;
pub mod snapshots;
pub mod store;
pub mod tombstones;
pub mod upload;

#[cfg(test)]
mod tests;

pub use block::BucketBlock;
pub use cache::{CacheSnapshot, DiskCache, DiskCacheOptions, DiskCacheSnapshot};
pub use catalog::{BlockCatalog, CatalogOptions, FolderSummary, StartedWork};
pub use error::BucketError;
pub use external_labels::ExternalLabels;
pub use folder::{Folder, STORES_FOLDER};
pub use folders::{remove_store, remove_tenant, stores, tenants, unnamed_stores};
pub use layout::{BlockKeys, BucketLayout};
pub use meta::{decode_meta, reason_left_out};
pub use select::first_batch::check_first_batches;
pub use sidecar_queue::LocalSidecarSnapshot;
pub use store::Store;
pub use store::config::StoreConfig;
pub use store::request::{Purpose, RequestContext};
pub use upload::Uploader;
