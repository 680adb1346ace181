//! Queries of one tenant over head and blocks: a k-way merge of series by labels; samples are decoded when
//! read.
//!
//! Invariants: the head is read before the list of blocks, so a window that is being flushed is seen at least
//! once; its samples are deduplicated if it is seen twice.
//! Not here: evaluation (`promql`), the merge of samples (`merge`).

use std::collections::VecDeque;
use std::sync::Arc;

use chronolith_base::KWayMerge;
use chronolith_block::Block;
use chronolith_head::Head;
use chronolith_model::query::{PresenceHints, ReadEstimate, SERIES_PER_BATCH_MAX, SampleNeed, VecBatches};
use chronolith_model::{
    DuplicatePolicy, Labels, QueryError, Queryable, ReadContext, SampleSource, Selector, SeriesBatches,
    SeriesRead, TenantId, TimeRange,
};

use crate::blocks::BlockStore;
use crate::merge::MergedSource;
use crate::storage::Storage;

/// Head and blocks of one tenant.
pub(crate) struct TenantQueryable {
    head: Arc<Head>,
    tenant: TenantId,
    /// Blocks of all tenants: this one may get its first block while a query runs.
    blocks: Arc<BlockStore>,
    duplicates: DuplicatePolicy,
}

impl TenantQueryable {
    pub(crate) fn new(storage: &Storage, tenant: &TenantId) -> TenantQueryable {
        let duplicates = storage.limits_of(tenant).duplicates;
        let (head, blocks) = (storage.head().clone(), storage.blocks().clone());
        TenantQueryable { head, tenant: tenant.clone(), blocks, duplicates }
    }

    /// Returns the union of the lists of head and blocks, sorted, at most `limit` entries (0 = all).
    fn union(
        &self,
        range: TimeRange,
        limit: usize,
        from_head: Vec<String>,
        from_block: impl Fn(&Block) -> Result<Vec<String>, QueryError>,
    ) -> Result<Vec<String>, QueryError> {
        let fresh = || from_head.clone();
        let mut all = self.blocks.fold_in_range(&self.tenant, range, fresh, |all, block| {
            *all = merged(std::mem::take(all), from_block(&block)?);
            Ok(())
        })?;
        if limit > 0 {
            all.truncate(limit);
        }
        Ok(all)
    }

    /// Merges the series of the head with those that `from_block` selects from each block.
    fn select_from(
        &self,
        head: Vec<SeriesRead>,
        range: TimeRange,
        ctx: &ReadContext,
        from_block: impl Fn(&Block) -> Result<Box<dyn SeriesBatches>, QueryError>,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        let mut sources: Vec<Box<dyn SeriesBatches>> = Vec::new();
        for block in self.blocks.open_in_range(&self.tenant, range)? {
            sources.push(from_block(&block)?);
        }
        if !head.is_empty() {
            sources.push(Box::new(VecBatches::new(head)));
        }
        match sources.len() {
            0 => Ok(Box::new(VecBatches::new(Vec::new()))),
            1 => Ok(sources.remove(0)),
            _ => Ok(Box::new(MergedBatches::new(sources, self.duplicates, ctx.clone())?)),
        }
    }
}

/// Merges two sorted lists without duplicates.
fn merged(a: Vec<String>, b: Vec<String>) -> Vec<String> {
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

impl Queryable for TenantQueryable {
    fn select(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        let head = self.head.reader().select(&self.tenant, selector, ctx)?;
        self.select_from(head, selector.range, ctx, |block| block.select(selector, ctx))
    }

    fn select_newest(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        let head = self.head.reader().select_newest(&self.tenant, selector, ctx)?;
        self.select_from(head, selector.range, ctx, |block| block.select_newest(selector, ctx))
    }

    /// Reads the head alone if no block has samples in the range, as a merge needs all labels.
    fn select_presence(
        &self,
        selector: &Selector<'_>,
        hints: &PresenceHints<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        let has_blocks = || self.blocks.any_in_range(&self.tenant, selector.range);
        if !has_blocks() {
            let head = self.head.reader().select_presence(&self.tenant, selector, hints, ctx)?;
            // A window may have been flushed meanwhile, and its series may have left the head.
            if !has_blocks() {
                return Ok(head);
            }
        }
        match hints.samples {
            SampleNeed::All => self.select(selector, ctx),
            SampleNeed::Newest => self.select_newest(selector, ctx),
        }
    }

    /// Estimates the series of the source with most of them, since most series are in all sources, and all
    /// samples.
    fn estimate(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Option<ReadEstimate>, QueryError> {
        let head = self.head.reader().estimate(&self.tenant, selector)?;
        if selector.matchers.is_empty() && selector.range == TimeRange::ALL {
            // Every query asks this: no block is opened for it.
            let blocks = self.blocks.tenant(&self.tenant).map(|blocks| blocks.totals());
            let blocks = blocks.unwrap_or_default().read_estimate();
            let series = head.series.max(blocks.series);
            return Ok(Some(ReadEstimate { series, samples: head.samples.saturating_add(blocks.samples) }));
        }
        let all = self.blocks.fold_in_range(
            &self.tenant,
            selector.range,
            || head,
            |all, block| {
                ctx.check()?;
                let one = block.estimate_read(selector, ctx)?;
                all.series = all.series.max(one.series);
                all.samples = all.samples.saturating_add(one.samples);
                Ok(())
            },
        )?;
        Ok(Some(all))
    }

    fn label_names(
        &self,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let head = self.head.reader().label_names(&self.tenant, selector, limit, ctx)?;
        self.union(selector.range, limit, head, |b| b.label_names(selector, limit, ctx))
    }

    fn label_values(
        &self,
        name: &str,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let head = self.head.reader().label_values(&self.tenant, name, selector, limit, ctx)?;
        self.union(selector.range, limit, head, |b| b.label_values(name, selector, limit, ctx))
    }
}

/// K-way merge of series by labels; sources that were written earlier come first.
struct MergedBatches {
    sources: Vec<Buffered>,
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
    fn new(
        sources: Vec<Box<dyn SeriesBatches>>,
        duplicates: DuplicatePolicy,
        ctx: ReadContext,
    ) -> Result<MergedBatches, QueryError> {
        let order = KWayMerge::with_capacity(sources.len());
        let buffered = |batches| Buffered { batches, ready: VecDeque::new(), has_more: true };
        let sources: Vec<Buffered> = sources.into_iter().map(buffered).collect();
        let mut merged = MergedBatches { order, sources, equal: Vec::new(), duplicates, ctx };
        for idx in 0..merged.sources.len() {
            merged.push_next(idx)?;
        }
        Ok(merged)
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
        for _ in 0..SERIES_PER_BATCH_MAX {
            match self.next_series()? {
                Some(series) => out.push(series),
                None => return Ok(false),
            }
        }
        Ok(!self.order.is_empty())
    }
}
