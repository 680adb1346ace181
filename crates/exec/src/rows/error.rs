//! Errors that end a query of rows. Each is typed; the text that a client reads is the language's.

use chronolith_base::BudgetExceeded;
use chronolith_model::QueryError;

/// Reason why a query has no further rows.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    /// Reading failed, or the query was stopped.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// More series are selected than the limit allows.
    #[error("query selects {found} series, limit {limit}")]
    SeriesLimit {
        /// Series so far.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// More points are read than the limit allows.
    #[error("query reads {found} points, limit {limit}")]
    PointLimit {
        /// Points so far.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// The range has more windows than the limit allows.
    #[error("query has {found} windows, limit {limit}")]
    BucketLimit {
        /// Windows.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// The function has no result for values of this type.
    #[error("{function} has no result for values of type {column_type:?}")]
    Type {
        /// Name of the function.
        function: &'static str,
        /// The type.
        column_type: chronolith_model::query::ColumnType,
    },
}

impl From<BudgetExceeded> for RowError {
    fn from(full: BudgetExceeded) -> RowError {
        RowError::Query(full.into())
    }
}
