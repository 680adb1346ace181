//! Reasons why an owner does not go on.

use std::fmt;
use std::ops::Range;

use chronolith_base::utc::rfc3339_ms;
use chronolith_bucket::BucketError;
use chronolith_format::record::RecordError;
use chronolith_model::log_position::{LogPartition, Position, TopicId};
use chronolith_replicated_log::LogError;
use chronolith_tsdb::WriteError;

use super::resume::StoredPosition;

/// Times of lost records, by the records around them; milliseconds since 1970, `None` if there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GapTimes {
    /// Arrival of the last record before them.
    pub after_ms: Option<i64>,
    /// Time of the log of the first record after them.
    pub before_ms: Option<i64>,
}

impl fmt::Display for GapTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.after_ms.map(rfc3339_ms), self.before_ms.map(rfc3339_ms)) {
            (None, None) => Ok(()),
            (Some(after), None) => write!(f, " written after {after}"),
            (None, Some(before)) => write!(f, " written before {before}"),
            (Some(after), Some(before)) => write!(f, " written between {after} and {before}"),
        }
    }
}

/// Error that an operator has to resolve. The store keeps its position.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// The log cannot be read at the start.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The store refuses records.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The topic was deleted and made again: offsets mean other records.
    #[error(
        "the directory is the cache of {expected}, and the log is topic {found}: records that no block has are \
         lost if the topic was deleted; start with an empty directory to go on with the other topic"
    )]
    OtherTopic {
        /// Partition of the store.
        expected: LogPartition,
        /// Topic of the log.
        found: TopicId,
    },
    /// The bucket does not say where to begin, and the directory has no position.
    #[error("the offset to resume from is not known: {0}")]
    Bucket(#[from] BucketError),
    /// The directory cannot be gone on with; [`super::open_store`] empties it.
    #[error("the directory cannot be gone on with: {0}")]
    Directory(String),
    /// The bucket has an offset of another topic, and the directory has no position.
    #[error(
        "the log is topic {found}, and the bucket names offset {} of {} (stored at {}), from which on records \
         are in no block; they are lost if that topic was deleted; to go on with the other topic start with \
         --owner.accept-gap {}-{}", stored.position.offset, stored.position.log_partition(),
        rfc3339_ms(stored.stored_ms), stored.position.offset, stored.position.offset + 1
    )]
    TopicMadeAgain {
        /// Position that the bucket has.
        stored: StoredPosition,
        /// Topic of the log.
        found: TopicId,
    },
    /// The log lost records that are in no block.
    #[error(
        "{partition} lacks offsets {} to {} (exclusive){times}, and no block has their samples{}{what}; to go \
         on without them start with --owner.accept-gap {}-{}",
        lost.start, lost.end, if what.is_empty() { "" } else { ": " }, lost.start, lost.end
    )]
    Gap {
        /// The partition.
        partition: LogPartition,
        /// Offsets of the lost records.
        lost: Range<u64>,
        /// Times of the records.
        times: GapTimes,
        /// Damage that the log has reported.
        what: String,
    },
    /// The bucket does not take the record of an accepted gap.
    #[error("recording the accepted gap: {0}")]
    GapRecord(BucketError),
    /// The log ends before the position of the store: it lost records that were applied.
    #[error(
        "{partition} ends at offset {end}, before the position {next} of the store: the log has lost records"
    )]
    LogEndsEarly {
        /// The partition.
        partition: LogPartition,
        /// Position of the store.
        next: u64,
        /// End of the log.
        end: u64,
    },
    /// A later version wrote a record that this one does not read.
    #[error("offset {} of partition {}: {error}; upgrade this owner, readers before writers", position.offset, position.partition)]
    LaterVersion {
        /// Position of the record.
        position: Position,
        /// Version or protocol of the record.
        error: RecordError,
    },
    /// More records cannot be applied than `refused_max`.
    #[error("too many records cannot be applied, the next one at offset {} of partition {}: {why}", position.offset, position.partition)]
    TooManyRefused {
        /// Position of the record.
        position: Position,
        /// Reason.
        why: String,
    },
}

impl OwnerError {
    /// Returns true if opening the owner may succeed later: log or bucket do not answer.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        match self {
            OwnerError::Log(error) => error.is_retriable(),
            OwnerError::Bucket(error) | OwnerError::GapRecord(error) => {
                matches!(error, BucketError::Unavailable { .. } | BucketError::Deadline { .. })
            }
            _ => false,
        }
    }
}
