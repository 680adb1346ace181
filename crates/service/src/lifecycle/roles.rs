//! Roles of a process with a replicated log: its gateway, its lease of rules and its owner, once they are
//! open.
//!
//! Invariant: each is set once.
//! Not here: opening them, their threads (`server::serve`), the store of the owner (`lifecycle`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use chronolith_cluster::gateway::Gateway;
use chronolith_cluster::options::{Role, Roles};
use chronolith_cluster::owner::PartitionOwner;
use chronolith_cluster::rule_lease::RuleLease;
use parking_lot::Mutex;

/// Gateway, lease of rules and owner of a process; a server of its own has none of them.
#[derive(Default)]
pub struct RoleParts {
    roles: Roles,
    gateway: OnceLock<Arc<Gateway>>,
    rule_lease: OnceLock<Arc<RuleLease>>,
    owner: OnceLock<Arc<dyn PartitionOwner>>,
    /// Reason why there is no owner yet.
    owner_wait: Mutex<Option<String>>,
    /// Partitions that accept writes, as an owner knows; 0 = not known.
    accepting_count: AtomicUsize,
}

impl RoleParts {
    /// Parts that are not open yet.
    pub(super) fn new(roles: &Roles) -> RoleParts {
        RoleParts { roles: roles.clone(), ..RoleParts::default() }
    }

    /// Roles of the process.
    #[must_use]
    pub fn roles(&self) -> &Roles {
        &self.roles
    }

    /// Returns true if the process has samples to query: it is no mere gateway.
    #[must_use]
    pub fn has_samples(&self) -> bool {
        self.roles.is_all() || self.roles.has(Role::Owner)
    }

    /// Returns true if the process opens a store: for samples, or as the place from which it maintains the
    /// bucket.
    #[must_use]
    pub fn has_store(&self) -> bool {
        self.has_samples() || self.roles.has(Role::Store)
    }

    /// Returns true if statements change the databases of the bucket, which are the original of a cluster.
    #[must_use]
    pub fn changes_bucket_databases(&self) -> bool {
        self.roles.has(Role::Gateway) || self.roles.has(Role::Query)
    }

    /// The gateway, once it is open.
    #[must_use]
    pub fn gateway(&self) -> Option<&Arc<Gateway>> {
        self.gateway.get()
    }

    /// The lease under which the process evaluates rules; `None` if it has none to evaluate.
    #[must_use]
    pub fn rule_lease(&self) -> Option<&Arc<RuleLease>> {
        self.rule_lease.get()
    }

    /// The owner, once it is open.
    #[must_use]
    pub fn owner(&self) -> Option<&Arc<dyn PartitionOwner>> {
        self.owner.get()
    }

    /// Takes the gateway into use.
    ///
    /// # Panics
    /// If there is one already.
    pub fn set_gateway(&self, gateway: Arc<Gateway>) {
        assert!(self.gateway.set(gateway).is_ok(), "the gateway is opened once");
    }

    /// Takes the lease of rules into use.
    ///
    /// # Panics
    /// If there is one already.
    pub fn set_rule_lease(&self, lease: Arc<RuleLease>) {
        assert!(self.rule_lease.set(lease).is_ok(), "the lease of rules is opened once");
    }

    /// Takes the owner into use.
    ///
    /// # Panics
    /// If there is one already.
    pub fn set_owner(&self, owner: Arc<dyn PartitionOwner>) {
        assert!(self.owner.set(owner).is_ok(), "the owner is opened once");
    }

    /// Replaces the number of partitions that accept writes; returns the one before.
    pub(crate) fn replace_accepting_count(&self, count: usize) -> usize {
        self.accepting_count.swap(count, Ordering::Relaxed)
    }

    /// Partitions that accept writes, on an owner that knows them; else 0.
    pub(crate) fn accepting_count(&self) -> usize {
        self.accepting_count.load(Ordering::Relaxed)
    }

    /// Records why the owner is not open yet.
    pub fn note_owner_wait(&self, why: String) {
        *self.owner_wait.lock() = Some(why);
    }

    /// Returns the reason why a load balancer should send nothing here; `None` = ready.
    pub(super) fn unready_reason(&self) -> Option<String> {
        if self.roles.has(Role::Gateway) {
            let Some(gateway) = self.gateway.get() else {
                return Some("the replicated log is being opened".to_owned());
            };
            if let Some(why) = gateway.unready_reason() {
                return Some(why);
            }
        }
        if !self.roles.has(Role::Owner) {
            return None;
        }
        match self.owner.get() {
            Some(owner) => owner.check_ready().err().map(|why| format!("owner: {why}")),
            None => {
                let why = self.owner_wait.lock().clone();
                Some(format!("owner: {}", why.as_deref().unwrap_or("the log has not been read yet")))
            }
        }
    }
}
