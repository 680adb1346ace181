//! Queries over blocks in a bucket alone: no head, no local blocks.
//!
//! Invariants: all blocks of a query are fetched at the same time; a block that cannot be read fails the
//! query, or is named in the warnings of one that allows a partial result. Without a list of blocks there is
//! nothing to answer from: every query fails.
//! Not here: which blocks a tenant has, and reading them (`bucket`).

use std::borrow::Cow;

use chronolith_bucket::check_first_batches;
use chronolith_model::query::{Opened, Read, SelectRequest, Source, Wanted, visit_listed};
use chronolith_model::{DuplicatePolicy, KIND_LABEL, QueryError, ReadContext, SeriesBatches};

use super::blocks::{LabelQuery, select_in_bucket};
use super::counted::counted;
use super::kinds;
use super::merged::MergedBatches;
use crate::bucket::folder_source::FolderSource;

/// Blocks of one store in the bucket.
pub(crate) struct TenantBucket {
    source: FolderSource,
    /// `None` = as the catalogue says.
    duplicates: Option<DuplicatePolicy>,
}

impl TenantBucket {
    /// A default store, of which the catalogue says which of several samples with one timestamp is read.
    pub(crate) fn of_tenant(source: FolderSource) -> TenantBucket {
        TenantBucket { source, duplicates: None }
    }

    /// The store of a retention policy, where the last sample with a timestamp counts.
    pub(crate) fn of_policy(source: FolderSource) -> TenantBucket {
        TenantBucket { source, duplicates: Some(DuplicatePolicy::LastWins) }
    }

    fn select(&self, request: &SelectRequest, ctx: &ReadContext) -> Result<Opened, QueryError> {
        let range = request.range;
        let column_type = request.column_type;
        let mut sources: Vec<Box<dyn SeriesBatches>> = Vec::new();
        ctx.begin_wait()?;
        // Each selection starts to fetch at once; only the merge waits.
        let blocks = self.source.blocks_in(range, ctx)?;
        check_first_batches(&blocks, &request.selector(), ctx)?;
        for block in blocks {
            for kind in kinds::kinds_in(block.may_have_label_name(KIND_LABEL), column_type) {
                let matchers = kinds::with_kind(&request.matchers, kind);
                let batches = select_in_bucket(&block, &matchers, request, ctx);
                sources.push(kinds::without_label(kind, column_type, batches));
            }
        }
        let duplicates = self.duplicates.unwrap_or_else(|| self.source.duplicates());
        let batches = MergedBatches::of_all(sources, duplicates, ctx);
        Ok(Opened::Series(request.filter(counted(batches, ctx))))
    }
}

impl Source for TenantBucket {
    fn open(&self, read: Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        let Read { mut request, wanted } = read;
        match kinds::visible(&request.matchers) {
            None => return Ok(Opened::nothing(&wanted)),
            Some(Cow::Borrowed(_)) => {}
            Some(Cow::Owned(visible)) => request.matchers = visible,
        }
        match wanted {
            Wanted::Series => self.select(&request, ctx),
            Wanted::Estimate => Ok(Opened::Estimate(None)),
            Wanted::LabelNames => {
                let limit = request.limit;
                // One more name in case that one of them is hidden.
                request.limit = if limit == 0 { 0 } else { limit.saturating_add(1) };
                let query = LabelQuery::without_texts(Read { request, wanted }, ctx);
                let names = query.start_in(&self.source)?;
                Ok(Opened::List(names).map_list(move |names| kinds::visible_names(names, limit)))
            }
            Wanted::LabelValues { ref name } if **name == *KIND_LABEL => Ok(Opened::nothing(&wanted)),
            Wanted::LabelValues { .. } => {
                let query = LabelQuery::without_texts(Read { request, wanted }, ctx);
                query.start_in(&self.source).map(Opened::List)
            }
            Wanted::EachLabelValue { name, prefix } => visit_listed(self, request, name, prefix, ctx),
            Wanted::SoleLabelValues { .. } => Ok(Opened::Cursor(None)),
        }
    }
}
