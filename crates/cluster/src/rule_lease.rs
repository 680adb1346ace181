//! Lease of the rules of a cluster, and the states of rule groups that one holder leaves to the next.
//!
//! Invariants: a term is the time for which one process has the lease without a gap. A term begins once
//! the states of the terms before have been read, and is over as soon as either clock of the process says
//! so. Each term has an object of states of its own, so a process that wakes after its term changes none of
//! a later one.
//! Not here: rounds and states in memory (`service`), epochs (`bucket::lease`), bytes (`format::rules`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chronolith_base::{Clock, DecodeError, Env};
use chronolith_bucket::lease::{HeldLease, Leases};
use chronolith_bucket::store::list::ListOptions;
use chronolith_bucket::store::read::ReadRange;
use chronolith_bucket::{BucketError, Purpose, RequestContext, Store};
use chronolith_format::rules::{StateFile, decode_states, encode_states};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::folder::{CLUSTER_FOLDER, cluster_folder};

/// Folder of the epochs, within the one of the cluster.
const EPOCHS: &str = "rules/lease";
/// Folder of the states, within the one of the cluster.
const STATES: &str = "rules/state";
/// Digits of the number of a term.
const NUMBER_DIGITS: usize = 20;
/// Longest time of the requests of one call.
const TIMEOUT_MAX: Duration = Duration::from_secs(10);
/// Bytes of the states of all groups.
const STATES_BYTES_MAX: usize = 64 << 20;

/// Time for which a process has the lease without a gap. Later terms, of any process, have greater numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Term(u64);

impl Term {
    /// Number of the term.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }
}

/// The lease as this process has it.
#[derive(Debug, Clone, Copy)]
struct Current {
    term: Term,
    held: HeldLease,
    /// The states of the terms before have been read.
    is_begun: bool,
}

/// States of groups that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum StatesError {
    /// The bucket does not answer; the call may be repeated.
    #[error("{0}")]
    Bucket(#[from] BucketError),
    /// The newest object is damaged, or of a later version.
    #[error("{key}: {error}")]
    Damaged {
        /// Key of the object.
        key: String,
        /// Position and fault.
        error: DecodeError,
    },
}

/// States that were not stored.
#[derive(Debug, thiserror::Error)]
pub enum StoreStatesError {
    /// The bucket does not answer; the call may be repeated.
    #[error("{0}")]
    Bucket(#[from] BucketError),
    /// There are too many.
    #[error("the states of all groups have {0} bytes, expected at most {STATES_BYTES_MAX}")]
    TooLarge(usize),
}

/// State of the lease for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RuleLeaseStats {
    /// Number of the term; `None` while this process has no lease.
    pub term: Option<u64>,
    /// Terms that this process has begun.
    pub terms: u64,
    /// Calls that failed, as the bucket did not answer.
    pub failures: u64,
    /// Rounds that ended without an effect, since the lease was over.
    pub given_up_rounds: u64,
}

/// Lease of the rules of a cluster.
pub struct RuleLease {
    leases: Leases,
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    handle: Handle,
    duration: Duration,
    current: Mutex<Option<Current>>,
    /// Number of the last term that has removed the states of earlier ones; 0 = none.
    cleaned_term: AtomicU64,
    terms: AtomicU64,
    failures: AtomicU64,
    given_up_rounds: AtomicU64,
}

impl RuleLease {
    /// A lease that is not held; one lasts for `duration`. Requests run on the runtime of `handle`. Sends
    /// none.
    #[must_use]
    pub fn new(store: Arc<Store>, env: &Env, handle: Handle, duration: Duration) -> RuleLease {
        RuleLease {
            leases: Leases::within(store.clone(), env, duration, EPOCHS),
            store,
            clock: env.clock.clone(),
            handle,
            duration,
            current: Mutex::default(),
            cleaned_term: AtomicU64::new(0),
            terms: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            given_up_rounds: AtomicU64::new(0),
        }
    }

    /// Returns the pause between two calls of [`RuleLease::refresh`].
    #[must_use]
    pub fn refresh_pause(&self) -> Duration {
        self.duration / 12
    }

    /// Returns the pause between two stores of states.
    #[must_use]
    pub fn store_pause(&self) -> Duration {
        self.duration / 4
    }

    /// Takes the lease or renews it; returns the term if this process has it. A new term has to begin
    /// ([`RuleLease::begin`]). Blocks the thread; must not be called from a task of the runtime.
    ///
    /// # Errors
    /// As other requests; the lease before lasts until its end.
    pub fn refresh(&self) -> Result<Option<Term>, BucketError> {
        let before = (*self.current.lock()).filter(|current| current.held.is_valid(&*self.clock));
        let asked = self.handle.block_on(self.leases.hold(&self.request()));
        let held = asked.inspect_err(|_| self.count_failure())?;
        let current = held.map(|held| match before {
            // Without a number in between, no other process has had the lease.
            Some(before) if held.number.checked_sub(before.held.number).is_some_and(|gap| gap <= 1) => {
                Current { held, ..before }
            }
            _ => Current { term: Term(held.number), held, is_begun: false },
        });
        *self.current.lock() = current;
        Ok(current.map(|current| current.term))
    }

