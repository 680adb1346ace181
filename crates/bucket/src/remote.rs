//! Files of a block in the bucket: waves of byte ranges, all requests of a round at once.
//!
//! Invariants: a wave is read in rounds, and the ranges of a round are all known before its first request;
//! memory of what is fetched is reserved before the requests are sent.
//! Not here: the ranges of a wave (`block`), retries and limits of requests (`store`).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::{Clock, MemoryBudget};
use chronolith_block::source::{
    BlockFiles, ByteRange, ByteSource, FetchedBatch, FetchedPart, FetchedRanges, ROUND_COUNT_MAX, RangeBytes,
    WAVE_BYTES_MAX, Wave,
};
use chronolith_model::{QueryError, ReadContext, TenantId};
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::runtime::Handle;

use crate::ranges::{self, Speed};
use crate::store::meter::Estimates;
use crate::store::read::ReadRange;
use crate::{BucketError, Purpose, RequestContext, Store};

/// Requests of one round that are sent before the first of them is answered.
const REQUESTS_AHEAD: usize = 16;
/// Time of the requests of a query without a deadline.
const READ_TIMEOUT: Duration = Duration::from_secs(120);

/// Speed that is assumed before it was measured: that of S3 within a region.
const FIRST_BYTE_US: f64 = 30_000.0;
const BYTES_PER_US: f64 = 90.0;

/// Objects below one key of the bucket, on behalf of one tenant.
#[derive(Clone)]
pub(crate) struct Remote {
    pub(crate) store: Arc<Store>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Runtime of the requests.
    pub(crate) handle: Handle,
    pub(crate) tenant: TenantId,
    /// Without a slash at its end.
    pub(crate) key: String,
}

impl Remote {
    /// Time at which requests for a query end.
    pub(crate) fn deadline_ns(&self, ctx: &ReadContext) -> u64 {
        let left_ns = ctx.remaining_ns().min(u64::try_from(READ_TIMEOUT.as_nanos()).unwrap_or(u64::MAX));
        self.clock.mono_ns().saturating_add(left_ns)
    }

    pub(crate) fn request(&self, deadline_ns: u64) -> RequestContext {
        RequestContext { tenant: self.tenant.clone(), deadline_ns, purpose: Purpose::Query }
    }

    /// Reads an object below the key as a whole.
    pub(crate) async fn read_whole(&self, name: &str, deadline_ns: u64) -> Result<Bytes, BucketError> {
        let key = format!("{}/{name}", self.key);
        Ok(self.store.read(&self.request(deadline_ns), &key, ReadRange::Whole, None).await?.bytes)
    }
}

/// Index and chunk segments of one block in the bucket.
pub(crate) struct RemoteFiles {
    remote: Remote,
    files: Arc<BlockFiles>,
}

impl RemoteFiles {
    /// The files of a block, with the lengths in `files`, below the key of `remote`.
    pub(crate) fn new(remote: Remote, files: BlockFiles) -> RemoteFiles {
        RemoteFiles { remote, files: Arc::new(files) }
    }

    /// Reads the items of `wave` until `deadline_ns` of the clock.
    ///
    /// # Errors
    /// [`QueryError::Memory`] without room in the budget; [`QueryError::Unavailable`] if the bucket does not
    /// answer or the object is gone, [`QueryError::Corrupt`] if it is shorter than it was.
    pub(crate) async fn read(
        &self,
        wave: &dyn Wave,
        budget: &MemoryBudget,
        deadline_ns: u64,
    ) -> Result<RangeBytes, QueryError> {
        let request = self.remote.request(deadline_ns);
        let mut fetched = FetchedRanges::new(self.files.clone());
        let mut ranges = Vec::new();
        wave.ranges(&mut ranges);
        for _ in 0..ROUND_COUNT_MAX {
            self.files.clip(&mut ranges);
            if ranges.is_empty() {
                break;
            }
            ranges::join(&mut ranges, &speed(self.remote.store.estimates()));
            let memory = budget.reserve(ranges.iter().map(ByteRange::len).sum())?;
            let round = std::mem::take(&mut ranges);
            let requests = stream::iter(round).map(|range| self.fetch(&request, range));
            let parts: Vec<FetchedPart> = requests.buffer_unordered(REQUESTS_AHEAD).try_collect().await?;
            fetched.push(FetchedBatch::new(parts, memory));
            wave.missing(&fetched, &mut ranges);
        }
        Ok(RangeBytes::Fetched(Arc::new(fetched)))
    }

    async fn fetch(&self, request: &RequestContext, range: ByteRange) -> Result<FetchedPart, QueryError> {
        let ByteRange { file, start, end } = range;
        let key = format!("{}/{}", self.remote.key, self.files.name(file));
        let read = self.remote.store.read(request, &key, ReadRange::Exact(start..end), None).await;
        let bytes = read.map_err(query_error)?.bytes;
        Ok(FetchedPart { file, start, bytes })
    }
}

fn speed(estimates: Estimates) -> Speed {
    Speed {
        first_byte_us: estimates.first_byte_ns.map_or(FIRST_BYTE_US, |ns| ns as f64 / 1e3),
        bytes_per_us: estimates.bytes_per_second.map_or(BYTES_PER_US, |rate| rate as f64 / 1e6),
        connection_count: REQUESTS_AHEAD,
    }
}

/// The answer to a query whose request to the bucket failed.
pub(crate) fn query_error(error: BucketError) -> QueryError {
    match error {
        BucketError::Deadline { .. } => QueryError::Timeout,
        BucketError::Canceled { .. } => QueryError::Canceled,
        BucketError::Corrupt { ref key, .. } => {
            QueryError::Corrupt { path: key.clone(), what: error.to_string() }
        }
        // A removed or changed object was replaced: the query may succeed on the next list of blocks.
        other => QueryError::Unavailable { what: other.to_string() },
    }
}

/// Reads of a thread that waits: opening a block, label queries. No thread of the runtime may wait.
pub(crate) struct WaitingSource(pub(crate) Arc<RemoteFiles>);

impl ByteSource for WaitingSource {
    fn files(&self) -> &BlockFiles {
        &self.0.files
    }

    fn read(&self, wave: &dyn Wave, budget: &MemoryBudget) -> Result<RangeBytes, QueryError> {
        let remote = &self.0.remote;
        let timeout_ns = u64::try_from(READ_TIMEOUT.as_nanos()).unwrap_or(u64::MAX);
        let deadline_ns = remote.clock.mono_ns().saturating_add(timeout_ns);
        remote.handle.block_on(self.0.read(wave, budget, deadline_ns))
    }

    fn wave_bytes_max(&self) -> Option<u64> {
        Some(WAVE_BYTES_MAX)
    }

    fn has_readers(&self) -> bool {
        false
    }
}
