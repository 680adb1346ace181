//! Counters of requests by operation, outcome and tenant; latency histograms; recent latency and bandwidth.
//!
//! Invariants: each request is counted once, also one that its caller drops; tenants above
//! [`TENANTS_MAX`] share one entry.
//! Not here: the text of metrics (`server`).

mod estimates;
mod histogram;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_base::Clock;
use chronolith_base::hash::HashMap;
use chronolith_model::tenant::TenantId;
use parking_lot::Mutex;

pub use self::estimates::Estimates;
pub use self::histogram::{HistogramSnapshot, LATENCY_BOUNDS_MS};

use self::estimates::ReadEstimates;
use self::histogram::Histogram;
use super::request::Operation;
pub use super::retry::Outcome;

/// Tenants with counters of their own.
pub const TENANTS_MAX: usize = 10_000;

/// Bytes and time to the first byte of one answer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Transfer {
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    /// Time from the request to the head of its answer; 0 if it was not measured.
    pub(crate) first_byte_ns: u64,
}

#[derive(Debug, Default)]
struct OperationCounters {
    requests: [AtomicU64; Outcome::ALL.len()],
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    latency: Histogram,
}

/// Requests and bytes of a tenant since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantCounters {
    /// Requests, retries and hedges included.
    pub requests: u64,
    /// Bytes of bodies sent.
    pub sent_bytes: u64,
    /// Bytes of bodies received.
    pub received_bytes: u64,
}

#[derive(Debug, Default)]
struct Tenants {
    known: HashMap<TenantId, TenantCounters>,
    others: TenantCounters,
}

impl Tenants {
    fn counters(&mut self, tenant: &TenantId) -> &mut TenantCounters {
        let is_full = self.known.len() >= TENANTS_MAX;
        if is_full && !self.known.contains_key(tenant) {
            return &mut self.others;
        }
        self.known.entry(tenant.clone()).or_default()
    }
}

/// Counters of one store.
pub struct Meter {
    clock: Arc<dyn Clock>,
    operations: [OperationCounters; Operation::ALL.len()],
    tenants: Mutex<Tenants>,
    in_flight: AtomicU64,
    retries: AtomicU64,
    retries_refused: AtomicU64,
    hedges: AtomicU64,
    hedge_wins: AtomicU64,
    reads: ReadEstimates,
}

impl Meter {
    /// Counters at zero.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Meter {
        Meter {
            clock,
            operations: Default::default(),
            tenants: Mutex::default(),
            in_flight: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            retries_refused: AtomicU64::new(0),
            hedges: AtomicU64::new(0),
            hedge_wins: AtomicU64::new(0),
            reads: ReadEstimates::default(),
        }
    }

    /// Begins one request. Dropping the record without an outcome counts it as canceled.
    pub(crate) fn start(&self, operation: Operation, tenant: &TenantId) -> RequestRecord<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.tenants.lock().counters(tenant).requests += 1;
        RequestRecord {
            meter: self,
            operation,
            tenant: tenant.clone(),
            start_ns: self.clock.mono_ns(),
            outcome: Outcome::Canceled,
            transfer: Transfer::default(),
        }
    }

    pub(crate) fn add_retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_retry_refused(&self) {
        self.retries_refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_hedge(&self) {
        self.hedges.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_hedge_win(&self) {
        self.hedge_wins.fetch_add(1, Ordering::Relaxed);
    }

    /// Latency and bandwidth of recent reads.
    #[must_use]
    pub fn estimates(&self) -> Estimates {
        self.reads.estimates()
    }

    /// Copies all counters. `waits` is the count of requests that waited for a permit.
    pub(crate) fn snapshot(&self, waits: u64) -> MeterSnapshot {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let operations = Operation::ALL.map(|operation| {
            let counters = self.of(operation);
            OperationSnapshot {
                operation,
                requests: Outcome::ALL
                    .iter()
                    .zip(&counters.requests)
                    .map(|(&outcome, count)| (outcome, load(count)))
                    .collect(),
                sent_bytes: load(&counters.sent_bytes),
                received_bytes: load(&counters.received_bytes),
                latency: counters.latency.snapshot(),
            }
        });
        let tenants = self.tenants.lock();
        let mut known: Vec<_> = tenants.known.iter().map(|(id, counters)| (id.clone(), *counters)).collect();
        known.sort_by(|(a, _), (b, _)| a.cmp(b));
        MeterSnapshot {
            operations: operations.into(),
            tenants: known,
            other_tenants: tenants.others,
            in_flight: load(&self.in_flight),
            waits,
            retries: load(&self.retries),
            retries_refused: load(&self.retries_refused),
            hedges: load(&self.hedges),
            hedge_wins: load(&self.hedge_wins),
            estimates: self.estimates(),
        }
    }

    fn of(&self, operation: Operation) -> &OperationCounters {
        &self.operations[operation.idx()]
    }
}

/// One request in flight.
pub(crate) struct RequestRecord<'m> {
    meter: &'m Meter,
    operation: Operation,
    tenant: TenantId,
    start_ns: u64,
    outcome: Outcome,
    transfer: Transfer,
}

