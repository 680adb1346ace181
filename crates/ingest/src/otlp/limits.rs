//! Limits of one OTLP request, in addition to the limits of samples and series that remote write has.
//!
//! Not here: the size of the body, which the caller limits.

/// Attributes of one resource, scope, point or exemplar at most.
pub const ATTRIBUTE_COUNT_MAX: usize = 1 << 10;
/// Nested arrays and maps in the value of an attribute at most.
pub const ATTRIBUTE_DEPTH_MAX: usize = 16;
/// Samples of `target_info` that one resource of a request makes at most: 10 hours at the default lookback.
pub const TARGET_INFO_COUNT_MAX: i64 = 240;
/// Reasons of rejected points that an answer quotes at most.
pub const QUOTED_COUNT_MAX: usize = 8;
/// Bytes of a name that a reason quotes at most.
pub(super) const QUOTED_BYTES_MAX: usize = 128;
/// Characters of the labels of an exemplar, by OpenMetrics: attributes beyond are left out.
pub(super) const EXEMPLAR_CHARS_MAX: usize = 128;

// Messages of `PointReject` name these numbers.
const _: () = assert!(ATTRIBUTE_COUNT_MAX == 1_024 && ATTRIBUTE_DEPTH_MAX == 16);
const _: () = assert!(TARGET_INFO_COUNT_MAX > 1, "the earliest and the latest time have a sample each");
