//! Reasons why a local sidecar was not made: what may succeed later, and what cannot.

use chronolith_block::BlockError;
use chronolith_model::QueryError;

/// Reason why a sidecar was not made.
#[derive(Debug)]
pub(super) enum BuildError {
    /// The sidecar can never be made.
    Refused(String),
    /// The sidecar may be made later.
    Failed(String),
}

impl From<BlockError> for BuildError {
    fn from(error: BlockError) -> BuildError {
        match error {
            // The transfer may have caused the damage.
            BlockError::Corrupt { .. } => BuildError::Failed(error.to_string()),
            error => BuildError::Refused(error.to_string()),
        }
    }
}

impl From<QueryError> for BuildError {
    fn from(error: QueryError) -> BuildError {
        BuildError::Failed(error.to_string())
    }
}

impl From<tokio::task::JoinError> for BuildError {
    fn from(error: tokio::task::JoinError) -> BuildError {
        BuildError::Failed(error.to_string())
    }
}