impl RequestRecord<'_> {
    /// Ends the request.
    pub(crate) fn finish(mut self, outcome: Outcome, transfer: Transfer) {
        self.outcome = outcome;
        self.transfer = transfer;
    }
}

impl Drop for RequestRecord<'_> {
    fn drop(&mut self) {
        let meter = self.meter;
        let latency_ns = meter.clock.mono_ns().saturating_sub(self.start_ns);
        meter.in_flight.fetch_sub(1, Ordering::Relaxed);
        let counters = meter.of(self.operation);
        counters.requests[self.outcome.idx()].fetch_add(1, Ordering::Relaxed);
        counters.sent_bytes.fetch_add(self.transfer.sent_bytes, Ordering::Relaxed);
        counters.received_bytes.fetch_add(self.transfer.received_bytes, Ordering::Relaxed);
        counters.latency.record(latency_ns);
        {
            let mut tenants = meter.tenants.lock();
            let of_tenant = tenants.counters(&self.tenant);
            of_tenant.sent_bytes += self.transfer.sent_bytes;
            of_tenant.received_bytes += self.transfer.received_bytes;
        }
        if self.operation == Operation::Get && self.outcome == Outcome::Ok && self.transfer.first_byte_ns > 0
        {
            let body_ns = latency_ns.saturating_sub(self.transfer.first_byte_ns);
            meter.reads.record(self.transfer.first_byte_ns, body_ns, self.transfer.received_bytes);
        }
    }
}

/// Counters of one operation since the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationSnapshot {
    /// The operation.
    pub operation: Operation,
    /// Requests by outcome, all outcomes in fixed order.
    pub requests: Vec<(Outcome, u64)>,
    /// Bytes of bodies sent.
    pub sent_bytes: u64,
    /// Bytes of bodies received.
    pub received_bytes: u64,
    /// Time from the permit to the end of the answer.
    pub latency: HistogramSnapshot,
}

/// All counters of a store since the start.
#[derive(Debug, Clone, PartialEq)]
pub struct MeterSnapshot {
    /// One entry per operation.
    pub operations: Vec<OperationSnapshot>,
    /// Tenants with counters of their own, sorted.
    pub tenants: Vec<(TenantId, TenantCounters)>,
    /// Sum over all other tenants.
    pub other_tenants: TenantCounters,
    /// Requests without an answer yet.
    pub in_flight: u64,
    /// Requests that waited for a permit.
    pub waits: u64,
    /// Attempts after the first.
    pub retries: u64,
    /// Failures that were not retried because the retry budget or the deadline did not allow it.
    pub retries_refused: u64,
    /// Reads that were sent a second time.
    pub hedges: u64,
    /// Hedges that were answered first.
    pub hedge_wins: u64,
    /// Latency and bandwidth of recent reads.
    pub estimates: Estimates,
}

impl MeterSnapshot {
    /// Requests of an operation with an outcome.
    #[must_use]
    pub fn requests(&self, operation: Operation, outcome: Outcome) -> u64 {
        let of_operation = self.operations.iter().find(|found| found.operation == operation);
        let requests = of_operation.map(|found| found.requests.as_slice()).unwrap_or_default();
        requests.iter().find(|(found, _)| *found == outcome).map_or(0, |(_, count)| *count)
    }
}

#[cfg(test)]
mod tests;
