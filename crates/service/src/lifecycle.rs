//! Lifecycle of the server's store: replaying, open, draining, closing. A read-only server over a bucket has
//! no store, only sources that queries read, and so has a query node that is a gateway as well; one over a
//! data directory has a store that no caller changes; a gateway alone has neither, an owner a store that only
//! records of the replicated log change, and a process that maintains the bucket a store without samples,
//! which is its place on disk (`roles`).
//! Invariants: store and sources are set once, when the replay is done; before that, and once the store is
//! being closed, only endpoints that need neither answer.
//! Not here: who opens and closes it (`server::serve`).

mod roles;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use chronolith_cluster::options::{Role, Roles};
use chronolith_model::query::{Queryable, TenantSources};
use chronolith_tsdb::{ReplayProgress, Tsdb};

pub use self::roles::RoleParts;
use crate::access::Identity;
use crate::refusal::Refusal;
use crate::write::destination::Destination;

/// State of the store from start to stop.
#[derive(Default)]
pub struct Lifecycle {
    /// Gateway and owner of a process with a replicated log.
    pub roles: RoleParts,
    /// Set if callers may read the store alone.
    change_refusal: Option<Refusal>,
    store: OnceLock<Opened>,
    replay: Arc<ReplayProgress>,
    /// Reason why the store could not be opened, or is no longer changed.
    failure: OnceLock<String>,
    /// Readiness is withdrawn, everything is still answered.
    is_draining: AtomicBool,
    /// The store is being closed.
    is_closing: AtomicBool,
}

/// The store, and what queries read.
struct Opened {
    /// `None` on a read-only server over a bucket.
    store: Option<Arc<Tsdb>>,
    sources: Arc<dyn TenantSources>,
}

/// Progress of the replay at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplaySnapshot {
    /// Number of the first segment to replay.
    pub segment_first: u64,
    /// Number of the last segment to replay.
    pub segment_last: u64,
    /// Number of the segment that is read now.
    pub segment_now: u64,
    /// Bytes replayed.
    pub bytes_done: u64,
    /// Bytes to replay.
    pub bytes_total: u64,
}

impl Lifecycle {
    /// The state before the replay. On a read-only server, and on an owner, callers may read the store alone.
    pub(super) fn new(is_read_only: bool, roles: &Roles) -> Lifecycle {
        let change_refusal = match (roles.has(Role::Owner), roles.has(Role::Store)) {
            (true, _) => Some(Refusal::Owner),
            (false, true) => Some(Refusal::Maintenance),
            (false, false) => is_read_only.then_some(Refusal::ReadOnlyStore),
        };
        Lifecycle { roles: RoleParts::new(roles), change_refusal, ..Lifecycle::default() }
    }

    /// Destination of the samples of clients: the replicated log on a gateway, else the store.
    ///
    /// # Errors
    /// As [`Lifecycle::store`].
    pub fn destination(&self) -> Result<Destination, Refusal> {
        match self.roles.gateway() {
            // A sender repeats the request, which it would not after 405.
            None if self.roles.roles().has(Role::Gateway) => {
                Err(Refusal::Starting("the replicated log is being opened".to_owned()))
            }
            None => self.store().map(|store| Destination::Store(store.clone())),
            Some(_) if self.is_closing.load(Ordering::Relaxed) => Err(Refusal::Stopping),
            Some(gateway) => Ok(Destination::Log(gateway.clone())),
        }
    }

    /// The store, for writes and administration.
    ///
    /// # Errors
    /// `unavailable` while the replay runs or the server stops; 405 on a read-only server, an owner and a
    /// gateway.
    pub fn store(&self) -> Result<&Arc<Tsdb>, Refusal> {
        let store = self.readable_store()?;
        self.change_refusal.clone().map_or(Ok(store), Err)
    }

    /// The store, for callers that change nothing.
    ///
    /// # Errors
    /// `unavailable` while the replay runs or the server stops; 405 on a read-only server over a bucket and
    /// on a gateway.
    pub fn readable_store(&self) -> Result<&Arc<Tsdb>, Refusal> {
        let roles = self.roles.roles();
        let refusal = match (roles.has(Role::Gateway), roles.has(Role::Query)) {
            (true, _) => Refusal::NoStore,
            (false, true) => Refusal::QueryNode,
            (false, false) => Refusal::ReadOnly,
        };
        self.answering()?.store.as_ref().ok_or(refusal)
    }

    /// Sources that queries read: the store and others. A call reads its view of them
    /// ([`CallContext`](crate::evaluation::call_context::CallContext)).
    ///
    /// # Errors
    /// `unavailable` while the replay runs or the server stops.
    pub(crate) fn source(&self) -> Result<&Arc<dyn TenantSources>, Refusal> {
        Ok(&self.answering()?.sources)
    }

