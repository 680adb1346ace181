//! Queries of the store of a retention policy over the bucket alone, for languages with types.
//!
//! Invariants: the label of a series determines its kind; all blocks of a query are fetched at the same time.
//! Not here: head and local blocks (`typed`), the view of PromQL (`bucket`).

use chronolith_model::query::{ColumnType, VecBatches};
use chronolith_model::{
    DuplicatePolicy, QueryError, Queryable, ReadContext, Selector, SeriesBatches, SeriesRead, WordKind,
};

use super::blocks::{FolderSource, LabelList, LabelQuery};
use super::merged::MergedBatches;
use super::words::TypedSource;

/// Blocks of the store of a retention policy that are in the bucket, with types.
pub(crate) struct TypedBucket(pub(crate) FolderSource);

impl Queryable for TypedBucket {
    fn select(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        ctx.begin_wait()?;
        // Each selection starts to fetch at once; only the merge waits.
        let blocks = self.0.blocks_in(selector.range, ctx)?;
        let mut sources: Vec<_> = blocks.iter().map(|block| block.select(selector, ctx)).collect();
        let batches: Box<dyn SeriesBatches> = match sources.len() {
            0 => Box::new(VecBatches::new(Vec::new())),
            1 => sources.remove(0),
            _ => Box::new(MergedBatches::new(sources, DuplicatePolicy::LastWins, ctx.clone())?),
        };
        Ok(Box::new(TypedBatches::new(batches)))
    }

    fn label_names(
        &self,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let Selector { matchers, range } = *selector;
        self.0.label_query(LabelQuery::of_all(LabelList::Names, matchers, range, limit, ctx))
    }

    fn label_values(
        &self,
        name: &str,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let Selector { matchers, range } = *selector;
        let list = LabelList::Values(name.to_owned());
        self.0.label_query(LabelQuery::of_all(list, matchers, range, limit, ctx))
    }
}

/// Series whose samples have the type of the label of their kind.
pub(super) struct TypedBatches {
    batches: Box<dyn SeriesBatches>,
    batch: Vec<SeriesRead>,
}

impl TypedBatches {
    pub(super) fn new(batches: Box<dyn SeriesBatches>) -> TypedBatches {
        TypedBatches { batches, batch: Vec::new() }
    }
}

impl SeriesBatches for TypedBatches {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        let has_more = self.batches.next_batch(&mut self.batch);
        out.extend(self.batch.drain(..).map(|SeriesRead { labels, samples }| {
            let kind = WordKind::of(&labels);
            if kind == WordKind::Float {
                return SeriesRead { labels, samples };
            }
            let column_type = ColumnType::of_words(kind);
            SeriesRead { labels, samples: Box::new(TypedSource { words: samples, kind, column_type }) }
        }));
        has_more
    }
}
