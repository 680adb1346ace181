//! Bucket schemas, and limits of what a histogram may contain.

/// Coarsest exponential schema: each bucket is 2^16 times the one before.
pub const SCHEMA_MIN: i32 = -4;
/// Finest exponential schema: 256 buckets for each power of two.
pub const SCHEMA_MAX: i32 = 8;
/// The schema of histograms that bring their own bounds.
pub const SCHEMA_CUSTOM: i32 = -53;
/// Finest schema that may come from a sender; it has to be reduced to [`SCHEMA_MAX`].
pub const SCHEMA_MAX_RESERVED: i32 = 52;
/// Coarsest schema that is reserved for exponential buckets; it cannot be used.
pub const SCHEMA_MIN_RESERVED: i32 = -9;

/// Buckets of one sign at most: whoever takes histograms in refuses more. The finest schema has half a million in
/// theory; senders keep to some hundreds.
pub const BUCKET_COUNT_MAX: usize = 1 << 16;
/// Spans of one sign at most.
pub const SPAN_COUNT_MAX: usize = 1 << 16;
/// Custom bounds at most.
pub const CUSTOM_BOUND_COUNT_MAX: usize = 1 << 16;
