//! Lease of a folder: one process does the work that the lease is for, as the compaction of the blocks of a
//! tenant, or the rounds of rules.
//!
//! Invariants: an epoch is an object `<folder>/lease/<20 digits>`, created by create-if-absent and never
//! changed; the one with the greatest number counts. A lease is over once a process has seen the same epoch
//! for the duration that it names, by its own monotonic clock, so no clocks are compared. Its holder counts
//! from before the creation, so it is the first to see the end, unless it is paused.
//! It saves work and protects nothing: a paused process that wakes believes to hold it. Two processes that
//! compact publish to the same catalogue, which drops the compaction whose inputs are gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::{Clock, Env};
use parking_lot::Mutex;

use crate::folder::Folder;
use crate::store::CreateOutcome;
use crate::store::list::ListOptions;
use crate::store::read::ReadRange;
use crate::{BucketError, RequestContext, Store};

/// Folder of the epochs of a tenant.
const FOLDER: &str = "lease";
const NUMBER_DIGITS: usize = 20;
/// Epochs that stay: a process that has read an older one must not create the number after it again.
const KEPT_COUNT: u64 = 4;
/// Folders that are remembered; of more, none is.
const TENANTS_MAX: usize = 10_000;

/// Leases of one process.
pub struct Leases {
    store: Arc<Store>,
    env: Env,
    /// Random name of the process.
    holder: u64,
    duration: Duration,
    /// Folder of the epochs within the folder of a request.
    epochs: &'static str,
    /// Newest epoch that was seen of each folder.
    seen: Mutex<BTreeMap<Folder, Seen>>,
}

/// An epoch, and the clocks when it was seen first; of an own epoch, the clocks before its creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    number: u64,
    holder: u64,
    at: Instants,
}

/// Both clocks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Instants {
    mono_ns: u64,
    wall_ms: i64,
}

impl Instants {
    fn now(clock: &dyn Clock) -> Instants {
        Instants { mono_ns: clock.mono_ns(), wall_ms: clock.now_ms() }
    }
}

/// A lease that this process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldLease {
    /// Number of the epoch, which grows from holder to holder and with each renewal.
    pub number: u64,
    since: Instants,
    duration: Duration,
}

impl HeldLease {
    /// Returns true if the lease is not over by the clocks of this process. The wall clock counts as well,
    /// since the monotonic one stands still while a machine is suspended.
    #[must_use]
    pub fn is_valid(&self, clock: &dyn Clock) -> bool {
        let Instants { mono_ns, wall_ms } = Instants::now(clock);
        let duration_ns = u64::try_from(self.duration.as_nanos()).unwrap_or(u64::MAX);
        let duration_ms = i64::try_from(self.duration.as_millis()).unwrap_or(i64::MAX);
        mono_ns.saturating_sub(self.since.mono_ns) < duration_ns
            && wall_ms.saturating_sub(self.since.wall_ms) < duration_ms
    }
}

/// Content of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Epoch {
    number: u64,
    holder: u64,
    /// Zero if it was released.
    duration_ms: u64,
}

impl Leases {
    /// Leases of `duration` in `store`. Sends no request.
    #[must_use]
    pub fn new(store: Arc<Store>, env: &Env, duration: Duration) -> Leases {
        Leases::within(store, env, duration, FOLDER)
    }

    /// As [`Leases::new`], with the epochs in the folder `epochs` within the folder of each request.
    #[must_use]
    pub fn within(store: Arc<Store>, env: &Env, duration: Duration, epochs: &'static str) -> Leases {
        assert!(!duration.is_zero(), "a duration of zero stands for a released lease");
        let holder = env.rng.next_u64();
        Leases { store, env: env.clone(), holder, duration, epochs, seen: Mutex::default() }
    }

    /// Takes the lease of the folder of `request`, or renews it once half of it is over. Returns true if this
    /// process holds it.
    ///
    /// Cost: a listing and a read; to take or renew it also a creation and the removal of an old epoch.
    ///
    /// # Errors
    /// As other requests. The lease may be taken then, and expires.
    pub async fn acquire(&self, request: &RequestContext) -> Result<bool, BucketError> {
        Ok(self.hold(request).await?.is_some())
    }

