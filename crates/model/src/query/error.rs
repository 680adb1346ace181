//! Errors of reads.
//!
//! Invariant: an error of a source is apart from those that end the query ([`QueryError::is_of_source`]).
//! Not here: words of a query language for them.

use chronolith_base::BudgetExceeded;

/// Reason why a query stopped.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The client disconnected, or an operator canceled it.
    #[error("query was canceled")]
    Canceled,
    /// The deadline passed.
    #[error("query timed out")]
    Timeout,
    /// A memory budget is exhausted.
    #[error("query processing would load too much into memory: {0}")]
    Memory(#[from] BudgetExceeded),
    /// A count limit was reached.
    #[error("query {what}: limit {limit}")]
    Limit {
        /// Counted items.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// Stored bytes are damaged.
    #[error("{path}: {what}")]
    Corrupt {
        /// File.
        path: String,
        /// Item, offset, expected and found.
        what: String,
    },
    /// A read failed.
    #[error("reading {path}: {error}")]
    Io {
        /// File.
        path: String,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// A remote source does not answer; the same query may succeed later.
    #[error("{what}")]
    Unavailable {
        /// Source, and the last error.
        what: String,
    },
}

impl QueryError {
    /// Returns true if a source failed, so that others may answer; false if the query has to end.
    #[must_use]
    pub fn is_of_source(&self) -> bool {
        matches!(self, QueryError::Corrupt { .. } | QueryError::Io { .. } | QueryError::Unavailable { .. })
    }
}
