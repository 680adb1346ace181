//! Rows of series in order of creation: their ids, and which are dead. Ids ascend with the rows until ids of
//! departed series are reused, which starts another run of ascending ids.
//!
//! Invariants: a live series has one row; most indexes have one run; `dead_count` is the number of bits set
//! in `dead`.

/// Ids of series by row.
#[derive(Default)]
pub(super) struct Rows {
    ids: Vec<u32>,
    /// Rows whose id is not above the id of the row before.
    run_starts: Vec<u32>,
    /// One bit per row.
    dead: Vec<u64>,
    dead_count: usize,
}

impl Rows {
    pub(super) fn reserve(&mut self, count: usize) {
        self.ids.reserve(count);
    }

    /// Number of rows, dead ones included.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn dead_count(&self) -> usize {
        self.dead_count
    }

    pub(super) fn live_count(&self) -> usize {
        self.ids.len() - self.dead_count
    }

    /// Ids of all rows.
    pub(super) fn ids(&self) -> &[u32] {
        &self.ids
    }

    pub(super) fn id(&self, row: usize) -> u32 {
        self.ids[row]
    }

    pub(super) fn is_dead(&self, row: usize) -> bool {
        self.dead[row / 64] >> (row % 64) & 1 == 1
    }

    /// Marks a live row as dead.
    pub(super) fn kill(&mut self, row: usize) {
        self.dead[row / 64] |= 1 << (row % 64);
        self.dead_count += 1;
    }

    /// Replaces the bits of dead rows; `dead` has one bit per row.
    pub(super) fn set_dead(&mut self, dead: Vec<u64>) {
        self.dead_count = dead.iter().map(|word| word.count_ones() as usize).sum();
        self.dead = dead;
    }

    pub(super) fn heap_bytes(&self) -> usize {
        4 * (self.ids.capacity() + self.run_starts.capacity()) + 8 * self.dead.capacity()
    }

    /// Returns true if `id` is above the id of the youngest series.
    fn ascends(&self, id: u32) -> bool {
        self.ids.last().is_none_or(|&last| last < id)
    }

    /// Adds a live row for `id`.
    pub(super) fn push(&mut self, id: u32) {
        if !self.ascends(id) {
            self.run_starts.push(self.ids.len() as u32);
        }
        if self.ids.len() / 64 == self.dead.len() {
            self.dead.push(0);
        }
        self.ids.push(id);
    }

    /// Returns true if a series, dead or alive, has this id.
    pub(super) fn has(&self, id: u32) -> bool {
        !self.ascends(id) && self.runs().any(|(_, run)| run.binary_search(&id).is_ok())
    }

    /// Returns an id above all ids.
    pub(super) fn id_end(&self) -> u32 {
        self.runs().filter_map(|(_, run)| run.last()).max().map_or(0, |last| last + 1)
    }

    /// Returns true if ids ascend with the rows.
    pub(super) fn has_one_run(&self) -> bool {
        self.run_starts.is_empty()
    }

    /// Iterates over the runs of ascending ids, each with the row of its first.
    fn runs(&self) -> impl Iterator<Item = (usize, &[u32])> {
        let starts = std::iter::once(0).chain(self.run_starts.iter().map(|&start| start as usize));
        let ends = self.run_starts.iter().map(|&start| start as usize).chain([self.ids.len()]);
        starts.zip(ends).map(|(start, end)| (start, &self.ids[start..end]))
    }

    /// Returns the row of a live series.
    pub(super) fn live_row(&self, id: u32) -> Option<usize> {
        if self.has_one_run() {
            return self.ids.binary_search(&id).ok().filter(|&idx| !self.is_dead(idx));
        }
        let row = |(start, run): (usize, &[u32])| Some(start + run.binary_search(&id).ok()?);
        self.runs().filter_map(row).find(|&idx| !self.is_dead(idx))
    }

    /// As [`Rows::live_row`] for ids that ascend from call to call: `from` is 0 at first and holds the
    /// last position.
    pub(super) fn live_row_from(&self, from: &mut usize, id: u32) -> Option<usize> {
        if !self.has_one_run() {
            return self.live_row(id);
        }
        *from = position_from(&self.ids, *from, id);
        (self.ids.get(*from) == Some(&id) && !self.is_dead(*from)).then_some(*from)
    }

    /// Returns the ids of live series, ascending.
    pub(super) fn live_ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> =
            (0..self.ids.len()).filter(|&i| !self.is_dead(i)).map(|i| self.ids[i]).collect();
        if !self.has_one_run() {
            ids.sort_unstable();
        }
        ids
    }

    /// Appends ids of live series to `out`, ascending, at most `count` from id `start` on; returns the start
    /// of the next call.
    pub(super) fn copy_live_ids(&self, start: u32, count: usize, out: &mut Vec<u32>) -> Option<u32> {
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

    /// Live rows from `row` on, in order of creation.
    pub(super) fn live_from(&self, row: usize) -> impl Iterator<Item = usize> {
        (row..self.ids.len()).filter(|&row| !self.is_dead(row))
    }

    /// Returns the first row whose series `is_known` does not know; it knows all before.
    pub(super) fn row_after(&self, is_known: impl Fn(u32) -> bool) -> usize {
        self.ids.partition_point(|&id| is_known(id))
    }
}

/// Galloping search: returns the position of `id` in ascending `ids`, at or after `from`. Steps double, so
/// intersecting two lists costs the length of the shorter one.
fn position_from(ids: &[u32], from: usize, id: u32) -> usize {
    let (mut low, mut step) = (from, 1);
    while ids.get(low + step).is_some_and(|&other| other < id) {
        low += step;
        step *= 2;
    }
    let end = ids.len().min(low + step + 1);
    low + ids[low..end].partition_point(|&other| other < id)
}