    /// Series that `identity` may read: the only way from a call to series.
    ///
    /// # Errors
    /// `unavailable` while the replay runs or the server stops.
    pub fn view(&self, identity: &Identity) -> Result<Arc<dyn Queryable>, Refusal> {
        Ok(identity.view(&**self.source()?))
    }

    fn answering(&self) -> Result<&Opened, Refusal> {
        if self.is_closing.load(Ordering::Relaxed) {
            return Err(Refusal::Stopping);
        }
        // A store that maintains the bucket has none of the newest samples.
        if self.roles.has_store() && !self.roles.has_samples() {
            let is_gateway = self.roles.roles().has(Role::Gateway);
            return Err(if is_gateway { Refusal::Gateway } else { Refusal::Maintenance });
        }
        self.store.get().ok_or_else(|| match self.roles.has_samples() {
            true => Refusal::Starting(self.replay_text()),
            false if self.roles.roles().has(Role::Query) => {
                Refusal::Starting("the bucket is being opened".to_owned())
            }
            false => Refusal::Gateway,
        })
    }

    /// The store if the replay is done, also while it is being closed.
    pub fn opened(&self) -> Option<&Arc<Tsdb>> {
        self.store.get()?.store.as_ref()
    }

    /// Returns true if the server has sources and no store.
    pub fn is_storeless(&self) -> bool {
        self.store.get().is_some_and(|opened| opened.store.is_none())
    }

    /// Returns true if the server refuses writes and changes. A gateway takes writes without a store.
    pub fn is_read_only(&self) -> bool {
        self.change_refusal.is_some() || (self.is_storeless() && !self.roles.roles().has(Role::Gateway))
    }

    /// Takes the store into use, and what queries read.
    ///
    /// # Panics
    /// If there is one already.
    pub fn set_store(&self, store: Arc<Tsdb>, sources: Arc<dyn TenantSources>) {
        let opened = Opened { store: Some(store), sources };
        assert!(self.store.set(opened).is_ok(), "the store is opened once");
    }

    /// Takes sources into use without a store: writes are refused.
    ///
    /// # Panics
    /// If there are some already.
    pub fn set_sources(&self, sources: Arc<dyn TenantSources>) {
        assert!(self.store.set(Opened { store: None, sources }).is_ok(), "sources are opened once");
    }

    /// Records why the store could not be opened, or is no longer changed: nothing but a restart helps.
    pub fn set_failure(&self, why: String) {
        tracing::error!(why, "not ready, a restart is needed");
        let _ = self.failure.set(why);
    }

    /// Makes the readiness probe fail; requests are still served.
    pub fn begin_drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    /// Returns true once the server is to stop: long work that can be resumed ends, so that the stop need not
    /// wait for it.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Refuses requests that need the store.
    pub fn begin_close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
    }

    /// Reason for a load balancer to send nothing here: the server starts, stops, or cannot write. `None` =
    /// ready.
    pub fn unready_reason(&self) -> Option<String> {
        if self.is_draining.load(Ordering::Relaxed) || self.is_closing.load(Ordering::Relaxed) {
            return Some("server is shutting down".to_owned());
        }
        if let Some(why) = self.failure.get() {
            return Some(why.clone());
        }
        if self.roles.has_store() {
            let Some(opened) = self.store.get() else { return Some(self.replay_text()) };
            if let Some(failure) = opened.store.as_ref().and_then(|store| store.failure()) {
                return Some(failure.to_string());
            }
        }
        self.roles.unready_reason()
    }

    /// Failure of the start or of the store that only a restart ends; `None` if there is none.
    pub fn failure(&self) -> Option<String> {
        let of_store = || self.opened().and_then(|store| store.failure()).map(|failure| failure.to_string());
        self.failure.get().cloned().or_else(of_store)
    }

    /// Progress counters that the replay updates.
    pub fn replay_progress(&self) -> Arc<ReplayProgress> {
        self.replay.clone()
    }

    /// Progress of the replay.
    pub fn replay_snapshot(&self) -> ReplaySnapshot {
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        ReplaySnapshot {
            segment_first: load(&self.replay.segment_first),
            segment_last: load(&self.replay.segment_last),
            segment_now: load(&self.replay.segment_now),
            bytes_done: load(&self.replay.bytes_done),
            bytes_total: load(&self.replay.bytes_total),
        }
    }

    /// Progress of the replay for people.
    pub fn replay_text(&self) -> String {
        let at = self.replay_snapshot();
        format!(
            "replaying the WAL, segment {} of {} to {}, {} of {} MiB",
            at.segment_now,
            at.segment_first,
            at.segment_last,
            at.bytes_done >> 20,
            at.bytes_total >> 20
        )
    }
}
