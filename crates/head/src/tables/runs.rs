//! Finding series by id. Rows are in order of creation; ids ascend with them until ids of departed series are
//! given again, which starts another run of ascending ids.
//! Holds: a live series has one row; most tables have one run.

use super::{Tables, lookup};

impl Tables {
    /// Returns true if `id` is above that of the youngest series.
    fn ascends(&self, id: u32) -> bool {
        self.ids.last().is_none_or(|&last| last < id)
    }

    /// Adds a row for `id`.
    pub(super) fn push_id(&mut self, id: u32) {
        if !self.ascends(id) {
            self.run_starts.push(self.ids.len() as u32);
        }
        self.ids.push(id);
    }

    /// Returns true if a series, dead or alive, has this id.
    pub(crate) fn has_row(&self, id: u32) -> bool {
        !self.ascends(id) && self.runs().any(|(_, run)| run.binary_search(&id).is_ok())
    }

    /// Above all ids.
    pub(crate) fn id_end(&self) -> u32 {
        self.runs().filter_map(|(_, run)| run.last()).max().map_or(0, |last| last + 1)
    }

    /// Returns true if ids ascend with the rows.
    pub(super) fn has_one_run(&self) -> bool {
        self.run_starts.is_empty()
    }

    /// Ascending ids, and the row of the first.
    fn runs(&self) -> impl Iterator<Item = (usize, &[u32])> {
        let starts = std::iter::once(0).chain(self.run_starts.iter().map(|&start| start as usize));
        let ends = self.run_starts.iter().map(|&start| start as usize).chain([self.ids.len()]);
        starts.zip(ends).map(|(start, end)| (start, &self.ids[start..end]))
    }

    /// Row of a live series.
    pub(super) fn live_idx(&self, id: u32) -> Option<usize> {
        if self.has_one_run() {
            return self.ids.binary_search(&id).ok().filter(|&idx| !self.is_dead(idx));
        }
        let row = |(start, run): (usize, &[u32])| Some(start + run.binary_search(&id).ok()?);
        self.runs().filter_map(row).find(|&idx| !self.is_dead(idx))
    }

    /// As [`Tables::live_idx`] for ids that ascend from call to call: `from` is 0 at first and says where the
    /// last one was.
    pub(super) fn live_idx_from(&self, from: &mut usize, id: u32) -> Option<usize> {
        if !self.has_one_run() {
            return self.live_idx(id);
        }
        *from = lookup::position_from(&self.ids, *from, id);
        (self.ids.get(*from) == Some(&id) && !self.is_dead(*from)).then_some(*from)
    }

    /// Ids of live series, ascending.
    pub(crate) fn live_ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> =
            (0..self.ids.len()).filter(|&i| !self.is_dead(i)).map(|i| self.ids[i]).collect();
        if !self.has_one_run() {
            ids.sort_unstable();
        }
        ids
    }

    /// Appends ids of live series to `out`, ascending, at most `count` from id `start` on; gives where to go on.
    pub(crate) fn copy_live_ids(&self, start: u32, count: usize, out: &mut Vec<u32>) -> Option<u32> {
        if self.has_one_run() {
            let first = self.ids.partition_point(|&id| id < start);
            let end = first.saturating_add(count).min(self.ids.len());
            out.extend((first..end).filter(|&i| !self.is_dead(i)).map(|i| self.ids[i]));
            return self.ids.get(end).copied();
        }
        let mut next: Vec<(u32, usize)> = Vec::new();
        for (row, run) in self.runs() {
            let first = run.partition_point(|&id| id < start);
            let some = run[first..].iter().take(count + 1).enumerate();
            next.extend(some.map(|(at, &id)| (id, row + first + at)));
        }
        next.sort_unstable();
        let end = next.get(count).map(|&(id, _)| id);
        next.truncate(count);
        out.extend(next.into_iter().filter(|&(_, idx)| !self.is_dead(idx)).map(|(id, _)| id));
        end
    }

    /// Live series from `row` on in order of creation, with the numbers of their pairs.
    pub(crate) fn live_members_from(&self, row: usize) -> impl Iterator<Item = (usize, u32, &[u32])> {
        (row..self.ids.len())
            .filter(|&idx| !self.is_dead(idx))
            .map(|idx| (idx, self.ids[idx], self.members_of(idx)))
    }

    /// The first row whose series `is_known` does not know; it knows those before.
    pub(crate) fn row_after(&self, is_known: impl Fn(u32) -> bool) -> usize {
        self.ids.partition_point(|&id| is_known(id))
    }

    /// Series, dead ones included.
    pub(crate) fn row_count(&self) -> usize {
        self.ids.len()
    }

    /// Adds at most `count` live series of `other` from row `start` on; gives where to go on.
    pub(crate) fn copy_from(&mut self, other: &Tables, start: usize, count: usize) -> Option<usize> {
        let mut scratch = Vec::new();
        for (left, (row, id, members)) in (0..=count).rev().zip(other.live_members_from(start)) {
            if left == 0 {
                return Some(row);
            }
            self.insert(id, members.iter().map(|&pair| other.pair_text(pair)), &mut scratch);
        }
        None
    }
}
