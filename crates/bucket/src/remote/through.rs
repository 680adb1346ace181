//! Reads of the cache directory on behalf of a query: requests of a round whose bytes are there.
//!
//! Invariants: the disk is read by threads that may wait, never by threads of the runtime; a range that
//! cannot be read from the directory is requested from the bucket.
//! Not here: the directory itself (`cache::disk`), rounds through the cache in memory (`round`).

use std::sync::Arc;

use chronolith_block::source::{ByteRange, FetchedPart};
use chronolith_model::QueryError;

use crate::cache::{CachedObjects, OwnFlight};

/// Threads that read ranges of one round at the same time, at most.
const READERS_MAX: usize = 16;
/// Ranges that one thread reads at least, if there are as many.
const READS_PER_THREAD_MIN: usize = 8;

/// Outcome of reading requests of a round from the directory.
#[derive(Default)]
pub(super) struct ReadFlights {
    pub(super) parts: Vec<FetchedPart>,
    /// Requests whose bytes are not in the directory any more, or damaged there.
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
