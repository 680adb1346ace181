//! Semaphore with fair queueing: a free permit goes to the next tenant by weighted round robin (`turns`), and
//! there to the next principal (`principals`), so that hundreds of waiting requests of one tenant delay
//! another by one request, not by hundreds.
//!
//! Invariants: `running <= permits`; no tenant runs more than its own limit; `waiting <= waiting_max`; no
//! tenant that may run has a waiter while a permit is free; a tenant whose writes have queued as many bytes
//! for the WAL as it may gets no permit until some of them are durable. When the queue is full, a request is
//! refused whose tenant has the longest queue for its weight, or whose principal has the longest of its
//! tenant.
//! A running request may give its permit to a waiting one and wait again (`time_slice`).
//! Not here: the limit and the weight of a tenant (the parent).

mod principals;
pub mod time_slice;
mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use chronolith_base::Clock;
use chronolith_base::hash::HashMap;
use chronolith_model::TenantId;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use self::principals::{PrincipalHash, PrincipalQueues, RunningCounts};
use self::turns::{Turn, Turns};
use super::share::Caller;
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

/// Setting of the bytes that a tenant may have in the queue of the WAL, in refusals.
const UNCOMMITTED_SETTING: &str = "weight, the tenant's writes wait for the disk";

/// Names and limits of a queue.
#[derive(Debug, Clone, Copy)]
pub struct QueueOptions {
    /// Requests of the class in refusals, in plural.
    pub what: &'static str,
    /// The setting of the number of permits, or "fixed".
    pub setting: &'static str,
    /// Requests that run at once; 0 counts as 1.
    pub permit_count: usize,
    /// Requests that wait.
    pub waiting_max: usize,
    /// Requests that are paused at a time; 0 = each runs to its end.
    pub paused_max: usize,
    /// Memory of all paused requests together.
    pub paused_bytes_max: u64,
}

/// Permits of one class, and a queue per tenant.
pub struct FairQueue {
    options: QueueOptions,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Number of requests that wait or are paused, for running ones to read without the lock.
    queued_count: AtomicUsize,
    refused: Counter,
    yielded: Counter,
    /// Time in the queue, of all requests that got a permit.
    pub wait: Seconds,
}

#[derive(Default)]
struct State {
    running_count: usize,
    waiting_count: usize,
    paused_count: usize,
    /// Memory of paused requests.
    paused_bytes: u64,
    next_waiter_id: u64,
    /// Tenants with requests that run or wait.
    tenants: HashMap<TenantId, TenantQueue>,
    /// Tenants with a waiter and below their limit.
    turns: Turns,
}

/// Share of a tenant in the permits of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantShare {
    /// Requests that run at once; at least 1.
    pub permit_count: usize,
    /// Part in the turns, relative to other tenants; at least 1.
    pub weight: u32,
    /// Bytes in the queue of the WAL from which on no further request runs; `u64::MAX` = no limit.
    pub uncommitted_bytes_max: u64,
}

struct TenantQueue {
    share: TenantShare,
    running_count: usize,
    running_by_principal: RunningCounts,
    /// Bytes that its requests have queued for the WAL and that are not durable.
    uncommitted_bytes: u64,
    waiters: PrincipalQueues<Waiter>,
    turn: Option<Turn>,
}

/// A request that wants a permit.
struct Waiter {
    grant: Grant,
    /// Memory that a paused request holds; `None` for one that has not run.
    paused_bytes: Option<u64>,
}

/// Way of a permit to a waiting request.
type Grant = oneshot::Sender<Permit>;

impl TenantQueue {
    fn new(share: TenantShare) -> TenantQueue {
        TenantQueue {
            share,
            running_count: 0,
            running_by_principal: RunningCounts::default(),
            uncommitted_bytes: 0,
            waiters: PrincipalQueues::default(),
            turn: None,
        }
    }

    fn add_running(&mut self, principal: PrincipalHash) {
        self.running_count += 1;
        self.running_by_principal.add(principal);
    }

    fn remove_running(&mut self, principal: PrincipalHash) {
        self.running_count -= 1;
        self.running_by_principal.remove(principal);
    }

    /// Returns true if the limits of the tenant allow another request.
    fn is_below_limits(&self) -> bool {
        self.running_count < self.share.permit_count && !self.is_full_of_bytes()
    }

    /// Returns true if the tenant waits for its bytes to become durable.
    fn is_full_of_bytes(&self) -> bool {
        self.uncommitted_bytes >= self.share.uncommitted_bytes_max
    }

