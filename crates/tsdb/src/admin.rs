//! Admin requests: deletion of series, cleaning of tombstones, snapshots.
//!
//! Invariants: no maintenance job runs meanwhile (the maintenance lock), so a window that is being flushed
//! cannot bring deleted samples back. A running compaction ends at its next series and is started again
//! later.
//! Not here: the files of a snapshot (`snapshot`), tombstones (`block::delete`).

mod bucket_deletion;
pub(crate) mod error;
pub(crate) mod report;
pub(crate) mod snapshot;
pub(crate) mod tenant_deletion;

use std::collections::{BTreeMap, VecDeque};

use chronolith_block::BlockEntry;
use chronolith_format::store_name;
use chronolith_head::{DecodedSeries, DeleteProgress, HeadError};
use chronolith_model::{Deletion, Matcher, ReadContext, Selector, StoreId, TimeRange};

use crate::changes::Writer;
use crate::maintenance::compaction::rewrite::{Rewrite, Urgency};
use crate::maintenance::{Maintenance, MaintenanceLock};
use crate::metric::MetricValue;
use crate::storage::Storage;
use crate::window::BlockRanges;
use bucket_deletion::delete_in_bucket;
use error::AdminError;
use report::DeleteReport;
use snapshot::{SnapshotHead, SnapshotWriter};

/// Admin requests since the start.
#[derive(Default)]
pub(crate) struct AdminCounters {
    pub(crate) deletions: MetricValue,
    /// Blocks rewritten without their deleted samples because of a request.
    pub(crate) cleaned_blocks: MetricValue,
    pub(crate) snapshots: MetricValue,
    /// Blocks of batches with a duplicate policy of their own.
    own_policy_blocks: MetricValue,
}

impl AdminCounters {
    /// Blocks of batches with a duplicate policy of their own.
    pub(crate) fn own_policy_blocks(&self) -> f64 {
        self.own_policy_blocks.as_f64()
    }
}

/// Treatment of samples to delete that are in the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InHead {
    /// Flush the windows into blocks, which record the deletion.
    Flush,
    /// Erase the samples; the WAL records it.
    Erase,
}

/// Admin requests, see [`crate::Tsdb::admin`]. Each waits for maintenance to yield, and keeps it out until it
/// has returned.
pub struct Admin<'a> {
    storage: &'a Storage,
    maintenance: &'a Maintenance,
    counters: &'a AdminCounters,
}

