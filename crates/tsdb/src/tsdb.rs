//! Time series database of all tenants: open, write, query, run maintenance, close.
//!
//! Invariants: a batch is acknowledged only when it is durable; a query sees a sample from its
//! acknowledgement on.
//! Not here: storage of samples (`head`, `block`), background jobs (`maintenance`), admin requests (`admin`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chronolith_base::Env;
use chronolith_base::disk::LockGuard;
use chronolith_head::{
    Cardinality, Head, HeadError, ReplayProgress, SyncMode, TenantStats, WalPosition, WriteError,
};
use chronolith_model::change::{ChangeWatch, Changed, Generation};
use chronolith_model::databases::{CatalogChange, CatalogError, DatabaseCatalog};
use chronolith_model::query::TenantSources;
use chronolith_model::rollup::RollupRules;
use chronolith_model::{
    Exemplar, KIND_LABEL, Labels, METRIC_NAME, Matcher, MetadataEntry, QueryError, Queryable, ReadContext,
    Selector, StoreId, TenantId, TenantLimits, TimeRange, WriteBatch, WriteOutcome,
};

use crate::admin::error::AdminError;
use crate::admin::report::DeleteReport;
use crate::admin::snapshot::{SnapshotHead, remove_incomplete};
use crate::admin::{Admin, AdminCounters};
use crate::block_list::{self, BlockList};
use crate::blocks::BlockStore;
use crate::blocks::load::load_blocks;
use crate::blocks::tenant::TENANTS_DIR;
use crate::bucket::Bucket;
use crate::bucket::upload_state::UploadState;
use crate::bucket_maintenance::{BucketMaintenance, BucketParts};
use crate::changes::Writer;
use crate::data_dir::{lock_data_dir, make_dir};
use crate::databases::{CatalogOwners, DatabaseStore};
use crate::exemplars::{ExemplarStorage, ExemplarWindow};
use crate::frame_copies::Findings;
use crate::graphite::GraphiteLog;
use crate::ingestion_rate::IngestionRates;
use crate::limits::LimitsTable;
use crate::maintenance::store_removal::forget_removed;
use crate::maintenance::{GuardedClock, JobKind, Maintenance};
use crate::memory::{self, TsdbMemory};
use crate::metadata::{Change, MetadataStore};
use crate::metric_disk::{self, MetricDiskBytes, MetricFilter};
use crate::options::{OpenError, TsdbOptions};
use crate::query::TenantQueryable;
use crate::query::fields::BlockFields;
use crate::query::lookback::bounded;
use crate::query::measurements::as_measurements;
use crate::query::metrics::as_metrics;
use crate::query::typed::TypedQueryable;
use crate::query::unit::in_milliseconds;
use crate::query::view::{await_databases, knows_databases, tenant_view};
use crate::stats::{self, StartReport, StatsSources, TsdbStats};
use crate::storage::{SideStores, Storage};
use crate::tenant_usage::{self, LimitUse, TenantSize};
use crate::upload::Uploads;

/// Bounds of the pause between two calls of [`Tsdb::sync_log`].
const SYNC_PAUSE_MIN: Duration = Duration::from_millis(5);
const SYNC_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Time between two measurements of the head's memory, for its limit.
const MEASURE_INTERVAL_NS: u64 = 900_000_000;

/// Kinds of jobs that replace blocks by others, or roll them up.
const REWRITING_KINDS: [JobKind; 3] = [JobKind::Compaction, JobKind::Deletion, JobKind::Rollup];

/// A batch that is visible and may not be durable yet, see [`Tsdb::apply`].
#[must_use = "it is acknowledged after `Tsdb::wait_durable`"]
pub struct Applied {
    outcome: WriteOutcome,
    position: WalPosition,
    change: Change,
}

