//! Time slices: a running request gives its permit to a waiting one and waits for the next permit, with what
//! it has computed so far (cooperative multitasking).
//!
//! Invariants: a request gives way only to one whose tenant, or whose principal of the same tenant, runs less
//! for its weight; after it has got a permit, it keeps it for a slice. Paused requests are bounded in number
//! and in memory, so that a permit for a new request does not cost an unbounded amount of memory. A paused
//! request goes on before requests of its principal that have not run.
//! Not here: the points at which a request may pause (`exec::scan`, `exec::rows`), which hold no lock.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use chronolith_model::query::TimeSlice;
use chronolith_model::tenant::WEIGHT_DEFAULT;
use chronolith_model::{QueryError, ReadContext, TenantId};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::principals::{PrincipalHash, RunningCounts};
use super::turns::Turn;
use super::{FairQueue, Grant, Permit, QueueOptions, State, TenantQueue, Waiter};
use crate::admission::share::Caller;
use crate::limits::QUERY_SLICE_NS;

/// A paused request looks for its cancellation and its deadline this often.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Permit of a request that gives way to others after its time slice.
pub struct SlicedPermit {
    queue: Arc<FairQueue>,
    tenant: TenantId,
    principal: Box<str>,
    slice_ns: u64,
    /// `None` while the request is paused, and after it has given its permit back.
    permit: Mutex<Option<Permit>>,
    /// Time of the monotonic clock before which the request keeps its permit.
    slice_end_ns: AtomicU64,
    /// A waiting request was found that is to go first.
    is_over: AtomicBool,
}

/// A paused request in the queue; it leaves the queue on drop.
struct Paused<'a> {
    slice: &'a SlicedPermit,
    id: u64,
    granted: oneshot::Receiver<Permit>,
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        let caller = Caller { tenant: &self.slice.tenant, principal: &self.slice.principal };
        self.slice.queue.leave(caller, self.id);
    }
}

impl SlicedPermit {
    /// Begins a slice of `permit`, longer the larger the weight of its tenant is.
    #[must_use]
    pub fn new(permit: Permit, caller: Caller<'_>, weight: u32) -> SlicedPermit {
        let queue = permit.queue.clone();
        let slice_ns = QUERY_SLICE_NS * u64::from(weight.max(WEIGHT_DEFAULT)) / u64::from(WEIGHT_DEFAULT);
        let slice_end_ns = AtomicU64::new(queue.clock.mono_ns().saturating_add(slice_ns));
        SlicedPermit {
            queue,
            tenant: caller.tenant.clone(),
            principal: caller.principal.into(),
            slice_ns,
            permit: Mutex::new(Some(permit)),
            slice_end_ns,
            is_over: AtomicBool::new(false),
        }
    }

    /// Returns true if requests of its queue pause.
    #[must_use]
    pub fn is_sliced(&self) -> bool {
        self.queue.options.paused_max > 0
    }

    /// Gives the permit back; the request runs on and does not pause again.
    pub fn release(&self) {
        let permit = self.permit.lock().take();
        drop(permit);
    }

    /// Returns true if a waiting request is to go before this one. The memory that it holds is looked at when
    /// it pauses.
    fn has_successor(&self) -> bool {
        let principal = PrincipalHash::of(&self.principal);
        let state = self.queue.state.lock();
        state.successor_of(&self.queue.options, &self.tenant, principal, 0).is_some()
    }

    fn begin_slice(&self) {
        self.is_over.store(false, Ordering::Relaxed);
        let end_ns = self.queue.clock.mono_ns().saturating_add(self.slice_ns);
        self.slice_end_ns.store(end_ns, Ordering::Relaxed);
    }

    /// Gives the permit to a waiting request, and queues this one with the memory that it holds. `None` if no
    /// request is to go first.
    fn pause(&self, held_bytes: u64) -> Option<Paused<'_>> {
        let permit = self.permit.lock().take()?;
        let (grant, granted) = oneshot::channel();
        match self.queue.hand_over(permit, &self.principal, grant, held_bytes) {
            Ok(id) => Some(Paused { slice: self, id, granted }),
            Err(permit) => {
                *self.permit.lock() = Some(permit);
                self.begin_slice();
                None
            }
        }
    }

    /// Continues with a permit.
    fn resume(&self, permit: Permit) {
        *self.permit.lock() = Some(permit);
        self.begin_slice();
    }
}

impl TimeSlice for SlicedPermit {
    fn is_over(&self) -> bool {
        // PERF: one read of an atomic per morsel as long as no request waits.
        if self.queue.queued_count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        if self.is_over.load(Ordering::Relaxed) {
            return true;
        }
        if self.queue.clock.mono_ns() < self.slice_end_ns.load(Ordering::Relaxed) {
            return false;
        }
        let has_permit = self.permit.lock().is_some();
        let is_over = has_permit && self.has_successor();
        match is_over {
            true => self.is_over.store(true, Ordering::Relaxed),
            false => self.begin_slice(),
        }
        is_over
    }

    fn give_way(&self, ctx: &ReadContext) -> Result<(), QueryError> {
        let Some(mut paused) = self.pause(ctx.budget.used_bytes()) else { return Ok(()) };
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        loop {
            match Pin::new(&mut paused.granted).poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(Ok(permit)) => {
                    self.resume(permit);
                    return Ok(());
                }
                Poll::Ready(Err(_)) => unreachable!("a paused request is not evicted from the queue"),
                Poll::Pending => {
                    ctx.check()?;
                    std::thread::park_timeout(CANCEL_CHECK_INTERVAL);
                }
            }
        }
    }
}

