//! Queries of one store for languages with types: series with all their labels, samples of their own types.
//!
//! Invariants: as in `query`; the label of a series determines its kind, so samples of two kinds are never
//! merged.
//! Not here: the view of PromQL, which hides labels and reads floats (`query`, `kinds`).

use chronolith_model::query::{ReadEstimate, SampleNeed, SelectHints, VecBatches};
use chronolith_model::{QueryError, Queryable, ReadContext, Selector, SeriesBatches};

use super::TenantQueryable;
use super::blocks::{LabelList, LabelQuery};
use super::typed_bucket::TypedBatches;

/// Head and blocks of one store, with types.
pub(crate) struct TypedQueryable {
    source: TenantQueryable,
}

impl TypedQueryable {
    pub(crate) fn new(source: TenantQueryable) -> TypedQueryable {
        TypedQueryable { source }
    }

    fn select_samples(
        &self,
        selector: &Selector<'_>,
        need: SampleNeed,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        let TenantQueryable { head, tenant, blocks, .. } = &self.source;
        // The head is read before the list of blocks.
        let series = match need {
            SampleNeed::All => head.reader().select(tenant, selector, ctx)?,
            SampleNeed::Newest => head.reader().select_newest(tenant, selector, ctx)?,
        };
        let mut sources: Vec<Box<dyn SeriesBatches>> = Vec::new();
        for block in blocks.in_range(selector.range, ctx)? {
            sources.push(block.select(selector, &[], ctx)?);
        }
        if !series.is_empty() {
            sources.push(Box::new(VecBatches::new(series)));
        }
        Ok(Box::new(TypedBatches::new(self.source.merge(sources, ctx)?)))
    }
}

impl Queryable for TypedQueryable {
    /// Returns series of every type, texts among them.
    fn select(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        self.select_samples(selector, SampleNeed::All, ctx)
    }

    /// Returns series of every type for readers of floats without a shard.
    fn select_with(
        &self,
        selector: &Selector<'_>,
        hints: &SelectHints<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        Ok(hints.filter(self.select_samples(selector, hints.samples, ctx)?))
    }

    fn estimate(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Option<ReadEstimate>, QueryError> {
        self.source.estimate_all(selector, ctx).map(Some)
    }

    fn label_names(
        &self,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let TenantQueryable { head, tenant, .. } = &self.source;
        let from_head = head.reader().label_names(tenant, selector, limit, ctx)?;
        let Selector { matchers, range } = *selector;
        let query = LabelQuery::of_all(LabelList::Names, matchers, range, limit, ctx);
        self.source.blocks.label_query(query, from_head)
    }

    fn label_values(
        &self,
        name: &str,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let TenantQueryable { head, tenant, .. } = &self.source;
        let from_head = head.reader().label_values(tenant, name, selector, limit, ctx)?;
        let Selector { matchers, range } = *selector;
        let query = LabelQuery::of_all(LabelList::Values(name.to_owned()), matchers, range, limit, ctx);
        self.source.blocks.label_query(query, from_head)
    }
}
