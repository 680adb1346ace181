//! The store of all tenants: one head, blocks by tenant, what happens between open and close.
//!
//! Holds: a batch is acknowledged only when it is durable; a query sees a sample from its acknowledgement on.
//! Not here: how samples are kept (`head`, `block`), when background work is due (`upkeep`).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chronolith_base::disk::LockGuard;
use chronolith_base::{Disk, Env};
use chronolith_head::{Head, HeadError, HeadOptions, ReplayProgress, SyncMode, WalPosition, WriteError};
use chronolith_model::change::{ChangeWatch, Changed};
use chronolith_model::{
    Exemplar, Labels, LabelsBuilder, Matcher, MetadataEntry, Queryable, TenantId, TenantLimits, TimeRange,
    WriteBatch, WriteOutcome,
};
use parking_lot::{Mutex, RwLock};

use crate::blocks::{BlockStore, Tenants};
use crate::changes::Changes;
use crate::compaction::CompactionState;
use crate::exemplars::{ExemplarFate, ExemplarRing};
use crate::ingestion_rate::IngestionRates;
use crate::limits::LimitsTable;
use crate::load::{LoadedBlocks, load_blocks};
use crate::metadata::MetadataStore;
use crate::options::{OpenError, TsdbOptions};
use crate::query::TenantQueryable;
use crate::snapshot::remove_unfinished;
use crate::tenant::{TENANTS_DIR, TenantBlocks};
use crate::upkeep::{GuardedClock, Upkeep};

/// Name of the lock file in the data directory.
const LOCK_FILE: &str = "lock";
/// How long a start waits for the lock of a process that is just stopping.
const LOCK_WAIT: Duration = Duration::from_secs(2);
const LOCK_RETRY: Duration = Duration::from_millis(50);

/// Bounds of the pause between two pulses.
const PULSE_PAUSE_MIN: Duration = Duration::from_millis(5);
const PULSE_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The head's memory is measured this often, for its limit.
const MEASURE_EVERY_NS: u64 = 900_000_000;

/// Width of a window: the time range of a fresh block.
pub(crate) const WINDOW_MS: i64 = 2 * 3_600_000;

/// The store of all tenants.
pub struct Tsdb {
    pub(crate) env: Env,
    pub(crate) options: TsdbOptions,
    pub(crate) head: Arc<Head>,
    limits: RwLock<LimitsTable>,
    pub(crate) tenants: Arc<Tenants>,
    pub(crate) blocks: Arc<BlockStore>,
    pub(crate) metadata: MetadataStore,
    pub(crate) exemplars: ExemplarRing,
    ingestion_rates: IngestionRates,
    /// Monotonic time of the last measurement of the head's memory.
    measured_ns: AtomicU64,
    pub(crate) counters: Counters,
    pub(crate) changes: Changes,
    pub(crate) compaction: CompactionState,
    pub(crate) replay_notes: Vec<String>,
    /// Files that were damaged when the store was opened and that a second copy or the log replaced.
    pub(crate) replay_repaired_count: u64,
    pub(crate) replay_ms: u64,
    /// One round of upkeep at a time, and none after close.
    pub(crate) upkeep: Mutex<Upkeep>,
    _lock: Box<dyn LockGuard>,
}

/// What happened since the start.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) flushes: AtomicU64,
    /// Series that were found idle and went to blocks.
    pub(crate) idle_series: AtomicU64,
    pub(crate) upkeep_errors: AtomicU64,
    pub(crate) retention_removed: AtomicU64,
    /// Requests to delete series.
    pub(crate) deletions: AtomicU64,
    /// Blocks rewritten without what is deleted, because somebody asked.
    pub(crate) cleaned_blocks: AtomicU64,
    pub(crate) snapshots: AtomicU64,
    /// Chunks that were left out of a block because they are damaged.
    pub(crate) damaged_chunks: AtomicU64,
    /// Small windows that wait beyond the flush delay, at the last look, and the memory that they take by
    /// estimate.
    pub(crate) waiting_windows: AtomicU64,
    pub(crate) waiting_bytes: AtomicU64,
    /// Forward jumps of the clock that removal by age did not follow at once.
    pub(crate) clock_jumps: AtomicU64,
    /// Seconds that it still waits.
    pub(crate) clock_wait_s: AtomicU64,
    /// Blocks that are expired by the clock and stay meanwhile.
    pub(crate) held_blocks: AtomicU64,
}

