//! Time series database of all tenants: a facade over its parts, with the operations of applications: open,
//! write, close.
//!
//! Invariants: a batch is acknowledged only when it is durable; a query sees a sample from its
//! acknowledgement on.
//! Not here: storage of samples (`head`, `block`), parts that the facade returns, each in a file of its own.

mod batch_writer;
mod bucket_jobs;
mod cuts;
mod databases;
mod own_policy;
mod reader;
mod records;
mod settings;
mod statistics;
mod stats;
mod stored_kinds;
mod wal_jobs;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use chronolith_base::Env;
use chronolith_base::disk::{LockGuard, make_dir};
use chronolith_head::{Head, HeadError, ReplayProgress, WriteError};
use chronolith_model::change::{ChangeWatch, Changed, ChangedRanges, Generation};
use chronolith_model::query::TenantSources;
use chronolith_model::{
    Deletion, DuplicatePolicy, Queryable, StoreId, TenantId, TenantLimits, WriteBatch, WriteOutcome,
};

use crate::admin::snapshot::remove_incomplete;
use crate::admin::tenant_deletion::TenantDeletionJobs;
use crate::admin::{Admin, AdminCounters};
use crate::blocks::BlockStore;
use crate::blocks::load::load_blocks;
use crate::blocks::tenant::TENANTS_DIR;
use crate::bucket::Bucket;
use crate::bucket::upload_state::UploadState;
use crate::bucket_maintenance::BucketMaintenance;
use crate::changes::Writer;
use crate::data_dir::lock_data_dir;
use crate::databases::{CatalogOwners, DatabaseStore};
use crate::exemplars::ExemplarStorage;
use crate::frame_log::copies::Findings;
use crate::graphite::GraphiteLog;
use crate::ingestion_rate::{IngestionRates, RequestSize};
use crate::maintenance::store_removal::forget_removed;
use crate::maintenance::{GuardedClock, Maintenance};
use crate::metadata::MetadataStore;
use crate::options::{OpenError, TsdbOptions};
use crate::query::fields::BlockFields;
use crate::storage::{SideStores, Storage};
use crate::tenant_deletions::TenantDeletions;
use crate::upload::Uploads;
pub use batch_writer::Applied;
use batch_writer::BatchWriter;
pub use bucket_jobs::BucketJobs;
pub use cuts::{CutBlock, CutError, CutWindow, Cuts};
pub use databases::Databases;
pub use own_policy::OwnPolicyError;
use own_policy::OwnPolicyWriter;
pub use reader::TsdbReader;
pub use records::{ApplyRecordError, RecordEffect, Records};
pub use settings::Settings;
pub use statistics::TsdbStatistics;
pub use stats::{MaintenanceStats, ReplayStats, TsdbStats};
use stats::{StartReport, StatsSources};
use stored_kinds::StoredKinds;
pub use wal_jobs::WalJobs;

/// The time series database of all tenants.
pub struct Tsdb {
    storage: Arc<Storage>,
    maintenance: Maintenance,
    uploads: Uploads,
    bucket_maintenance: BucketMaintenance,
    exemplars: ExemplarStorage,
    ingestion_rates: IngestionRates,
    admin_counters: AdminCounters,
    start: StartReport,
    /// Monotonic time of the last measurement of the head's memory.
    measured_ns: AtomicU64,
    _lock: Box<dyn LockGuard>,
}

