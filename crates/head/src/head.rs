//! The head as a whole: what it is made of, and its small operations.
//!
//! Lock order: reclaim, gate, maintenance, checkpoint, tables of a tenant, a stripe, stale keys, then the
//! leaves (log queue, sealed files, raw keys).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use chronolith_base::Env;
use chronolith_base::thread::core_count;
use chronolith_model::{DuplicatePolicy, TenantId};
use parking_lot::{Mutex, RwLock};

use crate::append::AppendScratch;
use crate::checkpoint::Rolling;
use crate::drop::StaleKeys;
use crate::ids::SeriesIds;
use crate::key_hash::KeyHash;
use crate::memory_limit::MemoryLimit;
use crate::options::{HeadError, HeadOptions, WriteError};
use crate::progress::{ReplayProgress, ReplayReport};
use crate::raw_keys::RawKeys;
use crate::reclaim::Reclaim;
use crate::replay;
use crate::sealed::{SealedStore, SealedVerification, is_short_of_files};
use crate::stripe::{HistogramBudget, Stripe, StripeWorld};
use crate::sync;
use crate::tables::Cardinality;
use crate::tenant::{TenantHead, Tenants};
use crate::wal::{Ticket, Wal, wal_dir};

/// Counters since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) samples_appended: AtomicU64,
    pub(crate) samples_late: AtomicU64,
    pub(crate) samples_repeated: AtomicU64,
    pub(crate) samples_replaced: AtomicU64,
    pub(crate) samples_with_start: AtomicU64,
    pub(crate) samples_deleted: AtomicU64,
    pub(crate) series_created: AtomicU64,
    /// Series in the head.
    pub(crate) series_live: AtomicU64,
    pub(crate) checkpoint_count: AtomicU64,
    pub(crate) checkpoint_bytes: AtomicU64,
    /// Window drops, and sealed files found without chunks: the log does not tell of them.
    pub(crate) change_count: AtomicU64,
    pub(crate) slice_count: AtomicU64,
    pub(crate) slice_bytes: AtomicU64,
    pub(crate) tail_bytes: AtomicU64,
    pub(crate) tail_ns: AtomicU64,
}

/// The series, in stripes, and where their sealed chunks are.
pub(crate) struct Series {
    pub(crate) stripes: Vec<sync::Mutex<Stripe>>,
    pub(crate) store: SealedStore,
    pub(crate) histograms: HistogramBudget,
    pub(crate) env: Env,
    pub(crate) window_ms: i64,
}

impl Series {
    /// What a stripe needs to apply what was accepted before: of two values for a time the later one counts.
    pub(crate) fn world(&self) -> StripeWorld<'_> {
        let duplicates = DuplicatePolicy::LastWins;
        StripeWorld {
            store: &self.store,
            disk: &*self.env.disk,
            histograms: &self.histograms,
            window_ms: self.window_ms,
            duplicates,
        }
    }
}

/// The newest hours of all tenants: accepts samples durably and serves them.
pub struct Head {
    pub(crate) env: Env,
    pub(crate) options: HeadOptions,
    pub(crate) series: Arc<Series>,
    pub(crate) tenants: RwLock<Tenants>,
    pub(crate) raw_keys: sync::RwLock<RawKeys>,
    /// Series that are gone and whose raw keys are still there.
    pub(crate) stale_keys: Mutex<StaleKeys>,
    pub(crate) key_hash: KeyHash,
    pub(crate) ids: SeriesIds,
    /// Ids that are being made usable again. Locked before all others.
    pub(crate) reclaim: Mutex<Option<Reclaim>>,
    pub(crate) wal: Wal,
    /// Held shared by appends, so that closing waits for them.
    pub(crate) gate: RwLock<()>,
    /// One checkpoint or window drop at a time.
    pub(crate) maintenance: Mutex<()>,
    /// Where the checkpoint stands; locked behind `maintenance`.
    pub(crate) rolling: Mutex<Rolling>,
    /// Until all slices stand behind this position and are synced, repeats are logged like fresh samples: what a start
    /// has read may not be on the disk, whatever the log's last sync said. 0 when that is over.
    pub(crate) relog_before: AtomicU64,
    pub(crate) scratch: Mutex<Vec<AppendScratch>>,
    pub(crate) memory_limit: MemoryLimit,
    pub(crate) counters: Counters,
    pub(crate) sealed_verification: Mutex<SealedVerification>,
    pub(crate) replay: ReplayReport,
}

impl Head {
    /// Loads the slices of the checkpoint, replays the log behind them, and takes writes.
    ///
    /// # Errors
    /// [`HeadError`] if the disk refuses. Damage is contained and named in the report's notes.
    pub fn open(
        env: &Env,
        options: HeadOptions,
        progress: &ReplayProgress,
    ) -> Result<(Head, ReplayReport), HeadError> {
        assert!(
            options.window_ms > 0 && options.window_ms <= i64::from(u32::MAX),
            "a window is between a millisecond and 49 days long"
        );
        let head = replay::open(env, options, progress)?;
        let report = head.replay.clone();
        Ok((head, report))
    }

    /// Returns once everything up to `ticket` is durable as the sync mode promises.
    ///
    /// # Errors
    /// [`WriteError`]: the batch may or may not become durable; it must not be acknowledged.
    pub fn wait(&self, ticket: Ticket) -> Result<(), WriteError> {
        self.wal.wait(ticket)
    }

