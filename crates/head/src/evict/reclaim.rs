//! Reuses ids of departed series when few are left: whole pages of ids without a series, after a checkpoint.
//!
//! Invariant: when a page is released, none of its ids resolves to a former series. The steps, in this order:
//! no thread holds an id of the page from before the page was free; wire keys and index forget the ids; no
//! thread holds one of the ids from a lookup in those; then the series file and both copies of all slices are
//! written without them, and the WAL before that is removed. So in all files that a later startup reads, an
//! id has one series.
//! Not here: assigning ids (`index::ids`), the schedule (`tsdb`).

use std::sync::Arc;

use crate::checkpoint::Checkpointer;
use crate::index::ids::IdUsers;
use crate::index::rebuild_index;
use crate::options::HeadError;
use crate::series::stripe::PAGE_SLOTS;
use crate::state::HeadState;
use chronolith_wal::WalPosition;
use parking_lot::Mutex;

/// Ids are reclaimed when fewer than one in this many are left.
const LEFT_PART: u64 = 8;
/// Pages that are being reclaimed.
pub(crate) struct Reclaim {
    /// In ascending order.
    pages: Vec<u32>,
    stage: Stage,
    /// Users of ids when the stage began.
    users: IdUsers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The pages have no series.
    Free,
    /// Neither have keys and index.
    Forgotten,
}

/// Makes ids of departed series usable again.
pub(crate) struct IdReclaimer {
    state: Arc<HeadState>,
    /// Locked before all other locks of the head.
    reclaim: Mutex<Option<Reclaim>>,
}

impl IdReclaimer {
    pub(crate) fn new(state: Arc<HeadState>) -> IdReclaimer {
        IdReclaimer { state, reclaim: Mutex::default() }
    }

    /// Runs the next step; implements [`crate::Head::reclaim_ids`].
    pub(crate) fn step(&self, checkpointer: &Checkpointer) -> Result<(), HeadError> {
        let mut state = self.reclaim.lock();
        match state.take() {
            None => *state = self.begin_reclaim(),
            Some(waiting) if !waiting.users.have_ended() => *state = Some(waiting),
            Some(Reclaim { pages, stage: Stage::Free, .. }) => {
                let pages = self.forget_ids(pages);
                *state =
                    Some(Reclaim { pages, stage: Stage::Forgotten, users: self.state.index.ids.users() });
            }
            Some(Reclaim { pages, stage: Stage::Forgotten, users }) => {
                // Kept until the pages are released.
                *state = Some(Reclaim { pages: pages.clone(), stage: Stage::Forgotten, users });
                if self.hand_in(checkpointer, &pages)? {
                    *state = None;
                }
            }
        }
        Ok(())
    }

    fn begin_reclaim(&self) -> Option<Reclaim> {
        let left_count = self.state.index.ids.left_count();
        if left_count * LEFT_PART >= u64::from(self.state.index.ids.limit()) {
            return None;
        }
        let pages = self.free_pages();
        // Requires at least as many ids as are left, so that this does not run over and over.
        let is_worth_it = !pages.is_empty() && (pages.len() * PAGE_SLOTS) as u64 >= left_count;
        is_worth_it.then(|| Reclaim { pages, stage: Stage::Free, users: self.state.index.ids.users() })
    }

    /// Returns pages without a series whose ids were all assigned.
    fn free_pages(&self) -> Vec<u32> {
        let given = self.state.index.ids.given_at(self.state.index.ids.mark());
        let end = given.end_in(std::iter::empty()) / PAGE_SLOTS as u32;
        let is_closed = |page: u32| given.has(page * PAGE_SLOTS as u32 + PAGE_SLOTS as u32 - 1);
        let mut pages: Vec<u32> = (0..end).filter(|&page| is_closed(page)).collect();
        self.state.series.retain_free_pages(&mut pages);
        pages
    }

    /// Removes ids of `pages` from keys and indexes; returns the pages that are still free. Series that were
    /// being created when the pages were found exist by now.
    fn forget_ids(&self, pages: Vec<u32>) -> Vec<u32> {
        let _alone = self.state.maintenance.lock();
        let free = self.free_pages();
        let pages: Vec<u32> = pages.into_iter().filter(|page| free.binary_search(page).is_ok()).collect();
        self.state.index.forget_keys();
        // An append that was running when a series left may have inserted a key again.
        let is_gone = |id: u32| pages.binary_search(&(id / PAGE_SLOTS as u32)).is_ok();
        self.state.index.remove_keys(is_gone);
        for tenant in self.state.index.tenants() {
            let tables = tenant.tables.read();
            let has_dead = tables.row_count() > tables.live_count();
            drop(tables);
            if has_dead {
                rebuild_index(&tenant);
            }
        }
        pages
    }

    /// Writes all files that may have ids of `pages` again, twice since there are two copies, and releases
    /// the pages. Returns false if part of the WAL before that must be kept for now.
    fn hand_in(&self, checkpointer: &Checkpointer, pages: &[u32]) -> Result<bool, HeadError> {
        self.state.index.ids.announce(pages);
        let WalPosition(sequence) = self.state.wal.rotate()?;
        for _ in 0..2 {
            checkpointer.invalidate();
            checkpointer.checkpoint()?;
        }
        let _alone = self.state.maintenance.lock();
        if self.state.wal.has_segment_through(sequence) {
            return Ok(false);
        }
        checkpointer.reuse_ids();
        tracing::info!(ids = pages.len() * PAGE_SLOTS, "ids of removed series are available for new series");
        Ok(true)
    }
}
