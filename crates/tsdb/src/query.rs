//! Queries of one tenant over head and blocks: a k-way merge of series by labels; samples are decoded when
//! read.
//!
//! Invariants: the head is read before the list of blocks, so a window that is being flushed is seen at least
//! once; its samples are deduplicated if it is seen twice.
//! Not here: evaluation (`promql`), the merge of samples (`merge`), hidden labels (`kinds`).

pub(crate) mod answer;
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
pub(crate) mod measurements;
mod merged;
pub(crate) mod metrics;
pub(crate) mod peer;
mod peer_failure;
pub(crate) mod remote;
mod seam;
pub(crate) mod typed;
pub(crate) mod typed_bucket;
pub(crate) mod unit;
pub(crate) mod view;
mod words;

use std::borrow::Cow;
use std::sync::Arc;

use chronolith_head::Head;
use chronolith_model::query::{
    ColumnType, LabelValueScan, Opened, PendingList, Read, ReadEstimate, SampleNeed, SelectRequest,
    SoleLabelValues, Source, VecBatches, Wanted, visit_listed,
};
use chronolith_model::{
    DuplicatePolicy, KIND_LABEL, QueryError, ReadContext, Selector, SeriesBatches, StoreId, TimeRange,
};

use self::blocks::{LabelQuery, QueryBlock, QueryBlocks};
use self::counted::counted;
use self::label_search::StoreValues;
use self::merged::MergedBatches;
use crate::bucket::folder_source::FolderSource;
use crate::storage::Storage;

/// Head and blocks of one tenant.
#[derive(Clone)]
pub(crate) struct TenantQueryable {
    head: Arc<Head>,
    tenant: StoreId,
    blocks: QueryBlocks,
    duplicates: DuplicatePolicy,
}

impl TenantQueryable {
    pub(crate) fn new(storage: &Storage, store: &StoreId) -> TenantQueryable {
        TenantQueryable::with_bucket(storage, store, storage.bucket_blocks(store))
    }

    /// As [`TenantQueryable::new`], without blocks that only the bucket has.
    pub(crate) fn without_bucket(storage: &Storage, store: &StoreId) -> TenantQueryable {
        TenantQueryable::with_bucket(storage, store, None)
    }

    fn with_bucket(storage: &Storage, store: &StoreId, bucket: Option<FolderSource>) -> TenantQueryable {
        let duplicates = storage.limits_of(store).duplicates;
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
        request: &SelectRequest,
        ctx: &ReadContext,
    ) -> Result<Option<Box<dyn SeriesBatches>>, QueryError> {
        let selector = &request.selector();
        let has_blocks = || self.blocks.any_in_range(selector.range);
        let names_kind = selector.matchers.iter().any(|matcher| *matcher.name == *KIND_LABEL);
        if has_blocks() || names_kind || self.has_typed_head() {
            return Ok(None);
        }
        let reader = self.head.reader();
        let head: Box<dyn SeriesBatches> = match request.presence() {
            Some(presence) => reader.select_presence(&self.tenant, selector, &presence, ctx)?,
            None => {
                let projection = request.projection.as_ref();
                let series =
                    reader.select_labels(&self.tenant, selector, request.samples, projection, ctx)?;
                Box::new(VecBatches::projected(series))
            }
        };
        // A window may have been flushed meanwhile, and its series may have left the head.
        Ok((!has_blocks()).then_some(head))
    }

