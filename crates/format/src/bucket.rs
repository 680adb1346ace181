//! Objects of a bucket: the sidecar of each block, the catalogue of a tenant.
//!
//! Not here: requests (`bucket`), files of blocks (`block`).

pub mod catalogue;
mod packed;
pub mod sidecar;
mod texts;

pub use packed::Unpacker;
