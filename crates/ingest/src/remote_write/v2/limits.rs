//! Limits of one request of remote write 2.0, in addition to the limits of both versions.

/// Symbols in one request at most.
pub const SYMBOL_COUNT_MAX: usize = 1 << 21;
/// References to labels in one series or exemplar at most.
pub const LABEL_REF_COUNT_MAX: usize = 1 << 16;
/// References that an error text shows at most.
pub(super) const REFS_SHOWN_MAX: usize = 32;
