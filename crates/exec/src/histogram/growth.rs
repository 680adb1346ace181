//! Growth of histograms within a range, for `rate`, `increase`, `delta`, `irate` and `idelta`.
//! Invariants: a reset counts as a fall to nothing; buckets are reconciled to the coarsest of the range.
//! Not here: extension to the ends of the range (`rollup::rate`).

use std::sync::Arc;

use chronolith_model::histogram::{Incompatible, Merged};
use chronolith_model::{FloatHistogram, ResetHint};

/// Treatment of decreases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrowthKind {
    /// Decreases are counter resets: `rate`, `increase`, `irate`.
    Counter,
    /// Decreases are changes: `delta`, `idelta`.
    Gauge,
}

/// Notes about a range of histograms, collected over many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RangeNotes {
    /// Floats and histograms in one range.
    pub mixed: bool,
    /// Exponential buckets and custom bounds in one range.
    pub mixed_schemas: bool,
    /// A function of counters was applied to a gauge.
    pub not_counter: bool,
    /// A function of gauges was applied to a counter.
    pub not_gauge: bool,
    /// Custom bounds differed in an addition.
    pub reconciled_add: bool,
    /// Custom bounds differed in a subtraction.
    pub reconciled_sub: bool,
    /// Custom bounds differed in a sum or mean.
    pub reconciled_fold: bool,
    /// Hints contradicted each other in a sum or mean.
    pub collision: bool,
    /// Histograms were left out.
    pub ignored: bool,
    /// Windows in which a counter started before the sample before it ended.
    pub start_overlap_count: u64,
}

impl RangeNotes {
    /// Exponential buckets and custom bounds alone: Prometheus drops all other notes then.
    pub fn only_mixed_schemas() -> RangeNotes {
        RangeNotes { mixed_schemas: true, ..RangeNotes::default() }
    }

    /// Adds the notes of another part of the range.
    pub fn join(&mut self, other: RangeNotes) {
        self.mixed |= other.mixed;
        self.mixed_schemas |= other.mixed_schemas;
        self.not_counter |= other.not_counter;
        self.not_gauge |= other.not_gauge;
        self.reconciled_add |= other.reconciled_add;
        self.reconciled_sub |= other.reconciled_sub;
        self.reconciled_fold |= other.reconciled_fold;
        self.collision |= other.collision;
        self.ignored |= other.ignored;
        self.start_overlap_count += other.start_overlap_count;
    }
}

/// A range of histograms.
#[derive(Debug, Clone, Copy)]
pub struct HistogramRange<'a> {
    /// Milliseconds, ascending.
    pub times: &'a [i64],
    /// One per time.
    pub histograms: &'a [Arc<FloatHistogram>],
    /// Start timestamps, one per time, 0 if unknown; empty if none is known or needed.
    pub start_times: &'a [i64],
}

