//! Deleting samples from the head: exactly those of the matched series in a time range.
//!
//! Holds: a series changes and its frame is queued under the lock of its stripe, so a replay deletes at the same
//! point of the order. Replaying a deletion over a checkpoint that was copied later is harmless: the log behind
//! the checkpoint's place is replayed whole, each of its records sets or unsets (series, time), and the last record
//! that touches one decides, whatever the copy held. Locks are held for a page of series at a time.
//! A series that has lost its last sample disappears from queries and label lists at once; its entry in the tables
//! and its number go with the next window drop.
//! Not here: blocks, and keeping a window that is on its way to a block out of it (`tsdb`): between
//! [`Head::snapshot_window`] and [`Head::drop_window`] the block still gets what is deleted here.

use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_format::wal;
use chronolith_model::index::select_refs;
use chronolith_model::{Matcher, TenantId, TimeRange};

use crate::head::Head;
use crate::options::WriteError;
use crate::poison::PoisonOnPanic;
use crate::select::page_runs;
use crate::stripe::stripe_of;
use crate::sync::MutexGuard;
use crate::tenant::EMPTY_SOME;
use crate::wal::Ticket;
use crate::windows::WindowTally;

const ALL_TIMES: TimeRange = TimeRange { start: i64::MIN, end: i64::MAX };

/// What a deletion removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeleteStats {
    /// Series that the matchers fit.
    pub matched_count: u64,
    /// Series that lost samples.
    pub series_count: u64,
    /// Samples.
    pub sample_count: u64,
}

/// How far a deletion is, readable while it runs on another thread.
#[derive(Debug, Default)]
pub struct DeleteProgress {
    /// Series that have been looked at.
    pub series_done: AtomicU64,
    /// Series to look at.
    pub series_total: AtomicU64,
}

impl Head {
    /// Deletes the samples in `range` of the series of `tenant` that fit all matchers of one of `selectors`;
    /// durable after [`Head::wait`] on the ticket. Samples that are written later are stored as ever; queries
    /// that run keep what they have selected. Cost: about a chunk decoded and encoded a series and end of the
    /// range, four bytes of memory a matched series.
    ///
    /// # Errors
    /// [`WriteError`]: nothing was deleted.
    pub fn delete(
        &self,
        tenant: &TenantId,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
        progress: &DeleteProgress,
    ) -> Result<(DeleteStats, Ticket), WriteError> {
        let _open = self.gate.read();
        let _ids = self.ids.use_ids();
        self.admit()?;
        let mut stats = DeleteStats::default();
        let Some(tenant) = self.tenant(tenant) else { return Ok((stats, self.wal.ticket())) };
        let mut ids = Vec::new();
        for matchers in selectors {
            let tables = tenant.tables.read();
            ids.extend(select_refs(&*tables, matchers).expect("tables in memory always answer"));
        }
        ids.sort_unstable();
        ids.dedup();
        stats.matched_count = ids.len() as u64;
        progress.series_total.store(stats.matched_count, Ordering::Relaxed);
        let world = self.series.world();
        let mut tally = WindowTally::new(self.options.window_ms);
        let (mut changed, mut payload) = (Vec::new(), Vec::new());
        for run in page_runs(&ids) {
            changed.clear();
            let stripe_idx = stripe_of(run[0]);
            let mut stripe = self.series.stripes[stripe_idx].lock();
            let unlogged = PoisonOnPanic::new(&self.wal, "a deletion");
            for &id in run {
                self.seal_late_in_slices(&mut stripe, &mut tally, id, ALL_TIMES);
            }
            for &id in run {
                let erased = stripe.erase(&world, &mut tally, id, range);
                stats.sample_count += erased.sample_count;
                stats.series_count += u64::from(erased.sample_count > 0);
                if erased.has_changed {
                    changed.push(id);
                }
                if stripe.hot(id).is_some() && stripe.is_empty(id) {
                    tenant.empty_series.store(EMPTY_SOME, Ordering::Relaxed);
                }
            }
            if !changed.is_empty() {
                wal::encode_deletes(range, &changed, &mut payload);
                self.wal.queue(wal::KIND_DELETES, stripe_idx as u8, &payload);
            }
            drop(unlogged);
            MutexGuard::unlock_fair(stripe);
            tenant.windows.lock().merge(&mut tally, i64::MAX);
            progress.series_done.fetch_add(run.len() as u64, Ordering::Relaxed);
            // What is encoded again does not pile up in memory; a failure shows in the next append.
            let _ = self.note_sealed_failure(self.series.store.write_if_many());
        }
        self.counters.samples_deleted.fetch_add(stats.sample_count, Ordering::Relaxed);
        Ok((stats, self.wal.ticket()))
    }
}
