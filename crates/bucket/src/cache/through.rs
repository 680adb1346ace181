//! Reads of the cache directory on behalf of a query: requests of a round whose bytes are there, and the
//! header of a block, which memory keeps in another form.
//!
//! Invariants: the disk is read by threads that may wait, never by those of the runtime; a range that cannot
//! be read from the directory is requested from the bucket.
//! Not here: the directory itself (`disk`), rounds through the cache in memory (`round`).

use std::sync::Arc;

use chronolith_base::MemoryBudget;
use chronolith_block::source::{ByteRange, FetchedBatch, FetchedPart, coalesce};
use chronolith_model::QueryError;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::parts::PartSet;
use super::{CachedObjects, OwnFlight};
use crate::ranges;
use crate::remote::{REQUESTS_AHEAD, RemoteFiles};

/// Threads that read ranges of one round at the same time, at most.
const READERS_MAX: usize = 16;
/// Ranges that one thread reads at least, if there are as many.
const READS_PER_THREAD_MIN: usize = 8;

/// Outcome of reading requests of a round from the directory.
#[derive(Default)]
pub(super) struct ReadFlights {
    pub(super) parts: Vec<FetchedPart>,
    /// Those that are not in the directory any more, or damaged there.
    pub(super) failed: Vec<OwnFlight>,
}

/// Reads the ranges of own requests from disk, and completes them with the bytes.
///
/// # Errors
/// [`QueryError::Canceled`] if the runtime ends.
pub(super) async fn read_flights(
    objects: &Arc<CachedObjects>,
    flights: Vec<OwnFlight>,
) -> Result<ReadFlights, QueryError> {
    let group_len = flights.len().div_ceil(READERS_MAX).max(READS_PER_THREAD_MIN);
    let mut groups = Vec::new();
    let mut rest = flights.into_iter().peekable();
    while rest.peek().is_some() {
        let group: Vec<OwnFlight> = rest.by_ref().take(group_len).collect();
        let objects = objects.clone();
        groups.push(objects.handle().clone().spawn_blocking(move || land(&objects, group)));
    }
    let mut read = ReadFlights::default();
    for group in groups {
        let group = group.await.map_err(|_| QueryError::Canceled)?;
        read.parts.extend(group.parts);
        read.failed.extend(group.failed);
    }
    Ok(read)
}

fn land(objects: &CachedObjects, flights: Vec<OwnFlight>) -> ReadFlights {
    let mut read = ReadFlights::default();
    for flight in flights {
        let ByteRange { file, start, .. } = flight.range();
        match objects.read_now(flight.range()) {
            Some(bytes) => {
                flight.complete(&bytes);
                read.parts.push(FetchedPart { file, start, bytes });
            }
            None => read.failed.push(flight),
        }
    }
    read
}

impl RemoteFiles {
    /// Reads a round by way of the directory `objects`, and past the cache in memory.
    pub(crate) async fn read_through(
        &self,
        objects: &Arc<CachedObjects>,
        mut wanted: Vec<ByteRange>,
        budget: &MemoryBudget,
        deadline_ns: u64,
    ) -> Result<FetchedBatch, QueryError> {
        coalesce(&mut wanted, 0);
        let (cached, mut missing) = objects.split(&wanted);
        ranges::join(&mut missing, &self.speed());
        let mut memory = budget.reserve(cached.iter().chain(&missing).map(ByteRange::len).sum())?;
        let request = self.remote.request(deadline_ns);
        let mut parts = PartSet::default();
        let (read, failed) = objects.read(cached).await?;
        parts.extend(read);
        missing.extend(failed);
        let requests = stream::iter(missing).map(|range| self.fetch(&request, range));
        let fetched: Vec<FetchedPart> = requests.buffer_unordered(REQUESTS_AHEAD).try_collect().await?;
        parts.extend(fetched);
        parts.stitch(&wanted, |bytes| memory.grow(bytes))?;
        Ok(FetchedBatch::new(parts.into_parts(), memory))
    }
}