impl Tsdb {
    /// Locks the directory, loads the list of blocks and replays the WAL. Blocks the thread; `progress` may
    /// be watched meanwhile.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(
        env: Env,
        options: TsdbOptions,
        progress: Arc<ReplayProgress>,
    ) -> Result<Arc<Tsdb>, OpenError> {
        Tsdb::open_with_bucket(env, options, progress, None)
    }

    /// As [`Tsdb::open`]. Blocks are uploaded to `bucket` by [`BucketJobs::upload_blocks`], and queries read
    /// those that only it has.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_with_bucket(
        env: Env,
        options: TsdbOptions,
        progress: Arc<ReplayProgress>,
        bucket: Option<Arc<Bucket>>,
    ) -> Result<Arc<Tsdb>, OpenError> {
        let io = |error| OpenError::Io { path: options.data_dir.clone(), error };
        make_dir(&*env.disk, &options.data_dir.join(TENANTS_DIR)).map_err(io)?;
        let lock = lock_data_dir(&env, &options.data_dir)?;
        let mut start = StartReport::default();
        if let Err(error) = remove_incomplete(&env, &options.data_dir) {
            start.notes.push(format!("removing an incomplete snapshot failed: {error}"));
        }
        let blocks = open_blocks(&env, &options, &mut start.notes)?;
        let mut repaired = Vec::new();
        let side = open_side_stores(&env, &options, &mut start.notes, &mut repaired)?;
        let (head, report) = Head::open(&env, options.head(&env), &progress).map_err(OpenError::of_head)?;
        head.statistics().measure_memory();
        start.notes.extend(report.notes);
        let newest_ms = blocks.newest_end_ms().max(head.statistics().stats().max_time_ms);
        let guard_ms = options.retention.clock_guard_ms;
        let clock = GuardedClock::open(&env, &options.data_dir, guard_ms, newest_ms, &mut start.notes);
        repaired.extend(report.repaired);
        for damage in &start.notes {
            tracing::error!(damage, "damage found at start");
        }
        for damage in &repaired {
            tracing::warn!(damage, "damaged file replaced at start, nothing is lost");
        }
        start.repaired_count = repaired.len() as u64;
        start.replay_ms = report.duration_ns / 1_000_000;
        let exemplars = ExemplarStorage::new(options.exemplar_count_max);
        let uploads = bucket.map(|bucket| UploadState::new(bucket, env.clock.clone()));
        let storage = Storage::new(env, options, head, blocks, side, uploads);
        let storage = Arc::new(storage);
        let fields = BlockFields { blocks: storage.blocks().clone(), env: storage.env().clone() };
        storage.head().set_field_history(Box::new(fields));
        storage.head().set_store_owners(Box::new(CatalogOwners(storage.databases().clone())));
        storage.head().set_metric_kinds(Box::new(StoredKinds(Arc::downgrade(&storage))));
        forget_removed(&storage);
        let tsdb = Tsdb {
            maintenance: Maintenance::new(storage.clone(), clock),
            storage,
            uploads: Uploads::default(),
            bucket_maintenance: BucketMaintenance::default(),
            exemplars,
            ingestion_rates: IngestionRates::default(),
            admin_counters: AdminCounters::default(),
            start,
            measured_ns: AtomicU64::new(0),
            _lock: lock,
        };
        Ok(Arc::new(tsdb))
    }

    /// Stores a batch; returns when it is durable as the sync mode promises. Blocks the thread.
    ///
    /// # Errors
    /// [`WriteError`]: nothing of the batch is acknowledged. Rejected samples are no error: see the outcome.
    pub fn append(&self, store: &StoreId, batch: &WriteBatch) -> Result<WriteOutcome, WriteError> {
        self.wait_durable(self.apply(store, batch)?)
    }

    /// Makes a batch visible. It is acknowledged after [`Tsdb::wait_durable`], for which the batch is not
    /// needed.
    ///
    /// # Errors
    /// As [`Tsdb::append`].
    pub fn apply(&self, store: &StoreId, batch: &WriteBatch) -> Result<Applied, WriteError> {
        self.apply_of(store, batch, Writer::Client)
    }

    /// Stores a batch under `duplicates`: against stored samples of equal timestamps it wins under
    /// [`DuplicatePolicy::LastWins`] and loses under [`DuplicatePolicy::KeepFirst`]. Later samples meet it
    /// under their own policy. Blocks the thread; waits for a running compaction to yield.
    ///
    /// Cost: as [`Tsdb::append`] under the policy of the store. Under the other one the batch becomes a block
    /// per block range (about ten files and three syncs), which compaction merges: for many samples at once.
    ///
    /// # Errors
    /// [`OwnPolicyError`]. Rejected samples are no error: see the outcome. A sample that another one beats is
    /// no reject: it is compared when it is read.
    pub fn append_with_policy(
        &self,
        store: &StoreId,
        batch: &WriteBatch,
        duplicates: DuplicatePolicy,
    ) -> Result<WriteOutcome, OwnPolicyError> {
        self.append_with_policy_of(store, batch, duplicates, Writer::Client)
    }

    /// Corrects samples that rules have written: each sample of `batch` is what later reads see at its time,
    /// whatever the duplicate policy of the store, and the samples of `removed` are gone. Blocks the thread;
    /// waits for a running compaction to yield.
    ///
    /// Cost: as [`Tsdb::append_with_policy`]; a removal searches the series of its selectors, erases in the
    /// head without a flush, and writes two small files per block that has one of these samples.
    ///
    /// # Errors
    /// [`OwnPolicyError`]: part of the correction may be stored, and the same call again stores the rest.
    pub fn correct(
        &self,
        store: &StoreId,
        batch: &WriteBatch,
        removed: &[Deletion],
    ) -> Result<WriteOutcome, OwnPolicyError> {
        if !removed.is_empty() {
            self.admin().erase(removed)?;
        }
        self.append_with_policy_of(store, batch, DuplicatePolicy::LastWins, Writer::Rule)
    }

    fn append_with_policy_of(
        &self,
        store: &StoreId,
        batch: &WriteBatch,
        duplicates: DuplicatePolicy,
        writer: Writer,
    ) -> Result<WriteOutcome, OwnPolicyError> {
        let limits = self.storage.limits_of(store);
        if duplicates == limits.duplicates {
            return Ok(self.wait_durable(self.apply_of(store, batch, writer)?)?);
        }
        let _permit = self.storage.admit_write(store)?;
        let own_policy = OwnPolicyWriter {
            storage: &self.storage,
            admin: self.admin(),
            ingestion_rates: &self.ingestion_rates,
            exemplars: &self.exemplars,
            writer,
        };
        own_policy.append(store, batch, &TenantLimits { duplicates, ..limits })
    }

    /// Returns the earliest time in milliseconds that others than continuous queries have written since a
    /// generation, deletions included; `i64::MAX` if there is none.
    #[must_use]
    pub fn sent_since(&self, store: &StoreId, generation: &Generation) -> i64 {
        self.storage.changes().sent_since(store, generation.number())
    }

    /// Returns the ranges in milliseconds in which others than rules have written since a generation, which
    /// is of this process. May report too much.
    #[must_use]
    pub fn written_to_rules_since(&self, store: &StoreId, generation: &Generation) -> ChangedRanges {
        self.storage.changes().written_to_rules_since(store, generation.number())
    }

    /// As [`Tsdb::apply`], for the points of a writer.
    ///
    /// # Errors
    /// As [`Tsdb::append`].
    pub fn apply_of(
        &self,
        store: &StoreId,
        batch: &WriteBatch,
        writer: Writer,
    ) -> Result<Applied, WriteError> {
        let _permit = self.storage.admit_write(store)?;
        let limits = self.storage.limits_of(store);
        let clock = &self.storage.env().clock;
        let size = RequestSize::of(batch);
        // A batch is refused as a whole or not at all.
        self.ingestion_rates.take(store, &limits, size, clock.mono_ns())?;
        self.batch_writer().apply(store, &limits, clock.now_ms(), batch, writer).inspect_err(|_| {
            self.ingestion_rates.give_back(store, &limits, size);
        })
    }

    /// Returns when an applied batch is durable as the sync mode promises. Blocks the thread, and needs no
    /// core.
    ///
    /// # Errors
    /// As [`Tsdb::append`].
    pub fn wait_durable(&self, applied: Applied) -> Result<WriteOutcome, WriteError> {
        self.storage.head().wait(applied.position)?;
        self.storage.metadata().wait(applied.change)?;
        Ok(applied.outcome)
    }

    /// Returns the application of records if the options name a partition of a replicated log.
    #[must_use]
    pub fn records(&self) -> Option<Records<'_>> {
        let log = self.storage.head().log_cache()?;
        Some(Records::new(&self.storage, self.batch_writer(), log))
    }

    /// Returns the cuts of windows by the owner of a partition.
    #[must_use]
    pub fn cuts(&self) -> Cuts<'_> {
        Cuts { storage: &self.storage, maintenance: &self.maintenance }
    }

    fn batch_writer(&self) -> BatchWriter<'_> {
        BatchWriter { storage: &self.storage, exemplars: &self.exemplars }
    }

    /// Returns the reason why all writes are refused until a restart, if they are.
    #[must_use]
    pub fn failure(&self) -> Option<WriteError> {
        self.storage.head().failure()
    }

    /// Refuses further writes, makes everything durable, brings the checkpoint up to date so that the next
    /// start replays nothing; the lock goes with the last reference.
    ///
    /// # Errors
    /// If the checkpoint cannot be written; nothing is lost then, the next start replays the WAL.
    pub fn close(&self) -> Result<(), HeadError> {
        self.maintenance.stop();
        self.storage.blocks().commit();
        self.wal_jobs().close_side_stores();
        self.storage.head().close()
    }

    /// Returns the read side: sources of queries, and the series, metadata and exemplars of tenants.
    #[must_use]
    pub fn reader(&self) -> TsdbReader<'_> {
        TsdbReader { storage: &self.storage, exemplars: &self.exemplars }
    }

    /// Returns the databases of InfluxDB clients and the Graphite stores of all tenants.
    #[must_use]
    pub fn databases(&self) -> Databases<'_> {
        Databases { storage: &self.storage }
    }

    /// Returns events and meta tag rules of Graphite clients.
    #[must_use]
    pub fn graphite(&self) -> &GraphiteLog {
        self.storage.graphite()
    }

    /// Returns the settings that may change while the database runs.
    #[must_use]
    pub fn settings(&self) -> Settings<'_> {
        Settings { storage: &self.storage }
    }

    /// Returns the requests of operators: deletion of series, cleaning of tombstones, snapshots.
    #[must_use]
    pub fn admin(&self) -> Admin<'_> {
        Admin::new(&self.storage, &self.maintenance, &self.admin_counters)
    }

    /// Returns the deletions of whole tenants, which the caller runs every second.
    #[must_use]
    pub fn tenant_deletions(&self) -> TenantDeletionJobs<'_> {
        TenantDeletionJobs::new(&self.storage, self.admin(), &self.exemplars)
    }

    /// Returns the maintenance of head and blocks, which the caller runs every second.
    #[must_use]
    pub fn maintenance(&self) -> &Maintenance {
        &self.maintenance
    }

    /// Returns the jobs of the log, which the caller runs while the database is open.
    #[must_use]
    pub fn wal_jobs(&self) -> WalJobs<'_> {
        WalJobs { storage: &self.storage, maintenance: &self.maintenance, measured_ns: &self.measured_ns }
    }

    /// Returns the jobs of the bucket, which the caller runs every second if there is one.
    #[must_use]
    pub fn bucket_jobs(&self) -> BucketJobs<'_> {
        BucketJobs {
            storage: &self.storage,
            maintenance: &self.maintenance,
            uploads: &self.uploads,
            bucket_maintenance: &self.bucket_maintenance,
        }
    }

    /// Returns counters, sizes, memory by part, and statistics of tenants.
    #[must_use]
    pub fn statistics(&self) -> TsdbStatistics<'_> {
        let sources = StatsSources {
            storage: &self.storage,
            maintenance: &self.maintenance,
            bucket_maintenance: &self.bucket_maintenance,
            admin: &self.admin_counters,
            exemplars: &self.exemplars,
            start: &self.start,
        };
        TsdbStatistics { sources, ingestion_rates: &self.ingestion_rates }
    }
}

