//! The in-memory head: a facade over its parts, with the operations of applications.
//!
//! Not here: shared state and the lock order (`state`).

use std::sync::Arc;

use chronolith_base::Env;
use chronolith_model::{Matcher, StoreId, TenantLimits, TimeRange, TimeUnit, WriteBatch, WriteOutcome};
use chronolith_wal::WalPosition;

use crate::checkpoint::{CheckpointState, Checkpointer};
use crate::evict::reclaim::IdReclaimer;
use crate::field_history::FieldHistory;
use crate::log_cache::{CachedLog, LogCache};
use crate::metric_kinds::MetricKinds;
use crate::options::{HeadError, HeadOptions, WriteError, wal_dir};
use crate::read::select::HeadReader;
use crate::recovery::progress::{ReplayProgress, ReplayReport};
use crate::recovery::{Recovered, recover};
use crate::series::sealed_chunks::WINDOW_WIDTH_MAX;
use crate::series::verify::SealedVerification;
use crate::state::HeadState;
use crate::statistics::HeadStatistics;
use crate::store_owners::StoreOwners;
use crate::windows::HeadWindows;
use crate::write::Writer;
use crate::write::decode::DecodedSeries;
use crate::write::delete::{DeleteProgress, DeleteStats};

/// Calls of [`Head::reclaim_ids`] from finding free pages of ids to reusing them.
const ID_RECLAIM_STEPS: usize = 3;

/// The newest hours of all tenants: accepts samples durably and serves queries over them.
pub struct Head {
    state: Arc<HeadState>,
    writer: Arc<Writer>,
    reader: HeadReader,
    windows: HeadWindows,
    checkpointer: Checkpointer,
    id_reclaimer: IdReclaimer,
    sealed_verification: Arc<SealedVerification>,
    statistics: HeadStatistics,
}

impl Head {
    /// Loads the slices of the checkpoint, replays the WAL after them, and accepts writes.
    ///
    /// # Errors
    /// [`HeadError`] if the disk fails. Damage is contained and listed in the notes of the report.
    pub fn open(
        env: &Env,
        options: HeadOptions,
        progress: &ReplayProgress,
    ) -> Result<(Head, ReplayReport), HeadError> {
        assert!(
            options.window_ms > 0 && TimeUnit::Nano.from_ms(options.window_ms) <= WINDOW_WIDTH_MAX,
            "a window is between a millisecond and 2.4 hours long"
        );
        let recovered = recover(env, options, progress)?;
        let has_defined = recovered.has_defined();
        let Recovered { state, rolling, report, .. } = recovered;
        let head = Head::new(state, rolling);
        if has_defined {
            head.checkpointer.settle_definitions_of_log()?;
        }
        head.checkpointer.cut_finished_log()?;
        head.windows.forget_unused_tenants();
        // No ids are in use yet, so all steps can run in a row.
        for _ in 0..ID_RECLAIM_STEPS {
            if let Err(error) = head.reclaim_ids() {
                tracing::error!(%error, "reclaiming ids of removed series failed, retrying later");
                break;
            }
        }
        Ok((head, report))
    }

    fn new(state: Arc<HeadState>, rolling: CheckpointState) -> Head {
        let writer = Arc::new(Writer::new(state.clone()));
        let verification = Arc::new(SealedVerification::new(state.series.store.finished_files()));
        Head {
            reader: HeadReader::new(state.clone()),
            windows: HeadWindows::new(state.clone()),
            checkpointer: Checkpointer::new(state.clone(), rolling),
            id_reclaimer: IdReclaimer::new(state.clone()),
            statistics: HeadStatistics::new(state.clone(), writer.clone(), verification.clone()),
            sealed_verification: verification,
            writer,
            state,
        }
    }

    /// Sets where fields are looked up that have left the head, once.
    pub fn set_field_history(&self, history: Box<dyn FieldHistory>) {
        // A second history would describe the same blocks.
        let _ = self.state.field_history.set(history);
    }

    /// Sets where the types of metrics are looked up, once, before anything is appended: they decide how the
    /// series beyond a limit are folded.
    pub fn set_metric_kinds(&self, kinds: Box<dyn MetricKinds>) {
        self.state.index.set_metric_kinds(kinds);
    }

    /// Sets where the owners of stores are looked up, once, before anything is appended: the stores of a
    /// tenant use one share of the memory.
    pub fn set_store_owners(&self, owners: Box<dyn StoreOwners>) {
        self.writer.memory_limit().set_owners(owners);
    }

    /// Applies a batch to memory and queues its WAL frames; durable only after [`Head::wait`] for the
    /// position. Cost: one hash and one predicted lookup per series, one lock per stripe.
    ///
    /// # Errors
    /// [`WriteError`]: nothing was applied. Rejected samples are not an error: the outcome counts them.
    pub fn append(
        &self,
        store: &StoreId,
        limits: &TenantLimits,
        now_ms: i64,
        batch: &WriteBatch,
    ) -> Result<(WriteOutcome, WalPosition), WriteError> {
        self.writer.append(store, limits, now_ms, batch)
    }