    /// Returns true if the queue remains at least as long, by weight, as one of `len` requests and `weight`
    /// after it has lost a request.
    fn is_longer_than(&self, len: usize, weight: u32) -> bool {
        self.waiters.len().saturating_sub(1) as u64 * u64::from(weight)
            >= len as u64 * u64::from(self.share.weight)
    }
}

/// A permit of the semaphore, released on drop.
pub struct Permit {
    queue: Arc<FairQueue>,
    tenant: TenantId,
    principal: PrincipalHash,
}

impl Permit {
    /// Gives the permit back. The tenant has `bytes` in the queue of the WAL until the returned value is
    /// dropped.
    #[must_use = "the bytes count until it is dropped"]
    pub fn into_uncommitted(self, bytes: u64) -> UncommittedBytes {
        // Before the permit is given back, or the next request of the tenant runs without a look at them.
        if let Some(one) = self.queue.state.lock().tenants.get_mut(&self.tenant) {
            one.uncommitted_bytes += bytes;
        }
        UncommittedBytes { queue: self.queue.clone(), tenant: self.tenant.clone(), bytes }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.queue.release(&self.tenant, self.principal);
    }
}

/// Bytes of a tenant in the queue of the WAL, durable or given up when it is dropped.
pub struct UncommittedBytes {
    queue: Arc<FairQueue>,
    tenant: TenantId,
    bytes: u64,
}

impl Drop for UncommittedBytes {
    fn drop(&mut self) {
        self.queue.remove_uncommitted(&self.tenant, self.bytes);
    }
}

/// A queued request, removed from the queue on drop.
struct Waiting<'q> {
    queue: &'q FairQueue,
    caller: Caller<'q>,
    id: u64,
    granted: oneshot::Receiver<Permit>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.queue.leave(self.caller, self.id);
    }
}

/// Result of [`FairQueue::arrive`].
enum Arrival {
    Runs(Permit),
    Waits(u64, oneshot::Receiver<Permit>),
}

impl FairQueue {
    /// A queue without requests.
    pub fn new(options: QueueOptions, clock: Arc<dyn Clock>) -> Arc<FairQueue> {
        Arc::new(FairQueue {
            options: QueueOptions { permit_count: options.permit_count.max(1), ..options },
            clock,
            state: Mutex::default(),
            queued_count: AtomicUsize::new(0),
            refused: Counter::default(),
            yielded: Counter::default(),
            wait: Seconds::default(),
        })
    }

    /// Waits for a permit, at most `timeout`. Dropping the future leaves the queue.
    pub async fn acquire(
        self: &Arc<FairQueue>,
        caller: Caller<'_>,
        share: TenantShare,
        timeout: Duration,
    ) -> Result<Permit, AdmissionError> {
        let (id, granted) = match self.arrive(caller, share)? {
            Arrival::Runs(permit) => {
                self.wait.observe_ns(0);
                return Ok(permit);
            }
            Arrival::Waits(id, granted) => (id, granted),
        };
        let start_ns = self.clock.mono_ns();
        let mut waiting = Waiting { queue: self, caller, id, granted };
        match tokio::time::timeout(timeout, &mut waiting.granted).await {
            Ok(Ok(permit)) => {
                self.wait.observe_ns(self.clock.mono_ns().saturating_sub(start_ns));
                Ok(permit)
            }
            // The queue was full, and this part of it the longest: evicted for a request of another sender.
            Ok(Err(_)) => Err(self.refuse_full()),
            Err(_) => {
                self.refused.add(1);
                let is_full_of_bytes =
                    self.state.lock().tenants.get(caller.tenant).is_some_and(TenantQueue::is_full_of_bytes);
                let setting = if is_full_of_bytes { UNCOMMITTED_SETTING } else { self.options.setting };
                Err(AdmissionError::Timeout { what: self.options.what, waited: timeout, setting })
            }
        }
    }

    /// Returns a permit if one is free and no other request of the tenant waits; it never waits.
    #[must_use]
    pub fn try_acquire(self: &Arc<FairQueue>, tenant: &TenantId, share: TenantShare) -> Option<Permit> {
        let mut state = self.state.lock();
        let permit = self.try_run(&mut state, Caller::from(tenant), share);
        state.forget_if_idle(tenant);
        drop(state);
        match &permit {
            Some(_) => self.wait.observe_ns(0),
            None => self.refused.add(1),
        }
        permit
    }

