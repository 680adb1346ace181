//! An append whose record was not acknowledged: its sizes, and the errors that it ends with.
//!
//! Not here: the choice between them, which each client makes from its own errors.

use std::time::Duration;

use crate::error::LogError;
use crate::position::PartitionId;

/// An append whose record was not acknowledged.
#[derive(Clone, Copy)]
pub struct FailedAppend {
    pub(super) partition: PartitionId,
    pub(super) ack_timeout: Duration,
    pub(super) record_bytes: usize,
    pub(super) record_bytes_max: usize,
}

impl FailedAppend {
    /// Returns the error of a record that is not in the log, and never will be.
    pub(super) fn not_written(&self, why: String) -> LogError {
        LogError::NotWritten { partition: self.partition, why }
    }

    /// Returns the error of a record whose outcome is unknown.
    pub(super) fn possibly_written(&self, why: String) -> LogError {
        LogError::PossiblyWritten { partition: self.partition, within: self.ack_timeout, why }
    }

    /// Returns the error of a record that a broker found too large; its answer does not have the limit.
    pub(super) fn too_large(&self) -> LogError {
        LogError::TooLarge {
            record_bytes: self.record_bytes,
            record_bytes_max: self.record_bytes_max.min(self.record_bytes.saturating_sub(1)),
        }
    }
}