impl Tsdb {
    /// Locks the directory, loads blocks, replays. Blocks the thread; `progress` may be watched meanwhile.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(
        env: Env,
        options: TsdbOptions,
        progress: Arc<ReplayProgress>,
    ) -> Result<Arc<Tsdb>, OpenError> {
        let io = |error| OpenError::Io { path: options.data_dir.clone(), error };
        let tenants_dir = options.data_dir.join(TENANTS_DIR);
        make_dir(&*env.disk, &tenants_dir).map_err(io)?;
        let lock = lock_data_dir(&env, &options.data_dir)?;
        let (mut notes, mut repaired) = (Vec::new(), Vec::new());
        if let Err(error) = remove_unfinished(&env, &options.data_dir) {
            notes.push(format!("an unfinished snapshot is still to be removed: {error}"));
        }
        let blocks = open_blocks(&env, &options, &mut notes)?;
        let head_options = HeadOptions {
            sync: options.sync,
            free_bytes_min: options.free_bytes_min,
            window_ms: WINDOW_MS,
            wal_segment_bytes: options.wal_segment_bytes,
            memory_bytes_max: options.head_memory.bytes(&*env.disk),
            histogram_bytes_max: options.histogram_bytes_max,
            ..HeadOptions::new(options.data_dir.clone())
        };
        let metadata = MetadataStore::open(&env, &options.data_dir, options.sync, &mut notes, &mut repaired)?;
        let (head, report) = Head::open(&env, head_options, &progress).map_err(open_error)?;
        head.statistics().measure_memory();
        notes.extend(report.notes);
        let clock = open_clock(&env, &options, &blocks.tenants, &head, &mut notes);
        repaired.extend(report.repaired);
        for note in &notes {
            tracing::error!(note, "start");
        }
        for note in &repaired {
            tracing::warn!(note, "start: a damaged file was replaced, nothing is lost");
        }
        let tsdb = Tsdb {
            head: Arc::new(head),
            limits: RwLock::new(options.limits.clone()),
            tenants: blocks.tenants.clone(),
            blocks,
            metadata,
            ingestion_rates: IngestionRates::default(),
            measured_ns: AtomicU64::new(0),
            exemplars: ExemplarRing::new(options.exemplar_count_max),
            counters: Counters::default(),
            changes: Changes::default(),
            compaction: CompactionState::default(),
            replay_notes: notes,
            replay_repaired_count: repaired.len() as u64,
            replay_ms: report.duration_ns / 1_000_000,
            upkeep: Mutex::new(Upkeep::new(clock)),
            env,
            options,
            _lock: lock,
        };
        Ok(Arc::new(tsdb))
    }

    /// Stores a batch; returns when it is durable as the sync mode promises. Blocks the thread.
    ///
    /// # Errors
    /// [`WriteError`]: nothing of the batch is acknowledged. Rejected samples are no error: see the outcome.
    pub fn append(&self, tenant: &TenantId, batch: &WriteBatch) -> Result<WriteOutcome, WriteError> {
        self.append_on_applied(tenant, batch, || {})
    }

    /// As [`Tsdb::append`]; `on_applied` runs when the batch is visible and only the wait for the disk is
    /// left.
    ///
    /// # Errors
    /// As [`Tsdb::append`]; `on_applied` may not have run.
    pub fn append_on_applied(
        &self,
        tenant: &TenantId,
        batch: &WriteBatch,
        on_applied: impl FnOnce(),
    ) -> Result<WriteOutcome, WriteError> {
        let limits = self.limits_of(tenant);
        let (mut outcome, position) = self.append_to_head(tenant, &limits, batch)?;
        // After the samples are visible and before they are acknowledged, as caches of results rely on.
        self.changes.note_batch(tenant, batch);
        let change = self.metadata.keep(tenant, &batch.metadata);
        self.keep_exemplars(tenant, batch, &mut outcome);
        on_applied();
        self.head.wait(position)?;
        self.metadata.wait(change)?;
        Ok(outcome)
    }

    /// Why all writes are refused until a restart, if they are.
    #[must_use]
    pub fn failure(&self) -> Option<WriteError> {
        self.head.failure()
    }

    /// Takes the tokens of the tenant's rate and appends. A batch is refused whole or not at all.
    fn append_to_head(
        &self,
        tenant: &TenantId,
        limits: &TenantLimits,
        batch: &WriteBatch,
    ) -> Result<(WriteOutcome, WalPosition), WriteError> {
        let sample_count = batch.sample_count() as u64;
        self.ingestion_rates.take(tenant, limits, sample_count, self.env.clock.mono_ns())?;
        self.head.append(tenant, limits, self.env.clock.now_ms(), batch).inspect_err(|_| {
            self.ingestion_rates.give_back(tenant, limits, sample_count);
        })
    }

    fn keep_exemplars(&self, tenant: &TenantId, batch: &WriteBatch, outcome: &mut WriteOutcome) {
        let mut builder = LabelsBuilder::new();
        for entry in &batch.exemplars {
            let Some(series) = batch.series.get(entry.series_idx as usize) else { continue };
            builder.clear();
            // A series that cannot be parsed was rejected by the head; its exemplars go with it.
            if (batch.source.parse)(batch.raw_of(series), &mut builder).is_ok() {
                match self.exemplars.push(tenant, &builder.finish(), entry.exemplar.clone()) {
                    ExemplarFate::Kept => outcome.exemplars_accepted += 1,
                    ExemplarFate::Late => outcome.exemplars_late += 1,
                    ExemplarFate::Refused => {}
                }
            }
        }
    }

    /// Head and blocks of `tenant` as one; empty for a tenant without data.
    #[must_use]
    pub fn queryable(&self, tenant: &TenantId) -> Arc<dyn Queryable> {
        let (head, tenant, blocks) = (self.head.clone(), tenant.clone(), self.blocks.clone());
        let duplicates = self.limits_of(&tenant).duplicates;
        Arc::new(TenantQueryable { head, tenant, blocks, duplicates })
    }

    /// The blocks of `tenant`; the entry is made if there is none.
    pub(crate) fn blocks_of(&self, tenant: &TenantId) -> Arc<TenantBlocks> {
        let fresh = || Arc::new(TenantBlocks::new(&self.options.data_dir, tenant, Vec::new()));
        self.tenants.write().entry(tenant.clone()).or_insert_with(fresh).clone()
    }

    /// Metadata of one metric or all, sorted by metric; at most `limit` metrics (0 = all).
    #[must_use]
    pub fn metadata(&self, tenant: &TenantId, metric: Option<&str>, limit: usize) -> Vec<MetadataEntry> {
        self.metadata.list(tenant, metric, limit)
    }

    /// Exemplars of the series that fit any of `selectors`, by series labels, times ascending.
    #[must_use]
    pub fn exemplars(
        &self,
        tenant: &TenantId,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
    ) -> Vec<(Labels, Vec<Exemplar>)> {
        self.exemplars.select(tenant, selectors, range)
    }

    /// The part of `range` from the first window on in which `tenant` may have samples; `None` if there is
    /// none.
    #[must_use]
    pub fn times(&self, tenant: &TenantId, range: TimeRange) -> Option<TimeRange> {
        let windows = self.head.windows().list_of(tenant);
        let head = windows.iter().map(|window| window.range).filter(|one| one.overlaps(range));
        let blocks = self.tenants.read().get(tenant).cloned();
        let blocks = blocks.and_then(|blocks| blocks.first_start_in(range));
        let first = head.map(|one| one.start).chain(blocks).min()?;
        Some(TimeRange::new(first.max(range.start), range.end))
    }

    /// To be called after samples of `tenant` in `range` came or went by another way than [`Tsdb::append`]
    /// and the retention: a deletion, an import of blocks.
    pub fn note_change(&self, tenant: &TenantId, range: TimeRange) {
        self.changes.note_range(tenant, range);
    }

    /// Tenants with data, sorted.
    #[must_use]
    pub fn tenants(&self) -> Vec<TenantId> {
        let mut all = self.head.statistics().tenants();
        all.extend(self.tenants.read().iter().filter(|(_, b)| b.totals().count > 0).map(|(t, _)| t.clone()));
        all.sort();
        all.dedup();
        all
    }

    /// Limits of all tenants.
    #[must_use]
    pub fn limits(&self) -> LimitsTable {
        self.limits.read().clone()
    }

    /// Limits in force for `tenant`.
    #[must_use]
    pub fn limits_of(&self, tenant: &TenantId) -> TenantLimits {
        self.limits.read().of(tenant).clone()
    }

    /// Replaces the limits of all tenants (configuration reload). Appends, flushes, retention and merges that
    /// begin later go by them; results that other rules for duplicates may change count as changed.
    pub fn set_limits(&self, limits: LimitsTable) {
        let before = std::mem::replace(&mut *self.limits.write(), limits.clone());
        self.changes.note_all(|tenant| before.of(tenant).duplicates != limits.of(tenant).duplicates);
    }

    /// How often [`Tsdb::pulse`] is to be called: in interval mode this is what bounds the loss at a power
    /// cut.
    #[must_use]
    pub fn pulse_pause(&self) -> Duration {
        match self.options.sync {
            SyncMode::Interval(ms) => Duration::from_millis(ms / 4).clamp(PULSE_PAUSE_MIN, PULSE_PAUSE_MAX),
            SyncMode::Fsync | SyncMode::Os => PULSE_PAUSE_MAX,
        }
    }

    /// How often [`Tsdb::prepare_log`] is to be called.
    pub const PREPARE_PAUSE: Duration = Duration::from_millis(100);

    /// Prepares a segment of the log ahead of need, on a thread of its own: it may write as many zeros as a
    /// segment has bytes. Cheap when there is nothing to do.
    pub fn prepare_log(&self) {
        if let Err(error) = self.head.prepare_segment() {
            tracing::warn!(%error, "no segment of the log was prepared: it is made when it is needed");
        }
    }

    /// Syncs the log in interval mode, takes writes again when a full disk has space, and measures
    /// memory once a second. Cheap when there is
    /// nothing to do; never waits for [`Tsdb::tick`], which may be writing a block.
    /// A panic poisons the log: without these syncs nothing acknowledged would become durable.
    pub fn pulse(&self) {
        self.head.poison_on_panic("syncing at the interval", || {
            self.head.recover_space();
            if matches!(self.options.sync, SyncMode::Interval(_)) {
                self.count_metadata_error(self.metadata.settle());
            }
        });
        let now_ns = self.env.clock.mono_ns();
        if now_ns.saturating_sub(self.measured_ns.load(Ordering::Relaxed)) >= MEASURE_EVERY_NS {
            self.measured_ns.store(now_ns, Ordering::Relaxed);
            self.head.statistics().measure_memory();
        }
    }

    /// Writes what is due of the checkpoint. To be called every second or more often, on a thread of its own:
    /// never waits for [`Tsdb::tick`], which may be writing a block.
    pub fn roll_checkpoint(&self) {
        self.head.verify_next_sealed_file();
        if let Err(error) = self.head.checkpointer().roll_checkpoint() {
            self.count_upkeep_error();
            tracing::error!(%error, "writing a part of the checkpoint failed; it is tried again");
        }
    }

    /// Refuses further writes, makes everything durable, brings the checkpoint up to date so that the next
    /// start replays nothing, releases the lock when the last reference goes.
    ///
    /// # Errors
    /// If the checkpoint cannot be written; nothing is lost then, the next start replays the log.
    pub fn close(&self) -> Result<(), HeadError> {
        // A merge under way ends at its next series; its inputs stay.
        self.compaction.stop.store(true, Ordering::Relaxed);
        let mut upkeep = self.upkeep.lock();
        upkeep.stop();
        if let Err(error) = upkeep.clock().save(&self.env) {
            self.count_upkeep_error();
            tracing::error!(%error, "writing the time of retention failed; the next start goes by an earlier one");
        }
        drop(upkeep);
        self.blocks.commit();
        self.count_metadata_error(self.metadata.close());
        self.head.close()
    }

    /// What cannot be written of the metadata is tried again.
    pub(crate) fn count_metadata_error(&self, written: Result<(), WriteError>) {
        if let Err(error) = written {
            self.count_upkeep_error();
            tracing::error!(%error, "writing metadata failed; it is tried again");
        }
    }

    pub(crate) fn count_upkeep_error(&self) {
        self.counters.upkeep_errors.fetch_add(1, Ordering::Relaxed);
    }
}

