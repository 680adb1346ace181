//! Parameters of a request that are not in its body, and the limits of its lines.
//!
//! Not here: the size of the body, which the caller limits.

use super::precision::Precision;

/// Largest body: offsets into it and into the copies after it are u32.
pub const BODY_BYTES_MAX: usize = 1 << 30;
/// Largest text that InfluxDB stores.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

const _: () = assert!(2 * BODY_BYTES_MAX <= u32::MAX as usize);

/// Parameters of a request and limits of its lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Unit of the times.
    pub precision: Precision,
    /// Time of lines without one, before it is rounded down to the precision.
    pub now_ns: i64,
    /// Bytes of one line at most.
    pub line_bytes_max: usize,
    /// Bytes of one text at most.
    pub text_bytes_max: usize,
}

impl DecodeOptions {
    /// Options with the limits of InfluxDB.
    #[must_use]
    pub fn new(precision: Precision, now_ns: i64) -> DecodeOptions {
        DecodeOptions { precision, now_ns, line_bytes_max: BODY_BYTES_MAX, text_bytes_max: TEXT_BYTES_MAX }
    }
}