impl<'a> Admin<'a> {
    pub(crate) fn new(
        storage: &'a Storage,
        maintenance: &'a Maintenance,
        counters: &'a AdminCounters,
    ) -> Admin<'a> {
        Admin { storage, maintenance, counters }
    }

    /// Writes series to blocks that rank before all others of `store`: the samples win against stored and
    /// later ones if the store keeps the first value, and lose if the last one wins. Returns when they are
    /// durable and visible. Cost: one block per block range.
    ///
    /// # Errors
    /// [`AdminError`]; samples of some block ranges may be stored.
    pub(crate) fn write_own_policy(
        &self,
        store: &StoreId,
        series: &[DecodedSeries],
    ) -> Result<(), AdminError> {
        let lock = self.lock()?;
        let block_count = self.maintenance.flush_writer(&lock).write_own_policy(store, series)?;
        self.counters.own_policy_blocks.add(block_count as u64);
        Ok(())
    }

    /// Deletes the samples in `range`, in the unit of the tenant, of its series that match any of
    /// `selectors`: once it has returned, later queries do not see them, also after a crash. Samples that are
    /// written later are visible, whatever their time. The bytes go with the next compaction or
    /// [`Admin::clean_tombstones`].
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
        self.delete_all(&[Deletion { store: store.clone(), selectors: selectors.to_vec(), range }])
    }

    /// As [`Admin::delete_series`] for several deletions, of one store or of several: maintenance waits once,
    /// each window is flushed once, and one sync of the WAL and one checkpoint follow. Files of blocks of
    /// different stores are synced together.
    ///
    /// # Errors
    /// [`AdminError`]; part of the samples of each deletion may be deleted then, also after a crash, and the
    /// same call again deletes the rest. No other samples are deleted.
    pub fn delete_all(&self, deletions: &[Deletion]) -> Result<DeleteReport, AdminError> {
        self.delete_as(deletions, InHead::Flush, Writer::Client)
    }

    /// As [`Admin::delete_all`] for single samples, whose series a rule has written: windows of the head are
    /// not flushed, so that a deletion per minute makes no block per minute.
    ///
    /// # Errors
    /// As [`Admin::delete_all`].
    pub(crate) fn erase(&self, deletions: &[Deletion]) -> Result<DeleteReport, AdminError> {
        self.delete_as(deletions, InHead::Erase, Writer::Rule)
    }

    fn delete_as(
        &self,
        deletions: &[Deletion],
        in_head: InHead,
        writer: Writer,
    ) -> Result<DeleteReport, AdminError> {
        let deleted = self.delete_locked(deletions, in_head);
        // Also after a failure: part of the samples may be gone.
        for Deletion { store, range, .. } in deletions {
            self.storage.note_change_by(store, *range, writer);
        }
        deleted
    }

    /// Rewrites every block of `store` with tombstones without its deleted samples; returns the number of
    /// blocks.
    ///
    /// # Errors
    /// [`AdminError`]; blocks before the failed one are clean, the others are unchanged.
    pub fn clean_tombstones(&self, store: &StoreId) -> Result<u64, AdminError> {
        let lock = self.lock()?;
        let rewriter = self.maintenance.block_rewriter(&lock);
        let blocks = self.storage.blocks().tenant_or_new(store);
        self.storage.blocks().remove_files(&blocks)?;
        let mut cleaned_count = 0;
        for block in blocks.list().iter().filter(|block| block.record().tombstone_count > 0) {
            let rewrite = Rewrite::of_block(store, &blocks, block.clone());
            if !rewriter.has_room_for(&rewrite) {
                return Err(AdminError::NoSpace(block.ulid()));
            }
            rewriter.run(&rewrite, Urgency::Requested)?;
            cleaned_count += 1;
            self.counters.cleaned_blocks.increment();
        }
        Ok(cleaned_count)
    }

    /// Writes a snapshot of `stores` and returns its name below `snapshots/` of the data directory. With the
    /// default store of a tenant come its other stores, databases, metadata and events. Cost: a hard link per
    /// file of a block, and a flush of the head's windows. Maintenance waits meanwhile, writes do not.
    ///
    /// # Errors
    /// [`AdminError`]; nothing of the snapshot is left then.
    pub fn snapshot(&self, stores: &[StoreId], head: SnapshotHead) -> Result<String, AdminError> {
        let _lock = self.lock()?;
        let name = SnapshotWriter::new(self.storage).write(stores, head)?;
        self.counters.snapshots.increment();
        tracing::info!(name, "snapshot written");
        Ok(name)
    }

    /// Waits for maintenance to yield, and keeps it out until the lock is dropped.
    ///
    /// # Errors
    /// [`AdminError::Closed`].
    fn lock(&self) -> Result<MaintenanceLock<'a>, AdminError> {
        self.maintenance.lock().ok_or(AdminError::Closed)
    }

    /// Deletes samples while maintenance waits.
    fn delete_locked(&self, deletions: &[Deletion], in_head: InHead) -> Result<DeleteReport, AdminError> {
        let lock = self.lock()?;
        if in_head == InHead::Flush {
            self.maintenance.flush_writer(&lock).flush_all(self.flush_ranges(deletions)?)?;
        }
        self.delete_in_head(deletions)?;
        let mut reports = vec![DeleteReport::default(); deletions.len()];
        let mut of_each = deletions.iter().zip(&mut reports);
        let deleted = of_each.try_for_each(|(deletion, report)| self.delete_in_blocks(deletion, report));
        self.storage.blocks().commit();
        deleted?;
        let mut all = DeleteReport::default();
        for (deletion, mut report) in deletions.iter().zip(reports) {
            if let Some(uploads) = self.storage.uploads() {
                delete_in_bucket(uploads, self.storage, deletion, &mut report)?;
            }
            let DeleteReport { series_count, block_count } = report;
            let Deletion { store, range, .. } = deletion;
            self.counters.deletions.increment();
            tracing::info!(tenant = %store_name(store), range.start, range.end, series_count, block_count, "series deleted");
            all.series_count += series_count;
            all.block_count += block_count;
        }
        Ok(all)
    }

    fn delete_in_blocks(&self, deletion: &Deletion, report: &mut DeleteReport) -> Result<(), AdminError> {
        let store = self.storage.blocks();
        let blocks = store.tenant_or_new(&deletion.store);
        // Files that are only hidden would come back with a crash, without tombstones.
        store.remove_files(&blocks)?;
        for entry in blocks.in_range(deletion.range) {
            let block = store.open(&blocks, &entry)?;
            let deleted = block.delete(self.storage.env(), &deletion.selectors, deletion.range)?;
            let Some(deleted) = deleted else { continue };
            report.series_count += deleted.series_count;
            report.block_count += 1;
            store.replace(&blocks, &[entry], vec![BlockEntry::new(deleted.block.record())]);
        }
        Ok(())
    }

    /// Deletes what a flush has left in the head, or all if none was made, and frees the WAL of both. The
    /// lock of maintenance keeps out flushes, which would bring the samples to a block.
    fn delete_in_head(&self, deletions: &[Deletion]) -> Result<(), AdminError> {
        let head = self.storage.head();
        let mut last_position = None;
        for Deletion { store, selectors, range } in deletions {
            // Also if no window was flushed. Samples that out-of-order ones were merged into meanwhile are
            // not part of a block and stayed in the head; and a series whose last sample is in a block
            // already still remembers it: the same sample would be taken for a duplicate, and acknowledged
            // without being stored.
            let deleted = head.delete(store, selectors, *range, &DeleteProgress::default());
            last_position = Some(deleted.map_err(HeadError::from)?.1);
        }
        if let Some(position) = last_position {
            head.wait(position).map_err(HeadError::from)?;
        }
        // Also for windows that were flushed before and whose checkpoint failed.
        Ok(head.checkpointer().settle_drops()?)
    }

    /// Returns the block ranges of head windows with samples to delete, by store.
    fn flush_ranges(
        &self,
        deletions: &[Deletion],
    ) -> Result<BTreeMap<StoreId, VecDeque<TimeRange>>, AdminError> {
        let mut of_stores: BTreeMap<StoreId, Vec<TimeRange>> = BTreeMap::new();
        for deletion in deletions {
            let ranges = self.window_ranges(deletion)?;
            of_stores.entry(deletion.store.clone()).or_default().extend(ranges);
        }
        let now_ms = self.storage.env().clock.now_ms();
        let widened = of_stores.into_iter().map(|(store, ranges)| {
            let ranges = BlockRanges::new(&store, now_ms).widened_all(ranges);
            (store, ranges.into())
        });
        Ok(widened.collect())
    }

    /// Returns the block ranges of the head windows that have samples of `deletion`.
    fn window_ranges(&self, deletion: &Deletion) -> Result<Vec<TimeRange>, AdminError> {
        let Deletion { store, selectors, range } = deletion;
        let (env, head) = (self.storage.env(), self.storage.head());
        let ctx = ReadContext::unlimited(env.clock.clone());
        let of_tenant = BlockRanges::new(store, env.clock.now_ms());
        let mut ranges = Vec::new();
        for window in head.windows().list_of(store) {
            let part = TimeRange::new(window.range.start.max(range.start), window.range.end.min(range.end));
            if part.is_empty() {
                continue;
            }
            for matchers in selectors {
                if !head.reader().select(store, &Selector { matchers, range: part }, &ctx)?.is_empty() {
                    ranges.push(of_tenant.of(window.range));
                    break;
                }
            }
        }
        Ok(ranges)
    }
}