    /// Called at least once a second, in interval mode four times per interval: writes what waited for space, and
    /// takes writes again when there is some; syncs in interval mode.
    pub fn recover_space(&self) {
        if self.write_sealed().is_ok() {
            self.wal.tick(self.options.sync);
        }
    }

    /// Why all writes are refused until a restart, if they are.
    #[must_use]
    pub fn failure(&self) -> Option<WriteError> {
        self.wal.failure()
    }

    /// Runs `work`, on which the durability of what is acknowledged depends; a panic in it poisons the log,
    /// and goes no further.
    pub fn poison_on_panic(&self, what: &str, work: impl FnOnce()) {
        // What the panic leaves half done is refused to everybody from here on.
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err() {
            self.wal.poison(format!("{what} has panicked"));
        }
    }

    /// Writes buffered sealed chunks; refuses appends when that fails.
    pub(crate) fn write_sealed(&self) -> Result<(), HeadError> {
        let written = self.series.store.write_all();
        self.note_sealed_failure(written)
    }

    /// Whether appends and deletions are taken.
    ///
    /// # Errors
    /// Why they are not.
    pub(crate) fn admit(&self) -> Result<(), WriteError> {
        self.wal.admit()?;
        if self.series.store.is_blocked() && self.write_sealed().is_err() && self.series.store.is_blocked() {
            return Err(WriteError::NoFileDescriptor);
        }
        Ok(())
    }

    /// Lets a failure to write sealed chunks refuse appends: their memory must not grow without bound.
    pub(crate) fn note_sealed_failure(&self, written: Result<(), HeadError>) -> Result<(), HeadError> {
        match &written {
            Err(HeadError::Io { error, .. }) if error.kind() == std::io::ErrorKind::StorageFull => {
                self.wal.enter_disk_full();
            }
            // The chunks wait in memory; see `admit`.
            Err(HeadError::Io { error, .. }) if is_short_of_files(error) => {}
            Err(error) => self.wal.poison(error.to_string()),
            Ok(()) => {}
        }
        written
    }

    /// Refuses further writes, makes everything durable, brings the checkpoint up to date so that the next start has
    /// nothing to replay. Closing twice is no error.
    ///
    /// # Errors
    /// [`HeadError`]; nothing acknowledged is lost then, the next start replays the log.
    pub fn close(&self) -> Result<(), HeadError> {
        let _no_appends = self.gate.write();
        if !self.wal.close() {
            return if self.wal.is_poisoned() { Ok(self.wal.sync()?) } else { Ok(()) };
        }
        self.wal.sync()?;
        self.checkpoint_newest()?;
        let dir = wal_dir(&self.options.dir);
        self.wal.record_closed().map_err(HeadError::io(&dir))
    }

    /// Prepares a segment of the log ahead of need: to be called ten times a second, on a thread that may wait for
    /// the disk. Returns at once if one is there.
    ///
    /// # Errors
    /// [`HeadError`]; the log then makes the segment itself when it needs one.
    pub fn prepare_segment(&self) -> Result<(), HeadError> {
        self.wal.prepare_segment().map_err(HeadError::io(&wal_dir(&self.options.dir)))
    }

    /// Tenants with series, sorted.
    #[must_use]
    pub fn tenants(&self) -> Vec<TenantId> {
        let with_series = |t: &&Arc<TenantHead>| t.tables.read().live_count() > 0;
        let mut out: Vec<TenantId> =
            self.all_tenants().iter().filter(with_series).map(|t| t.id.clone()).collect();
        out.sort();
        out
    }

    /// What `tenant` has most of, `limit` entries a list.
    #[must_use]
    pub fn cardinality(&self, tenant: &TenantId, limit: usize) -> Cardinality {
        self.tenant(tenant).map(|t| t.tables.read().cardinality(limit)).unwrap_or_default()
    }

    pub(crate) fn tenant(&self, id: &TenantId) -> Option<Arc<TenantHead>> {
        self.tenants.read().get(id)
    }

    pub(crate) fn all_tenants(&self) -> Vec<Arc<TenantHead>> {
        self.tenants.read().all().cloned().collect()
    }

    /// Returns true if the tenant has series, or a request or flush is at work for it.
    #[must_use]
    pub fn has_tenant(&self, tenant: &TenantId) -> bool {
        self.tenant(tenant).is_some()
    }

    /// Forgets tenants without series: flushes, idle series and refused writes leave some. To be called now
    /// and then.
    pub fn forget_tenants(&self) {
        // A slice of the checkpoint that is being copied names tenants by their numbers.
        let Some(_alone) = self.maintenance.try_lock() else { return };
        let is_empty = |t: &&Arc<TenantHead>| t.tables.read().live_count() == 0;
        let unused: Vec<TenantId> =
            self.all_tenants().iter().filter(is_empty).map(|tenant| tenant.id.clone()).collect();
        for id in unused {
            self.tenants.write().remove_unused(&id);
        }
    }
}

/// Threads for a replay.
pub(crate) fn replay_thread_count() -> usize {
    // Loom knows the threads of its tests only.
    if cfg!(loom) { 1 } else { core_count().min(crate::stripe::STRIPE_COUNT) }
}
