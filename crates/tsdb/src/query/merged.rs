//! K-way merges of several sources of one tenant: series by labels, and sorted lists of names.
//!
//! Invariants: series ascend, each once, with the samples of all sources that have it.
//! Not here: the merge of samples (`merge`).

use std::collections::VecDeque;

use chronolith_base::KWayMerge;
use chronolith_model::query::{SERIES_PER_BATCH_MAX, VecBatches};
use chronolith_model::{
    DuplicatePolicy, Labels, QueryError, ReadContext, SampleSource, SeriesBatches, SeriesRead,
};

use crate::merge::MergedSource;

/// Merges two sorted lists without duplicates.
pub(super) fn merged(a: Vec<String>, b: Vec<String>) -> Vec<String> {
    if a.is_empty() || b.is_empty() {
        return if a.is_empty() { b } else { a };
    }
    let mut out = Vec::with_capacity(a.len().max(b.len()));
    let (mut a, mut b) = (a.into_iter().peekable(), b.into_iter().peekable());
    while let (Some(of_a), Some(of_b)) = (a.peek(), b.peek()) {
        let order = of_a.cmp(of_b);
        if order.is_le() {
            out.extend(a.next());
        }
        if order.is_eq() {
            b.next();
        } else if order.is_gt() {
            out.extend(b.next());
        }
    }
    out.extend(a);
    out.extend(b);
    out
}

/// Returns the first `limit` entries of a list; 0 = all.
pub(super) fn truncated(mut list: Vec<String>, limit: usize) -> Vec<String> {
    if limit > 0 {
        list.truncate(limit);
    }
    list
}

/// K-way merge of series by labels; sources that were written earlier come first. The first batch waits
/// for all of them, so that each may be fetched in the meantime.
pub(super) struct MergedBatches {
    sources: Vec<Buffered>,
    has_begun: bool,
    order: KWayMerge<Labels>,
    /// Sources of the current series.
    equal: Vec<usize>,
    duplicates: DuplicatePolicy,
    ctx: ReadContext,
}

/// A source with the rest of its last batch.
struct Buffered {
    batches: Box<dyn SeriesBatches>,
    ready: VecDeque<SeriesRead>,
    has_more: bool,
}

impl Buffered {
    /// Returns the labels of the next series; reads a batch if none is left.
    fn next_labels(&mut self) -> Result<Option<&Labels>, QueryError> {
        while self.ready.is_empty() && self.has_more {
            let mut batch = Vec::new();
            self.has_more = self.batches.next_batch(&mut batch)?;
            self.ready.extend(batch);
        }
        Ok(self.ready.front().map(|series| &series.labels))
    }
}

impl MergedBatches {
    /// Returns the series of `sources`; without a merge if there is one source, or none.
    pub(super) fn of_all(
        mut sources: Vec<Box<dyn SeriesBatches>>,
        duplicates: DuplicatePolicy,
        ctx: &ReadContext,
    ) -> Box<dyn SeriesBatches> {
        match sources.len() {
            0 => Box::new(VecBatches::new(Vec::new())),
            1 => sources.remove(0),
            _ => Box::new(MergedBatches::new(sources, duplicates, ctx.clone())),
        }
    }

    pub(super) fn new(
        sources: Vec<Box<dyn SeriesBatches>>,
        duplicates: DuplicatePolicy,
        ctx: ReadContext,
    ) -> MergedBatches {
        let order = KWayMerge::with_capacity(sources.len());
        let buffered = |batches| Buffered { batches, ready: VecDeque::new(), has_more: true };
        let sources: Vec<Buffered> = sources.into_iter().map(buffered).collect();
        MergedBatches { order, sources, has_begun: false, equal: Vec::new(), duplicates, ctx }
    }

    /// Adds the next series of the source `idx` to the merge.
    fn push_next(&mut self, idx: usize) -> Result<(), QueryError> {
        if let Some(labels) = self.sources[idx].next_labels()? {
            self.order.push(labels.clone(), idx);
        }
        Ok(())
    }

    fn next_series(&mut self) -> Result<Option<SeriesRead>, QueryError> {
        let mut equal = std::mem::take(&mut self.equal);
        let Some(labels) = self.order.pop(&mut equal) else { return Ok(None) };
        let mut parts: Vec<Box<dyn SampleSource>> = Vec::with_capacity(equal.len());
        for &idx in &equal {
            parts.extend(self.sources[idx].ready.pop_front().map(|series| series.samples));
            self.push_next(idx)?;
        }
        assert_eq!(parts.len(), equal.len(), "each source of a series has its samples");
        self.equal = equal;
        if self.duplicates == DuplicatePolicy::LastWins {
            parts.reverse();
        }
        let samples = if parts.len() == 1 { parts.remove(0) } else { Box::new(MergedSource::new(parts)) };
        Ok(Some(SeriesRead { labels, samples }))
    }
}

impl SeriesBatches for MergedBatches {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        self.ctx.check()?;
        if !self.has_begun {
            (0..self.sources.len()).try_for_each(|idx| self.push_next(idx))?;
            self.has_begun = true;
        }
        for _ in 0..SERIES_PER_BATCH_MAX {
            match self.next_series()? {
                Some(series) => out.push(series),
                None => return Ok(false),
            }
        }
        Ok(!self.order.is_empty())
    }
}
