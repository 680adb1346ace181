//! Scan: selectors, and functions of range selectors fused with reading the samples.
//! Invariants: series are in the order of the source, whether one thread computes them or several. Free
//! threads share a batch by morsels if it has enough samples to pay for starting them.
//! Not here: functions of subqueries (`window`).

use std::iter::Peekable;
use std::sync::atomic::{AtomicUsize, Ordering};

use chronolith_model::query::{SampleNeed, SelectRequest};
use chronolith_model::{Matcher, Selector, SeriesBatches, SeriesRead};

use crate::column::{ABSENT, StepSeries};
use crate::error::Error;
use crate::execution::{Execution, OperatorMemory};
use crate::grid::Windows;
use crate::grouping::Grouping;
use crate::histogram::growth::RangeNotes;
use crate::operator::SeriesOperator;
use crate::position::Origin;
use crate::rolled_up::{self, RolledUpFn, RolledUpScratch};
use crate::rollup::extended;
use crate::samples::{RangeSamples, SampleParts};
use crate::select::{InstantField, latest, latest_idx, latest_mixed};
use crate::window::{RangeFn, RangeScratch, emit_notes};

/// Fewer samples are computed by the calling thread: starting threads takes a tenth of that time.
const PARALLEL_SAMPLES_MIN: usize = 100_000;
/// Batches are joined until they have as many samples, so that threads are started rarely.
const PARALLEL_SAMPLES_WANTED: usize = 1_000_000;
/// But at most to as many result values, which are kept until they are pulled.
const PARALLEL_VALUES_MAX: usize = 2_000_000;
/// Series per morsel: few enough that all threads end together, many enough to avoid contention.
const MORSEL_SERIES_COUNT: usize = 16;

/// Samples between two checks for cancellation.
const SAMPLES_BETWEEN_CHECKS: u64 = 4096;

/// A time and a value.
const SAMPLE_BYTES: usize = size_of::<i64>() + size_of::<f64>();

/// Function of the samples of a series.
pub enum ScanFn<'q> {
    /// The latest sample of each window.
    Instant(InstantField),
    /// A value interpolated between the samples around each step; notes have this origin.
    Smoothed(Origin),
    /// A rollup.
    Range(RangeFn<'q>),
}

/// Operator directly above a scan, for the source.
#[derive(Clone, Copy, Default)]
pub struct ScanReader<'a> {
    /// Name of the operator; empty if there is none, or several.
    pub function: &'a str,
    /// Grouping, if it is an aggregation.
    pub grouping: Option<&'a Grouping<'a>>,
    /// True if it only counts the series of its groups: presence of values is then exact, values and other
    /// labels are not.
    pub presence_only: bool,
    /// Grouping of an aggregation that reads the results of the scan, if no other labels of them are read.
    pub projection: Option<&'a Grouping<'a>>,
}

/// Memory that a thread reuses from series to series.
#[derive(Default)]
struct Scratch {
    samples: RangeSamples,
    range: RangeScratch,
    rolled_up: RolledUpScratch,
    /// Series and samples read since the last check.
    series_count: usize,
    read_count: u64,
}

impl Scratch {
    /// Counts a series as read, and finishes a part once in a while; returns true then.
    // PERF: reading the clock for each series takes a tenth of the time of `count by (job) (x)`.
    fn finish_series(&mut self, execution: &Execution<'_>) -> Result<bool, Error> {
        self.series_count += 1;
        if self.series_count < MORSEL_SERIES_COUNT && self.read_count < SAMPLES_BETWEEN_CHECKS {
            return Ok(false);
        }
        self.finish_part(execution)?;
        Ok(true)
    }

    /// Counts the samples read since the last call, and checks for cancellation.
    fn finish_part(&mut self, execution: &Execution<'_>) -> Result<(), Error> {
        self.series_count = 0;
        execution.trace.count_read(std::mem::take(&mut self.read_count));
        Ok(execution.ctx.check()?)
    }
}

/// Results of several threads, merged by the index of their series.
#[derive(Default)]
struct Computed {
    /// Series of each thread, ascending.
    parts: Vec<Peekable<std::vec::IntoIter<(usize, StepSeries)>>>,
}

impl Iterator for Computed {
    type Item = StepSeries;

    fn next(&mut self) -> Option<StepSeries> {
        let idx =
            |part: &mut Peekable<std::vec::IntoIter<(usize, StepSeries)>>| part.peek().map(|(at, _)| *at);
        let firsts = self.parts.iter_mut().filter_map(|part| Some((idx(part)?, part)));
        let (_, part) = firsts.min_by_key(|(at, _)| *at)?;
        part.next().map(|(_, series)| series)
    }
}

