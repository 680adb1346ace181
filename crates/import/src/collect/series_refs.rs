//! Series refs of Prometheus's WAL to series ids: a two-level page table.
//!
//! Invariants: a lookup is two loads for refs below 2^32, which are all that Prometheus assigns in practice;
//! larger refs are in a hash map. Memory: 256 bytes per 64 refs of which one is used, and 4 per series.

use chronolith_base::hash::HashMap;

/// Id of no series.
pub(super) const NO_SERIES: u32 = u32::MAX;

const PAGE_BITS: u32 = 6;
const PAGE_LEN: usize = 1 << PAGE_BITS;
/// Larger refs are in the map.
const PAGED_REFS_MAX: u64 = 1 << 32;
/// No ref, in the array of refs by series. The ref with this value is in the page table only.
const NO_REF: u32 = u32::MAX;

/// Refs with their series.
#[derive(Default)]
pub(super) struct RefTable {
    /// Page number per 64 refs, counted from 1; 0 = none. Unused parts cost no memory: the operating system
    /// backs zeroed allocations only when they are written.
    directory: Vec<u32>,
    pages: Vec<[u32; PAGE_LEN]>,
    large: HashMap<u64, u32>,
    /// One ref per series, or [`NO_REF`].
    refs: Vec<u32>,
}

impl RefTable {
    /// Returns the series of `series_ref`, or [`NO_SERIES`].
    #[inline]
    pub(super) fn get(&self, series_ref: u64) -> u32 {
        let Some(&page) = usize::try_from(series_ref >> PAGE_BITS).ok().and_then(|at| self.directory.get(at))
        else {
            return self.get_large(series_ref);
        };
        match self.pages.get((page as usize).wrapping_sub(1)) {
            Some(page) => page[series_ref as usize % PAGE_LEN],
            None => NO_SERIES,
        }
    }

    /// As [`RefTable::get`], but compares with the ref of `guess` first.
    ///
    /// PERF: samples mostly arrive in the order of their series, so that refs by series are read
    /// sequentially, while each page of sparse refs is a cache miss (100 000 series, one ref in 101 used: 61
    /// -> 22 ns of CPU per sample of the whole import).
    ///   cargo xtask bench load-wal --only 4
    #[inline]
    pub(super) fn get_near(&self, series_ref: u64, guess: u32) -> u32 {
        if self.has_ref(guess, series_ref) { guess } else { self.get(series_ref) }
    }

    /// Returns true if `series_ref` is the ref that is stored for `series`. A series may have several refs,
    /// so false does not mean that it is another series.
    #[inline]
    pub(super) fn has_ref(&self, series: u32, series_ref: u64) -> bool {
        let known = self.refs.get(series as usize);
        known.is_some_and(|&known| u64::from(known) == series_ref && known != NO_REF)
    }

    #[cold]
    fn get_large(&self, series_ref: u64) -> u32 {
        self.large.get(&series_ref).copied().unwrap_or(NO_SERIES)
    }

    /// Assigns `series_ref` to `series`; [`NO_SERIES`] removes the ref.
    pub(super) fn set(&mut self, series_ref: u64, series: u32) {
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
            self.pages.push([NO_SERIES; PAGE_LEN]);
            self.directory[at] = self.pages.len() as u32;
        }
        let slot = &mut self.pages[self.directory[at] as usize - 1][series_ref as usize % PAGE_LEN];
        let previous = std::mem::replace(slot, series);
        self.update_ref(series_ref as u32, previous, series);
    }

    /// Stores `series_ref` as the ref of `series` instead of `previous`.
    fn update_ref(&mut self, series_ref: u32, previous: u32, series: u32) {
        if let Some(known) = self.refs.get_mut(previous as usize)
            && *known == series_ref
        {
            *known = NO_REF;
        }
        if series == NO_SERIES {
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
    fn distant_refs_are_distinct() {
        let refs = [0, 1, 63, 64, 1 << 20, (1 << 32) - 1, 1 << 32, u64::MAX];
        let mut table = RefTable::default();
        assert_eq!(table.get(5), NO_SERIES);
        for (series, &series_ref) in (0..).zip(&refs) {
            table.set(series_ref, series);
        }
        for (series, &series_ref) in (0..).zip(&refs) {
            assert_eq!(table.get(series_ref), series);
        }
        assert_eq!((table.get(2), table.get(65), table.get(u64::MAX - 1)), (NO_SERIES, NO_SERIES, NO_SERIES));
        table.set(64, NO_SERIES);
        assert_eq!(table.get(64), NO_SERIES);
    }

    #[test]
    fn a_wrong_guess_does_not_change_the_result() {
        let rng = chronolith_base::Rng::from_seed(3);
        let mut table = RefTable::default();
        let far = [(1 << 32) - 1, 1 << 32, u64::MAX];
        let pick = || match rng.below(8) {
            0 => far[rng.below(3) as usize],
            _ => rng.below(40),
        };
        for _ in 0..20_000 {
            let series = if rng.below(4) == 0 { NO_SERIES } else { rng.below(30) as u32 };
            table.set(pick(), series);
            let (series_ref, guess) = (pick(), rng.below(32) as u32);
            assert_eq!(table.get_near(series_ref, guess), table.get(series_ref), "{series_ref} {guess}");
        }
    }
}
