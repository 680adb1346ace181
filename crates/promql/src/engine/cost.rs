//! Estimated cost of a query that is not run: series and samples that its selectors read, by Prometheus's
//! rules for `query_cost`.
//!
//! Invariants: series are counted, per selector; samples are extrapolated from the distance of samples in the
//! first series, of which at most [`DENSITY_SAMPLES_MAX`] samples are read. An estimate refuses nothing.
//! Not here: admission, which uses bounds that cost less (`admission`).

use chronolith_exec::plan::Plan;
use chronolith_exec::plan::estimate::PlannedSelection;
use chronolith_model::query::SelectRequest;
use chronolith_model::sample::is_stale;
use chronolith_model::{
    Columns, FloatHistogram, QueryError, Queryable, ReadContext, Selector, SeriesRead, TimeRange,
};

/// Series of a selector whose samples are read.
const SAMPLED_SERIES_MAX: usize = 50;
/// Samples of a selector that are read for their distance: 50 of Prometheus's chunks.
const DENSITY_SAMPLES_MAX: usize = 50 * 120;
/// Distance of samples where no series has two: Prometheus's default scrape interval.
const FALLBACK_INTERVAL_MS: i64 = 60_000;
/// Range before the end of a selector in which the size of samples is measured if it has many series.
const SIZE_RANGE_MS: i64 = 8 * FALLBACK_INTERVAL_MS;
/// Bytes of a histogram in Prometheus without spans, buckets and bounds.
const HISTOGRAM_BYTES: usize = 168;

/// Estimated cost of a query.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CostEstimate {
    /// Series, summed over selectors.
    pub series: u64,
    /// Samples, a histogram weighted by its size.
    pub samples: u64,
    /// Reasons why the estimate is incomplete.
    pub warnings: Vec<String>,
}

/// Estimates the cost of a plan.
///
/// # Errors
/// Errors of the source.
pub(super) fn estimate(
    plan: &Plan,
    source: &dyn Queryable,
    ctx: &ReadContext,
) -> Result<CostEstimate, QueryError> {
    let mut cost = CostEstimate::default();
    if plan.has_hidden_selection() {
        let why = "query cost estimate is incomplete: info() selects additional series at runtime";
        cost.warnings.push(why.to_owned());
    }
    for selection in plan.selections() {
        let (series, samples) = selection_cost(&selection, source, ctx)?;
        cost.series = cost.series.saturating_add(series);
        cost.samples = cost.samples.saturating_add(samples);
    }
    cost.warnings.extend_from_slice(ctx.warnings().texts());
    Ok(cost)
}

/// Series and samples of one selector.
fn selection_cost(
    selection: &PlannedSelection<'_>,
    source: &dyn Queryable,
    ctx: &ReadContext,
) -> Result<(u64, u64), QueryError> {
    let selector = Selector { matchers: selection.matchers, range: selection.range };
    let mut series = 0_u64;
    visit(source, SelectRequest::newest(&selector), ctx, |_| {
        series += 1;
        Ok(true)
    })?;
    if series == 0 || !selection.is_computed {
        return Ok((series, 0));
    }
    let mut sample = SeriesSample::default();
    visit(source, SelectRequest::new(&selector), ctx, |one| {
        sample.add(one, selector.range, selection.parts.stats_only)
    })?;
    if series > SAMPLED_SERIES_MAX as u64 {
        sample.sizes = Mean::default();
        let TimeRange { start, end } = selector.range;
        let range = TimeRange { start: start.max(end.saturating_sub(SIZE_RANGE_MS + 1)), end };
        let mut columns = Columns::default();
        let mut count = 0;
        visit(source, SelectRequest::new(&Selector { range, ..selector }), ctx, |one| {
            columns.clear();
            one.samples.read(range, &mut columns)?;
            sample.sizes.add(first_size(&columns, selection.parts.stats_only));
            count += 1;
            Ok(count < SAMPLED_SERIES_MAX)
        })?;
    }
    let mut samples = series.saturating_mul(per_series(selection, sample.interval_ms()));
    if selection.reads_windows
        && let Some(stored) = sample.whole.mean()
    {
        samples = samples.min(scaled(series, stored));
    }
    Ok((series, scaled(samples, sample.sizes.mean().unwrap_or(1.0))))
}

/// Visits series until `visit` returns false.
fn visit(
    source: &dyn Queryable,
    request: SelectRequest,
    ctx: &ReadContext,
    mut visit: impl FnMut(&SeriesRead) -> Result<bool, QueryError>,
) -> Result<(), QueryError> {
    let mut batches = source.open_series(request, ctx)?;
    let mut batch = Vec::new();
    loop {
        let has_more = batches.next_batch(&mut batch)?;
        ctx.check()?;
        for one in batch.drain(..) {
            if !visit(&one)? {
                return Ok(());
            }
        }
        if !has_more {
            return Ok(());
        }
    }
}

