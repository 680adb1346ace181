//! Object storage: S3 and compatible servers, Google Cloud Storage, Azure Blob Storage, a local directory.
//!
//! Invariants: each request is counted, limited and retried within the deadline of its context; the only
//! conditional write is create-if-absent; bytes from the bucket never panic.
//! Not here: bytes of blocks (`format`), blocks (`block`).

pub mod error;
pub mod store;

#[cfg(test)]
mod tests;

pub use error::BucketError;
pub use store::Store;
pub use store::config::StoreConfig;
pub use store::request::{Purpose, RequestContext};
