//! Failure of a step of an owner: which ones end by themselves.

use chronolith_tsdb::{WalError, WriteError};

use super::error::OwnerError;

/// Failure of a step.
#[derive(Debug)]
pub(super) enum StepError {
    /// The same step may succeed later; the text is the reason.
    Retry(String),
    /// The log cannot be read for now; the text is the reason.
    LogAway(String),
    /// The next record has to wait for another thread; nothing has failed.
    Wait(String),
    /// Nothing but an operator helps.
    Stop(OwnerError),
}

impl From<OwnerError> for StepError {
    fn from(error: OwnerError) -> StepError {
        StepError::Stop(error)
    }
}

impl From<WriteError> for StepError {
    fn from(error: WriteError) -> StepError {
        match error {
            WriteError::Wal(WalError::Poisoned(_) | WalError::Closed) => StepError::Stop(error.into()),
            error => StepError::Retry(error.to_string()),
        }
    }
}

/// Returns the failure of a step that may succeed later.
pub(super) fn retry(error: impl ToString) -> StepError {
    StepError::Retry(error.to_string())
}

/// Returns the failure of a step that could not read the log.
pub(super) fn log_away(error: impl ToString) -> StepError {
    StepError::LogAway(error.to_string())
}
