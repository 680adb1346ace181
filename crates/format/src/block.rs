//! Files of blocks and of the directory that has them: Prometheus's block format with more encodings of
//! chunks.
//!
//! Not here: encodings of chunks (`chunk`).

pub mod catalogue;
pub mod chunks;
mod file_offset;
pub mod imports;
pub mod index;
pub mod meta;
pub mod retention_clock;
pub mod rollup;
pub mod tombstones;
