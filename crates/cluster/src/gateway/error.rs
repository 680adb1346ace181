//! Reasons why a gateway does not acknowledge a write, by what its sender can do.
//!
//! Invariant: an error without [`GatewayError::may_be_written`] has left no record in the log.
//! Not here: status codes and texts of protocols.

use chronolith_base::BudgetExceeded;
use chronolith_format::record::RecordTooLarge;
use chronolith_replicated_log::LogError;
use chronolith_tsdb::WriteError;

/// Action of a sender after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatewayFault {
    /// The same request may succeed later, and repeats change nothing.
    Retry,
    /// The request is too large, whenever it is sent.
    TooLarge,
    /// The request cannot be taken as it is.
    Invalid,
}

/// A write that is not acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The rate limit of the tenant.
    #[error("{0}")]
    Limit(WriteError),
    /// A part of the request that cannot be divided is longer than a record.
    #[error("{0}")]
    TooLarge(#[from] RecordTooLarge),
    /// No memory for the records.
    #[error("{0}")]
    Memory(#[from] BudgetExceeded),
    /// The partition map has not been read.
    #[error("{0}")]
    NotReady(String),
    /// The log did not acknowledge a record.
    #[error("{error}{}", text_of_others(*.others_may_be))]
    Log {
        /// Error of the log.
        error: LogError,
        /// Set if other records of the request may be in the log.
        others_may_be: bool,
    },
    /// The folder of the cluster has the name of the tenant.
    #[error(
        "the tenant id \"cluster\" is reserved: the bucket of a cluster has its own objects in a folder of this name"
    )]
    ReservedTenant,
    /// A store that has no id in the bucket.
    #[error(
        "the store of this write has no id in the bucket, by which owners find it; a gateway cannot take it"
    )]
    LocalStore,
}

fn text_of_others(may_be_written: bool) -> &'static str {
    if may_be_written { "; other records of the request may be written" } else { "" }
}

impl GatewayError {
    pub(super) fn of_log(error: LogError, others_may_be: bool) -> GatewayError {
        GatewayError::Log { error, others_may_be }
    }

    /// Returns true if a record of the request may be in the log.
    #[must_use]
    pub fn may_be_written(&self) -> bool {
        match self {
            GatewayError::Log { error, others_may_be } => *others_may_be || error.may_be_written(),
            _ => false,
        }
    }

    /// Returns the action of the sender.
    #[must_use]
    pub fn fault(&self) -> GatewayFault {
        match self {
            GatewayError::TooLarge(_) | GatewayError::Log { error: LogError::TooLarge { .. }, .. } => {
                GatewayFault::TooLarge
            }
            GatewayError::ReservedTenant | GatewayError::LocalStore => GatewayFault::Invalid,
            GatewayError::Limit(_)
            | GatewayError::Memory(_)
            | GatewayError::NotReady(_)
            | GatewayError::Log { .. } => GatewayFault::Retry,
        }
    }
}
