//! Windows of an archive, and their values from samples.

use super::methods::{RollupMethod, RollupMethods};
use super::windows::RolledWindows;
use crate::{Columns, TimeRange};

/// Span and slot of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RollupSpan {
    /// Length of a window in milliseconds.
    pub span_ms: i64,
    /// Interval in which one sample counts, in milliseconds.
    pub slot_ms: i64,
}

/// Windows of a series for which values are kept or asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RollupArchive {
    /// Length of a window in milliseconds: a multiple of the slot.
    span_ms: i64,
    /// Interval in which one sample counts, in milliseconds.
    slot_ms: i64,
    /// Values of each window.
    pub methods: RollupMethods,
}

impl RollupArchive {
    /// Windows of `span_ms`; `None` if that is no multiple of `slot_ms`, or one of them is below 1.
    #[must_use]
    pub fn new(span_ms: i64, slot_ms: i64, methods: RollupMethods) -> Option<RollupArchive> {
        let is_valid = span_ms > 0 && slot_ms > 0 && span_ms % slot_ms == 0;
        is_valid.then_some(RollupArchive { span_ms, slot_ms, methods })
    }

    /// The same windows with other values.
    #[must_use]
    pub fn with_methods(self, methods: RollupMethods) -> RollupArchive {
        RollupArchive { methods, ..self }
    }

    /// Length of a window in milliseconds.
    #[must_use]
    pub fn span_ms(&self) -> i64 {
        self.span_ms
    }

    /// Interval in which one sample counts, in milliseconds.
    #[must_use]
    pub fn slot_ms(&self) -> i64 {
        self.slot_ms
    }

    /// Span and slot of the archive.
    #[must_use]
    pub fn span(&self) -> RollupSpan {
        RollupSpan { span_ms: self.span_ms, slot_ms: self.slot_ms }
    }

    /// Samples that a window can have.
    #[must_use]
    pub fn slot_count(&self) -> i64 {
        self.span_ms / self.slot_ms
    }

    /// Start of the window of `time_ms`.
    #[must_use]
    pub fn window_of(&self, time_ms: i64) -> i64 {
        time_ms.saturating_sub(time_ms.rem_euclid(self.span_ms))
    }

    /// The windows that have a part of `range`.
    #[must_use]
    pub fn widened(&self, range: TimeRange) -> TimeRange {
        let last = self.window_of(range.end.saturating_sub(1));
        TimeRange::new(self.window_of(range.start), last.saturating_add(self.span_ms))
    }

    /// The windows that lie in `range` as a whole; `None` if there is none.
    #[must_use]
    pub fn narrowed(&self, range: TimeRange) -> Option<TimeRange> {
        let start = self.window_of(range.start.saturating_add(self.span_ms - 1));
        let end = self.window_of(range.end);
        (start < end).then(|| TimeRange::new(start, end))
    }

    /// Appends the windows of `samples`, which ascend, to `out`. Cost: the samples.
    pub fn roll_up(&self, samples: &Columns, out: &mut RolledWindows) {
        let mut window = Window::default();
        let mut current = i64::MIN;
        let mut slot_end = i64::MIN;
        let mut waiting = None;
        for (&time, &value) in samples.times.iter().zip(&samples.values) {
            if value.is_nan() {
                continue;
            }
            if time >= slot_end {
                if let Some(done) = waiting {
                    window.add(done);
                }
                let start = self.window_of(time);
                if start != current {
                    window.put(current, out);
                    current = start;
                }
                slot_end = time.saturating_sub(time.rem_euclid(self.slot_ms)).saturating_add(self.slot_ms);
            }
            waiting = Some(value);
        }
        if let Some(done) = waiting {
            window.add(done);
        }
        window.put(current, out);
    }
}

/// Values of the samples of one window so far.
#[derive(Default)]
struct Window {
    count: u64,
    sum: f64,
    min: f64,
    max: f64,
    first: f64,
    last: f64,
    abs_max: f64,
    abs_min: f64,
    resets: u64,
}

impl Window {
    fn add(&mut self, value: f64) {
        self.resets += u64::from(self.count > 0 && value < self.last);
        self.last = value;
        self.count += 1;
        if self.count == 1 {
            // As a sum that begins with 0: -0 alone is 0.
            self.sum = 0.0 + value;
            self.first = value;
            self.min = value;
            self.max = value;
            self.abs_max = value;
            self.abs_min = value;
            return;
        }
        self.sum += value;
        // The first of equal values stays.
        if value < self.min {
            self.min = value;
        }
        if value > self.max {
            self.max = value;
        }
        if value.abs() > self.abs_max.abs() {
            self.abs_max = value;
        }
        if value.abs() < self.abs_min.abs() {
            self.abs_min = value;
        }
    }

    /// Appends the window that starts at `start_ms`, unless it is empty, and empties it.
    fn put(&mut self, start_ms: i64, out: &mut RolledWindows) {
        if self.count > 0 {
            out.push(start_ms, |method| self.value(method));
            *self = Window::default();
        }
    }

    fn value(&self, method: RollupMethod) -> f64 {
        match method {
            RollupMethod::Count => self.count as f64,
            RollupMethod::Sum => self.sum,
            RollupMethod::Min => self.min,
            RollupMethod::Max => self.max,
            RollupMethod::First => self.first,
            RollupMethod::Last => self.last,
            RollupMethod::AbsMax => self.abs_max,
            RollupMethod::AbsMin => self.abs_min,
            RollupMethod::Resets => self.resets as f64,
        }
    }
}
