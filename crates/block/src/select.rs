//! Selection from a block whose source blocks: each wave is read when it is due.
//!
//! Invariant: of a map no chunk is touched before samples are read.
//! Not here: the waves and the use of their bytes (`selection`).

use std::sync::Arc;

use chronolith_model::query::{ReadEstimate, VecBatches};
use chronolith_model::{QueryError, ReadContext, Selector, SeriesBatches, SeriesRead};

use crate::contents::BlockContents;
use crate::postings::select_refs;
use crate::selection::Selection;

/// Series that fit all matchers and may have samples in the range.
pub(crate) fn select(
    contents: &Arc<BlockContents>,
    selector: &Selector<'_>,
    ctx: &ReadContext,
) -> Result<Box<dyn SeriesBatches>, QueryError> {
    if !selector.range.overlaps(contents.range()) {
        return Ok(Box::new(VecBatches::new(Vec::new())));
    }
    ctx.check()?;
    let refs = select_refs(contents, selector.matchers, &ctx.budget)?;
    Ok(Box::new(BlockBatches { selection: Selection::new(contents, refs, selector.range, ctx)? }))
}

/// Estimates the series that fit and their samples in the range: as many as the average series has, evenly
/// over the block. Cost: postings.
pub(crate) fn estimate(
    contents: &BlockContents,
    selector: &Selector<'_>,
    ctx: &ReadContext,
) -> Result<ReadEstimate, QueryError> {
    let (whole, stats) = (contents.range(), &contents.meta().stats);
    let width_ms = |start: i64, end: i64| end.saturating_sub(start).max(0);
    let start = selector.range.start.max(whole.start);
    let end = selector.range.end.min(whole.end);
    let part = width_ms(start, end) as f64 / width_ms(whole.start, whole.end).max(1) as f64;
    if part <= 0.0 {
        return Ok(ReadEstimate::default());
    }
    let series = match selector.matchers {
        [] => stats.num_series,
        matchers => select_refs(contents, matchers, &ctx.budget)?.len() as u64,
    };
    let of_series = series as f64 / stats.num_series.max(1) as f64;
    Ok(ReadEstimate { series, samples: (stats.num_samples as f64 * part * of_series) as u64 })
}

/// Selected series of a block, batch by batch.
struct BlockBatches {
    selection: Selection,
}

impl SeriesBatches for BlockBatches {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        let contents = self.selection.contents().clone();
        let series_count_before = out.len();
        while out.len() == series_count_before {
            let Some(wave) = self.selection.next_wave() else { return Ok(false) };
            let bytes = contents.read(&*wave, self.selection.budget());
            drop(wave);
            self.selection.push(bytes, out)?;
        }
        Ok(!self.selection.is_done())
    }
}
