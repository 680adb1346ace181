//! Errors of decoding a write request: limits, snappy, protobuf, memory.
//!
//! Not here: series and histograms that are refused alone (`refused`), HTTP status codes (`server`).

use chronolith_base::budget::BudgetExceeded;

/// Reason for refusing a body as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The decompressed body, or a part of it, is larger than allowed.
    #[error("{what} of {found} bytes is larger than the limit of {limit} bytes")]
    TooLarge {
        /// Name of the part.
        what: &'static str,
        /// Size of the part.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// The request holds more items of a kind than allowed.
    #[error("request has more than {limit} {what}")]
    TooMany {
        /// Name of the items.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// A histogram has more parts of a kind than allowed.
    #[error("histogram has more than {limit} {what}")]
    TooManyInHistogram {
        /// Name of the parts.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// Not a snappy block.
    #[error("snappy: {0}")]
    Snappy(String),
    /// Not the message that the protocol sends.
    #[error("protobuf: {0}")]
    Protobuf(WireError),
    /// There is no memory for what the body unfolds to; later there may be.
    #[error(transparent)]
    NoMemory(#[from] BudgetExceeded),
}

/// Fault of a message, with its offset in the decompressed body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} at offset {offset}")]
pub struct WireError {
    /// Description of the fault.
    pub what: &'static str,
    /// Offset of the item within the decompressed body.
    pub offset: usize,
}

impl From<WireError> for DecodeError {
    fn from(error: WireError) -> DecodeError {
        DecodeError::Protobuf(error)
    }
}
