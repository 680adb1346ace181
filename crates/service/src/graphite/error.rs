//! Errors of reads for Graphite.

use chronolith_graphite::EvalError;
use chronolith_model::QueryError;

use crate::refusal::Refusal;

/// Reason that a read has no answer.
#[derive(Debug, thiserror::Error)]
pub enum GraphiteError {
    /// There is no store.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store failed, or a limit of the read is exceeded.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// An expression is wrong.
    #[error("{0}")]
    Invalid(EvalError),
    /// More results than one answer may have; names number and setting.
    #[error("{0}")]
    TooMany(String),
}
