//! Samples of a series with values of roll-up windows in place of most of them.
//!
//! Invariants: times ascend; each value stands for a number of samples, one if it is a sample.
//! Not here: functions over them (`rolled_up`).

use chronolith_model::rollup::{RollupArchive, RollupMethod, RollupRead, is_small_integer};
use chronolith_model::sample::is_stale;
use chronolith_model::{Columns, QueryError, ReadContext, SampleSource, TimeRange};

use super::kind::RolledUpFn;
use crate::grid::Windows;
use crate::rollup::rate::Extrapolation;
use crate::rollup::{Rollup, RollupBuffer};

/// Samples whose integers of at most 2^32 have an exact sum.
const EXACT_SUM_SAMPLES_MAX: f64 = 1_048_576.0;

/// Windows whose samples are read, by the ends of the ranges of a selector.
#[derive(Debug, Default)]
pub(super) struct Cuts {
    /// Span and windows per end that they were computed for.
    made_for: Option<(i64, i64, Windows)>,
    ranges: Vec<TimeRange>,
}

impl Cuts {
    /// Computes the cuts, unless the arguments equal the arguments of the last call.
    pub(super) fn set(&mut self, archive: &RollupArchive, windows: &Windows, kind: RolledUpFn) {
        let span_ms = archive.span_ms();
        let key = Some((span_ms, kind.windows_per_end(), *windows));
        if self.made_for == key {
            return;
        }
        self.made_for = key;
        let window_at = |start: i64| TimeRange::new(start, start.saturating_add(span_ms));
        let mut ranges = Vec::new();
        for step in 0..windows.grid.count {
            let first = windows.start(step).saturating_add(1);
            let after = windows.end(step).saturating_add(1);
            let cut = [first, after].into_iter().filter(|border| archive.window_of(*border) != *border);
            ranges.extend(cut.map(|border| window_at(archive.window_of(border))));
            if kind.windows_per_end() > 1 {
                // The windows next to the ends, within the range.
                ranges.push(window_at(archive.window_of(first.saturating_add(span_ms - 1))));
                ranges.push(window_at(archive.window_of(after).saturating_sub(span_ms)));
            }
        }
        self.ranges = TimeRange::joined(ranges);
    }
}

/// Values in the place of the samples of a series.
#[derive(Debug, Default)]
pub(super) struct Condensed {
    /// Samples, and values of windows.
    pub(super) samples: Columns,
    /// Samples that each value stands for.
    counts: Vec<f64>,
    /// The value is a sample.
    is_sample: Vec<bool>,
    /// Roll-up windows that take part.
    pub(super) window_count: u64,
    raw: Columns,
}

impl Condensed {
    fn clear(&mut self) {
        self.samples.clear();
        self.counts.clear();
        self.is_sample.clear();
        self.window_count = 0;
    }

    fn push(&mut self, time_ms: i64, value: f64, count: f64) {
        self.samples.push(time_ms, value);
        self.counts.push(count);
        self.is_sample.push(false);
    }

    /// Fills in windows and samples; returns false if results may differ from results over all samples.
    pub(super) fn fill(
        &mut self,
        kind: RolledUpFn,
        archive: &RollupArchive,
        read: RollupRead,
        cuts: &Cuts,
        windows: &Windows,
        source: &dyn SampleSource,
    ) -> Result<bool, QueryError> {
        self.clear();
        let is_exact_sum = !kind.is_sum() || read.facts.has_small_integers;
        let Some(columns) = WindowColumns::of(kind, archive, &read).filter(|_| is_exact_sum) else {
            return Ok(false);
        };
        let mut ranges = read.raw.clone();
        ranges.extend_from_slice(&cuts.ranges);
        ranges.extend(columns.ranges_to_read(archive.span_ms()));
        let ranges = TimeRange::joined(ranges);
        let mut idx = 0;
        for range in &ranges {
            idx = columns.push_until(range.start, idx, self);
            if !self.push_samples(kind, *range, windows, source)? {
                return Ok(false);
            }
            idx = idx.max(columns.starts.partition_point(|start| *start < range.end));
        }
        columns.push_until(i64::MAX, idx, self);
        Ok(!kind.is_sum() || self.counts.iter().sum::<f64>() <= EXACT_SUM_SAMPLES_MAX)
    }

