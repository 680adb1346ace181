//! Reading series: the latest sample of a window (instant selectors), and all samples of all windows as columns
//! (range selectors whose samples are wanted as they are).
//! Holds: a staleness marker ends a series for an instant selector and is dropped by a range selector.

use chronolith_model::sample::is_stale;
use chronolith_model::{Columns, Matcher, QueryError, Selector, SeriesBatches, SeriesRead};

use super::EvalError;
use super::grid::Windows;
use super::run::{Hold, Run};
use super::series::ABSENT;

/// Series of a selector with the samples of their windows, one series at a time.
pub(crate) struct SeriesReader<'q> {
    run: &'q Run<'q>,
    windows: Windows,
    batches: Box<dyn SeriesBatches + 'q>,
    batch: std::vec::IntoIter<SeriesRead>,
    more: bool,
    hold: Hold<'q>,
}

impl<'q> SeriesReader<'q> {
    /// Selects; samples are read by [`SeriesReader::next`].
    pub(crate) fn new(
        run: &'q Run<'q>,
        matchers: &'q [Matcher],
        windows: Windows,
    ) -> Result<SeriesReader<'q>, EvalError> {
        let selector = Selector { matchers, range: windows.read_range() };
        let batches = run.source.select(&selector, run.ctx)?;
        Ok(SeriesReader {
            run,
            windows,
            batches,
            batch: Vec::new().into_iter(),
            more: true,
            hold: run.hold(),
        })
    }

    /// The next series with its samples in `columns`; `None` at the end.
    pub(crate) fn next(
        &mut self,
        columns: &mut Columns,
    ) -> Result<Option<chronolith_model::Labels>, EvalError> {
        let Some(series) = self.next_series()? else { return Ok(None) };
        self.run.ctx.check()?;
        columns.clear();
        series.samples.read(self.windows.read_range(), columns)?;
        self.run.count_read(columns.len());
        self.run.trace.tally_read(&self.windows, &columns.times);
        let bytes = (columns.times.capacity() + columns.values.capacity()) * size_of::<u64>();
        self.hold.raise_to(columns.len() as u64, bytes as u64)?;
        Ok(Some(series.labels))
    }

    fn next_series(&mut self) -> Result<Option<SeriesRead>, QueryError> {
        loop {
            if let Some(series) = self.batch.next() {
                return Ok(Some(series));
            }
            if !self.more {
                return Ok(None);
            }
            let mut batch = Vec::new();
            self.more = self.batches.next_batch(&mut batch)?;
            self.run.trace.count_selected(&batch);
            self.batch = batch.into_iter();
        }
    }
}

/// What an instant selector yields of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InstantField {
    /// Its value.
    Value,
    /// Its time in seconds, for `timestamp()`.
    Time,
}

/// Appends, for each window, the latest sample inside; whether there is any at all.
pub(crate) fn latest(
    columns: &Columns,
    windows: &Windows,
    out: &mut Vec<f64>,
    field: impl Fn(i64, f64) -> f64,
) -> bool {
    let (times, values) = (&columns.times[..], &columns.values[..]);
    let (mut after, mut any) = (0, false);
    for step in 0..windows.grid.count {
        let end = windows.end(step);
        while after < times.len() && times[after] <= end {
            after += 1;
        }
        let sample = after.checked_sub(1).map(|at| (times[at], values[at]));
        match sample.filter(|&(time, value)| time > end.saturating_sub(windows.width_ms) && !is_stale(value))
        {
            Some((time, value)) => {
                out.push(field(time, value));
                any = true;
            }
            None => out.push(ABSENT),
        }
    }
    any
}

/// Drops staleness markers, keeping order.
pub(crate) fn drop_stale(columns: &mut Columns) {
    if !columns.values.iter().any(|&v| is_stale(v)) {
        return;
    }
    let mut kept = 0;
    for at in 0..columns.values.len() {
        if !is_stale(columns.values[at]) {
            columns.times[kept] = columns.times[at];
            columns.values[kept] = columns.values[at];
            kept += 1;
        }
    }
    columns.times.truncate(kept);
    columns.values.truncate(kept);
}
