//! Concurrency limit of requests: a semaphore per tenant, then one of the process, both in order of arrival.
//!
//! Invariants: a request that waits for the process holds a permit of its tenant, so one tenant has at most
//! its own limit of requests in the common queue.
//! Not here: deadlines, which end the wait from outside (`store::attempts`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_base::hash::HashMap;
use chronolith_model::tenant::TenantId;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

/// Semaphores of idle tenants are dropped above this count.
const TENANTS_MAX: usize = 1024;

/// Right to have one request in flight.
#[derive(Debug)]
pub(crate) struct Permit {
    _tenant: OwnedSemaphorePermit,
    _process: OwnedSemaphorePermit,
}

/// Semaphores of the process and its tenants.
#[derive(Debug)]
pub(crate) struct Limits {
    process: Arc<Semaphore>,
    tenant_requests_max: usize,
    tenants: Mutex<HashMap<TenantId, Arc<Semaphore>>>,
    waits: AtomicU64,
}

impl Limits {
    /// At most `requests_max` requests at once, `tenant_requests_max` of them of one tenant.
    pub(crate) fn new(requests_max: usize, tenant_requests_max: usize) -> Limits {
        Limits {
            process: Arc::new(Semaphore::new(requests_max)),
            tenant_requests_max: tenant_requests_max.min(requests_max),
            tenants: Mutex::default(),
            waits: AtomicU64::new(0),
        }
    }

    /// Requests that had to wait for a permit.
    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Waits for a permit. `None` only if the semaphores are closed, which this crate never does.
    pub(crate) async fn acquire(&self, tenant: &TenantId) -> Option<Permit> {
        let own = self.tenant(tenant);
        if let Some(permit) = try_both(&own, &self.process) {
            return Some(permit);
        }
        self.waits.fetch_add(1, Ordering::Relaxed);
        let of_tenant = own.acquire_owned().await.ok()?;
        let of_process = Arc::clone(&self.process).acquire_owned().await.ok()?;
        Some(Permit { _tenant: of_tenant, _process: of_process })
    }

    /// Returns a permit if nothing waits for one.
    pub(crate) fn try_acquire(&self, tenant: &TenantId) -> Option<Permit> {
        try_both(&self.tenant(tenant), &self.process)
    }

    fn tenant(&self, tenant: &TenantId) -> Arc<Semaphore> {
        let mut tenants = self.tenants.lock();
        if let Some(found) = tenants.get(tenant) {
            return Arc::clone(found);
        }
        if tenants.len() >= TENANTS_MAX {
            // A permit or a waiting request keeps a second reference.
            tenants.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        }
        let semaphore = Arc::new(Semaphore::new(self.tenant_requests_max));
        tenants.insert(tenant.clone(), Arc::clone(&semaphore));
        semaphore
    }
}

fn try_both(tenant: &Arc<Semaphore>, process: &Arc<Semaphore>) -> Option<Permit> {
    let take = |semaphore: &Arc<Semaphore>| -> Result<OwnedSemaphorePermit, TryAcquireError> {
        Arc::clone(semaphore).try_acquire_owned()
    };
    let of_tenant = take(tenant).ok()?;
    let of_process = take(process).ok()?;
    Some(Permit { _tenant: of_tenant, _process: of_process })
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }

    #[test]
    fn one_tenant_cannot_take_all_permits() {
        let limits = Limits::new(4, 3);
        let noisy = tenant("noisy");
        let mut held: Vec<Permit> = (0..3).map(|_| limits.try_acquire(&noisy).unwrap()).collect();
        assert!(limits.try_acquire(&noisy).is_none());
        held.push(limits.try_acquire(&tenant("quiet")).unwrap());
        assert!(limits.try_acquire(&tenant("other")).is_none(), "the limit of the process");
        assert_eq!(limits.waits(), 0);
        let mut waiting = Box::pin(limits.acquire(&noisy));
        assert!(waiting.as_mut().now_or_never().is_none());
        held.remove(0);
        assert!(waiting.now_or_never().flatten().is_some());
        assert_eq!(limits.waits(), 1);
    }

    #[test]
    fn a_dropped_wait_keeps_no_permit() {
        let limits = Limits::new(1, 1);
        let held = limits.try_acquire(&tenant("a")).unwrap();
        for _ in 0..10 {
            assert!(Box::pin(limits.acquire(&tenant("b"))).now_or_never().is_none());
        }
        drop(held);
        assert!(limits.try_acquire(&tenant("c")).is_some());
    }

    #[test]
    fn idle_tenants_are_forgotten() {
        let limits = Limits::new(8, 8);
        let held = limits.try_acquire(&tenant("busy")).unwrap();
        for i in 0..TENANTS_MAX * 3 {
            drop(limits.try_acquire(&tenant(&format!("t{i}"))));
        }
        assert!(limits.tenants.lock().len() <= TENANTS_MAX);
        assert!(limits.tenants.lock().contains_key(&tenant("busy")));
        drop(held);
    }
}