impl Applied {
    /// Joins a batch and the next one of the same request, which are acknowledged together. The later one has
    /// the later place in the log.
    pub fn join(mut self, later: Applied) -> Applied {
        self.outcome.add(later.outcome);
        Applied {
            outcome: self.outcome,
            position: self.position.max(later.position),
            change: self.change.max(later.change),
        }
    }
}

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

    /// As [`Tsdb::open`]. Blocks are uploaded to `bucket` by [`Tsdb::upload_blocks`], and queries read those
    /// that only it has.
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

    /// Returns the earliest time in milliseconds that others than continuous queries have written since a
    /// generation, deletions included; `i64::MAX` if there is none.
    #[must_use]
    pub fn sent_since(&self, store: &StoreId, generation: &Generation) -> i64 {
        self.storage.changes().sent_since(store, generation.number())
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
        let limits = self.storage.limits_of(store);
        let (mut outcome, position) = self.append_to_head(store, &limits, batch)?;
        // After the samples are visible and before they are acknowledged, as result caches require.
        self.storage.changes().note_batch(store, batch, writer);
        if !store.is_default()
            && let Some(&first) = batch.times.iter().min()
        {
            self.note_change_of_owner(store, first);
        }
        let change = self.storage.metadata().keep(store, &batch.metadata);
        let window = ExemplarWindow::of(&limits, self.storage.env().clock.now_ms());
        self.exemplars.append(store, window, batch, &mut outcome);
        Ok(Applied { outcome, position, change })
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

    /// Returns the reason why all writes are refused until a restart, if they are.
    #[must_use]
    pub fn failure(&self) -> Option<WriteError> {
        self.storage.head().failure()
    }

    /// Takes the tokens of the tenant's rate limit and appends. A batch is refused as a whole or not at all.
    fn append_to_head(
        &self,
        store: &StoreId,
        limits: &TenantLimits,
        batch: &WriteBatch,
    ) -> Result<(WriteOutcome, WalPosition), WriteError> {
        let clock = &self.storage.env().clock;
        let sample_count = batch.sample_count() as u64;
        self.ingestion_rates.take(store, limits, sample_count, clock.mono_ns())?;
        self.storage.head().append(store, limits, clock.now_ms(), batch).inspect_err(|_| {
            self.ingestion_rates.give_back(store, limits, sample_count);
        })
    }

    /// Returns head and blocks of `tenant` as one source, and its databases as PromQL sees them; empty for a
    /// tenant without data.
    #[must_use]
    pub fn queryable(&self, tenant: &TenantId) -> Arc<dyn Queryable> {
        tenant_view(&self.storage, tenant)
    }

    /// Returns head and blocks of one store as one source, without the other stores of its tenant.
    #[must_use]
    pub fn store_queryable(&self, store: &StoreId) -> Arc<dyn Queryable> {
        Arc::new(TenantQueryable::new(&self.storage, store))
    }

    /// Returns head and blocks of `store` as one source for languages with types: series with all their
    /// labels, reserved ones included, and samples of the type of their series.
    #[must_use]
    pub fn typed_queryable(&self, store: &StoreId) -> Arc<dyn Queryable> {
        Arc::new(TypedQueryable::new(TenantQueryable::new(&self.storage, store)))
    }

    /// Returns the series of `tenant`'s default store as fields named `value` of measurements named as the
    /// metrics, with times in nanoseconds.
    #[must_use]
    pub fn as_measurements(&self, tenant: &TenantId) -> Arc<dyn Queryable> {
        as_measurements(Arc::new(TenantQueryable::new(&self.storage, &tenant.into())))
    }

    /// Returns the fields named `value` of the store of a retention policy as metrics named as their
    /// measurements, with times in milliseconds.
    #[must_use]
    pub fn as_metrics(&self, store: &StoreId) -> Arc<dyn Queryable> {
        as_metrics(in_milliseconds(Arc::new(TenantQueryable::new(&self.storage, store))))
    }

    /// Returns ranges of time, in the unit of the tenant, in which it may have samples.
    ///
    /// # Errors
    /// As a query that reads the list of blocks of the bucket.
    pub fn sample_ranges(&self, store: &StoreId, ctx: &ReadContext) -> Result<Vec<TimeRange>, QueryError> {
        let windows = self.storage.head().windows().list_of(store);
        let mut ranges: Vec<TimeRange> = windows.iter().map(|window| window.range).collect();
        if let Some(blocks) = self.storage.blocks().tenant(store) {
            ranges.extend(blocks.list().iter().map(|block| block.range()));
        }
        if let Some(source) = self.storage.bucket_blocks(store) {
            let blocks = source.blocks_in(TimeRange::ALL, ctx)?;
            ranges.extend(blocks.iter().map(|block| block.range()));
        }
        Ok(ranges)
    }

    /// Returns an estimate of the series of `store`: those in the head or in the block with most of them.
    #[must_use]
    pub fn series_count(&self, store: &StoreId) -> u64 {
        let ctx = ReadContext::unlimited(self.storage.env().clock.clone());
        let all = Selector { matchers: &[], range: TimeRange::ALL };
        let estimate = TenantQueryable::new(&self.storage, store).estimate(&all, &ctx);
        estimate.ok().flatten().map_or(0, |estimate| estimate.series)
    }

    /// Returns events and meta tag rules of Graphite clients.
    #[must_use]
    pub fn graphite(&self) -> &GraphiteLog {
        self.storage.graphite()
    }

    /// Returns the metadata of one metric or all, sorted by metric; at most `limit` metrics (0 = all).
    #[must_use]
    pub fn metadata(&self, tenant: &TenantId, metric: Option<&str>, limit: usize) -> Vec<MetadataEntry> {
        self.storage.metadata().list(&tenant.into(), metric, limit)
    }

    /// Returns the exemplars of series that match any of `selectors`, by series labels, times ascending.
    #[must_use]
    pub fn exemplars(
        &self,
        tenant: &TenantId,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
    ) -> Vec<(Labels, Vec<Exemplar>)> {
        self.exemplars.select(&tenant.into(), selectors, range)
    }

    /// Returns the part of `range`, in the unit of the tenant, from the first window on in which `store` may
    /// have samples; `None` if there is none.
    #[must_use]
    pub fn times(&self, store: &StoreId, range: TimeRange) -> Option<TimeRange> {
        let windows = self.storage.head().windows().list_of(store);
        let head = windows.iter().map(|window| window.range).filter(|window| window.overlaps(range));
        let blocks = self.storage.blocks().tenant(store);
        let blocks = blocks.and_then(|blocks| blocks.first_start_in(range));
        let first = head.map(|window| window.start).chain(blocks).min()?;
        Some(TimeRange::new(first.max(range.start), range.end))
    }

    /// Records that samples of `store` in `range`, in its unit, changed by another way than [`Tsdb::append`]
    /// or retention: a deletion, an import of blocks. To be called after the change.
    pub fn note_change(&self, store: &StoreId, range: TimeRange) {
        self.storage.changes().note_range(store, range);
        self.note_change_of_owner(store, range.start);
    }

    /// Records that samples of a store from `first` on changed for readers of all stores of its owner.
    fn note_change_of_owner(&self, store: &StoreId, first: i64) {
        let owner = if store.is_default() { None } else { self.storage.databases().owner_of(store) };
        if let Some(owner) = owner {
            let from_ms = TimeRange::new(store.time_unit().to_ms(first), i64::MAX);
            self.storage.changes().note_range(&owner.into(), from_ms);
        }
    }

    /// Returns the tenants with data, sorted.
    #[must_use]
    pub fn tenants(&self) -> Vec<TenantId> {
        stats::tenants(&self.storage)
    }

    /// Returns the databases of all tenants: one version of the catalogue.
    #[must_use]
    pub fn databases(&self) -> Arc<DatabaseCatalog> {
        self.storage.databases().catalog()
    }

    /// Returns true if [`Tsdb::databases`] has all databases of `tenant`. Databases that only the bucket has
    /// are read in the background after the start: until then a name that is not in the catalogue may exist.
    #[must_use]
    pub fn knows_databases(&self, tenant: &TenantId) -> bool {
        knows_databases(&self.storage, tenant)
    }

    /// Waits until [`Tsdb::knows_databases`]. Cost the first time: two requests to the bucket.
    ///
    /// # Errors
    /// [`QueryError::Unavailable`] if the bucket does not answer; as [`ReadContext::begin_wait`].
    pub fn await_databases(&self, tenant: &TenantId, ctx: &ReadContext) -> Result<(), QueryError> {
        await_databases(&self.storage, tenant, ctx)
    }

    /// Changes the databases of `tenant` and returns when the change is durable. The samples of dropped
    /// stores cannot be read any more then; a maintenance job removes them.
    ///
    /// # Errors
    /// [`CatalogError`]: nothing changed, now or after a restart, unless the text says that it may have.
    pub fn change_databases(&self, tenant: &TenantId, change: &CatalogChange) -> Result<(), CatalogError> {
        self.storage.databases().change(tenant, change)?;
        if !matches!(change, CatalogChange::SetLastRun { .. }) {
            self.storage.changes().note_range(&tenant.into(), TimeRange::ALL);
        }
        let is_of_tenant =
            |store: &StoreId| self.storage.databases().owner_of(store).as_ref() == Some(tenant);
        self.storage.blocks().mark_changed_if(|store| !store.is_default() && is_of_tenant(store));
        Ok(())
    }

    /// Returns the limits of all tenants.
    #[must_use]
    pub fn limits(&self) -> LimitsTable {
        self.storage.limits()
    }

    /// Returns the limits of `store`: the limits of its tenant, and what the catalogue of databases sets.
    #[must_use]
    pub fn limits_of(&self, store: &StoreId) -> TenantLimits {
        self.storage.limits_of(store)
    }

    /// Replaces the limits of all tenants (configuration reload). Writes, flushes, retention and compactions
    /// that begin later use them; cached results that another duplicate policy may change count as changed.
    pub fn set_limits(&self, limits: LimitsTable) {
        self.storage.set_limits(limits);
    }

    /// Sets the rules of roll-ups of Graphite stores; `None` for none. Blocks that have roll-ups keep them.
    pub fn set_rollup_rules(&self, rules: Option<Arc<dyn RollupRules>>) {
        self.storage.set_rollup_rules(rules);
    }

    /// Returns the pause between two calls of [`Tsdb::sync_log`]: in interval mode it bounds the loss at a
    /// power cut.
    #[must_use]
    pub fn sync_pause(&self) -> Duration {
        match self.storage.options().sync {
            SyncMode::Interval(ms) => Duration::from_millis(ms / 4).clamp(SYNC_PAUSE_MIN, SYNC_PAUSE_MAX),
            SyncMode::Fsync | SyncMode::Os => SYNC_PAUSE_MAX,
        }
    }

    /// Pause between two calls of [`Tsdb::prepare_log`].
    pub const PREPARE_PAUSE: Duration = Duration::from_millis(100);

    /// Prepares the next WAL segment, on a thread of its own: it may write as many zeros as a segment has
    /// bytes. Cheap if there is nothing to do.
    pub fn prepare_log(&self) {
        if let Err(error) = self.storage.head().prepare_segment() {
            tracing::warn!(%error, "creating the next WAL segment ahead failed, retrying when it is needed");
        }
    }

    /// Syncs the WAL in interval mode, accepts writes again once a full disk has space, and measures memory
    /// once per second. Cheap if there is nothing to do; never waits for [`Tsdb::run_maintenance`], which may
    /// be writing a block. A panic poisons the WAL: without these syncs no acknowledged sample would become
    /// durable.
    pub fn sync_log(&self) {
        let head = self.storage.head();
        head.poison_on_panic("syncing at the interval", || {
            head.recover_space();
            if matches!(self.storage.options().sync, SyncMode::Interval(_)) {
                self.count_metadata_error(self.storage.metadata().sync());
                self.count_metadata_error(self.storage.graphite().sync());
            }
        });
        let now_ns = self.storage.env().clock.mono_ns();
        if now_ns.saturating_sub(self.measured_ns.load(Ordering::Relaxed)) >= MEASURE_INTERVAL_NS {
            self.measured_ns.store(now_ns, Ordering::Relaxed);
            head.statistics().measure_memory();
        }
    }

    /// Writes the due slices of the checkpoint. To be called every second or more often, on a thread of its
    /// own: never waits for [`Tsdb::run_maintenance`], which may be writing a block.
    pub fn roll_checkpoint(&self) {
        let head = self.storage.head();
        head.verify_next_sealed_file();
        if let Err(error) = head.checkpointer().roll_checkpoint() {
            self.maintenance.counters().errors.increment();
            tracing::error!(%error, "writing a part of the checkpoint failed, retrying");
        }
    }

    /// Runs the maintenance jobs that are due: flush, retention, checkpoint, compaction, scrub and others. To
    /// be called every second, on a thread of its own. A job that fails is logged, counted and retried by a
    /// later run.
    pub fn run_maintenance(&self) {
        self.maintenance.run();
    }

    /// Uploads the blocks that the bucket does not have. To be called every second, on a thread of its own;
    /// returns when all are uploaded. A failure is logged, counted and retried by a later call.
    pub fn upload_blocks(&self) {
        if let Some(state) = self.storage.uploads() {
            self.uploads.run(&self.storage, state);
        }
    }

    /// Runs the maintenance of the bucket that is due: retention, removal of replaced blocks, leftovers,
    /// compaction of blocks without a local copy. To be called every second, on a thread of its own. A
    /// failure is logged, counted and retried by a later call.
    pub fn maintain_bucket(&self) {
        if let (Some(state), Some(now_ms)) = (self.storage.uploads(), self.maintenance.trusted_ms()) {
            let parts = BucketParts { storage: &self.storage, state, maintenance: &self.maintenance };
            self.bucket_maintenance.run(parts, now_ms);
        }
    }

    /// Ends [`Tsdb::upload_blocks`] and [`Tsdb::maintain_bucket`] at their next request; they do nothing
    /// more.
    pub fn stop_uploads(&self) {
        if let Some(state) = self.storage.uploads() {
            self.uploads.stop(state);
        }
    }

    /// Runs one step of the verification of all blocks after a start, as every run of maintenance does;
    /// returns true once all are verified. Cost: 32 MiB read or 50 ms.
    pub fn verify_blocks(&self) -> bool {
        self.maintenance.verify_blocks()
    }

    /// Flushes every window that ends before `now_ms` to a block, due or not, and writes a checkpoint. For
    /// tools and tests; the server waits until windows are due.
    ///
    /// # Errors
    /// The text of the last failure; nothing is lost then.
    pub fn flush_closed(&self, now_ms: i64) -> Result<(), String> {
        self.maintenance.flush_closed(now_ms)
    }

    /// Starts no maintenance jobs of `kinds` ([`JobKind::ALL`] for all) until [`Tsdb::resume_maintenance`]. A
    /// running compaction ends at its next series, jobs of other kinds are completed.
    pub fn pause_maintenance(&self, kinds: &[JobKind]) {
        for kind in kinds {
            self.maintenance.pause(*kind);
            tracing::info!("{} paused", kind.name());
        }
    }

    /// Starts maintenance jobs of `kinds` again.
    pub fn resume_maintenance(&self, kinds: &[JobKind]) {
        for kind in kinds {
            self.maintenance.resume(*kind);
            tracing::info!("{} resumed", kind.name());
        }
    }

    /// Pauses compactions, and the rewriting of blocks with deletions, until [`Tsdb::resume_compaction`].
    pub fn pause_compaction(&self) {
        self.pause_maintenance(&REWRITING_KINDS);
    }

    /// Starts compactions again.
    pub fn resume_compaction(&self) {
        self.resume_maintenance(&REWRITING_KINDS);
    }

    /// Deletes the samples in `range`, in the unit of the tenant, of its series that match any of
    /// `selectors`: once it has returned, later queries do not see them, also after a crash. Samples that are
    /// written later are visible, whatever their time. The bytes go with the next compaction or
    /// [`Tsdb::clean_tombstones`].
    ///
    /// Windows of the head with such samples are flushed first, due or not: a block can record deletions, and
    /// flushed samples cannot come back from the WAL. Cost: these windows, and the matching series of each
    /// block.
    ///
    /// # Errors
    /// [`AdminError`]; part of the samples may be deleted then.
    pub fn delete_series(
        &self,
        store: &StoreId,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
    ) -> Result<DeleteReport, AdminError> {
        let deleted = self.admin().and_then(|admin| admin.delete_series(store, selectors, range));
        // Also after a failure: part of the samples may be gone.
        self.note_change(store, range);
        deleted
    }

    /// Rewrites every block of `store` with tombstones without its deleted samples; returns the number of
    /// blocks.
    ///
    /// # Errors
    /// [`AdminError`]; blocks before the failed one are clean, the others are unchanged.
    pub fn clean_tombstones(&self, store: &StoreId) -> Result<u64, AdminError> {
        self.admin()?.clean_tombstones(store)
    }

    /// Writes a snapshot of `stores` and returns its name below `snapshots/` of the data directory. With the
    /// default store of a tenant come its other stores, databases, metadata and events. Cost: a hard link per
    /// file of a block, and a flush of the head's windows. Maintenance waits meanwhile, writes do not.
    ///
    /// # Errors
    /// [`AdminError`]; nothing of the snapshot is left then.
    pub fn snapshot(&self, stores: &[StoreId], head: SnapshotHead) -> Result<String, AdminError> {
        self.admin()?.snapshot(stores, head)
    }

    fn admin(&self) -> Result<Admin<'_>, AdminError> {
        Admin::lock(&self.storage, &self.maintenance, &self.admin_counters)
    }

    /// Returns counters and sizes. Walks the head: to be called a few times per minute, not per second.
    #[must_use]
    pub fn stats(&self) -> TsdbStats {
        stats::collect(&StatsSources {
            storage: &self.storage,
            maintenance: &self.maintenance,
            bucket_maintenance: &self.bucket_maintenance,
            admin: &self.admin_counters,
            exemplars: &self.exemplars,
            start: &self.start,
        })
    }

    /// Returns the memory by part, and the `tenant_count` tenants with most in the head.
    #[must_use]
    pub fn memory(&self, tenant_count: usize) -> TsdbMemory {
        memory::collect(&self.storage, &self.exemplars, tenant_count)
    }

    /// Returns the `limit` blocks of `tenant` with the latest ends, those that only the bucket has included.
    /// Cost: reads `meta.json` of each listed block that is local alone.
    ///
    /// # Errors
    /// As [`ReadContext::check`]. A bucket that does not answer is named in the list.
    pub fn block_list(
        &self,
        tenant: &TenantId,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<BlockList, QueryError> {
        block_list::of_storage(&self.storage, tenant, limit, ctx)
    }

    /// Returns the head cardinality of `tenant`, `limit` entries per list.
    #[must_use]
    pub fn cardinality(&self, tenant: &TenantId, limit: usize) -> Cardinality {
        let mut all = self.storage.head().statistics().cardinality(&tenant.into(), limit);
        all.values_by_label.retain(|(name, _)| name != KIND_LABEL);
        all.bytes_by_label.retain(|(name, _)| name != KIND_LABEL);
        let is_kind = |pair: &str| pair.strip_prefix(KIND_LABEL).is_some_and(|rest| rest.starts_with('='));
        all.series_by_pair.retain(|(pair, _)| !is_kind(pair));
        all
    }

    /// Returns sizes of `tenant` in the head. Walks its series.
    #[must_use]
    pub fn head_stats_of(&self, tenant: &TenantId) -> TenantStats {
        self.storage.head().statistics().tenant_stats(&tenant.into())
    }

    /// Returns the sizes of all tenants with data. Cost: visits each tenant and store.
    #[must_use]
    pub fn tenant_sizes(&self) -> BTreeMap<TenantId, TenantSize> {
        tenant_usage::sizes(&self.storage)
    }

    /// Returns the use of those limits of `tenant` that the storage keeps.
    #[must_use]
    pub fn limit_uses(&self, tenant: &TenantId) -> Vec<LimitUse> {
        tenant_usage::limit_uses(&self.storage, &self.ingestion_rates, tenant)
    }

    /// Visits the metric names of the default store of `tenant` in the head with their numbers of series,
    /// ascending, until `visit` returns false.
    ///
    /// # Errors
    /// As [`ReadContext::check`].
    pub fn scan_metrics(
        &self,
        tenant: &TenantId,
        ctx: &ReadContext,
        visit: &mut dyn FnMut(&str, u64) -> bool,
    ) -> Result<(), QueryError> {
        self.storage.head().reader().scan_series_counts(&tenant.into(), METRIC_NAME, ctx, visit)
    }

    /// Returns the bytes of metrics in the local blocks of the default store of `tenant`. Cost: opens each
    /// block; see [`chronolith_block::metric_bytes`].
    ///
    /// # Errors
    /// Errors of blocks that are damaged or cannot be read; as [`ReadContext::check`];
    /// [`QueryError::Memory`].
    pub fn metric_disk_bytes(
        &self,
        tenant: &TenantId,
        filter: MetricFilter<'_>,
        ctx: &ReadContext,
    ) -> Result<MetricDiskBytes, QueryError> {
        metric_disk::read(self.storage.blocks(), &tenant.into(), filter, ctx)
    }

    /// Returns the number of series in the head by store, without stores that have none.
    #[must_use]
    pub fn head_series_by_store(&self) -> Vec<(StoreId, u64)> {
        self.storage.head().statistics().series_by_tenant()
    }

    /// Refuses further writes, makes everything durable, brings the checkpoint up to date so that the next
    /// start replays nothing; the lock goes with the last reference.
    ///
    /// # Errors
    /// If the checkpoint cannot be written; nothing is lost then, the next start replays the WAL.
    pub fn close(&self) -> Result<(), HeadError> {
        self.maintenance.stop();
        self.storage.blocks().commit();
        self.count_metadata_error(self.storage.metadata().close());
        self.count_metadata_error(self.storage.graphite().sync());
        self.storage.head().close()
    }

    /// Counts and logs a failed write of metadata, which a later call retries.
    fn count_metadata_error(&self, written: Result<(), WriteError>) {
        if let Err(error) = written {
            self.maintenance.counters().errors.increment();
            tracing::error!(%error, "writing metadata failed, retrying");
        }
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
        bounded(Tsdb::queryable(self, tenant))
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
    let graphite = GraphiteLog::open(env, options, &mut Findings { notes, repaired })?;
    Ok(SideStores { metadata, databases, graphite })
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