    /// Returns the series of a batch without storing them, checked by `limits` as [`Head::append`] does; the
    /// outcome counts the rejects. Series ascend by labels, and of samples at one timestamp the policy of
    /// `limits` keeps one. Cost: labels of each series are parsed, its samples copied and sorted.
    ///
    /// # Errors
    /// [`WriteError`]: writes are refused.
    pub fn decode(
        &self,
        store: &StoreId,
        limits: &TenantLimits,
        now_ms: i64,
        batch: &WriteBatch,
    ) -> Result<(Vec<DecodedSeries>, WriteOutcome), WriteError> {
        self.writer.decode(store, limits, now_ms, batch)
    }

    /// Deletes the samples in `range` of the series of `store` that match all matchers of one of
    /// `selectors`; durable after [`Head::wait`] for the position. Samples written later are stored as usual;
    /// running queries keep the chunks that they selected. Cost: about one chunk decoded and encoded per
    /// series and end of the range, four bytes of memory per matched series.
    ///
    /// # Errors
    /// [`WriteError`]: nothing was deleted.
    pub fn delete(
        &self,
        store: &StoreId,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
        progress: &DeleteProgress,
    ) -> Result<(DeleteStats, WalPosition), WriteError> {
        self.writer.delete(store, selectors, range, progress)
    }

    /// Waits until everything up to `position` is as durable as the sync mode promises.
    ///
    /// # Errors
    /// [`WriteError`]: the batch may or may not become durable; it must not be acknowledged.
    pub fn wait(&self, position: WalPosition) -> Result<(), WriteError> {
        Ok(self.state.wal.wait_durable(position)?)
    }

    /// Retries writes that wait for disk space, accepts appends again once there is some, and syncs in
    /// interval mode. The caller runs it at least once per second, in interval mode four times per interval.
    pub fn recover_space(&self) {
        if self.state.write_sealed().is_ok() {
            self.state.wal.maintain();
        }
    }

    /// Returns the error of a WAL that refuses all writes until a restart.
    #[must_use]
    pub fn failure(&self) -> Option<WriteError> {
        self.state.wal.failure().map(WriteError::Wal)
    }

    /// Runs `work`, on which the durability of acknowledged samples depends; a panic in it poisons the WAL
    /// and is not propagated.
    pub fn poison_on_panic(&self, what: &str, work: impl FnOnce()) {
        // All later writes are refused, so state that the panic left half-changed is never written.
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err() {
            self.state.wal.poison(format!("{what} has panicked"));
        }
    }

    /// Refuses further writes, makes everything durable, and writes a checkpoint so that the next start has
    /// nothing to replay. Closing twice is not an error.
    ///
    /// # Errors
    /// [`HeadError`]; no acknowledged sample is lost: the next start replays the WAL.
    pub fn close(&self) -> Result<(), HeadError> {
        let record = self.state.log_cache.as_ref().map(LogCache::pause);
        let _no_writes = self.writer.stop_writes();
        let wal = &self.state.wal;
        if !wal.close() {
            return if wal.is_poisoned() { Ok(wal.sync()?) } else { Ok(()) };
        }
        drop(record);
        wal.sync()?;
        self.checkpointer.checkpoint_newest()?;
        wal.record_closed().map_err(HeadError::io(&wal_dir(&self.state.options.dir)))
    }

    /// Prepares a WAL segment ahead of need and returns at once if one is ready. The caller runs it ten times
    /// per second, on a thread that may wait for the disk.
    ///
    /// # Errors
    /// [`HeadError`]; the WAL then creates the segment when it needs one.
    pub fn prepare_segment(&self) -> Result<(), HeadError> {
        self.state.wal.prepare_segment().map_err(HeadError::io(&wal_dir(&self.state.options.dir)))
    }

    /// Makes ids of departed series usable again when few ids are left, one step per call. The caller runs it
    /// every few seconds. Most calls do nothing; the last step writes two whole checkpoints.
    ///
    /// # Errors
    /// [`HeadError`] if a checkpoint cannot be written; a later call retries.
    pub fn reclaim_ids(&self) -> Result<(), HeadError> {
        self.id_reclaimer.step(&self.checkpointer)
    }

    /// Verifies the next sealed file of an earlier process; returns false if there is none left. The caller
    /// runs it every second until then. Cost: one pass over a file of at most `sealed_file_bytes`, without a
    /// lock.
    pub fn verify_next_sealed_file(&self) -> bool {
        self.sealed_verification.verify_next(&self.state.series)
    }

    /// Returns the read side: series with their samples, label names and label values.
    #[must_use]
    pub fn reader(&self) -> &HeadReader {
        &self.reader
    }

    /// Returns the position in the replicated log of which the WAL is a cache ([`HeadOptions::log`]).
    #[must_use]
    pub fn log_cache(&self) -> Option<CachedLog<'_>> {
        self.state.log_cache.as_ref().map(|cache| CachedLog::new(cache, &self.state.wal))
    }

    /// Returns the windows that have chunks: lists, snapshots for flushes, removal.
    #[must_use]
    pub fn windows(&self) -> &HeadWindows {
        &self.windows
    }

    /// Returns the part that writes checkpoints.
    #[must_use]
    pub fn checkpointer(&self) -> &Checkpointer {
        &self.checkpointer
    }

    /// Returns counters, sizes, memory by part, and statistics of tenants.
    #[must_use]
    pub fn statistics(&self) -> &HeadStatistics {
        &self.statistics
    }

    #[cfg(test)]
    pub(crate) fn state(&self) -> &HeadState {
        &self.state
    }
}
