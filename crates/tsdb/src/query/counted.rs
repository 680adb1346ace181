//! Count of the series of a query that reads blocks in the bucket (`query.max-fetched-series`).
//!
//! Invariant: a series counts once per selection, however many blocks have it.
//! Not here: bytes and chunks, which the selection of each block counts (`bucket`).

use chronolith_model::query::FetchLimit;
use chronolith_model::{QueryError, ReadContext, SeriesBatches, SeriesRead};

/// Returns `batches`, the series of all sources together, and counts their series in `ctx`.
pub(super) fn counted(batches: Box<dyn SeriesBatches>, ctx: &ReadContext) -> Box<dyn SeriesBatches> {
    Box::new(CountedBatches { batches, ctx: ctx.clone() })
}

struct CountedBatches {
    batches: Box<dyn SeriesBatches>,
    ctx: ReadContext,
}

impl SeriesBatches for CountedBatches {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        let before = out.len();
        let has_more = self.batches.next_batch(out)?;
        self.ctx.add_fetched(FetchLimit::Series, (out.len() - before) as u64)?;
        Ok(has_more)
    }
}
