//! Leaves: selectors, and functions of range selectors, computed while the samples are read.
//! Holds: series come in the order of the source, whether one thread computes them or several; several do only
//! when a batch has enough samples to pay for starting them.
//! Not here: functions of subqueries (`window`).

use std::sync::atomic::{AtomicUsize, Ordering};

use chronolith_model::{Columns, SeriesBatches, SeriesRead};

use super::EvalError;
use super::grid::Windows;
use super::run::{Hold, Run};
use super::select::{InstantField, drop_stale, latest};
use super::series::{SeriesOperator, StepSeries};
use super::window::{RangeFn, RangeScratch};
use crate::ast::VectorSelector;

/// A batch with fewer samples is computed by the calling thread: starting threads takes as long.
const PARALLEL_SAMPLES_MIN: usize = 200_000;
/// Series that a thread takes at a time: few enough that all end together, many enough not to meet often.
const MORSEL_SERIES_COUNT: usize = 16;

/// A time and a value.
const SAMPLE_BYTES: usize = size_of::<i64>() + size_of::<f64>();

/// What is computed of the samples of a series.
pub(crate) enum LeafFn<'q> {
    /// The latest sample of each window.
    Instant(InstantField),
    /// A rollup.
    Range(RangeFn<'q>),
}

/// Memory that a thread uses again from series to series.
#[derive(Default)]
struct Scratch {
    columns: Columns,
    range: RangeScratch,
}

/// A selector and what is computed of it.
pub(crate) struct Leaf<'q> {
    run: &'q Run<'q>,
    windows: Windows,
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
        function: LeafFn<'q>,
    ) -> Result<Leaf<'q>, EvalError> {
        let range = windows.read_range();
        let batches = run
            .source
            .select(&chronolith_model::Selector { matchers: &selector.matchers, range }, run.ctx)?;
        Ok(Leaf {
            run,
            windows,
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
        self.more = self.batches.next_batch(&mut batch)?;
        self.run.trace.count_selected(&batch);
        let samples: usize = batch.iter().map(|series| series.samples.sample_count_hint()).sum();
        if self.run.options.threads > 1 && samples >= PARALLEL_SAMPLES_MIN {
            self.computed = self.compute_batch(&batch)?.into_iter();
        } else {
            self.batch = batch.into_iter();
        }
        Ok(true)
    }

    fn compute_batch(&mut self, batch: &[SeriesRead]) -> Result<Vec<StepSeries>, EvalError> {
        let count = batch.len() as u64;
        self.hold.raise_to(
            count * self.windows.grid.count as u64,
            count.saturating_mul(self.windows.grid.column_bytes()),
        )?;
        let (run, windows, function) = (self.run, &self.windows, &self.function);
        let next = AtomicUsize::new(0);
        let work = || compute_morsels(run, windows, function, batch, &next);
        let helper_count =
            run.options.threads.min(batch.len().div_ceil(MORSEL_SERIES_COUNT)).saturating_sub(1);
        let mut parts = std::thread::scope(|scope| {
            let start = |_| std::thread::Builder::new().name("promql".to_owned()).spawn_scoped(scope, work);
            // Where no thread can be had, the calling one does all.
            let helpers: Vec<_> = (0..helper_count).filter_map(|idx| start(idx).ok()).collect();
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
        .collect::<Result<Vec<_>, _>>()?
        .concat();
        parts.sort_by_key(|(at, _)| *at);
        Ok(parts.into_iter().map(|(_, series)| series).collect())
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
                let any = compute(self.run, &self.windows, &self.function, &series, &mut self.scratch, out)?;
                let count = self.scratch.columns.len();
                self.hold.raise_to(count as u64, (count * SAMPLE_BYTES) as u64)?;
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

/// Takes morsels of `batch` until none is left; results come with their place in the batch.
fn compute_morsels(
    run: &Run<'_>,
    windows: &Windows,
    function: &LeafFn<'_>,
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
            if compute(run, windows, function, series, &mut scratch, &mut out)? {
                results.push((at, out));
            }
        }
    }
}

/// Reads a series and computes all its steps; false if none has a value.
fn compute(
    run: &Run<'_>,
    windows: &Windows,
    function: &LeafFn<'_>,
    series: &SeriesRead,
    scratch: &mut Scratch,
    out: &mut StepSeries,
) -> Result<bool, EvalError> {
    run.ctx.check()?;
    let columns = &mut scratch.columns;
    columns.clear();
    series.samples.read(windows.read_range(), columns)?;
    run.count_read(columns.len());
    if let LeafFn::Range(function) = function {
        drop_stale(columns);
        run.trace.tally_read(windows, &columns.times);
        return function.apply(&series.labels, false, columns, &mut scratch.range, out);
    }
    out.values.clear();
    out.labels = series.labels.clone();
    out.drop_name = false;
    let any = match function {
        LeafFn::Instant(InstantField::Time) => {
            latest(columns, windows, &mut out.values, |time, _| time as f64 / 1000.0)
        }
        _ => latest(columns, windows, &mut out.values, |_, value| value),
    };
    run.trace.tally_values(windows.grid, &out.values);
    Ok(any)
}
