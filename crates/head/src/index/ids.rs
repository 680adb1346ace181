//! Assigns series ids, and tracks users that hold ids without a lock.
//!
//! Invariants: an id has one series until its page is released (`evict::reclaim`), and no page is released
//! while a thread or a file may still resolve the id to the former series. Ids are assigned page by page:
//! first the ids of released pages, ascending, then ids that were never assigned.
//! Not here: finding free pages (`evict::reclaim`).

use std::sync::Arc;

use parking_lot::Mutex;

use crate::series::stripe::PAGE_SLOTS;

const PAGE_IDS: u32 = PAGE_SLOTS as u32;

/// Extent of the assigned ids at some point in time; valid for one set of released pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdMark {
    /// Number of released pages that are completely assigned.
    page_idx: usize,
    next_id: u32,
    /// Above every id that was ever assigned.
    id_end: u32,
}

impl IdMark {
    /// Returns an id above every id that was ever assigned.
    pub(crate) fn id_end(self) -> u32 {
        self.id_end
    }

    /// Returns a mark for all ids below `next_id` assigned and no released page.
    pub(crate) fn fresh(next_id: u32) -> IdMark {
        IdMark { page_idx: 0, next_id, id_end: next_id }
    }
}

/// Set of ids that were assigned at some point in time.
pub(crate) struct GivenIds {
    reusable: Arc<[u32]>,
    pending: Arc<[u32]>,
    mark: IdMark,
}

impl GivenIds {
    /// Returns true if a series had this id.
    pub(crate) fn has(&self, id: u32) -> bool {
        let IdMark { page_idx, next_id, id_end } = self.mark;
        id < id_end
            && self
                .reusable
                .binary_search(&(id / PAGE_IDS))
                .map_or(true, |idx| idx < page_idx || idx == page_idx && id < next_id)
    }

    /// Returns the extent of the set.
    pub(crate) fn mark(&self) -> IdMark {
        self.mark
    }

    /// Returns the lowest unassigned id of `pages`, or else the one above all that were ever assigned.
    pub(crate) fn end_in(&self, pages: impl Iterator<Item = u32>) -> u32 {
        let first = |page: u32| {
            let idx = self.reusable.binary_search(&page).ok()?;
            match idx.cmp(&self.mark.page_idx) {
                std::cmp::Ordering::Less => None,
                std::cmp::Ordering::Equal => Some(self.mark.next_id),
                std::cmp::Ordering::Greater => Some(page * PAGE_IDS),
            }
        };
        let start = |page: u32| self.pending.binary_search(&page).ok().map(|_| page * PAGE_IDS);
        pages.filter_map(|page| first(page).or_else(|| start(page))).min().unwrap_or(self.mark.id_end)
    }

    /// Returns released pages of which ids were assigned since `before`.
    pub(crate) fn reused_since(&self, before: IdMark) -> &[u32] {
        let end = (self.mark.page_idx + 1).min(self.reusable.len());
        self.reusable.get(before.page_idx..end).unwrap_or(&[])
    }
}

struct State {
    /// Released pages, ascending.
    reusable: Arc<[u32]>,
    /// Pages that are about to be released, ascending.
    pending: Arc<[u32]>,
    mark: IdMark,
}

impl State {
    fn given_at(&self, mark: IdMark) -> GivenIds {
        GivenIds { reusable: self.reusable.clone(), pending: self.pending.clone(), mark }
    }
}

/// Allocator of series ids.
pub(crate) struct SeriesIds {
    state: Mutex<State>,
    /// Ids from here on are not assigned.
    limit: u32,
    users: Mutex<Arc<()>>,
}

