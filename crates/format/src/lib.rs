//! Every byte on disk: chunks, postings, symbols, index, WAL frames, checkpoint slices, definitions,
//! metadata, block catalogue, tombstones, meta. Pure functions.
//!
//! Holds: readers take untrusted bytes and never panic; writers and readers of a format stand together; each
//! format has a document in `docs/`.
//! Not here: files, syncing, caching.

pub mod catalogue;
pub mod chunks;
pub mod decimal_delta;
pub mod definitions;
pub mod dense;
pub mod histogram;
pub mod imports;
pub mod index;
pub mod meta;
pub mod metadata;
pub mod retention_clock;
pub mod sealed;
pub mod slice;
pub mod starts;
pub mod tombstones;
pub mod upstream;
pub mod wal;
pub mod xor;
pub mod xor2;

pub use chunks::kinds;
