//! Reasons why a call is not carried out. The protocol that received it chooses status and text.

use chronolith_base::BudgetExceeded;

use crate::admission::AdmissionError;

/// A call of which nothing is carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The log is still being replayed; the text has its progress.
    #[error("Service Unavailable: {0}")]
    Starting(String),
    /// The store is being closed.
    #[error("server is shutting down")]
    Stopping,
    /// A write or an administrative call to a server without a store.
    #[error(
        "this server is read-only (--read-only): it answers queries over the bucket and stores nothing; send \
         writes to the server that uploads to the bucket"
    )]
    ReadOnly,
    /// A write or an administrative call to a read-only server with a store.
    #[error("this server is read-only (--read-only): it refuses writes, deletions and other changes")]
    ReadOnlyStore,
    /// A query or a change to a gateway, which has no samples.
    #[error(
        "this server is a gateway (--role gateway): it takes writes for the replicated log and has no samples; \
         send queries and changes to a server with another role"
    )]
    Gateway,
    /// A change to a gateway that answers queries, which has no store of its own.
    #[error(
        "this server writes to the replicated log and reads from its owners (--role gateway,query): it has no \
         store of its own that this request could change"
    )]
    NoStore,
    /// A write or a change to an owner.
    #[error(
        "this server stores a partition of the replicated log (--role owner), whose records alone change it; \
         send writes and deletions to a gateway"
    )]
    Owner,
    /// A write or a change to a query node.
    #[error(
        "this server answers queries over a cluster (--role query) and stores nothing; send writes and \
         deletions to a gateway"
    )]
    QueryNode,
    /// A request for samples, a write or a change to a server that maintains the bucket.
    #[error(
        "this server maintains the bucket (--role store) and has no samples; send writes to a gateway, and \
         queries to a query node"
    )]
    Maintenance,
    /// No permit.
    #[error(transparent)]
    Permit(#[from] AdmissionError),
    /// No memory.
    #[error(transparent)]
    Memory(#[from] BudgetExceeded),
    /// A bug: the call, named here, has panicked.
    #[error("internal error: the {0} panicked, see the server's log")]
    Panicked(&'static str),
}
