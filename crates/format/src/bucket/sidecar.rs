//! Sidecar of a block: the object next to a block in a bucket from which a query with a metric name reads
//! labels and positions of chunks without postings lists and symbols (`docs/bucket/sidecar.md`).
//!
//! Invariants: everything in a sidecar can be made again from the block; every part is verified by its own
//! checksum, so that parts can be read alone; decoders never panic on any bytes.
//! Not here: requests, caches (`bucket`), reading the block that it is made from (`block`).

mod head;
mod names;
mod offsets;
mod page;
mod page_builder;
mod times;
mod writer;

/// Name of the sidecar within the folder of its block.
pub const SIDECAR_OBJECT: &str = "chronolith.sidecar";

pub use head::{
    FileSum, HEADER_BYTES, MAGIC, SUFFIX_BYTES, Section, SharedTimes, SidecarFile, SidecarHead,
    TRAILER_BYTES, VERSION, head_len,
};
pub use names::{Directory, NameList, NamePage, SeriesRun};
pub use offsets::{OffsetRange, SparseOffsets};
pub use page::{PAGE_RAW_BYTES_MAX, PageEntry, PageSeries, SeriesPage, SizedChunk};
pub use times::SegmentRange;
pub use writer::{SidecarError, SidecarSummary, SidecarWriter};

#[cfg(test)]
mod tests;
