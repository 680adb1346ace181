//! Queries of the store of a retention policy over the bucket alone, for languages with types.
//!
//! Invariants: the label of a series determines its kind; all blocks of a query are fetched at the same time.
//! Not here: head and local blocks (`typed`), the view of PromQL (`bucket`).

use chronolith_model::query::{ColumnType, Opened, Read, Source, Wanted, map_series, visit_listed};
use chronolith_model::{DuplicatePolicy, QueryError, ReadContext, SeriesBatches, SeriesRead, WordKind};

use super::blocks::LabelQuery;
use super::merged::MergedBatches;
use super::words::TypedSource;
use crate::bucket::folder_source::FolderSource;

/// Blocks of the store of a retention policy that are in the bucket, with types.
pub(crate) struct TypedBucket(pub(crate) FolderSource);

impl Source for TypedBucket {
    fn open(&self, read: Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        let Read { request, wanted } = read;
        match wanted {
            Wanted::Series => {
                ctx.begin_wait()?;
                // Each selection starts to fetch at once; only the merge waits.
                let blocks = self.0.blocks_in(request.range, ctx)?;
                let selector = request.selector();
                let sources = blocks.iter().map(|block| block.select(&selector, ctx)).collect();
                let batches = MergedBatches::of_all(sources, DuplicatePolicy::LastWins, ctx);
                Ok(Opened::Series(request.filter(typed(batches))))
            }
            Wanted::Estimate => Ok(Opened::Estimate(None)),
            Wanted::LabelNames | Wanted::LabelValues { .. } => {
                LabelQuery::of_all(Read { request, wanted }, ctx).start_in(&self.0).map(Opened::List)
            }
            Wanted::EachLabelValue { name, prefix } => visit_listed(self, request, name, prefix, ctx),
            Wanted::SoleLabelValues { .. } => Ok(Opened::Cursor(None)),
        }
    }
}

/// Returns `batches` with samples of the type of the label of their kind.
pub(super) fn typed(batches: Box<dyn SeriesBatches>) -> Box<dyn SeriesBatches> {
    map_series(batches, |SeriesRead { labels, samples }| {
        let kind = WordKind::of(&labels);
        if kind == WordKind::Float {
            return SeriesRead { labels, samples };
        }
        let column_type = ColumnType::of_words(kind);
        SeriesRead { labels, samples: Box::new(TypedSource { words: samples, kind, column_type }) }
    })
}