impl ChangeWatch<StoreId> for Tsdb {
    fn generation(&self, store: &StoreId) -> Generation {
        Generation::Number(self.storage.changes().generation(store))
    }

    fn changed_since(&self, store: &StoreId, generation: &Generation) -> Changed {
        self.storage.changes().since(store, generation.number())
    }
}

impl ChangeWatch for Tsdb {
    fn generation(&self, tenant: &TenantId) -> Generation {
        Generation::Number(self.storage.changes().generation(&tenant.into()))
    }

    fn changed_since(&self, tenant: &TenantId, generation: &Generation) -> Changed {
        self.storage.changes().since(&tenant.into(), generation.number())
    }
}

impl TenantSources for Tsdb {
    fn queryable(&self, tenant: &TenantId) -> Arc<dyn Queryable> {
        self.reader().queryable(tenant)
    }
}

/// Opens the files of everything but samples.
fn open_side_stores(
    env: &Env,
    options: &TsdbOptions,
    notes: &mut Vec<String>,
    repaired: &mut Vec<String>,
) -> Result<SideStores, OpenError> {
    let dir = &options.data_dir;
    let metadata = MetadataStore::open(env, dir, options.sync, &mut Findings { notes, repaired })?;
    let databases = Arc::new(DatabaseStore::open(env, dir, repaired)?);
    let deletions = Arc::new(TenantDeletions::open(env, dir)?);
    let graphite = GraphiteLog::open(env, options, &mut Findings { notes, repaired })?;
    let graphite = graphite.with_deletions(deletions.clone());
    Ok(SideStores::new(metadata, databases, graphite, deletions))
}

/// Loads all blocks, and removes files of compacted ones that a crash left.
fn open_blocks(
    env: &Env,
    options: &TsdbOptions,
    notes: &mut Vec<String>,
) -> Result<Arc<BlockStore>, OpenError> {
    let loaded = load_blocks(env, options, notes)?;
    // One sync for the directories of all tenants that are there.
    let root = options.data_dir.join(TENANTS_DIR);
    env.disk.sync_dir(&root).map_err(|error| OpenError::Io { path: root, error })?;
    loaded.tenants.values().for_each(|blocks| blocks.note_durable_dir());
    let store = BlockStore::new(env, &options.data_dir, options.open_blocks, loaded);
    store.commit();
    for (_, blocks) in store.all() {
        if let Err(error) = store.remove_files(&blocks) {
            notes.push(format!("removing a compacted block failed, it is hidden from queries: {error}"));
        }
    }
    Ok(Arc::new(store))
}