    /// Appends the samples of a range that the selector reads; returns false if they are of another kind.
    fn push_samples(
        &mut self,
        kind: RolledUpFn,
        range: TimeRange,
        windows: &Windows,
        source: &dyn SampleSource,
    ) -> Result<bool, QueryError> {
        let all = windows.read_range();
        let range = TimeRange::new(range.start.max(all.start), range.end.min(all.end));
        if range.start >= range.end {
            return Ok(true);
        }
        let mut raw = std::mem::take(&mut self.raw);
        raw.clear();
        let read = source.read(range, &mut raw);
        let mut fits = raw.histograms.is_empty() && raw.start_times.is_empty();
        for (time_ms, value) in raw.times.iter().zip(&raw.values).filter(|(_, value)| !is_stale(**value)) {
            fits &= !kind.is_sum() || is_small_integer(*value);
            self.samples.push(*time_ms, if kind == RolledUpFn::Count { 1.0 } else { *value });
            self.counts.push(1.0);
            self.is_sample.push(true);
        }
        self.raw = raw;
        read.map(|()| fits)
    }

    /// Appends the number of samples of each range.
    pub(super) fn roll_counts(
        &self,
        windows: &Windows,
        ctx: &ReadContext,
        out: &mut Vec<f64>,
    ) -> Result<bool, QueryError> {
        let mut counts = Columns::default();
        self.samples
            .times
            .iter()
            .zip(&self.counts)
            .for_each(|(time_ms, count)| counts.push(*time_ms, *count));
        Rollup::Sum.roll(&counts, windows, ctx, &mut RollupBuffer::default(), out)
    }

    /// Appends the growth in each range; `None` if an end of one is no sample.
    pub(super) fn roll_growth(
        &self,
        windows: &Windows,
        ctx: &ReadContext,
        extrapolation: Extrapolation,
        buffer: &mut RollupBuffer,
        out: &mut Vec<f64>,
    ) -> Result<Option<bool>, QueryError> {
        let mut before = Vec::with_capacity(self.counts.len() + 1);
        before.push(0);
        let mut total = 0usize;
        before.extend(self.counts.iter().map(|count| {
            total += *count as usize;
            total
        }));
        let sample_count = |first: usize, len: usize| {
            let has_ends = self.is_sample.get(first)? & self.is_sample.get(first + len - 1)?;
            has_ends
                .then(|| before.get(first + len).zip(before.get(first)).map(|(end, start)| end - start))?
        };
        buffer.roll_growth(&self.samples, windows, ctx, extrapolation, sample_count, out)
    }
}

/// Columns of roll-up windows.
struct WindowColumns<'a> {
    kind: RolledUpFn,
    starts: &'a [i64],
    counts: &'a [f64],
    /// Value of the window, or of its first sample.
    values: &'a [f64],
    /// Value of the last sample, of growths.
    lasts: &'a [f64],
    resets: &'a [f64],
}

impl<'a> WindowColumns<'a> {
    /// `None` if a column is missing.
    fn of(kind: RolledUpFn, archive: &RollupArchive, read: &'a RollupRead) -> Option<WindowColumns<'a>> {
        let column = |method| read.windows.column(method);
        let counts = column(RollupMethod::Count)?;
        let starts = read.windows.starts();
        let either = |a, b| column(if archive.methods.has(a) { a } else { b });
        let (values, lasts, resets) = match kind {
            RolledUpFn::Pick(method) => (column(method)?, counts, counts),
            RolledUpFn::Count => (counts, counts, counts),
            RolledUpFn::Sum | RolledUpFn::Average => (column(RollupMethod::Sum)?, counts, counts),
            RolledUpFn::Growth(_) => (
                either(RollupMethod::First, RollupMethod::Min)?,
                either(RollupMethod::Last, RollupMethod::Max)?,
                column(RollupMethod::Resets)?,
            ),
        };
        Some(WindowColumns { kind, starts, counts, values, lasts, resets })
    }

    /// Windows in which a counter was reset, or may have zeros of both signs.
    fn ranges_to_read(&self, span_ms: i64) -> impl Iterator<Item = TimeRange> {
        let is_growth = matches!(self.kind, RolledUpFn::Growth(_));
        let all = self.starts.iter().zip(self.resets).zip(self.values.iter().zip(self.lasts));
        let to_read = all.filter(move |((_, resets), (first, last))| {
            is_growth && (**resets != 0.0 || **first == 0.0 || **last == 0.0)
        });
        to_read.map(move |((start, _), _)| TimeRange::new(*start, start.saturating_add(span_ms)))
    }

    /// Appends the windows from `first` on that start before `end_ms`; returns the index of the next one.
    fn push_until(&self, end_ms: i64, first: usize, out: &mut Condensed) -> usize {
        let end = self.starts.partition_point(|start| *start < end_ms).max(first);
        let columns = self.starts.iter().zip(self.counts).zip(self.values.iter().zip(self.lasts));
        for ((&start, &count), (&value, &last)) in columns.take(end).skip(first) {
            match self.kind {
                RolledUpFn::Growth(_) if count > 1.0 => {
                    out.push(start, value, 1.0);
                    out.push(start + 1, last, count - 1.0);
                }
                _ => out.push(start, value, count),
            }
        }
        out.window_count += (end - first) as u64;
        end
    }
}