impl ChangeWatch for Tsdb {
    fn generation(&self, tenant: &TenantId) -> u64 {
        self.changes.generation(tenant)
    }

    fn changed_since(&self, tenant: &TenantId, generation: u64) -> Changed {
        self.changes.since(tenant, generation)
    }
}

/// Makes `dir` and what is missing above it, durably.
fn make_dir(disk: &dyn Disk, dir: &Path) -> std::io::Result<()> {
    let missing: Vec<&Path> = dir.ancestors().take_while(|path| !disk.exists(path)).collect();
    disk.create_dir_all(dir)?;
    // Also that of `dir` itself if it was there: a process may have ended between making and syncing it.
    for parent in std::iter::once(dir).chain(missing).filter_map(Path::parent) {
        // The parent of a relative path of one part has the empty name.
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        disk.sync_dir(parent)?;
    }
    Ok(())
}

/// Takes the lock of a data directory, which keeps every other process of ours out of it until it is dropped.
/// For tools that change a directory which no server has open.
///
/// # Errors
/// [`OpenError::Locked`] if another process has it for longer than a stop takes.
pub fn lock_data_dir(env: &Env, data_dir: &Path) -> Result<Box<dyn LockGuard>, OpenError> {
    let path = data_dir.join(LOCK_FILE);
    let mut waited = Duration::ZERO;
    loop {
        match env.disk.lock(&path) {
            Ok(lock) => return Ok(lock),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock && waited < LOCK_WAIT => {
                env.clock.sleep(LOCK_RETRY);
                waited += LOCK_RETRY;
            }
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                return Err(OpenError::Locked(data_dir.to_owned()));
            }
            Err(error) => return Err(OpenError::Io { path, error }),
        }
    }
}