    /// Number of permits.
    pub fn permit_count(&self) -> usize {
        self.options.permit_count
    }

    /// Requests that run.
    pub fn running(&self) -> usize {
        self.state.lock().running_count
    }

    /// Requests of `tenant` that run.
    pub fn running_of(&self, tenant: &TenantId) -> usize {
        self.state.lock().tenants.get(tenant).map_or(0, |one| one.running_count)
    }

    /// Requests of `tenant` in the queue.
    pub fn waiting_of(&self, tenant: &TenantId) -> usize {
        self.state.lock().tenants.get(tenant).map_or(0, |one| one.waiters.len())
    }

    /// Bytes of `tenant` in the queue of the WAL.
    pub fn uncommitted_bytes_of(&self, tenant: &TenantId) -> u64 {
        self.state.lock().tenants.get(tenant).map_or(0, |one| one.uncommitted_bytes)
    }

    /// Requests in the queue.
    pub fn waiting(&self) -> usize {
        self.state.lock().waiting_count
    }

    /// Requests that gave their permit to another one and wait for the next.
    pub fn paused(&self) -> usize {
        self.state.lock().paused_count
    }

    /// Number of times that a request gave its permit to another one, since start.
    pub fn yielded(&self) -> u64 {
        self.yielded.get()
    }

    /// Requests refused since start.
    pub fn refused(&self) -> u64 {
        self.refused.get()
    }

    fn refuse_full(&self) -> AdmissionError {
        self.refused.add(1);
        let QueueOptions { what, waiting_max, setting, .. } = self.options;
        AdmissionError::QueueFull { what, waiting_max, setting }
    }

    /// Takes a permit if one is free and no other request of the tenant waits.
    fn try_run(
        self: &Arc<FairQueue>,
        state: &mut State,
        caller: Caller<'_>,
        share: TenantShare,
    ) -> Option<Permit> {
        let Caller { tenant, principal } = caller;
        let has_permit = state.running_count < self.options.permit_count;
        let one = state.tenants.entry(tenant.clone()).or_insert_with(|| TenantQueue::new(share));
        one.share = share;
        if !has_permit || !one.waiters.is_empty() || !one.is_below_limits() {
            return None;
        }
        let principal = PrincipalHash::of(principal);
        one.add_running(principal);
        state.running_count += 1;
        Some(Permit { queue: self.clone(), tenant: tenant.clone(), principal })
    }

    fn arrive(
        self: &Arc<FairQueue>,
        caller: Caller<'_>,
        share: TenantShare,
    ) -> Result<Arrival, AdmissionError> {
        let tenant = caller.tenant;
        let mut state = self.state.lock();
        if let Some(permit) = self.try_run(&mut state, caller, share) {
            return Ok(Arrival::Runs(permit));
        }
        let evicted = if state.waiting_count < self.options.waiting_max {
            None
        } else {
            let Some(evicted) = state.evict_for(caller, share.weight) else {
                state.forget_if_idle(tenant);
                drop(state);
                return Err(self.refuse_full());
            };
            Some(evicted)
        };
        let (grant, granted) = oneshot::channel();
        let id = state.next_waiter_id;
        state.next_waiter_id += 1;
        state.waiting_count += 1;
        if let Some(one) = state.tenants.get_mut(tenant) {
            one.waiters.push(caller.principal, id, Waiter { grant, paused_bytes: None });
        }
        state.give_turn(tenant);
        // A raised limit of the tenant may let some of its waiters run.
        let grants = self.dispatch(&mut state);
        drop(state);
        drop(evicted);
        send(grants);
        Ok(Arrival::Waits(id, granted))
    }

    fn release(self: &Arc<FairQueue>, tenant: &TenantId, principal: PrincipalHash) {
        let mut state = self.state.lock();
        state.running_count -= 1;
        if let Some(one) = state.tenants.get_mut(tenant) {
            one.remove_running(principal);
        }
        state.give_turn(tenant);
        let grants = self.dispatch(&mut state);
        state.forget_if_idle(tenant);
        drop(state);
        send(grants);
    }

    fn remove_uncommitted(self: &Arc<FairQueue>, tenant: &TenantId, bytes: u64) {
        let mut state = self.state.lock();
        if let Some(one) = state.tenants.get_mut(tenant) {
            one.uncommitted_bytes -= bytes;
        }
        state.give_turn(tenant);
        let grants = self.dispatch(&mut state);
        state.forget_if_idle(tenant);
        drop(state);
        send(grants);
    }

