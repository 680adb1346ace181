//! Queries of one tenant over head and blocks: a k-way merge of series by labels; samples are decoded when
//! read.
//!
//! Invariants: the head is read before the list of blocks, so a window that is being flushed is seen at least
//! once; its samples are deduplicated if it is seen twice.
//! Not here: evaluation (`promql`), the merge of samples (`merge`), hidden labels (`kinds`).

pub(crate) mod blocks;
pub(crate) mod bucket;
mod counted;
pub(crate) mod databases;
mod deferred;
mod failure;
pub(crate) mod fanout;
pub(crate) mod fields;
mod kinds;
mod label_search;
pub(crate) mod lookback;
pub(crate) mod measurements;
mod merged;
pub(crate) mod metrics;
pub(crate) mod remote;
pub(crate) mod typed;
pub(crate) mod typed_bucket;
pub(crate) mod unit;
pub(crate) mod view;
mod words;

use std::sync::Arc;

use chronolith_head::Head;
use chronolith_model::query::{
    ColumnType, LabelValueCursor, LabelValueScan, ReadEstimate, SampleNeed, SelectHints, SoleLabelValues,
    VecBatches,
};
use chronolith_model::{
    DuplicatePolicy, KIND_LABEL, QueryError, Queryable, ReadContext, Selector, SeriesBatches, StoreId,
    TimeRange,
};

use self::blocks::{LabelList, LabelQuery, QueryBlock, QueryBlocks};
use self::counted::counted;
use self::label_search::StoreValues;
use self::merged::MergedBatches;
use crate::storage::Storage;

/// Head and blocks of one tenant.
pub(crate) struct TenantQueryable {
    head: Arc<Head>,
    tenant: StoreId,
    blocks: QueryBlocks,
    duplicates: DuplicatePolicy,
}

impl TenantQueryable {
    pub(crate) fn new(storage: &Storage, store: &StoreId) -> TenantQueryable {
        let duplicates = storage.limits_of(store).duplicates;
        let bucket = storage.bucket_blocks(store);
        let blocks = QueryBlocks::new(store, storage.blocks(), bucket);
        TenantQueryable { head: storage.head().clone(), tenant: store.clone(), blocks, duplicates }
    }

    /// Returns true if the head has series with values other than floats.
    fn has_typed_head(&self) -> bool {
        self.head.reader().has_label_name(&self.tenant, KIND_LABEL)
    }

    /// Reads some of the labels from the head alone if no block has samples in the range and no label is
    /// hidden, as a merge needs all labels; `None` otherwise.
    fn select_some_labels(
        &self,
        selector: &Selector<'_>,
        hints: &SelectHints<'_>,
        ctx: &ReadContext,
    ) -> Result<Option<Box<dyn SeriesBatches>>, QueryError> {
        let has_blocks = || self.blocks.any_in_range(selector.range);
        let names_kind = selector.matchers.iter().any(|matcher| *matcher.name == *KIND_LABEL);
        if has_blocks() || names_kind || self.has_typed_head() {
            return Ok(None);
        }
        let reader = self.head.reader();
        let head: Box<dyn SeriesBatches> = match hints.presence() {
            Some(presence) => reader.select_presence(&self.tenant, selector, &presence, ctx)?,
            None => {
                let SelectHints { samples, projection, .. } = *hints;
                let series = reader.select_labels(&self.tenant, selector, samples, projection, ctx)?;
                Box::new(VecBatches::projected(series))
            }
        };
        // A window may have been flushed meanwhile, and its series may have left the head.
        Ok((!has_blocks()).then_some(head))
    }

    /// Merges the series of the head and of each block, and the series of all kinds.
    fn select_samples(
        &self,
        selector: &Selector<'_>,
        hints: &SelectHints<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        let Some(matchers) = kinds::visible(selector.matchers) else {
            return Ok(Box::new(VecBatches::new(Vec::new())));
        };
        let of_kind = |kind| kinds::with_kind(&matchers, kind);
        let (range, reader) = (selector.range, self.head.reader());
        let mut from_head: Vec<Box<dyn SeriesBatches>> = Vec::new();
        for kind in kinds::kinds_in(self.has_typed_head(), hints.column_type) {
            let selector = &Selector { matchers: &of_kind(kind), range };
            let series = match hints.samples {
                SampleNeed::All => reader.select(&self.tenant, selector, ctx)?,
                SampleNeed::Newest => reader.select_newest(&self.tenant, selector, ctx)?,
            };
            if !series.is_empty() {
                from_head.push(kinds::without_label(
                    kind,
                    hints.column_type,
                    Box::new(VecBatches::new(series)),
                ));
            }
        }
        let mut sources: Vec<Box<dyn SeriesBatches>> = Vec::new();
        let blocks = self.blocks.in_range(range, ctx)?;
        blocks::check_memory(&blocks, &Selector { matchers: &matchers, range }, ctx)?;
        let has_remote = blocks.iter().any(|block| matches!(block, QueryBlock::Bucket(_)));
        for block in blocks {
            for kind in kinds::kinds_in(block.may_have_label_name(KIND_LABEL), hints.column_type) {
                let selector = &Selector { matchers: &of_kind(kind), range };
                let batches = block.select(selector, hints.rollups, ctx)?;
                sources.push(kinds::without_label(kind, hints.column_type, batches));
            }
        }
        sources.extend(from_head);
        let merged = self.merge(sources, ctx)?;
        Ok(if has_remote { counted(merged, ctx) } else { merged })
    }