    /// Begins a term, which [`RuleLease::refresh`] has returned. Without effect for any other one.
    pub fn begin(&self, term: Term) {
        let mut current = self.current.lock();
        if let Some(current) = current.as_mut().filter(|current| current.term == term) {
            current.is_begun = true;
            self.terms.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the term that has begun and is not over by the clocks of this process. Sends no request.
    #[must_use]
    pub fn term(&self) -> Option<Term> {
        let current = (*self.current.lock())?;
        (current.is_begun && current.held.is_valid(&*self.clock)).then_some(current.term)
    }

    /// Reads the states that the last term has left; none if there was no term. Blocks the thread.
    ///
    /// # Errors
    /// [`StatesError`].
    pub fn read_states(&self) -> Result<Vec<StateFile>, StatesError> {
        let read = self.handle.block_on(self.read_newest());
        let Some((key, bytes)) = read.inspect_err(|_| self.count_failure())? else { return Ok(Vec::new()) };
        decode_states(&bytes).map_err(|error| StatesError::Damaged { key, error })
    }

    /// Stores the states of a term, and removes the states of earlier ones. Blocks the thread.
    ///
    /// # Errors
    /// [`StoreStatesError`].
    pub fn store_states<'a>(
        &self,
        term: Term,
        files: impl ExactSizeIterator<Item = &'a StateFile>,
    ) -> Result<(), StoreStatesError> {
        let bytes = encode_states(files);
        if bytes.len() > STATES_BYTES_MAX {
            return Err(StoreStatesError::TooLarge(bytes.len()));
        }
        let stored = self.handle.block_on(async {
            let request = self.request();
            let key = key_of(term.0);
            self.store.put(&request, &key, bytes.into()).await?;
            if self.cleaned_term.load(Ordering::Relaxed) == term.0 {
                return Ok(());
            }
            for old in self.state_keys(&request).await?.into_iter().filter(|old| *old < key) {
                self.store.remove(&request, &old).await?;
            }
            self.cleaned_term.store(term.0, Ordering::Relaxed);
            Ok(())
        });
        stored.map_err(|error: BucketError| {
            self.count_failure();
            error.into()
        })
    }

    /// Gives the lease back, so that another process need not wait for its end. Blocks the thread.
    ///
    /// # Errors
    /// As other requests; the lease ends by itself then.
    pub fn release(&self) -> Result<(), BucketError> {
        if self.current.lock().take().is_none() {
            return Ok(());
        }
        let released = self.handle.block_on(self.leases.release(&self.request()));
        released.inspect_err(|_| self.count_failure())
    }

    /// Counts a round that ended without an effect, since its term was over.
    pub fn note_given_up_round(&self) {
        self.given_up_rounds.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the state for metrics.
    #[must_use]
    pub fn stats(&self) -> RuleLeaseStats {
        RuleLeaseStats {
            term: self.term().map(Term::number),
            terms: self.terms.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            given_up_rounds: self.given_up_rounds.load(Ordering::Relaxed),
        }
    }

    async fn read_newest(&self) -> Result<Option<(String, Vec<u8>)>, BucketError> {
        let request = self.request();
        let Some(key) = self.state_keys(&request).await?.into_iter().max() else { return Ok(None) };
        let read = self.store.read(&request, &key, ReadRange::Whole, None).await?;
        Ok(Some((key, read.bytes.into())))
    }

    /// Keys of all states, which are as many as terms of which a process has stored some late.
    async fn state_keys(&self, request: &RequestContext) -> Result<Vec<String>, BucketError> {
        let options = ListOptions { prefix: format!("{CLUSTER_FOLDER}/{STATES}"), ..ListOptions::default() };
        let page = self.store.list(request, &options).await?;
        Ok(page.objects.into_iter().map(|object| object.key).collect())
    }

    fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    fn request(&self) -> RequestContext {
        let timeout = TIMEOUT_MAX.min(self.duration / 3);
        RequestContext::with_timeout(&*self.clock, cluster_folder(), timeout, Purpose::Catalog)
    }
}

/// Returns the key of the states of a term.
fn key_of(number: u64) -> String {
    format!("{CLUSTER_FOLDER}/{STATES}/{number:0NUMBER_DIGITS$}")
}

#[cfg(test)]
mod tests;