/// Samples that one series contributes: all of the first window, then the new ones of each step.
fn per_series(selection: &PlannedSelection<'_>, interval_ms: i64) -> u64 {
    let windows = &selection.windows;
    let mut steps = windows.grid.count as u64;
    if !selection.reads_windows {
        return steps;
    }
    // The window of a fixed time is read once.
    if windows.shift.fixed_ms.is_some() {
        steps = steps.min(1);
    }
    if interval_ms <= 0 {
        return 1;
    }
    let width_ms = windows.width_ms.saturating_add(windows.before_ms).saturating_add(windows.after_ms);
    let first = (width_ms.max(0) / interval_ms + 1) as u64;
    let per_step = (windows.grid.step_ms as f64 / interval_ms as f64).min(first as f64);
    first.saturating_add(scaled(steps.saturating_sub(1), per_step))
}

/// `count * factor`, rounded. A factor that is not positive is a failed measurement, and leaves the count.
fn scaled(count: u64, factor: f64) -> u64 {
    if factor > 0.0 { (count as f64 * factor).round() as u64 } else { count }
}

/// Sum and count of values that are known.
#[derive(Debug, Default)]
struct Mean {
    sum: f64,
    count: u64,
}

impl Mean {
    fn add(&mut self, value: Option<f64>) {
        self.sum += value.unwrap_or(0.0);
        self.count += u64::from(value.is_some());
    }

    fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// Measurements of the first series of a selector.
#[derive(Debug, Default)]
struct SeriesSample {
    columns: Columns,
    series_count: usize,
    sample_count: usize,
    gap_count: u64,
    /// Sum of the gaps.
    span_ms: f64,
    /// Samples of the series that were read as a whole.
    whole: Mean,
    sizes: Mean,
}

impl SeriesSample {
    /// Reads a series; false if no more are needed.
    fn add(&mut self, series: &SeriesRead, range: TimeRange, stats_only: bool) -> Result<bool, QueryError> {
        let left = DENSITY_SAMPLES_MAX - self.sample_count;
        let (part, is_whole) = sampled_range(series, range, left);
        self.columns.clear();
        series.samples.read(part, &mut self.columns)?;
        let times = &self.columns.times;
        if let (Some(first), Some(last)) = (times.first(), times.last()) {
            self.gap_count += times.len() as u64 - 1;
            self.span_ms += last.saturating_sub(*first) as f64;
        }
        self.whole.add((is_whole && !times.is_empty()).then_some(times.len() as f64));
        self.sizes.add(first_size(&self.columns, stats_only));
        self.series_count += 1;
        self.sample_count = self.sample_count.saturating_add(times.len()).min(DENSITY_SAMPLES_MAX);
        Ok(self.series_count < SAMPLED_SERIES_MAX && self.sample_count < DENSITY_SAMPLES_MAX)
    }

    fn interval_ms(&self) -> i64 {
        if self.gap_count > 0 && self.span_ms > 0.0 {
            (self.span_ms / self.gap_count as f64) as i64
        } else {
            FALLBACK_INTERVAL_MS
        }
    }
}

/// The beginning of `range` in which a series has about `sample_max` samples at most, and whether that is all
/// of it.
fn sampled_range(series: &SeriesRead, range: TimeRange, sample_max: usize) -> (TimeRange, bool) {
    let count = series.samples.sample_count_hint();
    if count <= sample_max {
        return (range, true);
    }
    let (first, last) = series.samples.time_bounds().unwrap_or((range.start, range.end));
    let start = first.max(range.start);
    let width_ms = last.min(range.end).saturating_sub(start).max(0);
    let part_ms = (width_ms as f64 * sample_max as f64 / count as f64) as i64;
    (TimeRange { start, end: start.saturating_add(part_ms).saturating_add(1).min(range.end) }, false)
}

/// Size of the first sample in Prometheus's units of 16 bytes; `None` without one.
fn first_size(columns: &Columns, stats_only: bool) -> Option<f64> {
    columns.values.first().filter(|value| !is_stale(**value))?;
    let Some(histogram) = columns.histogram_at(0) else { return Some(1.0) };
    let elements = if stats_only { 0 } else { element_count(&histogram.to_float()) };
    Some(((HISTOGRAM_BYTES + 8 * elements + 8) / 16) as f64)
}

/// Spans, buckets and bounds, of 8 bytes each.
fn element_count(histogram: &FloatHistogram) -> usize {
    let sides = [&histogram.positive, &histogram.negative];
    let buckets: usize = sides.iter().map(|side| side.spans.len() + side.counts.len()).sum();
    buckets + histogram.custom_values.len()
}
