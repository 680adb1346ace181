//! Bucket schemas, and limits of what a histogram may contain.

/// Coarsest exponential schema: each bucket is 2^16 times as wide as the previous one.
pub const SCHEMA_MIN: i32 = -4;
/// Finest exponential schema: 256 buckets for each power of two.
pub const SCHEMA_MAX: i32 = 8;
/// Schema of histograms with custom bounds.
pub const SCHEMA_CUSTOM: i32 = -53;
/// Finest schema that senders may use; finer ones than [`SCHEMA_MAX`] are reduced to it.
pub const SCHEMA_MAX_RESERVED: i32 = 52;
/// Coarsest reserved exponential schema; it cannot be stored.
pub const SCHEMA_MIN_RESERVED: i32 = -9;

/// Buckets per sign; decoders of requests refuse more. The finest schema has half a million in theory;
/// senders use some hundreds.
pub const BUCKET_COUNT_MAX: usize = 1 << 16;
/// Spans per sign.
pub const SPAN_COUNT_MAX: usize = 1 << 16;
/// Custom bounds per histogram.
pub const CUSTOM_BOUND_COUNT_MAX: usize = 1 << 16;
