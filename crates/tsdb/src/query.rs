//! One contract over head and blocks: the series of a tenant, merged by labels, samples decoded when read.
//!
//! Holds: the head is read before the list of blocks, so that a window that is being cut to a block is seen
//! at least once (twice is merged away), never not at all.
//! Not here: evaluation (`promql`).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use chronolith_block::Block;
use chronolith_head::Head;
use chronolith_model::query::{PresenceHints, ReadEstimate, SERIES_PER_BATCH_MAX, SampleNeed, VecBatches};
use chronolith_model::{
    DuplicatePolicy, Labels, QueryError, Queryable, ReadContext, SampleSource, Selector, SeriesBatches,
    SeriesRead, TenantId, TimeRange,
};

use crate::blocks::BlockStore;
use crate::merge::MergedSource;

/// Head and blocks of one tenant.
pub(crate) struct TenantQueryable {
    pub(crate) head: Arc<Head>,
    pub(crate) tenant: TenantId,
    /// Of all tenants: this one may get its first block while a query runs.
    pub(crate) blocks: Arc<BlockStore>,
    pub(crate) duplicates: DuplicatePolicy,
}

impl TenantQueryable {
    /// Union of what head and blocks say, sorted, at most `limit` (0 = all).
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

    /// Series of the head and of blocks, both selected by the same rule.
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

/// Two sorted lists as one, each text once.
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

    /// From the head alone where no block has samples in the range: merging series takes all their labels.
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

    /// Series of the source that has most of them, since most series are in all sources; samples of all.
    fn estimate(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Option<ReadEstimate>, QueryError> {
        let head = self.head.reader().estimate(&self.tenant, selector)?;
        if selector.matchers.is_empty() && selector.range == TimeRange::ALL {
            // Asked for each query: no block is opened for it.
            let blocks = self.blocks.tenants.read().get(&self.tenant).map(|blocks| blocks.totals());
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

/// Batches of several sources merged by labels; earlier written sources first.
struct MergedBatches {
    sources: Vec<Buffered>,
    /// The least labels of every source that has any.
    order: BinaryHeap<Reverse<(Labels, usize)>>,
    duplicates: DuplicatePolicy,
    ctx: ReadContext,
}

struct Buffered {
    batches: Box<dyn SeriesBatches>,
    ready: VecDeque<SeriesRead>,
    more: bool,
}

impl Buffered {
    fn fill(&mut self) -> Result<(), QueryError> {
        while self.ready.is_empty() && self.more {
            let mut batch = Vec::new();
            self.more = self.batches.next_batch(&mut batch)?;
            self.ready.extend(batch);
        }
        Ok(())
    }
}

impl MergedBatches {
    fn new(
        sources: Vec<Box<dyn SeriesBatches>>,
        duplicates: DuplicatePolicy,
        ctx: ReadContext,
    ) -> Result<MergedBatches, QueryError> {
        let buffered = |batches| Buffered { batches, ready: VecDeque::new(), more: true };
        let sources: Vec<Buffered> = sources.into_iter().map(buffered).collect();
        let order = BinaryHeap::with_capacity(sources.len());
        let mut merged = MergedBatches { order, sources, duplicates, ctx };
        for i in 0..merged.sources.len() {
            merged.queue(i)?;
        }
        Ok(merged)
    }

    fn queue(&mut self, source: usize) -> Result<(), QueryError> {
        let buffered = &mut self.sources[source];
        buffered.fill()?;
        if let Some(series) = buffered.ready.front() {
            self.order.push(Reverse((series.labels.clone(), source)));
        }
        Ok(())
    }

    fn take(&mut self, source: usize) -> Result<Option<SeriesRead>, QueryError> {
        let series = self.sources[source].ready.pop_front();
        self.queue(source)?;
        Ok(series)
    }

    fn next_series(&mut self) -> Result<Option<SeriesRead>, QueryError> {
        let Some(Reverse((labels, first))) = self.order.pop() else { return Ok(None) };
        let Some(series) = self.take(first)? else { return Ok(None) };
        let mut parts: Vec<Box<dyn SampleSource>> = vec![series.samples];
        // The heap gives equal labels in order of the sources: earlier written ones first.
        while let Some(Reverse((next, source))) = self.order.peek() {
            if *next != labels {
                break;
            }
            let source = *source;
            self.order.pop();
            if let Some(same) = self.take(source)? {
                parts.push(same.samples);
            }
        }
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
