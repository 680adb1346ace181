//! Reads one round of ranges through the cache: cached parts, the cache directory, own requests, requests of
//! other queries.
//!
//! Invariants: the memory of all parts that the query keeps alive is on its own budget, cached ones included.
//! Own requests end before others are waited for, so that two queries never wait for each other.
//! Not here: the cache itself (`cache`), the rounds of a wave (`remote`).

use std::time::Duration;

use chronolith_base::MemoryBudget;
use chronolith_block::source::{ByteRange, FetchedBatch, FetchedPart};
use chronolith_model::QueryError;
use futures_util::{StreamExt, TryStreamExt, future, stream};

use super::parts::PartSet;
use super::through::{ReadFlights, read_flights};
use super::{REQUESTS_AHEAD, RemoteFiles};
use crate::RequestContext;
use crate::cache::{Flight, FlightOutcome, Lookup, OwnFlight};

impl RemoteFiles {
    /// Returns the bytes of the ranges `wanted`; each range is within one part.
    pub(crate) async fn read_cached(
        &self,
        mut wanted: Vec<ByteRange>,
        budget: &MemoryBudget,
        deadline_ns: u64,
    ) -> Result<FetchedBatch, QueryError> {
        wanted.sort_unstable();
        let request = self.remote.request(deadline_ns);
        let mut memory = budget.reserve(0)?;
        let mut parts = PartSet::default();
        loop {
            let gaps = parts.gaps(&wanted);
            if gaps.is_empty() {
                break;
            }
            let tenant = self.remote.folder.tenant();
            let objects = self.objects.as_ref();
            let looked = self.cache.look_up(
                self.cache_key,
                tenant,
                &gaps,
                &self.speed(),
                deadline_ns,
                objects.map(|objects| &**objects),
            );
            let Lookup { found, own, on_disk, others } = looked;
            let own_bytes: u64 = own.iter().chain(&on_disk).map(|flight| flight.range().len()).sum();
            let others_bytes: u64 = others.iter().map(|flight| flight.range.len()).sum();
            let found_bytes: u64 = found.iter().map(|part| part.bytes.len() as u64).sum();
            memory.grow(own_bytes + others_bytes + found_bytes)?;
            parts.extend(found);
            let (read, fetched) = future::join(self.read_flights(on_disk), self.fly_all(&request, own)).await;
            let ReadFlights { parts: read, failed } = read?;
            parts.extend(read);
            parts.extend(fetched?);
            parts.extend(self.fly_all(&request, failed).await?);
            for flight in others {
                parts.extend(self.wait_for(flight, deadline_ns).await?);
            }
            assert!(parts.byte_count() <= memory.bytes(), "parts are reserved before they are read");
            memory.shrink(memory.bytes() - parts.byte_count());
        }
        parts.stitch(&wanted, |bytes| memory.grow(bytes))?;
        assert!(parts.byte_count() <= memory.bytes(), "stitched parts are reserved before they are copied");
        memory.shrink(memory.bytes() - parts.byte_count());
        Ok(FetchedBatch::new(parts.into_parts(), memory))
    }

    async fn read_flights(&self, flights: Vec<OwnFlight>) -> Result<ReadFlights, QueryError> {
        match &self.objects {
            Some(objects) if !flights.is_empty() => read_flights(objects, flights).await,
            _ => {
                assert!(flights.is_empty(), "only a cache directory has ranges on disk");
                Ok(ReadFlights::default())
            }
        }
    }

    async fn fly_all(
        &self,
        request: &RequestContext,
        flights: Vec<OwnFlight>,
    ) -> Result<Vec<FetchedPart>, QueryError> {
        let requests = stream::iter(flights).map(|flight| self.fly(request, flight));
        requests.buffer_unordered(REQUESTS_AHEAD).try_collect().await
    }

    async fn fly(&self, request: &RequestContext, flight: OwnFlight) -> Result<FetchedPart, QueryError> {
        match self.fetch(request, flight.range()).await {
            Ok(part) => {
                flight.complete(&part.bytes);
                Ok(part)
            }
            Err(error) => {
                if let QueryError::Unavailable { what } = &error {
                    flight.fail(what.clone());
                }
                Err(error)
            }
        }
    }

    /// Waits for the request of another query. Returns nothing if it failed for a reason of that query's own,
    /// or had less time than this one.
    async fn wait_for(&self, flight: Flight, deadline_ns: u64) -> Result<Option<FetchedPart>, QueryError> {
        let left = Duration::from_nanos(deadline_ns.saturating_sub(self.remote.clock.mono_ns()));
        let Flight { range, deadline_ns: flight_deadline_ns, mut outcome, .. } = flight;
        let waited = tokio::time::timeout(left, outcome.wait_for(Option::is_some)).await;
        let ended = waited.map_err(|_| QueryError::Timeout)?;
        let outcome = ended.ok().and_then(|outcome| (*outcome).clone());
        match outcome {
            Some(FlightOutcome::Fetched(bytes)) => {
                Ok(Some(FetchedPart { file: range.file, start: range.start, bytes }))
            }
            Some(FlightOutcome::Unavailable(what)) if deadline_ns <= flight_deadline_ns => {
                Err(QueryError::Unavailable { what })
            }
            _ => Ok(None),
        }
    }
}
