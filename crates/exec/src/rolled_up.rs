//! Functions of range selectors over roll-ups of a series, where the result equals the result over all
//! samples to the last bit.
//!
//! A roll-up window within every range that touches it takes part as one value, or as the first and the
//! last of a counter. The samples of the others are read: windows at an end of a range, those in which a
//! counter was reset, and those that the source has no roll-up of.
//!
//! Invariants: a value of a window has the time of its start, which is in the same ranges as all its samples;
//! sums are used if every order of addition has the same result; the first and the last sample of a range
//! whose growth is computed are samples.
//! Not here: content of a window (`model::rollup`), storage of roll-ups (the source).

mod condensed;
mod kind;

use chronolith_model::query::SeriesRead;
use chronolith_model::rollup::{RollupArchive, RollupRead};

use crate::column::{StepSeries, is_absent};
use crate::error::Error;
use crate::grid::Windows;
use crate::rollup::{Rollup, RollupBuffer};
use crate::window::{RangeFn, RangeScratch};
use condensed::{Condensed, Cuts};
pub(crate) use kind::RolledUpFn;

/// Fewer samples are read without a look at roll-ups.
const SAMPLES_MIN: usize = 1000;
/// Least ratio of values read without roll-ups to values read with them for which roll-ups are used.
const SAVING_MIN: f64 = 2.0;

/// Memory that is reused from series to series.
#[derive(Default)]
pub(crate) struct RolledUpScratch {
    archives: Vec<RollupArchive>,
    cuts: Cuts,
    condensed: Condensed,
    counts: Vec<f64>,
}

impl RolledUpScratch {
    /// Samples and windows that the last series took.
    pub(crate) fn value_count(&self) -> u64 {
        self.condensed.samples.len() as u64
    }
}

/// Computes a function of a series from roll-ups; returns whether any step has a value, or `None` if all
/// samples are to be read. Cost: the windows, and the samples at the ends of ranges.
///
/// # Errors
/// Errors of the source, cancellation and deadline.
pub(crate) fn apply(
    kind: RolledUpFn,
    function: &RangeFn<'_>,
    series: &SeriesRead,
    scratch: &mut RolledUpScratch,
    range_scratch: &mut RangeScratch,
    out: &mut StepSeries,
) -> Result<Option<bool>, Error> {
    scratch.archives.clear();
    series.samples.rollup_archives(&mut scratch.archives);
    let Some(archive) = chosen(kind, &function.windows, series, &scratch.archives) else { return Ok(None) };
    let windows = &function.windows;
    let mut read = RollupRead::new(archive.methods);
    series.samples.read_rollup(&archive, archive.widened(windows.read_range()), &mut read)?;
    let read = RollupRead::merged(&archive, vec![read]);
    if !read.facts.has_every_sample || read.windows.is_empty() {
        return Ok(None);
    }
    scratch.cuts.set(&archive, windows, kind);
    let condensed = &mut scratch.condensed;
    if !condensed.fill(kind, &archive, read, &scratch.cuts, windows, &*series.samples)? {
        return Ok(None);
    }
    out.clear_steps();
    let buffer = range_scratch.buffer();
    let Some(any) = roll(kind, function, condensed, buffer, &mut scratch.counts, &mut out.values)? else {
        return Ok(None);
    };
    function.execution.trace.count_rolled_up(archive.span_ms(), condensed.window_count);
    if !any {
        return Ok(Some(false));
    }
    function.finish(&series.labels, false, range_scratch, out);
    Ok(Some(true))
}

/// Returns the archive that takes the fewest values; `None` if none spares enough samples.
fn chosen(
    kind: RolledUpFn,
    windows: &Windows,
    series: &SeriesRead,
    archives: &[RollupArchive],
) -> Option<RollupArchive> {
    if archives.is_empty() {
        return None;
    }
    let sample_count = series.samples.sample_count_hint();
    let all = windows.read_range();
    let (first, last) = series.samples.time_bounds().unwrap_or((all.start, all.end));
    let range_ms = last.min(all.end).saturating_sub(first.max(all.start)).max(1) as f64;
    if sample_count < SAMPLES_MIN {
        return None;
    }
    let end_count = 2.0 * windows.grid.count as f64;
    let cost = |archive: &RollupArchive| {
        let span_ms = archive.span_ms() as f64;
        let read_part = end_count * span_ms * kind.windows_per_end() as f64 / range_ms;
        read_part * sample_count as f64 + range_ms / span_ms * archive.methods.len() as f64
    };
    let kept = archives
        .iter()
        .filter_map(|archive| kind.methods(archive.methods).map(|methods| archive.with_methods(methods)));
    let least = kept.min_by(|a, b| cost(a).total_cmp(&cost(b)))?;
    (cost(&least) * SAVING_MIN < sample_count as f64).then_some(least)
}

/// Appends one value per window; `None` if the result may differ from the result over all samples.
fn roll(
    kind: RolledUpFn,
    function: &RangeFn<'_>,
    condensed: &Condensed,
    buffer: &mut RollupBuffer,
    counts: &mut Vec<f64>,
    out: &mut Vec<f64>,
) -> Result<Option<bool>, Error> {
    let windows = &function.windows;
    let ctx = function.execution.ctx;
    let any = match kind {
        RolledUpFn::Pick(_) => function.rollup.roll(&condensed.samples, windows, ctx, buffer, out)?,
        RolledUpFn::Count | RolledUpFn::Sum => {
            Rollup::Sum.roll(&condensed.samples, windows, ctx, buffer, out)?
        }
        RolledUpFn::Average => {
            let any = Rollup::Sum.roll(&condensed.samples, windows, ctx, buffer, out)?;
            counts.clear();
            condensed.roll_counts(windows, ctx, counts)?;
            for (value, count) in out.iter_mut().zip(&*counts).filter(|(value, _)| !is_absent(**value)) {
                *value /= count;
            }
            any
        }
        RolledUpFn::Growth(extrapolation) => {
            return Ok(condensed.roll_growth(windows, ctx, extrapolation, buffer, out)?);
        }
    };
    Ok(Some(any))
}

#[cfg(test)]
mod tests;
