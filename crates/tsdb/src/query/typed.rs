//! Queries of one store for languages with types: series with all their labels, samples of their own types.
//!
//! Invariants: as in `query`; the label of a series determines its kind, so samples of two kinds are never
//! merged.
//! Not here: the view of PromQL, which hides labels and reads floats (`query`, `kinds`).

use chronolith_model::query::{
    Opened, Read, SampleNeed, SelectRequest, Source, VecBatches, Wanted, visit_listed,
};
use chronolith_model::{QueryError, ReadContext, SeriesBatches};

use super::TenantQueryable;
use super::blocks::LabelQuery;
use super::merged::MergedBatches;
use super::typed_bucket::typed;

/// Head and blocks of one store, with types.
pub(crate) struct TypedQueryable {
    source: TenantQueryable,
}

impl TypedQueryable {
    pub(crate) fn new(source: TenantQueryable) -> TypedQueryable {
        TypedQueryable { source }
    }

    fn select(&self, request: &SelectRequest, ctx: &ReadContext) -> Result<Opened, QueryError> {
        let TenantQueryable { head, tenant, blocks, .. } = &self.source;
        let selector = &request.selector();
        // The head is read before the list of blocks.
        let series = match request.samples {
            SampleNeed::All => head.reader().select(tenant, selector, ctx)?,
            SampleNeed::Newest => head.reader().select_newest(tenant, selector, ctx)?,
        };
        let mut sources: Vec<Box<dyn SeriesBatches>> = Vec::new();
        // Languages with types use no roll-ups.
        let of_samples = &SelectRequest { rollups: Vec::new(), ..request.clone() };
        for block in blocks.in_range(of_samples, ctx)? {
            sources.push(block.select(&of_samples.matchers, of_samples, ctx)?);
        }
        if !series.is_empty() {
            sources.push(Box::new(VecBatches::new(series)));
        }
        let merged = MergedBatches::of_all(sources, self.source.duplicates, ctx);
        Ok(Opened::Series(request.filter(typed(merged))))
    }
}

impl Source for TypedQueryable {
    /// Series of every type, texts among them, for readers of floats without a shard.
    fn open(&self, read: Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        let Read { request, wanted } = read;
        let TenantQueryable { head, tenant, blocks, .. } = &self.source;
        let selector = &request.selector();
        let from_head = match &wanted {
            Wanted::Series => return self.select(&request, ctx),
            Wanted::Estimate => {
                return Ok(Opened::Estimate(Some(self.source.estimate_all(selector, ctx)?)));
            }
            Wanted::LabelNames => head.reader().label_names(tenant, selector, request.limit, ctx)?,
            Wanted::LabelValues { name } => {
                head.reader().label_values(tenant, name, selector, request.limit, ctx)?
            }
            Wanted::EachLabelValue { name, prefix } => {
                return visit_listed(self, request.clone(), name.clone(), prefix.clone(), ctx);
            }
            Wanted::SoleLabelValues { .. } => return Ok(Opened::Cursor(None)),
        };
        let query = LabelQuery::of_all(Read { request, wanted }, ctx);
        blocks.start_label_query(query, from_head).map(Opened::List)
    }
}