    fn leave(&self, caller: Caller<'_>, id: u64) {
        let mut state = self.state.lock();
        let Some(one) = state.tenants.get_mut(caller.tenant) else { return };
        if let Some(waiter) = one.waiters.remove(caller.principal, id) {
            state.count_taken(&waiter);
            state.forget_if_idle(caller.tenant);
            self.publish(&state);
        }
    }

    /// Shows running requests how many others want a permit.
    fn publish(&self, state: &State) {
        self.queued_count.store(state.waiting_count + state.paused_count, Ordering::Relaxed);
    }

    /// Takes as many waiters out of the queue as there are permits for, tenant by tenant.
    fn dispatch(self: &Arc<FairQueue>, state: &mut State) -> Vec<(Grant, Permit)> {
        let mut grants = Vec::new();
        while state.running_count < self.options.permit_count {
            let Some((turn, tenant)) = state.turns.pop() else { break };
            let Some(one) = state.tenants.get_mut(&tenant) else { continue };
            one.turn = None;
            // The tenant's waiters may have left meanwhile, or it has reached a limit.
            if !one.is_below_limits() {
                continue;
            }
            let Some((name, waiter)) = one.waiters.pop() else { continue };
            let principal = PrincipalHash::of(&name);
            one.add_running(principal);
            state.running_count += 1;
            state.count_taken(&waiter);
            state.turns.advance(turn);
            state.give_turn(&tenant);
            grants.push((waiter.grant, Permit { queue: self.clone(), tenant, principal }));
        }
        self.publish(state);
        grants
    }
}

impl State {
    /// Counts a request that has left the queue.
    fn count_taken(&mut self, waiter: &Waiter) {
        match waiter.paused_bytes {
            None => self.waiting_count -= 1,
            Some(bytes) => {
                self.paused_count -= 1;
                self.paused_bytes -= bytes;
            }
        }
    }

    /// Gives `tenant` a turn if it has none and a waiter that may run.
    fn give_turn(&mut self, tenant: &TenantId) {
        let Some(one) = self.tenants.get_mut(tenant) else { return };
        if one.turn.is_none() && !one.waiters.is_empty() && one.is_below_limits() {
            one.turn = Some(self.turns.add(tenant, one.share.weight));
        }
    }

    /// Takes a request out of the full queue, so that one of `caller` can wait: the newest one of the tenant
    /// with the longest queue for its weight or, if that is the tenant of `caller`, of the principal with the
    /// longest one there. The requests before it have waited longer. `None` if `caller` has the longest.
    fn evict_for(&mut self, caller: Caller<'_>, weight: u32) -> Option<Waiter> {
        let waiting_here = self.tenants.get(caller.tenant).map_or(0, |one| one.waiters.len());
        let by_weight = |a: &TenantQueue, b: &TenantQueue| {
            let weighted = |one: &TenantQueue, other: &TenantQueue| {
                one.waiters.len() as u64 * u64::from(other.share.weight)
            };
            weighted(a, b).cmp(&weighted(b, a))
        };
        let others = self.tenants.iter_mut().filter(|(tenant, _)| *tenant != caller.tenant);
        let longest = others.map(|(_, one)| one).max_by(|a, b| by_weight(a, b));
        let longest = longest.filter(|one| one.is_longer_than(waiting_here + 1, weight));
        let evicted = match longest {
            Some(other) => other.waiters.pop_newest_of_longest(1),
            None => {
                let own = &mut self.tenants.get_mut(caller.tenant)?.waiters;
                let len_min = own.len_of(caller.principal) + 2;
                own.pop_newest_of_longest(len_min)
            }
        }?;
        self.waiting_count -= 1;
        Some(evicted)
    }

    fn forget_if_idle(&mut self, tenant: &TenantId) {
        let is_idle = |one: &TenantQueue| {
            one.running_count == 0 && one.waiters.is_empty() && one.uncommitted_bytes == 0
        };
        if self.tenants.get(tenant).is_some_and(is_idle) {
            let removed = self.tenants.remove(tenant);
            if let Some(turn) = removed.and_then(|one| one.turn) {
                self.turns.remove(turn);
            }
        }
    }
}

/// Wakes the requests that may run. A permit whose request has left meanwhile is given back, and goes to the
/// next one; the lock of the queue must not be held.
fn send(grants: Vec<(Grant, Permit)>) {
    for (grant, permit) in grants {
        drop(grant.send(permit));
    }
}

#[cfg(test)]
mod tests;