/// The clock of retention, which the newest sample tells if no file does.
fn open_clock(
    env: &Env,
    options: &TsdbOptions,
    tenants: &Tenants,
    head: &Head,
    notes: &mut Vec<String>,
) -> GuardedClock {
    let newest_of = |blocks: &Arc<TenantBlocks>| blocks.list().iter().map(|block| block.range().end).max();
    let blocks = tenants.read().values().filter_map(newest_of).max();
    let newest_ms = blocks.into_iter().chain(head.statistics().stats().max_time_ms).max();
    GuardedClock::open(env, &options.data_dir, options.retention_clock_guard_ms, newest_ms, notes)
}

/// All blocks; what a crash left of compacted ones is removed.
fn open_blocks(
    env: &Env,
    options: &TsdbOptions,
    notes: &mut Vec<String>,
) -> Result<Arc<BlockStore>, OpenError> {
    let LoadedBlocks { tenants, catalogue, lost_count } = load_blocks(env, options, notes)?;
    // One sync for the directories of all tenants that are there.
    let root = options.data_dir.join(TENANTS_DIR);
    env.disk.sync_dir(&root).map_err(|error| OpenError::Io { path: root, error })?;
    tenants.values().for_each(|blocks| blocks.note_durable_dir());
    let tenants = Arc::new(RwLock::new(tenants));
    let store = Arc::new(BlockStore::new(env, options.open_blocks, catalogue, tenants, lost_count));
    store.commit();
    let all: Vec<_> = store.tenants.read().values().cloned().collect();
    for blocks in all {
        if let Err(error) = blocks.remove_doomed(&store) {
            notes.push(format!(
                "a block that was compacted into another is hidden and still to be removed: {error}"
            ));
        }
    }
    Ok(store)
}

fn open_error(error: HeadError) -> OpenError {
    match error {
        HeadError::Io { path, error } => OpenError::Io { path, error },
        other => OpenError::Head(other),
    }
}
