//! Errors of an evaluation. HTTP codes are chosen by the server.
//!
//! Invariant: every text names the cause and the expected value; none is about this program's source.

use crate::syntax::SyntaxError;
use crate::time::TimeError;

/// Reason for answering a request with an error.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EvalError {
    /// The target does not parse.
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    /// A time or interval does not parse.
    #[error(transparent)]
    Time(#[from] TimeError),
    /// No function has this name.
    #[error("unknown function: {0}")]
    UnknownFunction(String),
    /// A parameter or its value is not accepted.
    #[error("{0}")]
    Parameter(String),
    /// A limit of the request is exceeded.
    #[error("{what}: {found} exceed the limit of {limit}")]
    Limit {
        /// The limited quantity.
        what: &'static str,
        /// Amount that the request needs.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// The build lacks an optional part.
    #[error("{what}: this build lacks the feature `{feature}`; {instead}")]
    NotBuilt {
        /// Refused part of the request.
        what: &'static str,
        /// Cargo feature of the part.
        feature: &'static str,
        /// Alternative that every build has.
        instead: &'static str,
    },
    /// The deadline has passed or the client has gone.
    #[error("request canceled")]
    Canceled,
    /// The store failed.
    #[error("storage: {0}")]
    Storage(String),
}

impl EvalError {
    /// A refused parameter of the function `function`.
    #[must_use]
    pub fn of_function(function: &str, reason: &str) -> Self {
        EvalError::Parameter(format!("{function}(): {reason}"))
    }
}
