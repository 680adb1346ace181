//! Deletes exactly the samples of the matched series in a time range from the head.
//!
//! Invariants: a series changes and its frame is queued under the lock of its stripe, so replay deletes at
//! the same point of the order. Replaying a deletion over a newer checkpoint is harmless: the WAL after the
//! position of the checkpoint is replayed whole, each of its records sets or unsets (series, time), and the
//! last record that touches a pair decides, whatever the checkpoint held. Locks are held for one page of
//! series at a time. A series without samples disappears from queries and label lists at once; the next
//! window drop removes its index entry and frees its id.
//! Not here: blocks, and keeping a window that is being flushed out of its block (`tsdb`): between
//! [`crate::HeadWindows::snapshot`] and [`crate::HeadWindows::drop`] the block still gets the samples deleted
//! here.

use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_format::head::wal;
use chronolith_model::index::select_refs;
use chronolith_model::{Matcher, StoreId, TimeRange};

use crate::counters::Counter;
use crate::index::tenant::EMPTY_SOME;
use crate::options::WriteError;
use crate::series::page_runs;
use crate::series::stripe::stripe_of;
use crate::state::HeadState;
use chronolith_base::sync::MutexGuard;
use chronolith_wal::PoisonOnPanic;
use chronolith_wal::WalPosition;

/// Counts of a deletion.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeleteStats {
    /// Series that the matchers select.
    pub matched_count: u64,
    /// Series that lost samples.
    pub series_count: u64,
    /// Deleted samples.
    pub sample_count: u64,
}

/// Progress of a deletion, readable while it runs on another thread.
#[derive(Debug, Default)]
pub struct DeleteProgress {
    /// Series that were processed.
    pub series_done: AtomicU64,
    /// Series to process.
    pub series_total: AtomicU64,
}

/// Deletes the samples in `range` of the matched series; implements [`crate::Head::delete`].
pub(super) fn delete(
    state: &HeadState,
    store: &StoreId,
    selectors: &[Vec<Matcher>],
    range: TimeRange,
    progress: &DeleteProgress,
) -> Result<(DeleteStats, WalPosition), WriteError> {
    let _ids = state.index.ids.use_ids();
    state.admit()?;
    let mut stats = DeleteStats::default();
    let Some(store) = state.index.tenant(store) else { return Ok((stats, state.wal.position())) };
    let mut ids = Vec::new();
    for matchers in selectors {
        let tables = store.tables.read();
        ids.extend(select_refs(&*tables, matchers).expect("lookups in memory do not fail"));
    }
    ids.sort_unstable();
    ids.dedup();
    store.field_types.lock().forget_groups();
    stats.matched_count = ids.len() as u64;
    progress.series_total.store(stats.matched_count, Ordering::Relaxed);
    let mut cx = state.series.replay_context(store.unit);
    let (mut changed, mut payload) = (Vec::new(), Vec::new());
    for run in page_runs(&ids) {
        changed.clear();
        let stripe_idx = stripe_of(run[0]);
        let mut stripe = state.series.lock(run[0]);
        let unlogged = PoisonOnPanic::new(&state.wal, "a deletion");
        for &id in run {
            if let Some(sample_count) = stripe.erase(&mut cx, id, range) {
                stats.sample_count += sample_count;
                stats.series_count += u64::from(sample_count > 0);
                changed.push(id);
            }
            if stripe.series(id).is_some() && stripe.is_empty(id) {
                store.empty_series.store(EMPTY_SOME, Ordering::Relaxed);
            }
        }
        if !changed.is_empty() {
            wal::encode_deletes(range, &changed, &mut payload);
            state.wal.append(wal::KIND_DELETES, stripe_idx as u8, &payload);
        }
        drop(unlogged);
        MutexGuard::unlock_fair(stripe);
        store.windows.lock().merge(&mut cx.windows, i64::MAX);
        progress.series_done.fetch_add(run.len() as u64, Ordering::Relaxed);
        // Chunks that were encoded again must not pile up in memory; a failure is reported by the next
        // append.
        let _ = state.write_sealed_if_many();
    }
    state.counters.add(Counter::SamplesDeleted, stats.sample_count);
    Ok((stats, state.wal.position()))
}