/// A selector and the function of its samples.
pub struct Scan<'q> {
    execution: &'q Execution<'q>,
    windows: Windows,
    parts: SampleParts,
    function: ScanFn<'q>,
    batches: Box<dyn SeriesBatches + 'q>,
    more: bool,
    /// Series of the batch that are still to be computed.
    batch: std::vec::IntoIter<SeriesRead>,
    /// Series that other threads have computed.
    computed: Computed,
    scratch: Scratch,
    memory: OperatorMemory<'q>,
}

impl<'q> Scan<'q> {
    /// Selects for `reader`; samples are read when series are pulled.
    ///
    /// # Errors
    /// Errors of the source.
    pub fn new(
        execution: &'q Execution<'q>,
        matchers: &'q [Matcher],
        windows: Windows,
        parts: SampleParts,
        function: ScanFn<'q>,
        reader: ScanReader<'_>,
    ) -> Result<Scan<'q>, Error> {
        // The groups of several steps would have to be ordered by their first series with a value in any
        // step.
        let keeps_order = |grouping: &Grouping<'_>| grouping.is_one() || windows.grid.count == 1;
        let presence_only = reader.presence_only && reader.grouping.is_some_and(keeps_order);
        // Resets of histograms may depend on the sample before.
        let newest_is_enough = windows.grid.count == 1
            && (!parts.stats_only || presence_only)
            && matches!(function, ScanFn::Instant(InstantField::Value | InstantField::Time));
        // Ranges that do not end with a window take samples at each step, so no roll-ups are asked for.
        let selector = Selector { matchers, range: windows.read_range() };
        let request = SelectRequest {
            samples: if newest_is_enough { SampleNeed::Newest } else { SampleNeed::All },
            presence_only,
            function: reader.function.into(),
            grouping: reader.grouping.map(Grouping::projection),
            projection: reader.projection.map(Grouping::projection_read),
            step_ms: windows.hinted_step_ms(),
            range_ms: if matches!(function, ScanFn::Range(_)) { windows.width_ms } else { 0 },
            ..SelectRequest::new(&selector)
        };
        let batches = execution.select(request)?;
        Ok(Scan {
            execution,
            windows,
            parts,
            function,
            batches,
            more: true,
            batch: Vec::new().into_iter(),
            computed: Computed::default(),
            scratch: Scratch::default(),
            memory: execution.operator_memory(),
        })
    }

    /// Reads the next batch, and computes it if that takes several threads; returns false at the end.
    fn fill(&mut self) -> Result<bool, Error> {
        self.scratch.finish_part(self.execution)?;
        self.execution.ctx.yield_point()?;
        if !self.more {
            return Ok(false);
        }
        let mut batch = Vec::new();
        self.take_batch(&mut batch)?;
        if self.execution.settings.threads == 1 {
            self.batch = batch.into_iter();
            return Ok(true);
        }
        let count_samples = |batch: &[SeriesRead]| {
            batch.iter().map(|series| series.samples.sample_count_hint()).sum::<usize>()
        };
        let mut samples = count_samples(&batch);
        // One sample per series: handing series to threads, and results back, takes longer than computing
        // them.
        if samples <= batch.len() {
            self.batch = batch.into_iter();
            return Ok(true);
        }
        let step_count = self.windows.grid.count;
        let values = |batch: &[SeriesRead]| batch.len().saturating_mul(step_count);
        while self.more && samples < PARALLEL_SAMPLES_WANTED && values(&batch) < PARALLEL_VALUES_MAX {
            let counted = batch.len();
            self.take_batch(&mut batch)?;
            samples += count_samples(&batch[counted..]);
        }
        if samples >= PARALLEL_SAMPLES_MIN {
            self.computed = self.compute_batch(&batch)?;
        } else {
            self.batch = batch.into_iter();
        }
        Ok(true)
    }

    fn take_batch(&mut self, batch: &mut Vec<SeriesRead>) -> Result<(), Error> {
        let first = batch.len();
        self.more = self.batches.next_batch(batch)?;
        self.execution.trace.count_selected(&batch[first..]);
        Ok(())
    }

    fn compute_batch(&mut self, batch: &[SeriesRead]) -> Result<Computed, Error> {
        let count = batch.len() as u64;
        self.memory.raise_to(0, count.saturating_mul(self.windows.grid.column_bytes()))?;
        let execution = self.execution;
        let work_of = Work { execution, windows: self.windows, parts: self.parts, function: &self.function };
        let next = AtomicUsize::new(0);
        let work = || compute_morsels(&work_of, batch, &next);
        let thread_max = execution.settings.threads.min(batch.len().div_ceil(MORSEL_SERIES_COUNT));
        let mut computed = Computed::default();
        loop {
            for part in execution.spare_threads.run(thread_max, work) {
                computed.parts.push(part?.into_iter().peekable());
            }
            if next.load(Ordering::Relaxed) >= batch.len() {
                return Ok(computed);
            }
            execution.ctx.yield_point()?;
        }
    }
}