    /// Merges the series of the head and of each block, and the series of all kinds.
    fn select_samples(
        &self,
        request: &SelectRequest,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        let Some(matchers) = kinds::visible(&request.matchers) else {
            return Ok(Box::new(VecBatches::new(Vec::new())));
        };
        let of_kind = |kind| kinds::with_kind(&matchers, kind);
        let range = request.range;
        let column_type = request.column_type;
        let reader = self.head.reader();
        let mut from_head: Vec<Box<dyn SeriesBatches>> = Vec::new();
        for kind in kinds::kinds_in(self.has_typed_head(), column_type) {
            let selector = &Selector { matchers: &of_kind(kind), range };
            let series = match request.samples {
                SampleNeed::All => reader.select(&self.tenant, selector, ctx)?,
                SampleNeed::Newest => reader.select_newest(&self.tenant, selector, ctx)?,
            };
            if !series.is_empty() {
                let batches = Box::new(VecBatches::new(series));
                from_head.push(kinds::without_label(kind, column_type, batches));
            }
        }
        let mut sources: Vec<Box<dyn SeriesBatches>> = Vec::new();
        let blocks = self.blocks.in_range(request, ctx)?;
        blocks::check_memory(&blocks, &Selector { matchers: &matchers, range }, ctx)?;
        let has_remote = blocks.iter().any(|block| matches!(block, QueryBlock::Bucket(_)));
        for block in blocks {
            for kind in kinds::kinds_in(block.may_have_label_name(KIND_LABEL), column_type) {
                let batches = block.select(&of_kind(kind), request, ctx)?;
                sources.push(kinds::without_label(kind, column_type, batches));
            }
        }
        sources.extend(from_head);
        let merged = MergedBatches::of_all(sources, self.duplicates, ctx);
        Ok(if has_remote { counted(merged, ctx) } else { merged })
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

    fn select(&self, request: &SelectRequest, ctx: &ReadContext) -> Result<Opened, QueryError> {
        // Type and shard are decided by all labels.
        let selects_all = request.shard.is_none() && request.column_type == ColumnType::Float;
        if selects_all
            && request.needs_some_labels()
            && let Some(series) = self.select_some_labels(request, ctx)?
        {
            return Ok(Opened::Series(series));
        }
        Ok(Opened::Series(request.filter(self.select_samples(request, ctx)?)))
    }

    /// Names or values; `request` has no matchers on hidden labels.
    fn start_list(
        &self,
        request: SelectRequest,
        wanted: Wanted,
        ctx: &ReadContext,
    ) -> Result<PendingList, QueryError> {
        let of_head = kinds::without_texts(&request.matchers, self.has_typed_head());
        let selector = &Selector { matchers: &of_head, range: request.range };
        let reader = self.head.reader();
        let limit = request.limit;
        let from_head = match &wanted {
            Wanted::LabelValues { name } => reader.label_values(&self.tenant, name, selector, limit, ctx)?,
            _ => reader.label_names(&self.tenant, selector, limit, ctx)?,
        };
        self.blocks.start_label_query(LabelQuery::without_texts(Read { request, wanted }, ctx), from_head)
    }

    /// Visits the values of a label.
    fn start_visit(
        &self,
        request: SelectRequest,
        name: Arc<str>,
        prefix: Arc<str>,
        ctx: &ReadContext,
    ) -> Result<Opened, QueryError> {
        // Text series are hidden, and bucket blocks are read by several threads: both lists are merged.
        if self.has_typed_head() || self.blocks.may_be_in_bucket(request.range) {
            return visit_listed(self, request, name, prefix, ctx);
        }
        let source = self.clone();
        let range = request.range;
        let ctx = ctx.clone();
        Ok(Opened::Visit(Box::new(move |visit| {
            let scan = &LabelValueScan { name: &name, prefix: &prefix, range };
            // The head first: a window that is flushed meanwhile is in the list of blocks.
            source.head.reader().scan_label_values(&source.tenant, scan, &ctx, visit)?;
            source.blocks.scan_local(scan, &ctx, visit)
        })))
    }

    /// Searches the values of a label; `None` if a search of bucket blocks would take requests for each.
    fn search(&self, name: &str, range: TimeRange, ctx: &ReadContext) -> Result<Opened, QueryError> {
        if self.blocks.may_be_in_bucket(range) {
            return Ok(Opened::Cursor(None));
        }
        let blocks = self.blocks.local().clone();
        let search = &SoleLabelValues { name, range };
        let values = StoreValues::new(self.head.reader(), blocks, &self.tenant, search, ctx)?;
        Ok(Opened::Cursor(Some(Box::new(values))))
    }
}

impl Source for TenantQueryable {
    fn open(&self, read: Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        let Read { mut request, wanted } = read;
        match wanted {
            Wanted::Series => return self.select(&request, ctx),
            Wanted::EachLabelValue { ref name, .. } if **name == *KIND_LABEL => {
                return Ok(Opened::nothing(&wanted));
            }
            Wanted::EachLabelValue { name, prefix } => return self.start_visit(request, name, prefix, ctx),
            Wanted::SoleLabelValues { name } => return self.search(&name, request.range, ctx),
            Wanted::Estimate | Wanted::LabelNames | Wanted::LabelValues { .. } => {}
        }
        match kinds::visible(&request.matchers) {
            None => return Ok(Opened::nothing(&wanted)),
            Some(Cow::Borrowed(_)) => {}
            Some(Cow::Owned(visible)) => request.matchers = visible,
        }
        match wanted {
            Wanted::LabelNames => {
                let limit = request.limit;
                // One more name in case that one of them is hidden.
                request.limit = if limit == 0 { 0 } else { limit.saturating_add(1) };
                let names = self.start_list(request, wanted, ctx)?;
                Ok(Opened::List(names).map_list(move |names| kinds::visible_names(names, limit)))
            }
            Wanted::LabelValues { ref name } if **name == *KIND_LABEL => Ok(Opened::nothing(&wanted)),
            Wanted::LabelValues { .. } => self.start_list(request, wanted, ctx).map(Opened::List),
            _ => Ok(Opened::Estimate(Some(self.estimate_all(&request.selector(), ctx)?))),
        }
    }
}
