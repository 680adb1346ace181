//! Postings lists of a block being written, all in one vector: their lengths are known, so each pair has its
//! range from the start.

/// Refs of all series, and of those with each label pair.
pub(super) struct PostingsBuilder {
    all: Vec<u32>,
    flat: Vec<u32>,
    /// Start of each pair's list in `flat`.
    starts: Vec<usize>,
    /// Position of each pair's next ref in `flat`.
    next: Vec<usize>,
}

impl PostingsBuilder {
    /// Empty lists with room for `series_counts` series, one count per pair.
    pub(super) fn new(series_counts: impl Iterator<Item = u32>, series_count: u64) -> PostingsBuilder {
        let mut total = 0;
        let mut starts = Vec::with_capacity(series_counts.size_hint().0);
        for count in series_counts {
            starts.push(total);
            total += count as usize;
        }
        let all = Vec::with_capacity(series_count as usize);
        PostingsBuilder { all, flat: vec![0; total], next: starts.clone(), starts }
    }

    pub(super) fn add(&mut self, series_ref: u32, pairs: &[u32]) {
        self.all.push(series_ref);
        for &pair in pairs {
            let next = &mut self.next[pair as usize];
            self.flat[*next] = series_ref;
            *next += 1;
        }
    }

    /// Refs of all series.
    pub(super) fn all(&self) -> &[u32] {
        &self.all
    }

    /// Refs of the series with a pair.
    pub(super) fn refs(&self, pair: u32) -> &[u32] {
        &self.flat[self.starts[pair as usize]..self.next[pair as usize]]
    }
}