impl SeriesOperator for Scan<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, Error> {
        loop {
            if let Some(series) = self.computed.next() {
                *out = series;
                return Ok(true);
            }
            for series in self.batch.by_ref() {
                // Memory is reserved before reading, so that one huge series cannot exceed the budget.
                let bytes = series.samples.sample_count_hint().saturating_mul(SAMPLE_BYTES);
                self.memory.raise_to(0, bytes as u64)?;
                let work = Work {
                    execution: self.execution,
                    windows: self.windows,
                    parts: self.parts,
                    function: &self.function,
                };
                let any = compute(&work, &series, &mut self.scratch, out)?;
                if self.scratch.finish_series(self.execution)? {
                    self.execution.ctx.yield_point()?;
                }
                let samples = &self.scratch.samples;
                self.memory.raise_to(samples.sample_count(), samples.heap_bytes())?;
                if any {
                    return Ok(true);
                }
            }
            if !self.fill()? {
                return Ok(false);
            }
        }
    }
}

/// Computation of a scan, for the threads that run it.
struct Work<'w, 'q> {
    execution: &'w Execution<'q>,
    windows: Windows,
    parts: SampleParts,
    function: &'w ScanFn<'q>,
}

/// Takes morsels of `batch` until none is left or the time slice of the query is over; results carry their
/// index in the batch.
fn compute_morsels(
    work: &Work<'_, '_>,
    batch: &[SeriesRead],
    next: &AtomicUsize,
) -> Result<Vec<(usize, StepSeries)>, Error> {
    let (mut results, mut scratch) = (Vec::new(), Scratch::default());
    loop {
        let start = next.fetch_add(MORSEL_SERIES_COUNT, Ordering::Relaxed);
        if start >= batch.len() {
            scratch.finish_part(work.execution)?;
            return Ok(results);
        }
        let end = batch.len().min(start + MORSEL_SERIES_COUNT);
        batch[start..end].iter().for_each(|series| series.samples.prefetch());
        for (at, series) in batch.iter().enumerate().take(end).skip(start) {
            let mut out = StepSeries::default();
            if compute(work, series, &mut scratch, &mut out)? {
                results.push((at, out));
            }
            scratch.finish_series(work.execution)?;
        }
        if work.execution.ctx.is_slice_over() {
            scratch.finish_part(work.execution)?;
            return Ok(results);
        }
    }
}

/// Reads a series and computes all its steps; returns false if none has a value.
fn compute(
    work: &Work<'_, '_>,
    series: &SeriesRead,
    scratch: &mut Scratch,
    out: &mut StepSeries,
) -> Result<bool, Error> {
    let Work { execution, windows, parts, function } = work;
    if let ScanFn::Range(function) = function
        && let Some(kind) = RolledUpFn::of(function)
    {
        let Scratch { rolled_up, range, .. } = scratch;
        if let Some(any) = rolled_up::apply(kind, function, series, rolled_up, range, out)? {
            scratch.read_count += scratch.rolled_up.value_count();
            return Ok(any);
        }
    }
    let samples = &mut scratch.samples;
    samples.clear();
    series.samples.read(windows.read_range(), &mut samples.floats)?;
    scratch.read_count += samples.floats.len() as u64;
    if let ScanFn::Range(function) = function {
        samples.split(*parts);
        execution.trace.tally_read(windows, &samples.floats.times);
        execution.trace.tally_read(windows, &samples.histograms.times);
        execution.trace.tally_windows(windows, &samples.floats.times);
        execution.trace.tally_windows(windows, &samples.histograms.times);
        return function.apply(&series.labels, false, samples, &mut scratch.range, out);
    }
    out.clear_steps();
    out.labels = series.labels.clone();
    out.drop_name = false;
    let columns = &samples.floats;
    let any = match function {
        ScanFn::Smoothed(origin) => {
            samples.split(*parts);
            let mut notes = RangeNotes::default();
            let any = extended::smooth(samples, windows, execution.ctx, out, &mut notes)?;
            emit_notes(execution, notes, series.labels.metric_name().unwrap_or(""), *origin, *origin);
            any
        }
        ScanFn::Instant(InstantField::Time) => {
            latest(columns, windows, &mut out.values, |time, _| time as f64 / 1000.0)
        }
        ScanFn::Instant(InstantField::StartTime) => latest_idx(columns, windows, |at| {
            out.values.push(at.map_or(ABSENT, |at| columns.start_time_at(at) as f64 / 1000.0));
        }),
        _ if !columns.histograms.is_empty() => latest_mixed(columns, windows, *parts, out),
        _ => latest(columns, windows, &mut out.values, |_, value| value),
    };
    execution.trace.tally_values(windows.grid, &out.values);
    Ok(any)
}
