//! Every byte on disk, in a folder per reader: chunks of samples, blocks, objects of a bucket, the head's
//! files, Prometheus's WAL. Pure functions.
//!
//! Invariants: readers take untrusted bytes and never panic; writer and reader of a format are in one module;
//! each format has a document in `docs/`.
//! Not here: files, syncing, caching.

pub mod block;
pub mod bucket;
pub mod chunk;
pub mod databases;
pub mod graphite;
pub mod head;
mod lists;
pub mod owned_windows;
pub mod prometheus;
pub mod read;
pub mod record;
pub mod replicated_log;
pub mod rules;
pub mod select;
mod start_runs;
mod store_name;

pub use store_name::{StoreNameError, parse_store_name, store_name};