impl HistogramRange<'_> {
    /// Returns true if the sample at `at` belongs to a new counter, by start timestamps.
    fn starts_anew(&self, at: usize) -> bool {
        starts_anew(self.start_times, self.times, at)
    }

    /// The growth from the first to the last of two or more; `Err` if they do not fit each other.
    pub fn growth(&self, kind: GrowthKind) -> Result<(FloatHistogram, RangeNotes), RangeNotes> {
        let (Some(first), Some(last)) = (self.histograms.first(), self.histograms.last()) else {
            return Err(RangeNotes::default());
        };
        let counter = kind == GrowthKind::Counter;
        let gauge = |histogram: &FloatHistogram| histogram.reset_hint == ResetHint::Gauge;
        let mut notes =
            RangeNotes { not_counter: counter && (gauge(first) || gauge(last)), ..RangeNotes::default() };
        // If the first sample is before a reset, nothing of it is needed, its layout included.
        let second = self.histograms.get(1);
        let dropped =
            second.filter(|second| counter && (self.starts_anew(1) || second.is_reset_after(first)));
        let nothing = dropped.map(|second| FloatHistogram {
            schema: second.schema,
            custom_values: second.custom_values.clone(),
            ..FloatHistogram::default()
        });
        let mut before: &FloatHistogram = nothing.as_ref().unwrap_or(first);
        if last.is_custom() != before.is_custom() {
            notes.mixed_schemas = true;
            return Err(notes);
        }
        let mut schema = last.schema.min(before.schema);
        if counter {
            let inner = self.histograms.get(1..self.histograms.len() - 1).unwrap_or(&[]);
            for histogram in inner {
                notes.not_counter |= gauge(histogram);
                schema = schema.min(histogram.schema);
                if histogram.is_custom() != before.is_custom() {
                    return Err(RangeNotes::only_mixed_schemas());
                }
            }
        }
        let mut growth = at_schema(last, schema);
        let merged = growth.subtract(before).map_err(|Incompatible| RangeNotes::only_mixed_schemas())?;
        notes.reconciled_sub |= merged.bounds_reconciled;
        if counter {
            self.add_resets(&mut growth, &mut before, &mut notes)?;
        } else {
            notes.not_gauge = !gauge(first) || !gauge(last);
        }
        growth.reset_hint = ResetHint::Gauge;
        growth.compact(0);
        Ok((growth, notes))
    }

    /// Adds what counters had reached before each reset.
    fn add_resets<'h>(
        &'h self,
        growth: &mut FloatHistogram,
        before: &mut &'h FloatHistogram,
        notes: &mut RangeNotes,
    ) -> Result<(), RangeNotes> {
        notes.start_overlap_count += u64::from(any_overlap(self.start_times, self.times));
        for (at, histogram) in self.histograms.iter().enumerate().skip(1) {
            if self.starts_anew(at) || histogram.is_reset_after(before) {
                let merged = growth.add(before).map_err(|Incompatible| RangeNotes::only_mixed_schemas())?;
                notes.reconciled_add |= merged.bounds_reconciled;
            }
            *before = histogram;
        }
        Ok(())
    }

    /// The difference of the last two; `None` if there are fewer or they do not fit.
    pub fn last_step(&self, kind: GrowthKind) -> (Option<FloatHistogram>, RangeNotes) {
        let [.., before, last] = self.histograms else { return (None, RangeNotes::default()) };
        let gauges = [before, last].map(|histogram| histogram.reset_hint == ResetHint::Gauge);
        let mut notes = RangeNotes::default();
        let reset = match kind {
            GrowthKind::Counter => {
                notes.not_counter = gauges.contains(&true);
                self.starts_anew(self.times.len() - 1) || last.is_reset_after(before)
            }
            GrowthKind::Gauge => {
                notes.not_gauge = gauges.contains(&false);
                false
            }
        };
        let mut step = FloatHistogram::clone(last);
        if !reset {
            match step.subtract(before) {
                Ok(Merged { bounds_reconciled, .. }) => notes.reconciled_sub = bounds_reconciled,
                Err(Incompatible) => {
                    notes.mixed_schemas = true;
                    return (None, notes);
                }
            }
        }
        step.reset_hint = ResetHint::Gauge;
        step.compact(0);
        (Some(step), notes)
    }
}

/// A copy in a coarser schema.
fn at_schema(histogram: &FloatHistogram, schema: i32) -> FloatHistogram {
    let mut copy = histogram.clone();
    if !copy.is_custom() && schema < copy.schema {
        // Spans and counts fit, or there would be no such histogram; otherwise it stays as fine as it is.
        let _ = copy.reduce_resolution(schema);
    }
    copy
}

/// Returns true if the counter of sample `at` restarted after the previous sample, by start timestamps.
pub fn starts_anew(start_times: &[i64], times: &[i64], at: usize) -> bool {
    let started = |at: usize| Some(Started { start_ms: *start_times.get(at)?, time_ms: *times.get(at)? });
    let (Some(before), Some(after)) = (started(at - 1), started(at)) else { return false };
    after.is_restart_after(before)
}

/// Start timestamp of a counter (0 if unknown) and time of the sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Started {
    /// Start of the counter; 0 if unknown.
    pub start_ms: i64,
    /// Time of the sample.
    pub time_ms: i64,
}

impl Started {
    /// Returns true if the counter restarted after sample `before`. An unchanged start timestamp is no
    /// evidence.
    pub fn is_restart_after(self, before: Started) -> bool {
        let Started { start_ms, time_ms } = self;
        if start_ms == before.start_ms || start_ms == 0 || start_ms >= time_ms || start_ms < before.time_ms {
            return false;
        }
        if start_ms > before.time_ms {
            return true;
        }
        // The start equals the previous sample's time, as in deltas and in counters with an unknown start:
        // these are no restarts.
        before.start_ms <= before.time_ms && before.start_ms != 0 && before.start_ms != before.time_ms
    }
}

/// Returns true if the counter of some sample starts before the previous sample, but not where the previous
/// counter started.
pub fn any_overlap(start_times: &[i64], times: &[i64]) -> bool {
    start_times
        .windows(2)
        .zip(times)
        .any(|(starts, &time_before)| starts[1] != 0 && starts[1] < time_before && starts[1] != starts[0])
}
