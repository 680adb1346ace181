//! Semaphore with fair queueing: waiters are in one FIFO queue per tenant, a free permit goes to the next
//! tenant in turn (round robin), so that a tenant with hundreds of waiting requests delays another by one
//! request, not by hundreds.
//!
//! Invariants: `running <= permits`; no tenant runs more than its own limit; `waiting <= waiting_max`; no
//! tenant that may run has a waiter while a permit is free. When the queue is full, a request of the tenant
//! with the longest queue is refused.
//! Not here: which limit a tenant has (the parent).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use chronolith_base::Clock;
use chronolith_base::hash::HashMap;
use chronolith_model::TenantId;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::counter::{Counter, Seconds};

/// Reason that a request got no permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    /// The queue is full.
    #[error("too many {what}: {waiting_max} are waiting already (limit: {setting})")]
    QueueFull {
        /// The requests of the class, in plural.
        what: &'static str,
        /// Requests that may wait.
        waiting_max: usize,
        /// The setting of the number of permits, or "fixed".
        setting: &'static str,
    },
    /// No permit became free in time.
    #[error("too many {what}: no permit within {} ms (limit: {setting})", waited.as_millis())]
    Timeout {
        /// The requests of the class, in plural.
        what: &'static str,
        /// Longest wait.
        waited: Duration,
        /// The setting of the number of permits, or "fixed".
        setting: &'static str,
    },
}

/// Permits of one class, and a queue per tenant.
pub struct FairQueue {
    what: &'static str,
    setting: &'static str,
    permit_count: usize,
    waiting_max: usize,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    refused: Counter,
    /// Time in the queue, of all requests that got a permit.
    pub wait: Seconds,
}

#[derive(Default)]
struct State {
    running_count: usize,
    waiting_count: usize,
    next_waiter_id: u64,
    /// Tenants with requests that run or wait.
    tenants: HashMap<TenantId, TenantQueue>,
    /// Tenants with a waiter and below their limit, the next one first; each once.
    turns: VecDeque<TenantId>,
}

#[derive(Default)]
struct TenantQueue {
    permit_count: usize,
    running_count: usize,
    waiters: VecDeque<Waiter>,
    has_turn: bool,
}

struct Waiter {
    id: u64,
    grant: oneshot::Sender<Permit>,
}

/// A permit of the semaphore, released on drop.
pub struct Permit {
    queue: Arc<FairQueue>,
    tenant: TenantId,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.queue.release(&self.tenant);
    }
}

/// A queued request, removed from the queue on drop.
struct Waiting<'q> {
    queue: &'q FairQueue,
    tenant: &'q TenantId,
    id: u64,
    granted: oneshot::Receiver<Permit>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.queue.leave(self.tenant, self.id);
    }
}

/// Result of [`FairQueue::arrive`].
enum Arrival {
    Runs(Permit),
    Waits(u64, oneshot::Receiver<Permit>),
}

impl FairQueue {
    /// A queue for `permit_count` requests at once and `waiting_max` that wait.
    pub fn new(
        what: &'static str,
        setting: &'static str,
        permit_count: usize,
        waiting_max: usize,
        clock: Arc<dyn Clock>,
    ) -> Arc<FairQueue> {
        Arc::new(FairQueue {
            what,
            setting,
            permit_count: permit_count.max(1),
            waiting_max,
            clock,
            state: Mutex::default(),
            refused: Counter::default(),
            wait: Seconds::default(),
        })
    }

    /// Waits for a permit, at most `timeout`; `tenant` runs at most `tenant_permits` at once. Dropping the
    /// future leaves the queue.
    pub async fn acquire(
        self: &Arc<FairQueue>,
        tenant: &TenantId,
        tenant_permits: usize,
        timeout: Duration,
    ) -> Result<Permit, AdmissionError> {
        let (id, granted) = match self.arrive(tenant, tenant_permits.max(1))? {
            Arrival::Runs(permit) => {
                self.wait.observe_ns(0);
                return Ok(permit);
            }
            Arrival::Waits(id, granted) => (id, granted),
        };
        let start_ns = self.clock.mono_ns();
        let mut waiting = Waiting { queue: self, tenant, id, granted };
        match tokio::time::timeout(timeout, &mut waiting.granted).await {
            Ok(Ok(permit)) => {
                self.wait.observe_ns(self.clock.mono_ns().saturating_sub(start_ns));
                Ok(permit)
            }
            // The queue was full, and this tenant's was the longest: evicted for another tenant's request.
            Ok(Err(_)) => Err(self.refuse_full()),
            Err(_) => {
                self.refused.add(1);
                Err(AdmissionError::Timeout { what: self.what, waited: timeout, setting: self.setting })
            }
        }
    }

    /// Returns a permit if one is free and no other request of the tenant waits; it never waits.
    #[must_use]
    pub fn try_acquire(self: &Arc<FairQueue>, tenant: &TenantId, tenant_permits: usize) -> Option<Permit> {
        let mut state = self.state.lock();
        let permit = self.try_run(&mut state, tenant, tenant_permits.max(1));
        state.forget_if_idle(tenant);
        drop(state);
        match &permit {
            Some(_) => self.wait.observe_ns(0),
            None => self.refused.add(1),
        }
        permit
    }

    /// Requests that run.
    pub fn running(&self) -> usize {
        self.state.lock().running_count
    }

    /// Requests in the queue.
    pub fn waiting(&self) -> usize {
        self.state.lock().waiting_count
    }

