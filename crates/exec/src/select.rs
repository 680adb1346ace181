//! Instant selectors (the latest sample of each window) and range selectors (all samples of all windows, as
//! columns).
//! Invariants: a staleness marker ends a series for an instant selector and is dropped by a range selector.

use std::sync::Arc;

use chronolith_model::query::SelectRequest;
use chronolith_model::sample::is_stale;
use chronolith_model::{Columns, FloatHistogram, Matcher, QueryError, Selector, SeriesBatches, SeriesRead};

use crate::column::{ABSENT, StepSeries};
use crate::error::Error;
use crate::execution::{Execution, OperatorMemory};
use crate::grid::Windows;
use crate::samples::{RangeSamples, SampleParts};

/// Series of a selection, one at a time; their samples are not read.
pub struct SelectedSeries<'q> {
    execution: &'q Execution<'q>,
    batches: Box<dyn SeriesBatches + 'q>,
    batch: std::vec::IntoIter<SeriesRead>,
    has_more: bool,
}

impl<'q> SelectedSeries<'q> {
    /// The series of `batches`.
    pub fn new(execution: &'q Execution<'q>, batches: Box<dyn SeriesBatches + 'q>) -> SelectedSeries<'q> {
        SelectedSeries { execution, batches, batch: Vec::new().into_iter(), has_more: true }
    }

    fn read_batch(&mut self) -> Result<(), QueryError> {
        let mut batch = Vec::new();
        self.has_more = self.batches.next_batch(&mut batch)?;
        self.execution.trace.count_selected(&batch);
        self.batch = batch.into_iter();
        Ok(())
    }
}

impl Iterator for SelectedSeries<'_> {
    type Item = Result<SeriesRead, QueryError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(series) = self.batch.next() {
                return Some(self.execution.ctx.check().map(|()| series));
            }
            if !self.has_more {
                return None;
            }
            if let Err(error) = self.read_batch() {
                return Some(Err(error));
            }
        }
    }
}

/// Series of a selector with the samples of their windows, one series at a time.
pub struct SeriesReader<'q> {
    execution: &'q Execution<'q>,
    windows: Windows,
    parts: SampleParts,
    selected: SelectedSeries<'q>,
    memory: OperatorMemory<'q>,
}

impl<'q> SeriesReader<'q> {
    /// Selects; samples are read by [`SeriesReader::next`].
    pub fn new(
        execution: &'q Execution<'q>,
        matchers: &'q [Matcher],
        windows: Windows,
        parts: SampleParts,
    ) -> Result<SeriesReader<'q>, Error> {
        let selector = Selector { matchers, range: windows.read_range() };
        let step_ms = windows.hinted_step_ms();
        let range_ms = windows.width_ms;
        let request = SelectRequest { step_ms, range_ms, ..SelectRequest::new(&selector) };
        let selected = SelectedSeries::new(execution, execution.select(request)?);
        let memory = execution.operator_memory();
        Ok(SeriesReader { execution, windows, parts, selected, memory })
    }

    /// The next series with its samples in `samples`; `None` at the end.
    pub fn next(&mut self, samples: &mut RangeSamples) -> Result<Option<chronolith_model::Labels>, Error> {
        let Some(series) = self.selected.next().transpose()? else { return Ok(None) };
        samples.clear();
        series.samples.read(self.windows.read_range(), &mut samples.floats)?;
        self.execution.trace.count_read(samples.floats.len() as u64);
        samples.split(self.parts);
        self.execution.trace.tally_read(&self.windows, &samples.floats.times);
        self.execution.trace.tally_read(&self.windows, &samples.histograms.times);
        self.memory.raise_to(samples.sample_count(), samples.heap_bytes())?;
        Ok(Some(series.labels))
    }
}

/// Field of a sample that an instant selector returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InstantField {
    /// Value of the newest sample.
    Value,
    /// Time of the newest sample in seconds, for `timestamp()`.
    Time,
    /// Start timestamp of the newest sample in seconds, for `start_timestamp()`.
    StartTime,
}

/// Appends the latest sample of each window; returns true if there is any.
pub fn latest(
    columns: &Columns,
    windows: &Windows,
    out: &mut Vec<f64>,
    field: impl Fn(i64, f64) -> f64,
) -> bool {
    out.reserve(windows.grid.count);
    let field_at = |at: usize| field(columns.times[at], columns.values[at]);
    latest_idx(columns, windows, |at| out.push(at.map_or(ABSENT, field_at)))
}

/// As [`latest`], for a series with histograms.
pub fn latest_mixed(columns: &Columns, windows: &Windows, parts: SampleParts, out: &mut StepSeries) -> bool {
    let any = latest_idx(columns, windows, |at| out.values.push(at.map_or(ABSENT, |at| columns.values[at])));
    // A histogram that several steps see is made ready once.
    let mut last: Option<(usize, Option<Arc<FloatHistogram>>)> = None;
    let mut step = 0;
    latest_idx(columns, windows, |at| {
        if let Some(at) = at {
            if last.as_ref().is_none_or(|(before, _)| *before != at) {
                last = Some((at, parts.of(columns, at)));
            }
            if let Some((_, Some(ready))) = &last {
                out.set_histogram(step, Arc::clone(ready));
            }
        }
        step += 1;
    });
    any
}

/// Calls `visit` for each window with the index of its latest sample; returns true if there is any.
pub fn latest_idx(columns: &Columns, windows: &Windows, mut visit: impl FnMut(Option<usize>)) -> bool {
    let times = &columns.times[..];
    let mut after = 0;
    let mut any = false;
    let even_ends = windows.even_ends();
    let populated = windows.populated_steps(times);
    (0..populated.start).for_each(|_| visit(None));
    for step in populated.clone() {
        let end = match even_ends {
            Some((first_ms, step_ms)) => first_ms + step_ms * step as i64,
            None => windows.end(step),
        };
        while after < times.len() && times[after] <= end {
            after += 1;
        }
        let start = end.saturating_sub(windows.width_ms);
        let live = |at: &usize| times[*at] > start && !is_stale(columns.values[*at]);
        let at = after.checked_sub(1).filter(live);
        any |= at.is_some();
        visit(at);
    }
    (populated.end..windows.grid.count).for_each(|_| visit(None));
    any
}
