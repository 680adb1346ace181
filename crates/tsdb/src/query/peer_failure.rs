//! Failures of a query as they travel between nodes.
//!
//! Invariants: an error of another node names it; errors that end a query at the node where they happen end
//! it everywhere, and errors of a source stay errors of a source.

use chronolith_format::select::{SelectError, SelectFailure};
use chronolith_model::QueryError;

/// Returns the failure that a node sends for an error.
pub(super) fn failure_of(error: &QueryError) -> SelectFailure {
    match error {
        QueryError::Canceled => SelectFailure::Canceled,
        QueryError::Timeout => SelectFailure::Timeout,
        QueryError::Memory(full) => SelectFailure::Memory { what: full.to_string() },
        QueryError::Limit { what, limit } => SelectFailure::Limit { what: (*what).to_owned(), limit: *limit },
        QueryError::Selection(exceeded) => SelectFailure::Selection(*exceeded),
        QueryError::PeerLimit { what } => SelectFailure::Memory { what: what.clone() },
        QueryError::Corrupt { path, what } => {
            SelectFailure::Corrupt { path: path.clone(), what: what.clone() }
        }
        QueryError::Io { path, error } => SelectFailure::Io { path: path.clone(), what: error.to_string() },
        QueryError::Unavailable { what } => SelectFailure::Unavailable { what: what.clone() },
    }
}

/// Returns the error of a query for the failure that `node` sent.
pub(super) fn error_of(node: &str, failure: SelectFailure) -> QueryError {
    match failure {
        SelectFailure::Canceled => unavailable(node, "the query was canceled there"),
        SelectFailure::Timeout => unavailable(node, "the query timed out there"),
        SelectFailure::Memory { what } => QueryError::PeerLimit { what: format!("node {node}: {what}") },
        SelectFailure::Limit { what, limit } => {
            QueryError::PeerLimit { what: format!("node {node}: query {what}: limit {limit}") }
        }
        SelectFailure::Selection(exceeded) => QueryError::Selection(exceeded),
        SelectFailure::Corrupt { path, what } => {
            QueryError::Corrupt { path: format!("node {node}: {path}"), what }
        }
        SelectFailure::Io { path, what } => {
            QueryError::Io { path: format!("{path} of node {node}"), error: std::io::Error::other(what) }
        }
        SelectFailure::Unavailable { what } => unavailable(node, &what),
    }
}

/// Returns the error for a node that does not answer.
pub(super) fn unavailable(node: &str, what: &str) -> QueryError {
    QueryError::Unavailable { what: format!("node {node}: {what}") }
}

/// Returns the error for bytes of `node` that are no answer.
pub(super) fn answer_error(node: &str, error: &SelectError) -> QueryError {
    match error {
        SelectError::Version { .. } => unavailable(node, &error.to_string()),
        SelectError::Content(_) => {
            QueryError::Corrupt { path: format!("answer of node {node}"), what: error.to_string() }
        }
    }
}
