//! Points of selected series, read by several threads if there are many samples.
//!
//! Invariants: points are in the order of the series, whichever thread read them; memory is reserved
//! before it is used.
//! Not here: which series and archives (`source`), points of an archive (`archive`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use chronolith_base::Reservation;
use chronolith_graphite::storage::FetchRequest;
use chronolith_model::{Columns, QueryError, ReadContext, SampleSource, TimeRange};

use super::archive::{Choice, PointCounts, PointReader};

/// Points whose gaps determine the step.
const STEP_POINTS: usize = 100;
/// Step of a series whose points do not determine one, in seconds.
pub(super) const STEP_DEFAULT_S: i64 = 60;
/// Series that a thread takes at a time.
const MORSEL_SERIES: usize = 8;
/// Fewer samples are read by the calling thread: starting others takes a tenth of that time.
const PARALLEL_SAMPLES_MIN: usize = 100_000;

/// A selected series whose points are not read.
pub(super) struct WaitingSeries<'a> {
    pub(super) name: String,
    pub(super) tags: BTreeMap<String, String>,
    /// Archive that it is read from, if a schema applies.
    pub(super) choice: Option<Choice<'a>>,
    pub(super) samples: Box<dyn SampleSource>,
}

/// Settings of a read of the points of each series.
pub(super) struct PointsRead<'a> {
    pub(super) request: &'a FetchRequest,
    /// Range of the samples of a series without an archive.
    pub(super) range: TimeRange,
    pub(super) ctx: &'a ReadContext,
}

impl PointsRead<'_> {
    /// Reads the points of all series, with the memory that they hold.
    pub(super) fn run(
        &self,
        series: &[WaitingSeries<'_>],
    ) -> Result<(Vec<Points>, Vec<Reservation>), QueryError> {
        let sample_count: usize = series.iter().map(|one| one.samples.sample_count_hint()).sum();
        let thread_max =
            if sample_count < PARALLEL_SAMPLES_MIN { 1 } else { series.len().div_ceil(MORSEL_SERIES) };
        let next = AtomicUsize::new(0);
        let work = || self.read_morsels(series, &next);
        let mut points = Vec::with_capacity(series.len());
        let mut reservations = Vec::new();
        while points.len() < series.len() {
            self.ctx.yield_point()?;
            for part in self.ctx.run_in_parallel(thread_max.saturating_sub(1), work) {
                let (of_part, held) = part?;
                points.extend(of_part);
                reservations.push(held);
            }
        }
        points.sort_unstable_by_key(|(idx, _)| *idx);
        Ok((points.into_iter().map(|(_, points)| points).collect(), reservations))
    }

    /// Reads series until none is left or the time slice of the query is over; each has its index.
    fn read_morsels(
        &self,
        series: &[WaitingSeries<'_>],
        next: &AtomicUsize,
    ) -> Result<(Vec<(usize, Points)>, Reservation), QueryError> {
        let mut held = self.ctx.budget.reserve(0)?;
        let mut reader = PointReader::new(self.ctx.budget.reserve(0)?);
        let mut points = Vec::new();
        loop {
            let first = next.fetch_add(MORSEL_SERIES, Ordering::Relaxed);
            let morsel = series.iter().enumerate().skip(first).take(MORSEL_SERIES);
            if first >= series.len() {
                return Ok((points, held));
            }
            self.ctx.check()?;
            for (idx, one) in morsel {
                points.push((idx, self.read_one(one, &mut reader, &mut held)?));
            }
            if self.ctx.is_slice_over() {
                return Ok((points, held));
            }
        }
    }

    /// Reads the points of a series from an archive, or as they are.
    fn read_one(
        &self,
        series: &WaitingSeries<'_>,
        reader: &mut PointReader,
        held: &mut Reservation,
    ) -> Result<Points, QueryError> {
        let WaitingSeries { choice, samples, .. } = series;
        if let Some(Choice { archive, .. }) = choice {
            let grid = Grid::new(archive.from_s, archive.until_s, archive.step_s);
            let mut values = empty_values(&grid, held)?;
            let counts = reader.read_archive(archive, &**samples, grid.start, &mut values)?;
            return Ok(Points { grid, values: Arc::new(values), counts });
        }
        reader.read_samples(&**samples, self.range)?;
        let step = step_of(&reader.samples, self.request.until.saturating_add(1).saturating_mul(1000));
        let grid = Grid::new(self.request.from, self.request.until, step);
        let mut values = empty_values(&grid, held)?;
        fill_steps(&grid, &reader.samples, &mut values);
        let counts = PointCounts { rolled_up: 0, samples: reader.samples.len() };
        Ok(Points { grid, values: Arc::new(values), counts })
    }
}

fn empty_values(grid: &Grid, held: &mut Reservation) -> Result<Vec<f64>, QueryError> {
    held.grow((grid.count * size_of::<f64>()) as u64)?;
    Ok(vec![f64::NAN; grid.count])
}

/// Interval of a series by its last points before `end_ms`, in seconds.
///
/// Points that are missing make gaps of several intervals, which may be more frequent than the interval
/// itself. So the interval is taken from the gaps close to the shortest common one, if most gaps are
/// multiples of it, and else is their greatest common divisor: too long a step loses points, too short a one
/// shows empty points.
pub(super) fn step_of(columns: &Columns, end_ms: i64) -> i64 {
    let end = columns.times.partition_point(|time| *time < end_ms);
    let start = end.saturating_sub(STEP_POINTS);
    let last = columns.times.get(start..end).unwrap_or(&[]);
    let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
    for pair in last.windows(2) {
        let [before, after] = pair else { continue };
        *counts.entry(((after - before + 500) / 1000).max(1)).or_default() += 1;
    }
    let gap_count: usize = counts.values().sum();
    let common_count = gap_count.div_ceil(RARE_GAP_SHARE);
    let Some((shortest, _)) = counts.iter().find(|(_, count)| **count >= common_count) else {
        return STEP_DEFAULT_S;
    };
    let interval = center_of(counts.range(*shortest..=shortest + shortest / 2));
    let tolerance = (interval / JITTER_SHARE).max(1);
    let is_multiple = |gap: i64| {
        let rest = gap % interval;
        rest.min(interval - rest) <= tolerance
    };
    let multiples: usize = counts.iter().filter(|(gap, _)| is_multiple(**gap)).map(|(_, count)| count).sum();
    if interval < SHORT_INTERVAL_S || multiples * MULTIPLES_SHARE.1 >= gap_count * MULTIPLES_SHARE.0 {
        return interval;
    }
    let divisor = counts.keys().copied().reduce(greatest_common_divisor).unwrap_or(interval);
    // Irregular points have no common divisor.
    if divisor > 1 { divisor } else { interval }
}

/// The gap that most of the gaps are, or else their mean: jitter makes them longer and shorter.
fn center_of<'a>(gaps: impl Iterator<Item = (&'a i64, &'a usize)> + Clone) -> i64 {
    let total: usize = gaps.clone().map(|(_, count)| count).sum();
    let frequent = gaps.clone().find(|(_, count)| **count * 2 > total);
    let sum: i64 = gaps.map(|(gap, count)| gap.saturating_mul(*count as i64)).sum();
    let mean = sum as f64 / total.max(1) as f64;
    frequent.map_or(mean.round() as i64, |(gap, _)| *gap).max(1)
}

