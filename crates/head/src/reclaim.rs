//! Ids of departed series are given again when few are left: whole pages of ids without a series, after a
//! checkpoint.
//!
//! Holds: when a page is handed in, nothing leads from one of its ids to the series that had it. In this
//! order: nobody keeps such an id from before the page was free; the keys of series and the tables forget
//! them; nobody keeps such an id from a look at those; then definitions and both copies of all slices are
//! written without them, and the log before that is gone. So in whatever a later start reads, an id has one
//! series.
//! Not here: which ids are given (`ids`), when somebody looks (`tsdb`).

use std::sync::atomic::Ordering;

use crate::drop::rebuild_tables;
use crate::head::Head;
use crate::ids::IdUsers;
use crate::options::HeadError;
use crate::stripe::{PAGE_SLOTS, STRIPE_COUNT};
use crate::sync::RwLockWriteGuard;

/// Ids are reclaimed when fewer than one in this many are left.
const LEFT_PART: u64 = 8;
/// Keys that are looked at under one lock.
const SLICE_COUNT: usize = 512;

/// Pages on their way to be handed in.
pub(crate) struct Reclaim {
    /// Ascending.
    pages: Vec<u32>,
    stage: Stage,
    /// Those who kept ids when the stage began.
    users: IdUsers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The pages have no series.
    Free,
    /// Nor have keys and tables.
    Forgotten,
}

impl Head {
    /// Makes ids of departed series usable again, step by step, when few ids are left: to be called now and
    /// then. Most calls do nothing; the last step writes two whole checkpoints.
    ///
    /// # Errors
    /// [`HeadError`] if a checkpoint cannot be written; a later call tries again.
    pub fn reclaim_ids(&self) -> Result<(), HeadError> {
        let mut state = self.reclaim.lock();
        match state.take() {
            None => *state = self.begin_reclaim(),
            Some(waiting) if !waiting.users.have_ended() => *state = Some(waiting),
            Some(Reclaim { pages, stage: Stage::Free, .. }) => {
                let pages = self.forget_ids(pages);
                *state = Some(Reclaim { pages, stage: Stage::Forgotten, users: self.ids.users() });
            }
            Some(Reclaim { pages, stage: Stage::Forgotten, users }) => {
                // Until the opposite is shown.
                *state = Some(Reclaim { pages: pages.clone(), stage: Stage::Forgotten, users });
                if self.hand_in(&pages)? {
                    *state = None;
                }
            }
        }
        Ok(())
    }

    /// Reclaims ids before anybody is there, if few are left.
    pub(crate) fn reclaim_ids_at_start(&self) -> Result<(), HeadError> {
        for _ in 0..3 {
            self.reclaim_ids()?;
        }
        Ok(())
    }

    fn begin_reclaim(&self) -> Option<Reclaim> {
        let left_count = self.ids.left_count();
        if left_count * LEFT_PART >= u64::from(self.ids.limit()) {
            return None;
        }
        let pages = self.free_pages();
        // Each time as many as are left at least, so that it is not done over and over.
        let is_worth_it = !pages.is_empty() && (pages.len() * PAGE_SLOTS) as u64 >= left_count;
        is_worth_it.then(|| Reclaim { pages, stage: Stage::Free, users: self.ids.users() })
    }

    /// Pages without a series whose ids were all given.
    fn free_pages(&self) -> Vec<u32> {
        let given = self.ids.given_at(self.ids.mark());
        let end = given.end_in(std::iter::empty()) / PAGE_SLOTS as u32;
        let is_closed = |page: u32| given.has(page * PAGE_SLOTS as u32 + PAGE_SLOTS as u32 - 1);
        let mut pages: Vec<u32> = (0..end).filter(|&page| is_closed(page)).collect();
        for (stripe_idx, stripe) in self.series.stripes.iter().enumerate() {
            let stripe = stripe.lock();
            let is_here = |page: u32| page as usize % STRIPE_COUNT == stripe_idx;
            pages.retain(|&page| !is_here(page) || !stripe.has_page(page as usize / STRIPE_COUNT));
        }
        pages
    }

    /// Takes ids of `pages` out of keys and tables; gives the pages that are still free. Series that were
    /// being made when they were found are there by now.
    fn forget_ids(&self, pages: Vec<u32>) -> Vec<u32> {
        let _alone = self.maintenance.lock();
        let free = self.free_pages();
        let pages: Vec<u32> = pages.into_iter().filter(|page| free.binary_search(page).is_ok()).collect();
        self.forget_keys();
        // An append that was at work when a series left may have brought a key back.
        let mut from = Some(0);
        while let Some(start) = from {
            let is_gone = |id: u32| pages.binary_search(&(id / PAGE_SLOTS as u32)).is_ok();
            let mut keys = self.raw_keys.write();
            from = keys.remove(start, SLICE_COUNT, is_gone);
            RwLockWriteGuard::unlock_fair(keys);
        }
        for tenant in self.all_tenants() {
            let tables = tenant.tables.read();
            let has_dead = tables.row_count() > tables.live_count();
            drop(tables);
            if has_dead {
                rebuild_tables(&tenant);
            }
        }
        pages
    }

    /// Writes all that may name ids of `pages` anew, twice since there are two copies, and hands the pages
    /// in. Gives false if part of the log before that has to stay for now.
    fn hand_in(&self, pages: &[u32]) -> Result<bool, HeadError> {
        self.ids.announce(pages);
        let (_, sequence) = self.wal.rotate()?;
        for _ in 0..2 {
            self.rolling.lock().definitions.is_broken = true;
            // No slice is up to date.
            self.counters.change_count.fetch_add(1, Ordering::Relaxed);
            self.checkpoint()?;
        }
        let _alone = self.maintenance.lock();
        if self.wal.has_segment_through(sequence) {
            return Ok(false);
        }
        let mut rolling = self.rolling.lock();
        let sequence = self.wal.ticket().0;
        self.ids.reuse(|given| {
            // What was given since the checkpoint, as long as that can be told.
            self.note_given(&mut rolling, given, sequence);
        });
        rolling.ids = self.ids.mark();
        // Which series the file lacks is told by the order of ids, which begins anew.
        rolling.definitions.is_broken = true;
        tracing::info!(ids = pages.len() * PAGE_SLOTS, "ids of departed series can be given again");
        Ok(true)
    }
}
