//! Files of Mimir and Thanos in a bucket: bucket index, markers, the Thanos section of `meta.json`, sparse
//! index header (`docs/bucket/mimir.md`). They are read; the Thanos section is also written.
//!
//! Invariants: fields that are not known are ignored; a file that unpacks to more than its limit is refused.
//! None of these files has a checksum of ours: gzip has one of its own, JSON has none.
//! Not here: fields of `meta.json` that Prometheus defines (`block::meta`), object requests (`bucket`).

mod bucket_index;
mod file;
mod marks;
mod protobuf;
mod sparse_header;
mod thanos;

pub use bucket_index::{BUCKET_INDEX, BucketIndex, IndexedBlock, IndexedMark};
pub use file::{MARK_BYTES_MAX, MimirError, UNPACKED_BYTES_MAX};
pub use marks::{
    DELETION_MARK, DeletionMark, MARKERS_FOLDER, NO_COMPACT_MARK, NoCompactMark, deletion_marker_name,
    deletion_marker_of,
};
pub use sparse_header::{SPARSE_HEADER, SampledValue, SparseHeader, SparseName};
pub use thanos::{ThanosDownsample, ThanosFile, ThanosMeta};

#[cfg(test)]
mod tests;