/// Divisor of the number of gaps: a rarer gap does not determine the interval.
const RARE_GAP_SHARE: usize = 20;
/// Jitter of an interval, as a divisor of it.
const JITTER_SHARE: i64 = 10;
/// Intervals below have no multiples that differ from jitter.
const SHORT_INTERVAL_S: i64 = 3;
/// Share of gaps that are multiples of an interval.
const MULTIPLES_SHARE: (usize, usize) = (9, 10);

fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// Steps of an answer: from the one after the step of `from` up to the step of `until`, as whisper has them.
pub(super) struct Grid {
    pub(super) start: i64,
    pub(super) step: i64,
    pub(super) count: usize,
}

impl Grid {
    pub(super) fn new(from: i64, until: i64, step: i64) -> Grid {
        let start = from - from.rem_euclid(step) + step;
        let end = until - until.rem_euclid(step) + step;
        let count = usize::try_from((end - start) / step).unwrap_or(0).max(1);
        Grid { start, step, count }
    }

    pub(super) fn end(&self) -> i64 {
        self.start + self.step * self.count as i64
    }
}

/// Points of a series in a range.
pub(super) struct Points {
    pub(super) grid: Grid,
    pub(super) values: Arc<Vec<f64>>,
    pub(super) counts: PointCounts,
}

/// Fills `values` with the last point of each step.
pub(super) fn fill_steps(grid: &Grid, columns: &Columns, values: &mut [f64]) {
    let first = columns.times.partition_point(|time| *time < grid.start.saturating_mul(1000));
    for (time, value) in columns.times.iter().zip(&columns.values).skip(first) {
        let idx = (time.div_euclid(1000) - grid.start).div_euclid(grid.step);
        let Some(slot) = usize::try_from(idx).ok().and_then(|idx| values.get_mut(idx)) else { break };
        // Staleness markers of other protocols are no values.
        if !value.is_nan() {
            *slot = *value;
        }
    }
}

#[cfg(test)]
mod tests;