    /// Requests refused since start.
    pub fn refused(&self) -> u64 {
        self.refused.get()
    }

    fn refuse_full(&self) -> AdmissionError {
        self.refused.add(1);
        AdmissionError::QueueFull { what: self.what, waiting_max: self.waiting_max, setting: self.setting }
    }

    /// Takes a permit if one is free and no other request of the tenant waits.
    fn try_run(
        self: &Arc<FairQueue>,
        state: &mut State,
        tenant: &TenantId,
        tenant_permits: usize,
    ) -> Option<Permit> {
        let has_permit = state.running_count < self.permit_count;
        let one = state.tenants.entry(tenant.clone()).or_default();
        one.permit_count = tenant_permits;
        if !has_permit || !one.waiters.is_empty() || one.running_count >= tenant_permits {
            return None;
        }
        one.running_count += 1;
        state.running_count += 1;
        Some(Permit { queue: self.clone(), tenant: tenant.clone() })
    }

    fn arrive(
        self: &Arc<FairQueue>,
        tenant: &TenantId,
        tenant_permits: usize,
    ) -> Result<Arrival, AdmissionError> {
        let mut state = self.state.lock();
        if let Some(permit) = self.try_run(&mut state, tenant, tenant_permits) {
            return Ok(Arrival::Runs(permit));
        }
        let waiting_here = state.tenants.get(tenant).map_or(0, |one| one.waiters.len());
        let refused = if state.waiting_count < self.waiting_max {
            None
        } else {
            // The newest request of the longest queue is refused: the ones before it have waited longer.
            let longest = state.tenants.values_mut().max_by_key(|one| one.waiters.len());
            let Some(longest) = longest.filter(|longest| longest.waiters.len() > waiting_here + 1) else {
                state.forget_if_idle(tenant);
                drop(state);
                return Err(self.refuse_full());
            };
            let refused = longest.waiters.pop_back();
            state.waiting_count -= 1;
            refused
        };
        let (grant, granted) = oneshot::channel();
        let id = state.next_waiter_id;
        state.next_waiter_id += 1;
        state.waiting_count += 1;
        if let Some(one) = state.tenants.get_mut(tenant) {
            one.waiters.push_back(Waiter { id, grant });
        }
        state.give_turn(tenant);
        // A raised limit of the tenant may let some of its waiters run.
        let grants = self.dispatch(&mut state);
        drop(state);
        drop(refused);
        send(grants);
        Ok(Arrival::Waits(id, granted))
    }

    fn release(self: &Arc<FairQueue>, tenant: &TenantId) {
        let mut state = self.state.lock();
        state.running_count -= 1;
        if let Some(one) = state.tenants.get_mut(tenant) {
            one.running_count -= 1;
        }
        state.give_turn(tenant);
        let grants = self.dispatch(&mut state);
        state.forget_if_idle(tenant);
        drop(state);
        send(grants);
    }

    fn leave(&self, tenant: &TenantId, id: u64) {
        let mut state = self.state.lock();
        let Some(one) = state.tenants.get_mut(tenant) else { return };
        // Ids ascend from front to back.
        let Ok(at) = one.waiters.binary_search_by_key(&id, |waiter| waiter.id) else { return };
        one.waiters.remove(at);
        state.waiting_count -= 1;
        state.forget_if_idle(tenant);
    }

    /// Takes as many waiters out of the queue as there are permits for, tenant by tenant.
    fn dispatch(self: &Arc<FairQueue>, state: &mut State) -> Vec<(oneshot::Sender<Permit>, Permit)> {
        let mut grants = Vec::new();
        while state.running_count < self.permit_count {
            let Some(tenant) = state.turns.pop_front() else { break };
            let Some(one) = state.tenants.get_mut(&tenant) else { continue };
            one.has_turn = false;
            // The tenant's waiters may have left meanwhile, or its limit may be lower.
            if one.running_count >= one.permit_count {
                continue;
            }
            let Some(waiter) = one.waiters.pop_front() else { continue };
            one.running_count += 1;
            state.running_count += 1;
            state.waiting_count -= 1;
            state.give_turn(&tenant);
            grants.push((waiter.grant, Permit { queue: self.clone(), tenant }));
        }
        grants
    }
}

impl State {
    /// Puts `tenant` at the end of the round if it has a waiter that may run.
    fn give_turn(&mut self, tenant: &TenantId) {
        let Some(one) = self.tenants.get_mut(tenant) else { return };
        if !one.has_turn && !one.waiters.is_empty() && one.running_count < one.permit_count {
            one.has_turn = true;
            self.turns.push_back(tenant.clone());
        }
    }

    fn forget_if_idle(&mut self, tenant: &TenantId) {
        let is_idle = |one: &TenantQueue| one.running_count == 0 && one.waiters.is_empty();
        if self.tenants.get(tenant).is_some_and(is_idle) {
            let removed = self.tenants.remove(tenant);
            if removed.is_some_and(|one| one.has_turn) {
                self.turns.retain(|turn| turn != tenant);
            }
        }
    }
}

/// Wakes the requests that may run. A permit whose request has left meanwhile is given back, and goes to the
/// next one; the lock of the queue must not be held.
fn send(grants: Vec<(oneshot::Sender<Permit>, Permit)>) {
    for (grant, permit) in grants {
        drop(grant.send(permit));
    }
}

#[cfg(test)]
mod tests;