/// Wakes a paused thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The waiting request that gets the permit of a running one.
enum Successor {
    /// The next one of another tenant.
    OfTenant(Turn, TenantId),
    /// The next one of another principal of the same tenant.
    OfPrincipal,
}

impl TenantQueue {
    /// Returns true if the tenant has less than `other` for its weight, and no more with another permit of
    /// it. A tenant without a permit always has less.
    fn is_behind(&self, other: &TenantQueue) -> bool {
        let weighted = |count: usize, weight: u32| count as u64 * u64::from(weight);
        self.running_count == 0
            || weighted(self.running_count + 1, other.share.weight)
                <= weighted(other.running_count, self.share.weight)
    }
}

impl RunningCounts {
    /// Returns true if `name` runs less than `principal`, and no more with another permit of it.
    fn is_behind(&self, name: &str, principal: PrincipalHash) -> bool {
        self.of(PrincipalHash::of(name)) < self.of(principal)
    }
}

impl State {
    /// Returns the request that goes before a running one of `principal` that holds `held_bytes`.
    fn successor_of(
        &self,
        options: &QueueOptions,
        tenant: &TenantId,
        principal: PrincipalHash,
        held_bytes: u64,
    ) -> Option<Successor> {
        let own = self.tenants.get(tenant)?;
        for (turn, other) in self.turns.iter().filter(|(_, other)| *other != tenant) {
            let is_next = |one: &TenantQueue| {
                let next = one.waiters.first(|_| true);
                let may_run = one.is_below_limits() && one.is_behind(own);
                may_run
                    && next
                        .is_some_and(|next| self.may_pause_for(next, options.paused_max, options, held_bytes))
            };
            if self.tenants.get(other).is_some_and(is_next) {
                return Some(Successor::OfTenant(turn, other.clone()));
            }
        }
        let next = own.waiters.first(|name| own.running_by_principal.is_behind(name, principal))?;
        // The principals of a tenant leave half of the pauses to other tenants.
        let paused_max = options.paused_max.div_ceil(2);
        self.may_pause_for(next, paused_max, options, held_bytes).then_some(Successor::OfPrincipal)
    }

    /// Returns true if the limits allow that a request which holds `held_bytes` is paused for `next`.
    fn may_pause_for(
        &self,
        next: &Waiter,
        paused_max: usize,
        options: &QueueOptions,
        held_bytes: u64,
    ) -> bool {
        let freed_bytes = next.paused_bytes.unwrap_or(0);
        let paused_bytes = (self.paused_bytes - freed_bytes).saturating_add(held_bytes);
        // A paused request that goes on makes room for the next one.
        (next.paused_bytes.is_some() || self.paused_count < paused_max)
            && paused_bytes <= options.paused_bytes_max
    }

    /// Queues a running request of `tenant` as paused, after the requests of other tenants; returns its id.
    fn push_paused(
        &mut self,
        tenant: &TenantId,
        principal: &str,
        hash: PrincipalHash,
        waiter: Waiter,
    ) -> u64 {
        let id = self.next_waiter_id;
        self.next_waiter_id += 1;
        self.paused_count += 1;
        self.paused_bytes += waiter.paused_bytes.unwrap_or(0);
        if let Some(own) = self.tenants.get_mut(tenant) {
            own.remove_running(hash);
            own.waiters.push_paused(principal, id, waiter);
            if let Some(turn) = own.turn.take() {
                self.turns.remove(turn);
            }
        }
        id
    }

    /// Takes the next request of a successor out of the queue, with the tenant and principal of it.
    fn take_successor(
        &mut self,
        successor: Successor,
        tenant: &TenantId,
        principal: PrincipalHash,
    ) -> Option<(TenantId, Arc<str>, Waiter)> {
        match successor {
            Successor::OfTenant(turn, other) => {
                let one = self.tenants.get_mut(&other)?;
                let (name, waiter) = one.waiters.pop()?;
                one.turn = None;
                self.turns.take(turn);
                Some((other, name, waiter))
            }
            Successor::OfPrincipal => {
                let TenantQueue { waiters, running_by_principal, .. } = self.tenants.get_mut(tenant)?;
                let (name, waiter) =
                    waiters.pop_first(|name| running_by_principal.is_behind(name, principal))?;
                Some((tenant.clone(), name, waiter))
            }
        }
    }
}

impl FairQueue {
    /// Gives `permit` to the request that is to go before its own, and queues its own one as paused; returns
    /// its id in the queue.
    ///
    /// # Errors
    /// The permit if no request is to go first, or if there are too many paused ones.
    fn hand_over(
        &self,
        mut permit: Permit,
        principal: &str,
        grant: Grant,
        held_bytes: u64,
    ) -> Result<u64, Permit> {
        let mut state = self.state.lock();
        let tenant = permit.tenant.clone();
        let hash = permit.principal;
        let successor = state.successor_of(&self.options, &tenant, hash, held_bytes);
        let next = successor.and_then(|successor| state.take_successor(successor, &tenant, hash));
        let Some((other, name, next)) = next else { return Err(permit) };
        state.count_taken(&next);
        let id =
            state.push_paused(&tenant, principal, hash, Waiter { grant, paused_bytes: Some(held_bytes) });
        permit.principal = PrincipalHash::of(&name);
        if let Some(one) = state.tenants.get_mut(&other) {
            one.add_running(permit.principal);
        }
        permit.tenant = other;
        state.give_turn(&tenant);
        state.give_turn(&permit.tenant);
        self.publish(&state);
        drop(state);
        self.yielded.add(1);
        // If the request has left, its permit goes to the next one.
        drop(next.grant.send(permit));
        Ok(id)
    }
}

#[cfg(test)]
mod tests;
