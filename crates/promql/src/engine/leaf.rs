//! Leaves: selectors, and functions of range selectors, computed while the samples are read.
//! Holds: series come in the order of the source, whether one thread computes them or several; several do only
//! when there are enough samples to pay for starting them, and as many as other queries leave (`threads`).
//! Not here: functions of subqueries (`window`).

use std::sync::atomic::{AtomicUsize, Ordering};

use chronolith_model::query::{PresenceHints, SampleNeed};
use chronolith_model::{SeriesBatches, SeriesRead};

use super::EvalError;
use super::aggregate::Grouping;
use super::annotation::order::Origin;
use super::grid::Windows;
use super::histogram::growth::RangeNotes;
use super::rollup::extended;
use super::run::{Hold, Run};
use super::samples::{RangeSamples, SampleParts};
use super::select::{InstantField, latest, latest_idx, latest_mixed};
use super::series::{ABSENT, SeriesOperator, StepSeries};
use super::share::selection;
use super::window::{RangeFn, RangeScratch, emit_notes};
use crate::ast::VectorSelector;

/// Fewer samples are computed by the calling thread: starting threads takes a tenth as long.
const PARALLEL_SAMPLES_MIN: usize = 100_000;
/// Batches are put together until they have as many samples, for threads to be started seldom.
const PARALLEL_SAMPLES_WANTED: usize = 1_000_000;
/// But not beyond as many values of results, which are held until they are taken.
const PARALLEL_VALUES_MAX: usize = 2_000_000;
/// Series that a thread takes at a time: few enough that all end together, many enough not to meet often.
const MORSEL_SERIES_COUNT: usize = 16;

/// A time and a value.
const SAMPLE_BYTES: usize = size_of::<i64>() + size_of::<f64>();

/// What is computed of the samples of a series.
pub(crate) enum LeafFn<'q> {
    /// The latest sample of each window.
    Instant(InstantField),
    /// A value interpolated between the samples around each step; where the selector stands in the query.
    Smoothed(Origin),
    /// A rollup.
    Range(RangeFn<'q>),
}

/// Memory that a thread uses again from series to series.
#[derive(Default)]
struct Scratch {
    samples: RangeSamples,
    range: RangeScratch,
}

/// A selector and what is computed of it.
pub(crate) struct Leaf<'q> {
    run: &'q Run<'q>,
    windows: Windows,
    parts: SampleParts,
    function: LeafFn<'q>,
    batches: Box<dyn SeriesBatches + 'q>,
    more: bool,
    /// Series of the batch that are still to be computed.
    batch: std::vec::IntoIter<SeriesRead>,
    /// Series that other threads have computed.
    computed: std::vec::IntoIter<StepSeries>,
    scratch: Scratch,
    hold: Hold<'q>,
}

