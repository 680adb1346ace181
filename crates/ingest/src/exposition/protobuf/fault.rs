//! Faults of a message: malformed fields, names and labels that are not valid, invalid histograms.
//!
//! Not here: consequences of a fault (`refused`).

use chronolith_model::histogram::HistogramError;

use crate::exposition::fault::{ExpositionError, Position, Reason, quoted};
use crate::remote_write::{DecodeError, WireError};

/// Fault of a message or of one of its metrics.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) reason: Reason,
    /// Offset within the message.
    pub(super) offset: usize,
    pub(super) text: String,
}

impl Fault {
    #[cold]
    pub(super) fn new(reason: Reason, offset: usize, what: &str, found: &[u8]) -> Fault {
        let shown = found.get(..found.len().min(128)).unwrap_or(found);
        Fault { reason, offset, text: format!("{what}: {}", quoted(shown)) }
    }

    #[cold]
    pub(super) fn too_many_messages() -> Fault {
        Fault { reason: Reason::Limit, offset: 0, text: "body has more messages than the limit".to_owned() }
    }

    pub(super) fn error(self, message: u64) -> ExpositionError {
        let position = Position::Message { message, offset: self.offset as u64 };
        ExpositionError { reason: self.reason, position, message: self.text }
    }
}

impl From<WireError> for Fault {
    fn from(error: WireError) -> Fault {
        Fault { reason: Reason::Protobuf, offset: error.offset, text: error.what.to_owned() }
    }
}

impl From<DecodeError> for Fault {
    fn from(error: DecodeError) -> Fault {
        match error {
            DecodeError::Protobuf(error) => error.into(),
            other => Fault { reason: Reason::Histogram, offset: 0, text: other.to_string() },
        }
    }
}

impl From<HistogramError> for Fault {
    fn from(error: HistogramError) -> Fault {
        Fault { reason: Reason::Histogram, offset: 0, text: error.to_string() }
    }
}
