//! Errors of a replicated log, by what the caller can do.
//!
//! Invariant: an append that returns an error without [`LogError::may_be_written`] is not in the log.
//! Not here: HTTP status codes, texts of answers to clients.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use crate::position::{Bounds, PartitionId, TopicId};

/// Reasons why a log did not do what it was asked for. No text has a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The record may be in the log, now or later; a repeat may store it twice.
    #[error(
        "the log did not acknowledge a record of partition {partition} within {within:?}, it may be written: {why}"
    )]
    PossiblyWritten {
        /// Partition of the record.
        partition: PartitionId,
        /// Acknowledgement timeout.
        within: Duration,
        /// Last known state.
        why: String,
    },
    /// The record is not in the log, and never will be by this append.
    #[error("a record of partition {partition} was not written: {why}")]
    NotWritten {
        /// Partition of the record.
        partition: PartitionId,
        /// Reason.
        why: String,
    },
    /// A limit of the topic; a smaller record may be appended.
    #[error("record of {record_bytes} bytes, the log takes at most {record_bytes_max}")]
    TooLarge {
        /// Bytes of the record.
        record_bytes: usize,
        /// Limit of the log.
        record_bytes_max: usize,
    },
    /// No room for the record; later appends may find some.
    #[error("{what} is full: {used_bytes} of {bytes_max} bytes in use, {record_bytes} more requested")]
    Full {
        /// Limit that was reached.
        what: &'static str,
        /// Bytes in use.
        used_bytes: u64,
        /// Limit in bytes.
        bytes_max: u64,
        /// Bytes of the record.
        record_bytes: u64,
    },
    /// The offset is not in the log: too old, or not written yet.
    #[error("partition {partition} has offsets {} to {} (exclusive), not {offset}", bounds.start, bounds.end)]
    OffsetOutOfRange {
        /// Partition of the read.
        partition: PartitionId,
        /// Offset of the read.
        offset: u64,
        /// Offsets that there are.
        bounds: Bounds,
    },
    /// Records that were acknowledged cannot be read; those from `lost.end` on can.
    #[error("partition {partition}: offsets {} to {} (exclusive) are lost: {what}", lost.start, lost.end)]
    Damaged {
        /// Partition of the read.
        partition: PartitionId,
        /// Offsets that are lost.
        lost: Range<u64>,
        /// File or broker, position, expected and found.
        what: String,
    },
    /// The partition does not exist.
    #[error("partition {partition} does not exist, the log has {partition_count}")]
    NoPartition {
        /// Partition that was asked for.
        partition: PartitionId,
        /// Number of partitions.
        partition_count: u32,
    },
    /// The topic does not exist and was not to be created.
    #[error("topic {topic} does not exist; create it: {command}")]
    TopicMissing {
        /// Name of the topic.
        topic: String,
        /// Command that creates it.
        command: String,
    },
    /// The topic was deleted and made again: offsets mean other records.
    #[error("topic {topic} was deleted and made again: its id was {expected}, and is {found}")]
    TopicReplaced {
        /// Name of the topic.
        topic: String,
        /// Identity when the log was opened.
        expected: TopicId,
        /// Identity of the topic of this name.
        found: TopicId,
    },
    /// Credentials were refused, or lack a right.
    #[error("{address} refused access: {why}")]
    NotAuthorised {
        /// Broker or topic.
        address: String,
        /// Text of the broker.
        why: String,
    },
    /// The certificate of the broker is of no known authority, or of another host.
    #[error("the certificate of {address} is not trusted: {why}")]
    UntrustedCertificate {
        /// Addresses of the brokers.
        address: String,
        /// Reason.
        why: String,
    },
    /// The port expects TLS, the settings have none.
    #[error("{address} expects TLS, and the settings have none")]
    PlaintextToTls {
        /// Address of the broker.
        address: String,
    },
    /// The settings have TLS, the port expects none.
    #[error("{address} does not answer with TLS, which the settings ask for")]
    TlsToPlaintext {
        /// Addresses of the brokers.
        address: String,
    },
    /// The log cannot be reached; a retry may succeed.
    #[error("the log cannot be reached: {why}")]
    Unavailable {
        /// Addresses and reason.
        why: String,
    },
    /// A setting that cannot work.
    #[error("{setting}: expected {expected}, found {found}")]
    Setting {
        /// Name of the setting.
        setting: &'static str,
        /// Valid values.
        expected: String,
        /// Value.
        found: String,
    },
    /// Another process has the directory open.
    #[error("{}: another process appends to this log", path.display())]
    InUse {
        /// Lock file.
        path: PathBuf,
    },
    /// The operating system refused an operation on a file.
    #[error("{}: {why}", path.display())]
    File {
        /// File or directory.
        path: PathBuf,
        /// Error of the operating system.
        why: String,
    },
    /// The log was closed.
    #[error("the log is closed")]
    Closed,
}

impl LogError {
    /// Returns true if the record of an append that ended with this error may be in the log.
    #[must_use]
    pub fn may_be_written(&self) -> bool {
        matches!(self, LogError::PossiblyWritten { .. } | LogError::TopicReplaced { .. })
    }

    /// Returns true if the same call may succeed later without a change of settings or topic.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        matches!(
            self,
            LogError::PossiblyWritten { .. }
                | LogError::NotWritten { .. }
                | LogError::Full { .. }
                | LogError::Unavailable { .. }
        )
    }

    /// Returns a function for `map_err` after an operation on `path`.
    pub(crate) fn at(path: &std::path::Path) -> impl FnOnce(io::Error) -> LogError {
        move |error| LogError::File { path: path.to_owned(), why: error.to_string() }
    }
}
