//! Content of records, and reasons why bytes are none.

use chronolith_base::DecodeError;
use chronolith_model::databases::BucketStoreId;
use chronolith_model::{DuplicatePolicy, Matcher, TenantId, TimeRange, TimeUnit};

use crate::read::ReadCodecError;

/// Newest version that is read.
pub const RECORD_VERSION: u8 = 2;
/// Bytes of the longest request id.
pub const REQUEST_ID_BYTES_MAX: usize = 128;

/// Store of a tenant. Gateways and owners share the ids of the bucket: numbers of stores have a meaning in
/// one data directory alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordStore {
    /// The default store of the tenant, in milliseconds.
    Default,
    /// The store of a retention policy of a database, in nanoseconds.
    Database(BucketStoreId),
    /// The store of Graphite clients, in milliseconds.
    Graphite(BucketStoreId),
}

impl RecordStore {
    /// Unit of the timestamps of samples.
    #[must_use]
    pub fn time_unit(self) -> TimeUnit {
        match self {
            RecordStore::Default | RecordStore::Graphite(_) => TimeUnit::Milli,
            RecordStore::Database(_) => TimeUnit::Nano,
        }
    }
}

/// Request that a record is part of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordOrigin {
    /// The tenant.
    pub tenant: TenantId,
    /// The store.
    pub store: RecordStore,
    /// Id of the request at the gateway, under which owners list what they refuse; at most
    /// [`REQUEST_ID_BYTES_MAX`] bytes are kept.
    pub request_id: String,
    /// Clock of the gateway when the request came, milliseconds since 1970.
    pub arrival_ms: i64,
}

/// A record.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// Samples of one store; they are in the batch.
    Samples {
        /// The request.
        origin: RecordOrigin,
        /// Policy for a second value of a series and timestamp.
        duplicates: DuplicatePolicy,
    },
    /// Samples to delete. All partitions that may have some get the same record.
    Delete {
        /// The request.
        origin: RecordOrigin,
        /// Number of the deletion in the bucket, the same in each of its records; `None` in records of
        /// versions before there were numbers.
        number: Option<u64>,
        /// Series must be selected by all matchers of one of them.
        selectors: Vec<Vec<Matcher>>,
        /// Times of the samples, in the unit of the store.
        range: TimeRange,
    },
    /// Time passes in a partition without writes.
    Tick {
        /// Clock of the gateway, milliseconds since 1970.
        arrival_ms: i64,
    },
    /// Windows become blocks.
    Cut(Cut),
}

/// Windows that each owner of the partition makes blocks of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// Clock of the owner that appended the record, milliseconds since 1970: the time in the names of the
    /// blocks.
    pub arrival_ms: i64,
    /// Windows that end at this time or before it, milliseconds since 1970.
    pub before_ms: i64,
    /// The only store whose windows are cut; `None` for all stores.
    pub scope: Option<CutScope>,
}

/// Store whose windows a cut concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutScope {
    /// The tenant.
    pub tenant: TenantId,
    /// The store.
    pub store: RecordStore,
}

/// Reason why bytes are no record that this version reads.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Bytes that are damaged or that the layout does not allow.
    #[error(transparent)]
    Bytes(#[from] DecodeError),
    /// An intact record of a later version: the reader has to be upgraded before it goes on.
    #[error("record of version {found}, this program reads versions up to {RECORD_VERSION}")]
    LaterVersion {
        /// Version of the record.
        found: u8,
    },
    /// An intact record with keys of a protocol that has no parser here.
    #[error("record with keys of protocol {number}, which has no parser in this version")]
    Protocol {
        /// Number of the protocol.
        number: u8,
    },
    /// A deletion with a pattern that does not compile.
    #[error(transparent)]
    Matcher(#[from] ReadCodecError),
}

/// A part of a request that cannot be divided is longer than a record may be. Nothing of the request may be
/// written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} takes up to {bytes} bytes, and a record of the log {bytes_max}")]
pub struct RecordTooLarge {
    /// A sample with its series, a row, a metadata entry or a deletion.
    pub what: &'static str,
    /// Upper bound of its bytes.
    pub bytes: usize,
    /// Limit.
    pub bytes_max: usize,
}
