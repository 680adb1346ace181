//! Keys, owners and requests that the cache refers to, and its counters.
//!
//! Not here: the cache itself (`cache`), what it keeps (`state`).

use bytes::Bytes;
use chronolith_block::source::ByteRange;
use tokio::sync::watch;

use super::disk::DiskCacheSnapshot;
use crate::sidecar_queue::LocalSidecarSnapshot;

/// Owner of an index header.
pub(crate) trait HeaderOwner: Send + Sync {
    /// Drops the header; readers keep it.
    fn drop_header(&self);
}

/// Identity of a block in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct BlockKey(pub(super) u64);

/// Counters of the cache at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheSnapshot {
    /// Index headers.
    pub header_count: usize,
    /// Memory of index headers.
    pub header_bytes: u64,
    /// Memory of ranges.
    pub range_bytes: u64,
    /// Memory of requests without an answer yet.
    pub in_flight_bytes: u64,
    /// Cached ranges that were handed out.
    pub hits: u64,
    /// Bytes of these.
    pub hit_bytes: u64,
    /// Requests for ranges that were not cached.
    pub misses: u64,
    /// Waits for the request of another query.
    pub waits: u64,
    /// Ranges and headers that were dropped for lack of room.
    pub evictions: u64,
    /// Items that failed their checksums and were read once more from the bucket.
    pub damages: u64,
    /// Counters of sidecars that this process made.
    pub local_sidecars: LocalSidecarSnapshot,
    /// Counters of the cache directory.
    pub disk: DiskCacheSnapshot,
}

/// End of a request, as others see it that wait for it.
#[derive(Clone)]
pub(crate) enum FlightOutcome {
    /// The bytes of the range.
    Fetched(Bytes),
    /// The bucket did not answer until the deadline of the request.
    Unavailable(String),
}

/// A request in flight that other queries may wait for.
#[derive(Clone)]
pub(crate) struct Flight {
    pub(crate) range: ByteRange,
    /// Deadline of the request.
    pub(crate) deadline_ns: u64,
    /// Closed without a value if the request was dropped or failed for a reason of its own.
    pub(crate) outcome: watch::Receiver<Option<FlightOutcome>>,
    pub(super) id: u64,
}
