//! Objects of a bucket: the sidecar of each block.
//!
//! Not here: requests (`bucket`), files of blocks (`block`).

mod packed;
pub mod sidecar;
mod texts;

pub use packed::Unpacker;
