//! Errors of a server's start and stop.

use std::io;
use std::sync::Arc;

use chronolith_cluster::LogError;
use chronolith_tsdb::{BucketError, HeadError, OpenError};

/// Reason why a server does not start, or ends with an error.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The address is not to be had.
    #[error("cannot listen on {address}: {error}")]
    Bind {
        /// Name of the setting of the listener.
        setting: &'static str,
        /// As configured.
        address: String,
        /// As the operating system says.
        error: io::Error,
    },
    /// The query log cannot be opened.
    #[error("{0}")]
    QueryLog(String),
    /// The audit log cannot be opened.
    #[error("{0}")]
    AuditLog(String),
    /// The access file cannot be used.
    #[error("{0}")]
    Access(String),
    /// The web configuration file cannot be used.
    #[error("{0}")]
    WebConfig(String),
    /// The token or certificates of the nodes cannot be used.
    #[error("{0}")]
    NodeToken(String),
    /// The alerting configuration cannot be used.
    #[error("{0}")]
    Alerting(String),
    /// A file of Graphite's rules cannot be used.
    #[error("{0}")]
    GraphiteRules(String),
    /// A rule file cannot be used.
    #[error("{0}")]
    Rules(String),
    /// No threads or no event queue.
    #[error("cannot start threads: {0}")]
    Threads(io::Error),
    /// The store cannot be opened.
    #[error("{0}")]
    Open(Arc<OpenError>),
    /// The settings of the bucket are wrong.
    #[error("{0}")]
    Bucket(BucketError),
    /// The replicated log cannot be used.
    #[error("the replicated log: {0}")]
    Log(#[from] LogError),
    /// The log does not have the partition of the owner.
    #[error("owner.partition: expected a number below {partition_count}, the partitions of the log, found {}",
        number.map_or_else(|| "none".to_owned(), |number| number.to_string()))]
    Partition {
        /// The partition of the settings.
        number: Option<u32>,
        /// Partitions of the log.
        partition_count: u32,
    },
    /// The store could not be closed cleanly; nothing acknowledged is lost.
    #[error("closing the store: {0}")]
    Close(HeadError),
    /// The stop did not come to its end; nothing acknowledged is lost.
    #[error("shutdown aborted: {0}")]
    Interrupted(&'static str),
}