    /// As [`Leases::acquire`]; returns the lease if this process holds it.
    ///
    /// # Errors
    /// As [`Leases::acquire`].
    pub async fn hold(&self, request: &RequestContext) -> Result<Option<HeldLease>, BucketError> {
        let newest = self.newest(request).await?;
        if let Some(epoch) = newest {
            let since = self.since(&request.folder, epoch);
            let age_ns = self.env.clock.mono_ns().saturating_sub(since.mono_ns);
            let age = Duration::from_nanos(age_ns);
            if epoch.holder == self.holder && epoch.duration_ms > 0 {
                if age < self.duration / 2 {
                    return Ok(Some(HeldLease { number: epoch.number, since, duration: self.duration }));
                }
            } else if age < Duration::from_millis(epoch.duration_ms) {
                return Ok(None);
            }
        }
        let number = newest.map_or(1, |epoch| epoch.number.saturating_add(1));
        let duration_ms = u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX);
        let since = self.create(request, Epoch { number, holder: self.holder, duration_ms }).await?;
        Ok(since.map(|since| HeldLease { number, since, duration: self.duration }))
    }

    /// Releases the lease if this process holds it.
    ///
    /// # Errors
    /// As other requests. The lease ends by itself then.
    pub async fn release(&self, request: &RequestContext) -> Result<(), BucketError> {
        let newest = self.newest(request).await?.filter(|epoch| epoch.holder == self.holder);
        if let Some(epoch) = newest.filter(|epoch| epoch.duration_ms > 0) {
            let number = epoch.number.saturating_add(1);
            self.create(request, Epoch { number, holder: self.holder, duration_ms: 0 }).await?;
        }
        self.seen.lock().remove(&request.folder);
        Ok(())
    }

    /// Returns the key of the newest epoch if another process may hold the lease of the folder of `request`:
    /// it was not released. Cost: a listing and a read.
    ///
    /// # Errors
    /// As other requests.
    pub async fn held_by_other(&self, request: &RequestContext) -> Result<Option<String>, BucketError> {
        let newest = self.newest(request).await?;
        let held = newest.filter(|epoch| epoch.holder != self.holder && epoch.duration_ms > 0);
        Ok(held.map(|epoch| self.key(&request.folder, epoch.number)))
    }

    /// Creates the next epoch; returns the clocks before, or `None` if another process was first.
    async fn create(&self, request: &RequestContext, epoch: Epoch) -> Result<Option<Instants>, BucketError> {
        assert_eq!(epoch.holder, self.holder, "a process creates no epoch in the name of another one");
        let key = self.key(&request.folder, epoch.number);
        // Before the request: a creation whose answer is lost counts from here, too.
        let since = self.since(&request.folder, epoch);
        let created = self.store.create(request, &key, epoch.encode()).await?;
        if created != CreateOutcome::Created {
            return Ok(None);
        }
        if let Some(old) = epoch.number.checked_sub(KEPT_COUNT) {
            self.remove_until(request, old).await?;
        }
        Ok(Some(since))
    }

    async fn remove_until(&self, request: &RequestContext, number: u64) -> Result<(), BucketError> {
        for old in self.numbers(request).await?.into_iter().filter(|old| *old <= number) {
            self.store.remove(request, &self.key(&request.folder, old)).await?;
        }
        Ok(())
    }

    /// Clocks when this process has seen the epoch first.
    fn since(&self, folder: &Folder, epoch: Epoch) -> Instants {
        let Epoch { number, holder, .. } = epoch;
        let mut seen = self.seen.lock();
        let known = seen.get(folder).filter(|known| (known.number, known.holder) == (number, holder));
        if let Some(known) = known {
            return known.at;
        }
        if seen.len() >= TENANTS_MAX {
            seen.clear();
        }
        let at = Instants::now(&*self.env.clock);
        seen.insert(folder.clone(), Seen { number, holder, at });
        at
    }

    /// The newest epoch; one that cannot be read counts as another process's.
    async fn newest(&self, request: &RequestContext) -> Result<Option<Epoch>, BucketError> {
        let Some(number) = self.numbers(request).await?.into_iter().max() else { return Ok(None) };
        let key = self.key(&request.folder, number);
        let duration_ms = u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX);
        let other = Epoch { number, holder: !self.holder, duration_ms };
        match self.store.read(request, &key, ReadRange::Whole, None).await {
            Ok(read) => Ok(Some(Epoch::decode(number, &read.bytes).unwrap_or(other))),
            Err(BucketError::NotFound { .. } | BucketError::Corrupt { .. }) => Ok(Some(other)),
            Err(error) => Err(error),
        }
    }

    /// Prefix of the epochs of a folder.
    fn leases_of(&self, folder: &Folder) -> String {
        format!("{}/{}", self.store.layout().folder_key(folder), self.epochs)
    }

    fn key(&self, folder: &Folder, number: u64) -> String {
        format!("{}/{number:0NUMBER_DIGITS$}", self.leases_of(folder))
    }

    async fn numbers(&self, request: &RequestContext) -> Result<Vec<u64>, BucketError> {
        let folder = self.leases_of(&request.folder);
        let options = ListOptions { prefix: folder.clone(), ..ListOptions::default() };
        let page = self.store.list(request, &options).await?;
        let number = |key: &str| {
            let digits = key.strip_prefix(&folder)?.strip_prefix('/')?;
            let is_number = digits.len() == NUMBER_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
            if is_number { digits.parse().ok() } else { None }
        };
        Ok(page.objects.iter().filter_map(|object| number(&object.key)).collect())
    }
}

impl Epoch {
    fn encode(self) -> Bytes {
        format!("holder={:016x} duration_ms={}\n", self.holder, self.duration_ms).into()
    }

    fn decode(number: u64, body: &[u8]) -> Option<Epoch> {
        let text = std::str::from_utf8(body).ok()?.strip_suffix('\n')?;
        let (holder, duration_ms) = text.strip_prefix("holder=")?.split_once(" duration_ms=")?;
        let holder = u64::from_str_radix(holder, 16).ok()?;
        Some(Epoch { number, holder, duration_ms: duration_ms.parse().ok()? })
    }
}