    /// Merges sources, of which those that were written earlier come first.
    fn merge(
        &self,
        mut sources: Vec<Box<dyn SeriesBatches>>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        match sources.len() {
            0 => Ok(Box::new(VecBatches::new(Vec::new()))),
            1 => Ok(sources.remove(0)),
            _ => Ok(Box::new(MergedBatches::new(sources, self.duplicates, ctx.clone())?)),
        }
    }

    /// Estimates the series of the source with most of them, since most series are in all sources, and all
    /// samples. Blocks that only the bucket has are not estimated: it would take requests.
    fn estimate_all(&self, selector: &Selector<'_>, ctx: &ReadContext) -> Result<ReadEstimate, QueryError> {
        let head = self.head.reader().estimate(&self.tenant, selector)?;
        if selector.matchers.is_empty() && selector.range == TimeRange::ALL {
            // Every query asks this: no block is opened for it.
            let blocks = self.blocks.local().tenant(&self.tenant).map(|blocks| blocks.totals());
            let blocks = blocks.unwrap_or_default().read_estimate();
            let series = head.series.max(blocks.series);
            return Ok(ReadEstimate { series, samples: head.samples.saturating_add(blocks.samples) });
        }
        self.blocks.local().fold_in_range(
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
        )
    }
}

impl Queryable for TenantQueryable {
    fn select(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        self.select_samples(selector, &SelectHints::default(), ctx)
    }

    fn select_with(
        &self,
        selector: &Selector<'_>,
        hints: &SelectHints<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        // Type and shard are decided by all labels.
        let selects_all = hints.shard.is_none() && hints.column_type == ColumnType::Float;
        let needs_some = hints.presence_only || hints.projection.is_some();
        if selects_all
            && needs_some
            && let Some(series) = self.select_some_labels(selector, hints, ctx)?
        {
            return Ok(series);
        }
        Ok(hints.filter(self.select_samples(selector, hints, ctx)?))
    }

    fn estimate(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Option<ReadEstimate>, QueryError> {
        let Some(matchers) = kinds::visible(selector.matchers) else {
            return Ok(Some(ReadEstimate::default()));
        };
        let selector = &Selector { matchers: &matchers, range: selector.range };
        self.estimate_all(selector, ctx).map(Some)
    }

    fn label_names(
        &self,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let Some(matchers) = kinds::visible(selector.matchers) else { return Ok(Vec::new()) };
        let range = selector.range;
        // One more name in case that one of them is hidden.
        let limit_each = if limit == 0 { 0 } else { limit.saturating_add(1) };
        let of_head = kinds::without_texts(&matchers, self.has_typed_head());
        let selector = &Selector { matchers: &of_head, range };
        let head = self.head.reader().label_names(&self.tenant, selector, limit_each, ctx)?;
        let query = LabelQuery::without_texts(LabelList::Names, &matchers, range, limit_each, ctx);
        let mut all = self.blocks.label_query(query, head)?;
        all.retain(|name| name != KIND_LABEL);
        all.truncate(if limit == 0 { usize::MAX } else { limit });
        Ok(all)
    }

    fn label_values(
        &self,
        name: &str,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let matchers = kinds::visible(selector.matchers).filter(|_| name != KIND_LABEL);
        let Some(matchers) = matchers else { return Ok(Vec::new()) };
        let range = selector.range;
        let of_head = kinds::without_texts(&matchers, self.has_typed_head());
        let selector = &Selector { matchers: &of_head, range };
        let head = self.head.reader().label_values(&self.tenant, name, selector, limit, ctx)?;
        let list = LabelList::Values(name.to_owned());
        let query = LabelQuery::without_texts(list, &matchers, range, limit, ctx);
        self.blocks.label_query(query, head)
    }

    fn scan_label_values(
        &self,
        scan: &LabelValueScan<'_>,
        ctx: &ReadContext,
        visit: &mut dyn FnMut(&str) -> bool,
    ) -> Result<(), QueryError> {
        if scan.name == KIND_LABEL {
            return Ok(());
        }
        // Text series are hidden, and bucket blocks are read by several threads: both lists are merged.
        if self.has_typed_head() || self.blocks.may_be_in_bucket(scan.range) {
            let selector = Selector { matchers: &[], range: scan.range };
            let values = self.label_values(scan.name, &selector, 0, ctx)?;
            return scan.visit_listed(&values, &ctx.budget, visit);
        }
        // The head first: a window that is flushed meanwhile is in the list of blocks.
        self.head.reader().scan_label_values(&self.tenant, scan, ctx, visit)?;
        self.blocks.scan_local(scan, ctx, visit)
    }

    fn sole_label_values(
        &self,
        search: &SoleLabelValues<'_>,
        ctx: &ReadContext,
    ) -> Result<Option<Box<dyn LabelValueCursor>>, QueryError> {
        // A search of bucket blocks would take requests for each.
        if self.blocks.may_be_in_bucket(search.range) {
            return Ok(None);
        }
        let blocks = self.blocks.local().clone();
        let values = StoreValues::new(self.head.reader(), blocks, &self.tenant, search, ctx)?;
        Ok(Some(Box::new(values)))
    }
}
