//! Resolution reduction: merges adjacent buckets to a coarser schema.
//! Invariants: counts are added in index order; compensations (see `arith`) are added with compensation, too.

use super::buckets::{Buckets, Count};
use super::fault::{self, HistogramError};
use super::kahan::kahan_add;
use super::schema::SCHEMA_MAX_RESERVED;
use super::sparse::HistogramOf;
use super::validate::check_spans;

/// Returns the index of bucket `idx` in a schema that is coarser by `steps`.
pub(super) fn coarser_idx(idx: i32, steps: u32) -> i32 {
    // At least one step halves the distance to zero, so the result fits; no step gives the index itself.
    (((i64::from(idx) - 1) >> steps.min(63)) + 1) as i32
}

impl<C: Count> Buckets<C> {
    /// Returns the same observations in buckets of a schema that is coarser by `steps`.
    pub(super) fn coarser(&self, steps: u32) -> Buckets<C> {
        let (mut out, mut last) = (Buckets::default(), None);
        for (idx, count) in self.walk() {
            let idx = coarser_idx(idx, steps);
            match out.counts.last_mut() {
                Some(sum) if last == Some(idx) => *sum += count,
                _ => out.push(last, idx, count),
            }
            last = Some(idx);
        }
        out
    }
}

impl Buckets<f64> {
    /// As [`Buckets::coarser`], with the compensation of each count.
    pub(super) fn coarser_compensated(&self, compensation: &[f64], steps: u32) -> (Buckets<f64>, Vec<f64>) {
        let (mut out, mut rests, mut last) = (Buckets::default(), Vec::new(), None);
        for ((idx, count), &rest) in self.walk().zip(compensation) {
            let idx = coarser_idx(idx, steps);
            match (out.counts.last_mut(), rests.last_mut()) {
                (Some(sum), Some(sum_rest)) if last == Some(idx) => {
                    (*sum, *sum_rest) = kahan_add(count, *sum, *sum_rest);
                    (*sum, *sum_rest) = kahan_add(rest, *sum, *sum_rest);
                }
                _ => {
                    out.push(last, idx, count);
                    rests.push(rest);
                }
            }
            last = Some(idx);
        }
        (out, rests)
    }
}

/// Merges buckets down to `schema`, if that is coarser than the histogram's.
pub(super) fn reduce<C: Count>(histogram: &mut HistogramOf<C>, schema: i32) -> Result<(), HistogramError> {
    if histogram.is_custom() || histogram.schema > SCHEMA_MAX_RESERVED {
        return Err(fault::reduce_custom());
    }
    let Ok(steps) = u32::try_from(histogram.schema.saturating_sub(schema)) else { return Ok(()) };
    if steps == 0 {
        return Ok(());
    }
    for side in [&mut histogram.positive, &mut histogram.negative] {
        check_spans(&side.spans, side.counts.len())?;
        *side = side.coarser(steps);
    }
    histogram.schema = schema;
    Ok(())
}