/// While this exists, ids that are held without a lock belong to the same series, or to none.
#[derive(Debug, Clone)]
pub(crate) struct IdUse(#[expect(dead_code, reason = "counts")] Arc<()>);

/// Users of ids at some point in time.
pub(crate) struct IdUsers(Arc<()>);

impl IdUsers {
    /// Returns true if all of them have ended.
    pub(crate) fn have_ended(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl SeriesIds {
    /// Returns an allocator of ids from `next_id` on and below `limit`.
    pub(crate) fn new(next_id: u32, limit: u32) -> SeriesIds {
        let mark = IdMark::fresh(next_id);
        let state = Mutex::new(State { reusable: Arc::default(), pending: Arc::default(), mark });
        SeriesIds { state, limit, users: Mutex::default() }
    }

    /// Assigns an id to a new series; `None` if there is none left.
    pub(crate) fn take(&self) -> Option<u32> {
        let mut state = self.state.lock();
        let State { reusable, mark, .. } = &mut *state;
        let id = mark.next_id;
        if mark.page_idx < reusable.len() {
            mark.next_id = id + 1;
            if mark.next_id.is_multiple_of(PAGE_IDS) {
                mark.page_idx += 1;
                mark.next_id = reusable.get(mark.page_idx).map_or(mark.id_end, |page| page * PAGE_IDS);
            }
            return Some(id);
        }
        if id >= self.limit {
            return None;
        }
        (mark.next_id, mark.id_end) = (id + 1, id + 1);
        Some(id)
    }

    pub(crate) fn mark(&self) -> IdMark {
        self.state.lock().mark
    }

    /// Returns the ids assigned at `mark`, which must be younger than the last [`SeriesIds::reuse`].
    pub(crate) fn given_at(&self, mark: IdMark) -> GivenIds {
        self.state.lock().given_at(mark)
    }

    /// Returns the number of assignable ids.
    pub(crate) fn left_count(&self) -> u64 {
        let state = self.state.lock();
        let fresh = self.limit.saturating_sub(state.mark.id_end);
        let pages = (state.reusable.len() - state.mark.page_idx) as u64;
        let begun = if pages > 0 { state.mark.next_id % PAGE_IDS } else { 0 };
        u64::from(fresh) + pages * u64::from(PAGE_IDS) - u64::from(begun)
    }

    /// Returns the upper limit of ids.
    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    /// Announces the release of `pages`, ascending, none of which has unassigned ids: slices written from now
    /// on exclude their ids.
    pub(crate) fn announce(&self, pages: &[u32]) {
        self.state.lock().pending = pages.into();
    }

    /// Releases the announced pages. `before` gets the assigned ids; none is assigned during the call.
    pub(crate) fn reuse(&self, before: impl FnOnce(&GivenIds)) {
        let mut state = self.state.lock();
        before(&state.given_at(state.mark));
        let mut all = state.pending.to_vec();
        // The rest of the current page is left out; it is free again once its series have left.
        all.extend(state.reusable.iter().skip(state.mark.page_idx + 1));
        all.sort_unstable();
        assert!(all.is_sorted_by(|a, b| a < b), "a page is handed in once");
        let id_end = state.mark.id_end;
        let next_id = all.first().map_or(id_end, |page| page * PAGE_IDS);
        let mark = IdMark { page_idx: 0, next_id, id_end };
        *state = State { reusable: all.into(), pending: Arc::default(), mark };
    }

    /// Must be held while ids are used without a lock of the index or of a stripe.
    pub(crate) fn use_ids(&self) -> IdUse {
        IdUse(self.users.lock().clone())
    }

    /// Returns the current users of ids, without later ones.
    pub(crate) fn users(&self) -> IdUsers {
        IdUsers(std::mem::take(&mut self.users.lock()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_released_pages_are_reused_before_new_ones() {
        let ids = SeriesIds::new(3 * PAGE_IDS + 5, 4 * PAGE_IDS);
        let start = ids.mark();
        assert_eq!((ids.take(), ids.left_count()), (Some(3 * PAGE_IDS + 5), u64::from(PAGE_IDS) - 6));
        ids.announce(&[0, 2]);
        let given = ids.given_at(ids.mark());
        assert_eq!(given.end_in([1, 2, 3].into_iter()), 2 * PAGE_IDS, "not spoken of any more");
        ids.reuse(|given| assert!(given.has(3 * PAGE_IDS + 5)));
        let lap = ids.mark();
        let given = ids.given_at(lap);
        assert!(!given.has(0) && given.has(PAGE_IDS) && !given.has(2 * PAGE_IDS) && given.has(3 * PAGE_IDS));
        assert_eq!(given.end_in([1, 2, 3].into_iter()), 2 * PAGE_IDS);
        assert_eq!(given.end_in([1].into_iter()), start.id_end + 1, "all are given");
        let taken: Vec<u32> = (0..PAGE_IDS + 3).map(|_| ids.take().expect("some are left")).collect();
        assert_eq!(taken.last(), Some(&(2 * PAGE_IDS + 2)));
        let given = ids.given_at(ids.mark());
        assert!(given.has(2 * PAGE_IDS + 2) && !given.has(2 * PAGE_IDS + 3));
        assert_eq!((given.end_in([2].into_iter()), given.reused_since(lap)), (2 * PAGE_IDS + 3, &[0, 2][..]));
        let mut rest: Vec<u32> = std::iter::from_fn(|| ids.take()).collect();
        assert_eq!(rest.len(), (PAGE_IDS - 3 + PAGE_IDS - 6) as usize);
        rest.extend(taken);
        rest.sort_unstable();
        rest.dedup();
        assert_eq!(rest.len(), (3 * PAGE_IDS - 6) as usize, "each once");
        assert_eq!(ids.left_count(), 0);
    }

    #[test]
    fn users_are_counted_up_to_the_call() {
        let ids = SeriesIds::new(0, 1);
        let (first, second) = (ids.use_ids(), ids.use_ids());
        let users = ids.users();
        let _third = ids.use_ids();
        drop(first);
        assert!(!users.have_ended());
        drop(second);
        assert!(users.have_ended());
    }
}
