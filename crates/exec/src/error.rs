//! Errors that end a query. Each is typed; the text that a client reads is the language's.

use chronolith_model::{Labels, QueryError};

use crate::cardinality::Cardinality;

/// Reason why a query has no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Reading failed, or the query was stopped.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// More samples are held at a time than the limit allows.
    #[error("query would hold too many samples in memory")]
    TooManySamples,
    /// Series of a shared subplan are no longer kept: the query is to be evaluated without sharing.
    #[error("series of a shared subplan were dropped from its buffer")]
    BufferFull,
    /// Two series of a vector have the same labels and a value in the same step.
    #[error("two series have the same labels")]
    SameLabels,
    /// Two series of the "one" side of a join have the same matching labels.
    #[error("two series of one side of a join have the same matching labels")]
    DuplicateMatch(Box<DuplicateMatch>),
    /// A series of a join has more than one result.
    #[error("a series of a join has more than one match")]
    AmbiguousMatch(Cardinality),
    /// An argument of an operator is invalid for the data.
    #[error("invalid argument {1}")]
    Argument(ArgumentError, f64),
    /// An error of an operator that belongs to the language.
    #[error("{0}")]
    Language(String),
}

/// Series of the "one" side of a join that are not unique.
#[derive(Debug, Clone)]
pub struct DuplicateMatch {
    /// True if the "one" side is the left operand.
    pub is_left: bool,
    /// The labels that both have in common.
    pub group: Labels,
    /// The labels of both.
    pub series: [Labels; 2],
}

/// Arguments that operators refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentError {
    /// The ratio of a sample of series is NaN.
    NanRatio,
    /// The number of series to select is NaN.
    NanCount,
    /// The number of series to select is too small for 64 bits.
    CountUnderflow,
    /// The number of series to select is too large for 64 bits.
    CountOverflow,
    /// The smoothing factor is not between 0 and 1.
    SmoothingFactor,
    /// The trend factor is not between 0 and 1.
    TrendFactor,
}

impl Error {
    /// The same error again, for another reader of a shared subplan.
    #[must_use]
    pub fn duplicate(&self) -> Error {
        match self {
            Error::Query(error) => Error::Query(duplicate_query_error(error)),
            Error::TooManySamples => Error::TooManySamples,
            Error::BufferFull => Error::BufferFull,
            Error::SameLabels => Error::SameLabels,
            Error::DuplicateMatch(series) => Error::DuplicateMatch(series.clone()),
            Error::AmbiguousMatch(cardinality) => Error::AmbiguousMatch(*cardinality),
            Error::Argument(kind, value) => Error::Argument(*kind, *value),
            Error::Language(text) => Error::Language(text.clone()),
        }
    }
}

/// The same error again, for another reader of a shared selection.
pub(crate) fn duplicate_query_error(error: &QueryError) -> QueryError {
    match error {
        QueryError::Canceled => QueryError::Canceled,
        QueryError::Timeout => QueryError::Timeout,
        QueryError::Memory(full) => QueryError::Memory(*full),
        QueryError::Limit { what, limit } => QueryError::Limit { what, limit: *limit },
        QueryError::Selection(exceeded) => QueryError::Selection(*exceeded),
        QueryError::PeerLimit { what } => QueryError::PeerLimit { what: what.clone() },
        QueryError::Corrupt { path, what } => QueryError::Corrupt { path: path.clone(), what: what.clone() },
        QueryError::Io { path, error } => {
            let error = std::io::Error::new(error.kind(), error.to_string());
            QueryError::Io { path: path.clone(), error }
        }
        QueryError::Unavailable { what } => QueryError::Unavailable { what: what.clone() },
    }
}
