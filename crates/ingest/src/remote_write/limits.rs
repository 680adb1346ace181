//! Limits of one write request of either version.
//!
//! Not here: the size of the body, which the caller limits.

/// Decompressed bytes of one request at most, whatever the caller allows: offsets into the body and into the
/// copies after it are u32.
pub const DECOMPRESSED_BYTES_MAX: usize = 1 << 30;
/// Series in one request at most.
pub const SERIES_COUNT_MAX: usize = 1 << 20;
/// Float samples in one request at most.
pub const SAMPLE_COUNT_MAX: usize = 1 << 22;
/// Exemplars in one request at most.
pub const EXEMPLAR_COUNT_MAX: usize = 1 << 16;
/// Metadata entries in one request at most.
pub const METADATA_COUNT_MAX: usize = 1 << 16;
/// Bytes of the labels of one series, as they are on the wire, at most.
pub const LABEL_SECTION_BYTES_MAX: usize = 1 << 20;
/// Bytes of the names and values of one exemplar's labels at most.
pub const EXEMPLAR_LABEL_BYTES_MAX: usize = 1 << 12;

const _: () = assert!(2 * DECOMPRESSED_BYTES_MAX <= u32::MAX as usize);
