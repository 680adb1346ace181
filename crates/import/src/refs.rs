//! From the refs of Prometheus's log to series numbers.
//!
//! Holds: a lookup is two loads for refs below 2^32, which are all that a Prometheus gives out; larger ones
//! go through a hash map. Memory: 256 bytes for every 64 refs of which one is used, and 4 for each series.

use chronolith_base::hash::HashMap;

/// No series has this number.
pub(crate) const NONE: u32 = u32::MAX;

const PAGE_BITS: u32 = 6;
const PAGE_LEN: usize = 1 << PAGE_BITS;
/// Refs from here on are kept in the map.
const PAGED_REFS_MAX: u64 = 1 << 32;
/// Stands for no ref among those of series; the largest that is paged is not kept there for it.
const NO_REF: u32 = u32::MAX;

/// Refs with the series that they name.
#[derive(Default)]
pub(crate) struct RefTable {
    /// Of each 64 refs the number of their page, from 1; 0 = none. Untouched stretches cost no memory: the
    /// operating system gives zeroed pages only when they are written.
    directory: Vec<u32>,
    pages: Vec<[u32; PAGE_LEN]>,
    large: HashMap<u64, u32>,
    /// A ref that names each series, or [`NO_REF`].
    refs: Vec<u32>,
}

impl RefTable {
    /// The series of `series_ref`, or [`NONE`].
    #[inline]
    pub(crate) fn get(&self, series_ref: u64) -> u32 {
        let Some(&page) = usize::try_from(series_ref >> PAGE_BITS).ok().and_then(|at| self.directory.get(at))
        else {
            return self.get_large(series_ref);
        };
        match self.pages.get((page as usize).wrapping_sub(1)) {
            Some(page) => page[series_ref as usize % PAGE_LEN],
            None => NONE,
        }
    }

    /// As [`RefTable::get`], but looks first whether it is `guess`.
    ///
    /// PERF: samples mostly come in the order in which their series came, so that refs of series are read one
    /// behind the other; pages of refs that lie far apart miss the cache each (100 000 series, one ref in 101
    /// used: 61 -> 22 ns of CPU a sample of the whole import).
    ///   cargo xtask bench load-wal --only 4
    #[inline]
    pub(crate) fn get_near(&self, series_ref: u64, guess: u32) -> u32 {
        if self.has_ref(guess, series_ref) { guess } else { self.get(series_ref) }
    }

    /// Returns true if `series_ref` is the ref kept for `series`. False proves nothing: a series may have
    /// several refs.
    #[inline]
    pub(crate) fn has_ref(&self, series: u32, series_ref: u64) -> bool {
        let known = self.refs.get(series as usize);
        known.is_some_and(|&known| u64::from(known) == series_ref && known != NO_REF)
    }

    #[cold]
    fn get_large(&self, series_ref: u64) -> u32 {
        self.large.get(&series_ref).copied().unwrap_or(NONE)
    }

    /// Makes `series_ref` name `series`; [`NONE`] takes the name away.
    pub(crate) fn set(&mut self, series_ref: u64, series: u32) {
        if series_ref >= PAGED_REFS_MAX {
            self.large.insert(series_ref, series);
            return;
        }
        let at = (series_ref >> PAGE_BITS) as usize;
        if at >= self.directory.len() {
            let mut grown = vec![0; (at + 1).next_power_of_two()];
            grown[..self.directory.len()].copy_from_slice(&self.directory);
            self.directory = grown;
        }
        if self.directory[at] == 0 {
            self.pages.push([NONE; PAGE_LEN]);
            self.directory[at] = self.pages.len() as u32;
        }
        let place = &mut self.pages[self.directory[at] as usize - 1][series_ref as usize % PAGE_LEN];
        let before = std::mem::replace(place, series);
        self.turn_ref(series_ref as u32, before, series);
    }

    /// Notes that `series_ref` names `series` and no longer `before`.
    fn turn_ref(&mut self, series_ref: u32, before: u32, series: u32) {
        if let Some(known) = self.refs.get_mut(before as usize)
            && *known == series_ref
        {
            *known = NO_REF;
        }
        if series == NONE {
            return;
        }
        if series as usize >= self.refs.len() {
            self.refs.resize(series as usize + 1, NO_REF);
        }
        self.refs[series as usize] = series_ref;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refs_far_apart_are_told_apart() {
        let refs = [0, 1, 63, 64, 1 << 20, (1 << 32) - 1, 1 << 32, u64::MAX];
        let mut table = RefTable::default();
        assert_eq!(table.get(5), NONE);
        for (series, &series_ref) in (0..).zip(&refs) {
            table.set(series_ref, series);
        }
        for (series, &series_ref) in (0..).zip(&refs) {
            assert_eq!(table.get(series_ref), series);
        }
        assert_eq!((table.get(2), table.get(65), table.get(u64::MAX - 1)), (NONE, NONE, NONE));
        table.set(64, NONE);
        assert_eq!(table.get(64), NONE);
    }

    #[test]
    fn a_guess_never_changes_the_answer() {
        let rng = chronolith_base::Rng::from_seed(3);
        let mut table = RefTable::default();
        let far = [(1 << 32) - 1, 1 << 32, u64::MAX];
        let pick = || match rng.below(8) {
            0 => far[rng.below(3) as usize],
            _ => rng.below(40),
        };
        for _ in 0..20_000 {
            let series = if rng.below(4) == 0 { NONE } else { rng.below(30) as u32 };
            table.set(pick(), series);
            let (series_ref, guess) = (pick(), rng.below(32) as u32);
            assert_eq!(table.get_near(series_ref, guess), table.get(series_ref), "{series_ref} {guess}");
        }
    }
}
