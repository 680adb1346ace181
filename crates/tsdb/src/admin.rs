//! What an operator asks for: delete series, clean tombstones, pause and resume merging.
//!
//! Holds: no flush, merge or retention of blocks runs meanwhile (the upkeep lock), so what is being cut to a
//! block cannot bring deleted samples back. A merge under way gives way at its next series and begins anew
//! later. Not here: snapshots (`snapshot`), tombstones (`block::delete`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use chronolith_block::{BlockEntry, BlockError, CompactError, DeleteError};
use chronolith_head::{DeleteProgress, HeadError};
use chronolith_model::{Matcher, QueryError, ReadContext, Selector, TenantId, TimeRange};
use parking_lot::MutexGuard;

use crate::compaction::{Step, Urgency};
use crate::store::Tsdb;
use crate::tenant::TenantBlocks;
use crate::upkeep::{FlushError, Upkeep, block_range};

/// Why an operator's request failed. What was done before the failure stays done; it may be asked for again.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The series cannot be found, or samples cannot be read.
    #[error("{0}")]
    Read(#[from] QueryError),
    /// A block cannot be written.
    #[error("{0}")]
    Block(#[from] BlockError),
    /// The head cannot be read or cut.
    #[error("head: {0}")]
    Head(#[from] HeadError),
    /// A chunk of the head is damaged.
    #[error("chunk of the head: {0}")]
    Chunk(#[from] chronolith_base::DecodeError),
    /// A block cannot be rewritten.
    #[error("{0}")]
    Compact(#[from] CompactError),
    /// The disk refused.
    #[error("{path}: {error}")]
    Io {
        /// File or directory.
        path: std::path::PathBuf,
        /// As the operating system says.
        error: std::io::Error,
    },
    /// Rewriting a block needs more than is free.
    #[error("too little free space to rewrite block {0}")]
    NoSpace(chronolith_format::block::meta::Ulid),
    /// The store is closing.
    #[error("the store is closed")]
    Closed,
}

impl From<DeleteError> for AdminError {
    fn from(error: DeleteError) -> AdminError {
        match error {
            DeleteError::Read(error) => AdminError::Read(error),
            DeleteError::Write(error) => AdminError::Block(error),
        }
    }
}

impl From<FlushError> for AdminError {
    fn from(error: FlushError) -> AdminError {
        match error {
            FlushError::Head(error) => AdminError::Head(error),
            FlushError::Block(error) => AdminError::Block(error),
            FlushError::Chunk(error) => AdminError::Chunk(error),
            FlushError::Io(error) => AdminError::Io { path: "tenants".into(), error },
        }
    }
}

/// What a deletion found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeleteReport {
    /// Series that had samples in the range, counted once a block.
    pub series_count: u64,
    /// Blocks that have tombstones for it.
    pub block_count: u64,
}

impl Tsdb {
    /// Deletes the samples in `range` of the series of `tenant` that fit any of `selectors`: when it returns,
    /// queries that begin later do not see them, also after a crash. Samples that come in later are visible,
    /// whatever their time. The bytes go with the next merge or [`Tsdb::clean_tombstones`].
    ///
    /// Windows of the head that have such samples are cut to blocks first, due or not: a block can say what
    /// is deleted, and what is cut cannot come back from the log. Cost: those windows, and the series that
    /// fit in each block.
    ///
    /// # Errors
    /// [`AdminError`]; part of the samples may be deleted then.
    pub fn delete_series(
        &self,
        tenant: &TenantId,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
    ) -> Result<DeleteReport, AdminError> {
        let done = self.delete_everywhere(tenant, selectors, range);
        // Also after a failure: part of the samples may be gone.
        self.changes.note_range(tenant, range);
        done
    }

    fn delete_everywhere(
        &self,
        tenant: &TenantId,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
    ) -> Result<DeleteReport, AdminError> {
        let _upkeep = self.take_upkeep()?;
        self.cut_head(tenant, selectors, range)?;
        let blocks = self.blocks_of(tenant);
        // Files that are only hidden would come back with a crash, without tombstones.
        blocks.remove_doomed(&self.blocks)?;
        let mut report = DeleteReport::default();
        let deleted = self.delete_in_blocks(&blocks, selectors, range, &mut report);
        self.blocks.commit();
        deleted?;
        let DeleteReport { series_count, block_count } = report;
        self.counters.deletions.fetch_add(1, Ordering::Relaxed);
        tracing::info!(%tenant, range.start, range.end, series_count, block_count, "series deleted");
        Ok(report)
    }

    fn delete_in_blocks(
        &self,
        blocks: &TenantBlocks,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
        report: &mut DeleteReport,
    ) -> Result<(), AdminError> {
        for entry in blocks.in_range(range) {
            let block = self.blocks.open(blocks, &entry)?;
            let Some(deleted) = block.delete(&self.env, selectors, range)? else { continue };
            report.series_count += deleted.series_count;
            report.block_count += 1;
            blocks.replace(&self.blocks, &[entry], vec![BlockEntry::new(deleted.block.record())]);
        }
        Ok(())
    }

    /// Cuts the windows of the head that have samples to delete to blocks, and frees the log of them.
    fn cut_head(
        &self,
        tenant: &TenantId,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
    ) -> Result<(), AdminError> {
        let ctx = ReadContext::unlimited(self.env.clock.clone());
        let now_ms = self.env.clock.now_ms();
        let mut ranges = Vec::new();
        for window in self.head.windows().list_of(tenant) {
            let part = TimeRange::new(window.range.start.max(range.start), window.range.end.min(range.end));
            if part.is_empty() {
                continue;
            }
            for matchers in selectors {
                if !self.head.reader().select(tenant, &Selector { matchers, range: part }, &ctx)?.is_empty() {
                    ranges.push(block_range(window.range, now_ms));
                    break;
                }
            }
        }
        ranges.sort_unstable();
        ranges.dedup();
        for &range in &ranges {
            self.flush_window(tenant, range)?;
        }
        // Also if no window was cut. What late samples were merged with meanwhile is not part of a block and
        // stayed in the head; and a series whose last sample is in a block already still remembers it: the
        // same sample would be taken for a repeat, and acknowledged without being stored.
        let deleted = self.head.delete(tenant, selectors, range, &DeleteProgress::default());
        let (_, position) = deleted.map_err(HeadError::from)?;
        self.head.wait(position).map_err(HeadError::from)?;
        // Also for windows that were cut before and whose checkpoint failed.
        Ok(self.head.checkpointer().settle_drops()?)
    }

    /// Rewrites every block of `tenant` that has tombstones without what they delete; gives how many there
    /// were.
    ///
    /// # Errors
    /// [`AdminError`]; blocks before the one that failed are clean, the others as they were.
    pub fn clean_tombstones(&self, tenant: &TenantId) -> Result<u64, AdminError> {
        let _upkeep = self.take_upkeep()?;
        let blocks = self.blocks_of(tenant);
        blocks.remove_doomed(&self.blocks)?;
        let mut cleaned_count = 0;
        for block in blocks.list().iter().filter(|block| block.record().tombstone_count > 0) {
            self.clean(tenant, &blocks, block.clone())?;
            cleaned_count += 1;
            self.counters.cleaned_blocks.fetch_add(1, Ordering::Relaxed);
        }
        Ok(cleaned_count)
    }

    fn clean(
        &self,
        tenant: &TenantId,
        blocks: &Arc<TenantBlocks>,
        block: Arc<BlockEntry>,
    ) -> Result<(), AdminError> {
        let ulid = block.ulid();
        let step = Step { tenant: tenant.clone(), blocks: blocks.clone(), inputs: vec![block] };
        if !self.has_room_for(&step) {
            return Err(AdminError::NoSpace(ulid));
        }
        self.compact_step(&step, Urgency::Asked).map_err(|error| {
            if let CompactError::LeftBehind { dirs, .. } = &error {
                blocks.doom(dirs.clone());
            }
            AdminError::Compact(error)
        })
    }

    /// Ends a merge under way and begins no other until [`Tsdb::resume_compaction`].
    pub fn pause_compaction(&self) {
        self.compaction.paused.store(true, Ordering::Relaxed);
        tracing::info!("compaction is paused");
    }

    /// Merges blocks again.
    pub fn resume_compaction(&self) {
        self.compaction.paused.store(false, Ordering::Relaxed);
        tracing::info!("compaction goes on");
    }

    /// Keeps background work out until the guard goes.
    pub(crate) fn take_upkeep(&self) -> Result<MutexGuard<'_, Upkeep>, AdminError> {
        self.compaction.waiting.fetch_add(1, Ordering::SeqCst);
        let upkeep = self.upkeep.lock();
        self.compaction.waiting.fetch_sub(1, Ordering::SeqCst);
        if upkeep.is_stopped() { Err(AdminError::Closed) } else { Ok(upkeep) }
    }
}