impl<'q> Leaf<'q> {
    /// Selects; samples are read as series are asked for.
    pub(crate) fn new(
        run: &'q Run<'q>,
        selector: &'q VectorSelector,
        windows: Windows,
        parts: SampleParts,
        function: LeafFn<'q>,
    ) -> Result<Leaf<'q>, EvalError> {
        Leaf::with_hint(run, selector, windows, parts, function, None)
    }

    /// An instant selector below an aggregation that counts the series of its groups: which steps have a
    /// value is exact, what it is and the labels that do not make a group are not.
    pub(crate) fn counted(
        run: &'q Run<'q>,
        selector: &'q VectorSelector,
        windows: Windows,
        parts: SampleParts,
        grouping: &Grouping<'_>,
    ) -> Result<Leaf<'q>, EvalError> {
        // The groups of several steps would have to be ordered by their first series with a value in any
        // step.
        let hint = Some(grouping).filter(|grouping| grouping.is_one() || windows.grid.count == 1);
        Leaf::with_hint(run, selector, windows, parts, LeafFn::Instant(InstantField::Value), hint)
    }

    fn with_hint(
        run: &'q Run<'q>,
        selector: &'q VectorSelector,
        windows: Windows,
        parts: SampleParts,
        function: LeafFn<'q>,
        counted_by: Option<&Grouping<'_>>,
    ) -> Result<Leaf<'q>, EvalError> {
        let range = windows.read_range();
        let selector = chronolith_model::Selector { matchers: &selector.matchers, range };
        // Resets of histograms may be told by the sample before.
        let newest_is_enough = windows.grid.count == 1
            && (!parts.stats_only || counted_by.is_some())
            && matches!(function, LeafFn::Instant(InstantField::Value | InstantField::Time));
        let samples = if newest_is_enough { SampleNeed::Newest } else { SampleNeed::All };
        let batches = match counted_by {
            None => selection::select(run, &selector, samples)?,
            Some(grouping) => {
                let hints = PresenceHints { samples, projection: grouping.projection() };
                selection::select_presence(run, &selector, &hints)?
            }
        };
        Ok(Leaf {
            run,
            windows,
            parts,
            function,
            batches,
            more: true,
            batch: Vec::new().into_iter(),
            computed: Vec::new().into_iter(),
            scratch: Scratch::default(),
            hold: run.hold(),
        })
    }

    /// Gets the next batch, and has it computed if that takes several threads; false at the end.
    fn fill(&mut self) -> Result<bool, EvalError> {
        if !self.more {
            return Ok(false);
        }
        let mut batch = Vec::new();
        self.take_batch(&mut batch)?;
        if self.run.options.threads == 1 {
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
            self.computed = self.compute_batch(&batch)?.into_iter();
        } else {
            self.batch = batch.into_iter();
        }
        Ok(true)
    }

    fn take_batch(&mut self, batch: &mut Vec<SeriesRead>) -> Result<(), EvalError> {
        let first = batch.len();
        self.more = self.batches.next_batch(batch)?;
        self.run.trace.count_selected(&batch[first..]);
        Ok(())
    }

    fn compute_batch(&mut self, batch: &[SeriesRead]) -> Result<Vec<StepSeries>, EvalError> {
        let count = batch.len() as u64;
        self.hold.raise_to(
            count * self.windows.grid.count as u64,
            count.saturating_mul(self.windows.grid.column_bytes()),
        )?;
        let run = self.run;
        let work_of = Work { run, windows: self.windows, parts: self.parts, function: &self.function };
        let next = AtomicUsize::new(0);
        let work = || compute_morsels(&work_of, batch, &next);
        let wanted = run.options.threads.min(batch.len().div_ceil(MORSEL_SERIES_COUNT)).saturating_sub(1);
        let leave = run.spare_threads.take(wanted);
        let mut parts = std::thread::scope(|scope| {
            let start = |_| std::thread::Builder::new().name("promql".to_owned()).spawn_scoped(scope, work);
            // Where no thread can be had, the calling one does all.
            let helpers: Vec<_> = (0..leave.count()).filter_map(|idx| start(idx).ok()).collect();
            let mut parts = vec![work()];
            for helper in helpers {
                match helper.join() {
                    Ok(part) => parts.push(part),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            parts
        })
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
        let mut results: Vec<(usize, StepSeries)> = parts.pop().unwrap_or_default();
        results.extend(parts.into_iter().flatten());
        results.sort_unstable_by_key(|(at, _)| *at);
        Ok(results.into_iter().map(|(_, series)| series).collect())
    }
}

impl SeriesOperator for Leaf<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, EvalError> {
        loop {
            if let Some(series) = self.computed.next() {
                *out = series;
                return Ok(true);
            }
            for series in self.batch.by_ref() {
                // What is read is reserved before, so that one huge series cannot go beyond the budget.
                let bytes = series.samples.sample_count_hint().saturating_mul(SAMPLE_BYTES);
                self.hold.raise_to(0, bytes as u64)?;
                let work = Work {
                    run: self.run,
                    windows: self.windows,
                    parts: self.parts,
                    function: &self.function,
                };
                let any = compute(&work, &series, &mut self.scratch, out)?;
                let samples = &self.scratch.samples;
                self.hold.raise_to(samples.sample_count(), samples.heap_bytes())?;
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

/// What is to be done with a series.
struct Work<'w, 'q> {
    run: &'w Run<'q>,
    windows: Windows,
    parts: SampleParts,
    function: &'w LeafFn<'q>,
}

/// Takes morsels of `batch` until none is left; results come with their place in the batch.
fn compute_morsels(
    work: &Work<'_, '_>,
    batch: &[SeriesRead],
    next: &AtomicUsize,
) -> Result<Vec<(usize, StepSeries)>, EvalError> {
    let (mut results, mut scratch) = (Vec::new(), Scratch::default());
    loop {
        let start = next.fetch_add(MORSEL_SERIES_COUNT, Ordering::Relaxed);
        if start >= batch.len() {
            return Ok(results);
        }
        let end = batch.len().min(start + MORSEL_SERIES_COUNT);
        for (at, series) in batch.iter().enumerate().take(end).skip(start) {
            let mut out = StepSeries::default();
            if compute(work, series, &mut scratch, &mut out)? {
                results.push((at, out));
            }
        }
    }
}

/// Reads a series and computes all its steps; false if none has a value.
fn compute(
    work: &Work<'_, '_>,
    series: &SeriesRead,
    scratch: &mut Scratch,
    out: &mut StepSeries,
) -> Result<bool, EvalError> {
    let Work { run, windows, parts, function } = work;
    run.ctx.check()?;
    let samples = &mut scratch.samples;
    samples.clear();
    series.samples.read(windows.read_range(), &mut samples.floats)?;
    run.count_read(samples.floats.len());
    if let LeafFn::Range(function) = function {
        samples.split(*parts);
        run.trace.tally_read(windows, &samples.floats.times);
        run.trace.tally_read(windows, &samples.histograms.times);
        return function.apply(&series.labels, false, samples, &mut scratch.range, out);
    }
    out.clear_steps();
    out.labels = series.labels.clone();
    out.drop_name = false;
    let columns = &samples.floats;
    let any = match function {
        LeafFn::Smoothed(origin) => {
            samples.split(*parts);
            let mut notes = RangeNotes::default();
            let any = extended::smooth(samples, windows, run.ctx, out, &mut notes)?;
            emit_notes(run, notes, series.labels.metric_name().unwrap_or(""), *origin, *origin);
            any
        }
        LeafFn::Instant(InstantField::Time) => {
            latest(columns, windows, &mut out.values, |time, _| time as f64 / 1000.0)
        }
        LeafFn::Instant(InstantField::StartTime) => latest_idx(columns, windows, |at| {
            out.values.push(at.map_or(ABSENT, |at| columns.start_time_at(at) as f64 / 1000.0));
        }),
        _ if !columns.histograms.is_empty() => latest_mixed(columns, windows, *parts, out),
        _ => latest(columns, windows, &mut out.values, |_, value| value),
    };
    run.trace.tally_values(windows.grid, &out.values);
    Ok(any)
}
