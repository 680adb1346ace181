//! Writes of all protocols: one way from the bytes of a request to samples that are durable (ADR 0113).
//!
//! A protocol decodes its bytes piece by piece ([`Decode`]); [`Writing`] takes the batch, measures, applies
//! each piece, waits for the disk and counts. The protocol chooses what a client reads of the result.
//! Invariants: samples that were applied are counted once they are durable, and never before; a failure is
//! counted once.
//! Not here: permits of a request (`admission`), the protocols (`ingest`), texts of answers (`server`).

pub mod batches;
pub mod destination;
mod failure;
mod limit_warnings;
pub mod reject_log;

use std::fmt;
use std::sync::Arc;

use chronolith_base::Clock;
use chronolith_cluster::gateway::Acknowledged;
use chronolith_ingest::{carbon, line_protocol, remote_write};
use chronolith_model::{TenantId, TimeUnit, WriteBatch, WriteOutcome};
use chronolith_tsdb::Writer;

use self::batches::BatchPool;
pub use self::destination::TargetStore;
use self::destination::{Applied, BatchOrigin, Destination, Failure};
pub use self::failure::{StoreFailure, WriteFailure};
use self::limit_warnings::{CHECK_EVERY_MS, LimitWarnings};
use self::reject_log::RejectLog;
use crate::access::Identity;
use crate::activity::rejects::{RejectOrigin, Rejects, WriteSender};
use crate::metrics::tenants::TenantMetrics;
use crate::metrics::write::WriteMetrics;

/// State that the writes of all protocols share.
pub struct Writes {
    clock: Arc<dyn Clock>,
    /// Counters by tenant, of queries too.
    pub tenants: TenantMetrics,
    /// Counters of all writes.
    pub metrics: WriteMetrics,
    /// Refused samples of the last hour.
    pub rejects: Rejects,
    /// Rate limit of the log of refused samples.
    pub reject_log: RejectLog,
    /// Empty batches.
    pub pools: BatchPools,
    limit_warnings: LimitWarnings,
}

/// Empty batches by protocol.
pub struct BatchPools {
    /// Batches of remote write.
    pub remote_write: BatchPool,
    /// Batches of line protocol.
    pub line_protocol: BatchPool,
    /// Batches of carbon points.
    pub carbon: BatchPool,
}

/// Decoder of one request.
pub trait Decode {
    /// Reason why nothing more can be decoded.
    type Error;

    /// Fills `batch`, which is empty, with the next piece. Returns false at the end of the request.
    ///
    /// # Errors
    /// The request ends here; pieces before it are applied.
    fn next_piece(&mut self, batch: &mut WriteBatch) -> Result<bool, Self::Error>;

    /// Empties a batch whose samples are applied. A decoder that lent its bytes to the batch takes them back.
    fn take_back(&mut self, batch: &mut WriteBatch) {
        batch.clear();
    }
}

/// Destination and origin of the samples of a request.
#[derive(Clone, Copy)]
pub struct WriteTarget<'a> {
    /// Sender and tenant.
    pub identity: &'a Identity,
    /// Store of the samples.
    pub store: TargetStore<'a>,
    /// A client or a continuous query.
    pub writer: Writer,
}

/// A request whose samples are being applied.
pub struct Writing<'a> {
    writes: &'a Writes,
    destination: &'a Destination,
    target: WriteTarget<'a>,
    request_id: &'a dyn fmt::Display,
    applied: Option<Applied>,
    start_time_count: u64,
    /// Monotonic clock before the first piece, and time of decoding since then.
    start_ns: u64,
    decode_ns: u64,
}

