//! Errors of reads.
//!
//! Invariant: an error of a source is apart from those that end the query ([`QueryError::is_of_source`]).
//! Not here: words of a query language for them.

use std::time::Duration;

use chronolith_base::BudgetExceeded;

/// Limit of what a query selects that it exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SelectionExceeded {
    /// Too many series.
    #[error("query selects {used} series or more, and query.max-selected-series allows {limit}")]
    Series {
        /// Series when the query was stopped.
        used: u64,
        /// The limit.
        limit: u64,
    },
    /// Too many samples.
    #[error("query reads {used} samples or more, and query.max-selected-samples allows {limit}")]
    Samples {
        /// Samples when the query was stopped.
        used: u64,
        /// The limit.
        limit: u64,
    },
    /// The range of a selector is too wide.
    #[error("a selector of the query reads {used:?}, and query.max-range allows {limit:?}")]
    Range {
        /// Width of the range.
        used: Duration,
        /// The limit.
        limit: Duration,
    },
}

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
    /// A limit of the tenant was reached.
    #[error(transparent)]
    Selection(#[from] SelectionExceeded),
    /// A limit of another node was reached.
    #[error("{what}")]
    PeerLimit {
        /// Node, limit and use.
        what: String,
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
