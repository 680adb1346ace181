//! Grid of evaluation times, and the windows of selectors over it.
//! Invariants: a grid has at least one step; times ascend.

use std::ops::Range;

use chronolith_model::TimeRange;

/// Evaluation times: `start_ms`, `start_ms + step_ms`, ...
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Grid {
    /// First time.
    pub start_ms: i64,
    /// Distance; 1 or more.
    pub step_ms: i64,
    /// Number of times; 1 or more.
    pub count: usize,
    /// The requested end: the last time, or less than a step after it.
    pub end_ms: i64,
}

impl Grid {
    /// A single time.
    pub fn instant(time_ms: i64) -> Grid {
        Grid { start_ms: time_ms, step_ms: 1, count: 1, end_ms: time_ms }
    }

    /// All steps from `start_ms` that are not after `end_ms`; `None` if there is none.
    pub fn between(start_ms: i64, end_ms: i64, step_ms: i64) -> Option<Grid> {
        if end_ms < start_ms {
            return None;
        }
        let step_ms = step_ms.max(1);
        let last_idx = end_ms.saturating_sub(start_ms) / step_ms;
        Some(Grid { start_ms, step_ms, count: usize::try_from(last_idx).ok()?.checked_add(1)?, end_ms })
    }

    /// Time of step `step`.
    pub fn time(&self, step: usize) -> i64 {
        self.start_ms.saturating_add(self.step_ms.saturating_mul(step as i64))
    }

    /// Bytes of one column.
    pub fn column_bytes(&self) -> u64 {
        (self.count as u64).saturating_mul(size_of::<f64>() as u64)
    }

    /// All times.
    pub fn times(&self) -> impl Iterator<Item = i64> + '_ {
        (0..self.count).map(|step| self.time(step))
    }
}

/// Steps of a subquery: each takes 8 bytes of a column, in time order, whether it has a value or not.
pub const STEP_COUNT_MAX: usize = 1 << 30;

/// Shift of evaluation times by `offset` and `@`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimeShift {
    /// Time of `@`.
    pub fixed_ms: Option<i64>,
    /// `offset`.
    pub offset_ms: i64,
}

impl TimeShift {
    /// The shifted time of `time_ms`.
    pub fn at(&self, time_ms: i64) -> i64 {
        self.fixed_ms.unwrap_or(time_ms).saturating_sub(self.offset_ms)
    }
}

/// The windows `(end - width, end]` of a selector, one per step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Windows {
    /// Evaluation times.
    pub grid: Grid,
    /// From evaluation time to the end of the window.
    pub shift: TimeShift,
    /// Width.
    pub width_ms: i64,
    /// Range before the window in which samples are needed.
    pub before_ms: i64,
    /// Range after the window in which samples are needed.
    pub after_ms: i64,
}

impl Windows {
    /// Windows that need no samples outside.
    pub fn new(grid: Grid, shift: TimeShift, width_ms: i64) -> Windows {
        Windows { grid, shift, width_ms, before_ms: 0, after_ms: 0 }
    }

    /// End of the window of `step`, inside the window.
    pub fn end(&self, step: usize) -> i64 {
        self.shift.at(self.grid.time(step))
    }

    /// Start of the window of `step`, outside the window.
    pub fn start(&self, step: usize) -> i64 {
        self.end(step).saturating_sub(self.width_ms)
    }

    /// End of the first window and distance of the ends; `None` if some are cut off at the ends of time.
    pub(crate) fn even_ends(&self) -> Option<(i64, i64)> {
        let first = self.end(0);
        let step_ms = if self.shift.fixed_ms.is_some() { 0 } else { self.grid.step_ms };
        let last_step = self.grid.count.saturating_sub(1);
        let span_ms = step_ms.checked_mul(i64::try_from(last_step).ok()?)?;
        let last = first.checked_add(span_ms)?;
        (last == self.end(last_step)).then_some((first, step_ms))
    }

    /// Steps whose windows reach from the first to the last of `times`, which ascend: all others are empty.
    /// With few samples and many steps the others are most of them. A single step is always in the result.
    pub fn populated_steps(&self, times: &[i64]) -> Range<usize> {
        let (&[first, ..], &[.., last]) = (times, times) else { return 0..0 };
        // PERF: the divisions below are 146 instructions per series, of which an instant query has nothing.
        //   kits/instructions/compare.py
        if self.grid.count == 1 {
            return 0..1;
        }
        let from = self.steps_with(first).start;
        from..self.steps_with(last).end.max(from)
    }

    /// Steps whose windows contain `time_ms`; all steps if the windows are not regular.
    pub fn steps_with(&self, time_ms: i64) -> Range<usize> {
        let count = self.grid.count;
        let Some((first_ms, step_ms)) = self.even_ends() else { return 0..count };
        if step_ms <= 0 {
            return 0..count;
        }
        // The first step that is at least so far after the first end.
        let step_at = |distance_ms: i64| {
            let steps = (distance_ms.max(0) as u64).div_ceil(step_ms.unsigned_abs());
            usize::try_from(steps).map_or(count, |steps| steps.min(count))
        };
        let distance_ms = time_ms.saturating_sub(first_ms);
        step_at(distance_ms)..step_at(distance_ms.saturating_add(self.width_ms))
    }

    /// Distance of the windows, for sources; 0 if there is one.
    pub(crate) fn hinted_step_ms(&self) -> i64 {
        if self.grid.count > 1 { self.grid.step_ms } else { 0 }
    }

    /// Everything that any window needs.
    pub fn read_range(&self) -> TimeRange {
        let first = self.start(0).saturating_sub(self.before_ms).saturating_add(1);
        let last = self.end(self.grid.count - 1).saturating_add(self.after_ms);
        TimeRange::inclusive(first.max(TimeRange::ALL.start), last)
    }
}

#[cfg(test)]
mod tests;