impl Writes {
    /// State without writes, with counters of at most `tenant_count_max` tenants.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, tenant_count_max: usize) -> Writes {
        Writes {
            clock,
            tenants: TenantMetrics::new(tenant_count_max),
            metrics: WriteMetrics::default(),
            rejects: Rejects::default(),
            reject_log: RejectLog::default(),
            limit_warnings: LimitWarnings::default(),
            pools: BatchPools {
                remote_write: BatchPool::new(remote_write::new_batch),
                line_protocol: BatchPool::new(line_protocol::new_batch),
                carbon: BatchPool::new(carbon::new_batch),
            },
        }
    }

    /// Wall clock in ms since 1970.
    pub fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// Begins a request.
    pub fn begin<'a>(&'a self, destination: &'a Destination, target: WriteTarget<'a>) -> Writing<'a> {
        Writing {
            writes: self,
            destination,
            target,
            request_id: &"",
            applied: None,
            start_time_count: 0,
            start_ns: self.clock.mono_ns(),
            decode_ns: 0,
        }
    }

    /// Waits until samples are durable that [`Writing::into_applied`] returned, and counts them. Blocks the
    /// thread.
    ///
    /// # Errors
    /// [`StoreFailure`]: the samples may be lost.
    pub fn wait(
        &self,
        destination: &Destination,
        tenant: &TenantId,
        applied: Applied,
    ) -> Result<Acknowledged, StoreFailure> {
        let acknowledged = destination.wait(applied).map_err(|failure| self.failed(failure))?;
        self.count(destination, tenant, &acknowledged.outcome);
        Ok(acknowledged)
    }

    /// As [`Writes::wait`], without counting: for samples that are written again to find out which of them
    /// are refused.
    ///
    /// # Errors
    /// [`StoreFailure`]: the samples may be lost.
    pub fn wait_uncounted(
        &self,
        destination: &Destination,
        applied: Applied,
    ) -> Result<WriteOutcome, StoreFailure> {
        let waited = destination.wait(applied).map_err(|failure| self.failed(failure));
        waited.map(|acknowledged| acknowledged.outcome)
    }

    /// Records refused samples with examples; `fault` stands where an outcome has no series.
    pub fn record_outcome(
        &self,
        outcome: &WriteOutcome,
        unit: TimeUnit,
        fault: &str,
        tenant: &TenantId,
        sender: &WriteSender,
    ) {
        if outcome.rejected_count() > 0 {
            self.rejects.record_outcome(outcome, unit, fault, self.origin(tenant, sender));
        }
    }

    /// Origin of refused samples at this moment.
    #[must_use]
    pub fn origin<'a>(&self, tenant: &'a TenantId, sender: &'a WriteSender) -> RejectOrigin<'a> {
        RejectOrigin { tenant: Some(tenant), sender, now_ms: self.clock.now_ms() }
    }

    fn count(&self, destination: &Destination, tenant: &TenantId, outcome: &WriteOutcome) {
        self.metrics.count(outcome);
        let now_ms = self.clock.now_ms();
        let stat = self.tenants.of(tenant, now_ms);
        stat.count(outcome);
        // A gateway does not know how much of its limits a tenant uses.
        if let Destination::Store(store) = destination
            && stat.is_limit_check_due(now_ms, CHECK_EVERY_MS)
        {
            self.limit_warnings.log(tenant, &store.statistics().limit_uses(tenant), now_ms);
        }
    }

    #[cold]
    fn failed(&self, failure: Failure) -> StoreFailure {
        self.metrics.failures.add(1);
        match failure {
            Failure::Write(error) => StoreFailure::Batch { limit: self.metrics.count_refused(&error), error },
            Failure::Other(failure) => failure,
        }
    }
}

impl<'a> Writing<'a> {
    /// Id of the request, under which an owner of a cluster lists the samples that it refuses.
    #[must_use]
    pub fn of_request(self, request_id: &'a dyn fmt::Display) -> Writing<'a> {
        Writing { request_id, ..self }
    }

    /// Decodes and applies all pieces. They are visible and not durable yet. Blocks the thread.
    ///
    /// # Errors
    /// [`WriteFailure`]: no later piece is applied; [`Writing::into_applied`] has those before it.
    pub fn apply<D: Decode>(
        &mut self,
        pool: &BatchPool,
        decoder: &mut D,
    ) -> Result<(), WriteFailure<D::Error>> {
        // There are as many batches as writes that are applied at a time: waiting for the disk needs none.
        let mut batch = pool.take();
        let result = self.apply_pieces(decoder, &mut batch);
        pool.give(batch);
        self.writes.metrics.decode.observe_ns(self.decode_ns);
        result
    }

    fn apply_pieces<D: Decode>(
        &mut self,
        decoder: &mut D,
        batch: &mut WriteBatch,
    ) -> Result<(), WriteFailure<D::Error>> {
        let clock = &self.writes.clock;
        loop {
            let start_ns = clock.mono_ns();
            let decoded = decoder.next_piece(batch);
            self.decode_ns += clock.mono_ns().saturating_sub(start_ns);
            if !decoded.map_err(WriteFailure::Decode)? {
                return Ok(());
            }
            self.apply_batch(batch).map_err(WriteFailure::Store)?;
            decoder.take_back(batch);
        }
    }

    /// Applies a batch of the server itself, which is not decoded. It is visible and not durable yet. Blocks
    /// the thread.
    ///
    /// # Errors
    /// [`StoreFailure`]: nothing of the batch is applied.
    pub fn apply_batch(&mut self, batch: &mut WriteBatch) -> Result<(), StoreFailure> {
        if !has_items(batch) {
            return Ok(());
        }
        let added = self.target.identity.principal().added_labels();
        let source = added.add_to(batch).map_err(StoreFailure::Labels)?;
        let result = self.apply_labelled(batch);
        // The batch is used again.
        batch.source = source;
        result
    }

    fn apply_labelled(&mut self, batch: &WriteBatch) -> Result<(), StoreFailure> {
        let origin = BatchOrigin {
            tenant: self.target.identity.tenant(),
            store: self.target.store,
            writer: self.target.writer,
            request_id: self.request_id,
            arrival_ms: self.writes.clock.now_ms(),
        };
        let applied = self.destination.apply(&origin, batch);
        let applied = applied.map_err(|failure| self.writes.failed(failure))?;
        self.start_time_count += batch.start_times.iter().filter(|&&start| start != 0).count() as u64;
        self.applied = Some(match self.applied.take() {
            None => applied,
            Some(before) => before.join(applied),
        });
        Ok(())
    }

    /// Waits until all pieces are durable, and counts them. `add_refused` adds samples that never reached the
    /// store. Blocks the thread.
    ///
    /// # Errors
    /// [`StoreFailure`]: the samples may be lost.
    pub fn wait(self, add_refused: impl FnOnce(&mut WriteOutcome)) -> Result<Acknowledged, StoreFailure> {
        let metrics = &self.writes.metrics;
        let mut acknowledged = Acknowledged::default();
        if let Some(applied) = self.applied {
            let waited = self.destination.wait(applied);
            let elapsed_ns = self.writes.clock.mono_ns().saturating_sub(self.start_ns);
            metrics.append.observe_ns(elapsed_ns.saturating_sub(self.decode_ns));
            acknowledged = waited.map_err(|failure| self.writes.failed(failure))?;
        }
        metrics.start_times.add(self.start_time_count);
        add_refused(&mut acknowledged.outcome);
        self.writes.count(self.destination, self.target.identity.tenant(), &acknowledged.outcome);
        Ok(acknowledged)
    }

    /// Returns true if the samples go to the replicated log, where a gateway checks limits of series.
    #[must_use]
    pub fn goes_to_log(&self) -> bool {
        matches!(self.destination, Destination::Log(_))
    }

    /// Bytes that the applied pieces have queued for the WAL.
    #[must_use]
    pub fn wal_bytes(&self) -> u64 {
        self.applied.as_ref().map_or(0, Applied::wal_bytes)
    }

    /// Samples that are applied, for [`Writes::wait`]; `None` if there are none.
    #[must_use]
    pub fn into_applied(self) -> Option<Applied> {
        self.applied
    }
}

/// Returns true if the store has something to do for a batch.
fn has_items(batch: &WriteBatch) -> bool {
    !(batch.times.is_empty() && batch.exemplars.is_empty() && batch.metadata.is_empty())
}

/// Decoder of a request that is one piece.
pub struct OnePiece<F>(Option<F>);

impl<F> OnePiece<F> {
    /// `decode` fills the batch.
    pub fn new(decode: F) -> OnePiece<F> {
        OnePiece(Some(decode))
    }
}

impl<E, F: FnOnce(&mut WriteBatch) -> Result<(), E>> Decode for OnePiece<F> {
    type Error = E;

    fn next_piece(&mut self, batch: &mut WriteBatch) -> Result<bool, E> {
        self.0.take().map_or(Ok(false), |decode| decode(batch).map(|()| true))
    }
}
