//! Rollups: one value from the samples of a window, for every window of a series.
//! Invariants: samples are sorted by time; windows slide forwards, so a series is walked once; a window
//! without a result has the value [`ABSENT`].
//! Not here: names of functions, which are the language's; kernels (`rate`, `moments`).

mod event;
pub mod extended;
mod extreme;
mod growth;
pub mod integral;
pub mod mixed;
pub mod moments;
pub mod rate;
pub mod window;

use chronolith_model::{Columns, QueryError, ReadContext};

use crate::column::{ABSENT, StepScalar};
use crate::grid::Windows;
use extreme::ExtremeBuffer;
use window::slide;

/// A function of the samples in a window.
#[derive(Debug, Clone, PartialEq)]
pub enum Rollup {
    /// `rate`
    Rate,
    /// `increase`
    Increase,
    /// `delta`
    Delta,
    /// `irate`
    InstantRate,
    /// `idelta`
    InstantDelta,
    /// `deriv`
    Deriv,
    /// `predict_linear` with the seconds to look ahead.
    PredictLinear(StepScalar),
    /// `double_exponential_smoothing` with smoothing and trend factor.
    Smoothing(StepScalar, StepScalar),
    /// `resets`
    Resets,
    /// `changes`
    Changes,
    /// `sum_over_time`
    Sum,
    /// `avg_over_time`
    Avg,
    /// `min_over_time`
    Min,
    /// `max_over_time`
    Max,
    /// `count_over_time`
    Count,
    /// `first_over_time`
    First,
    /// `last_over_time`
    Last,
    /// `present_over_time`
    Present,
    /// `integral` with the number of its rule.
    Integral(StepScalar),
    /// `quantile_over_time` with the quantile.
    Quantile(StepScalar),
    /// `mad_over_time`
    Mad,
    /// `stddev_over_time`
    Stddev,
    /// `stdvar_over_time`
    Stdvar,
    /// `ts_of_first_over_time`
    TimeOfFirst,
    /// `ts_of_last_over_time`
    TimeOfLast,
    /// `ts_of_max_over_time`
    TimeOfMax,
    /// `ts_of_min_over_time`
    TimeOfMin,
}

/// Memory that a rollup reuses from series to series.
#[derive(Debug, Default)]
pub struct RollupBuffer {
    /// Indices of samples after an event (a reset, a change), ascending.
    events: Vec<usize>,
    /// Samples to be sorted.
    sorted: Vec<f64>,
    /// Least or greatest values of runs of samples.
    extremes: ExtremeBuffer,
}

impl RollupBuffer {
    /// Appends the growth of a counter in each window; see [`growth::roll_counted`].
    ///
    /// # Errors
    /// Cancellation and deadline.
    pub(crate) fn roll_growth(
        &mut self,
        columns: &Columns,
        windows: &Windows,
        ctx: &ReadContext,
        kind: rate::Extrapolation,
        sample_count: impl Fn(usize, usize) -> Option<usize>,
        out: &mut Vec<f64>,
    ) -> Result<Option<bool>, QueryError> {
        event::find(&columns.values, event::is_reset, &mut self.events);
        growth::roll_counted(columns, windows, ctx, &self.events, kind, sample_count, out)
    }
}

impl Rollup {
    /// Returns true if the metric name stays.
    pub fn keeps_name(&self) -> bool {
        matches!(self, Rollup::First | Rollup::Last)
    }

    /// Returns true if it is defined for counters only.
    pub fn wants_counter(&self) -> bool {
        matches!(self, Rollup::Rate | Rollup::Increase)
    }

    /// Returns true if it uses start timestamps.
    pub fn asks_for_start_times(&self) -> bool {
        matches!(self, Rollup::Rate | Rollup::Increase | Rollup::InstantRate | Rollup::Resets)
    }

    /// Appends one value per window to `out`; returns true if any window has one.
    ///
    /// # Errors
    /// Cancellation and deadline.
    pub fn roll(
        &self,
        columns: &Columns,
        windows: &Windows,
        ctx: &ReadContext,
        buffer: &mut RollupBuffer,
        out: &mut Vec<f64>,
    ) -> Result<bool, QueryError> {
        match self {
            Rollup::Rate | Rollup::Increase | Rollup::Delta | Rollup::Resets | Rollup::Changes => {
                self.roll_events(columns, windows, ctx, buffer, out)
            }
            Rollup::InstantRate => slide(columns, windows, ctx, out, |w| rate::instant_rate(&w)),
            Rollup::InstantDelta => slide(columns, windows, ctx, out, |w| rate::instant_delta(&w)),
            Rollup::Deriv => slide(columns, windows, ctx, out, |w| rate::derivative(&w)),
            Rollup::PredictLinear(ahead) => slide(columns, windows, ctx, out, |w| {
                rate::predict(&w, windows.grid.time(w.step), ahead.at(w.step))
            }),
            Rollup::Smoothing(level, trend) => slide(columns, windows, ctx, out, |w| {
                moments::double_exponential(w.values, level.at(w.step), trend.at(w.step))
            }),
            Rollup::Quantile(quantile) => slide(columns, windows, ctx, out, |w| {
                moments::quantile(quantile.at(w.step), sorted(&mut buffer.sorted, w.values))
            }),
            Rollup::Integral(strategy) => slide(columns, windows, ctx, out, |w| {
                integral::integral(w.times, w.values, strategy.at(w.step))
            }),
            Rollup::Mad => {
                slide(columns, windows, ctx, out, |w| moments::median_deviation(w.values, &mut buffer.sorted))
            }
            Rollup::Min if windows.grid.count == 1 => {
                slide(columns, windows, ctx, out, |w| extreme_of(w.values, |before, new| before > new))
            }
            Rollup::Max if windows.grid.count == 1 => {
                slide(columns, windows, ctx, out, |w| extreme_of(w.values, |before, new| before < new))
            }
            Rollup::Min => {
                extreme::roll(columns, windows, ctx, &mut buffer.extremes, out, |before, new| before > new)
            }
            Rollup::Max => {
                extreme::roll(columns, windows, ctx, &mut buffer.extremes, out, |before, new| before < new)
            }
            _ => self.roll_simple(columns, windows, ctx, out),
        }
    }

    fn roll_simple(
        &self,
        columns: &Columns,
        windows: &Windows,
        ctx: &ReadContext,
        out: &mut Vec<f64>,
    ) -> Result<bool, QueryError> {
        let seconds = |time: i64| time as f64 / 1000.0;
        match self {
            Rollup::Sum => slide(columns, windows, ctx, out, |w| moments::sum(w.values)),
            Rollup::Avg => slide(columns, windows, ctx, out, |w| moments::mean(w.values)),
            Rollup::Count => slide(columns, windows, ctx, out, |w| w.values.len() as f64),
            Rollup::First => {
                slide(columns, windows, ctx, out, |w| w.values.first().copied().unwrap_or(ABSENT))
            }
            Rollup::Last => slide(columns, windows, ctx, out, |w| w.values.last().copied().unwrap_or(ABSENT)),
            Rollup::Stddev => slide(columns, windows, ctx, out, |w| moments::variance(w.values).sqrt()),
            Rollup::Stdvar => slide(columns, windows, ctx, out, |w| moments::variance(w.values)),
            Rollup::TimeOfFirst => {
                slide(columns, windows, ctx, out, |w| w.times.first().copied().map_or(ABSENT, seconds))
            }
            Rollup::TimeOfLast => {
                slide(columns, windows, ctx, out, |w| w.times.last().copied().map_or(ABSENT, seconds))
            }
            Rollup::TimeOfMax => slide(columns, windows, ctx, out, |w| {
                w.times.get(moments::last_extreme(w.values, |a, b| a >= b)).copied().map_or(ABSENT, seconds)
            }),
            Rollup::TimeOfMin => slide(columns, windows, ctx, out, |w| {
                w.times.get(moments::last_extreme(w.values, |a, b| a <= b)).copied().map_or(ABSENT, seconds)
            }),
            _ => slide(columns, windows, ctx, out, |_| 1.0),
        }
    }

    /// Rollups that count events between neighbours: events are found once per series, so that a window costs
    /// only its events.
    fn roll_events(
        &self,
        columns: &Columns,
        windows: &Windows,
        ctx: &ReadContext,
        buffer: &mut RollupBuffer,
        out: &mut Vec<f64>,
    ) -> Result<bool, QueryError> {
        let events = &mut buffer.events;
        let kind = match self {
            Rollup::Resets => {
                event::find(&columns.values, event::is_reset, events);
                return slide(columns, windows, ctx, out, event::count_inside(events));
            }
            Rollup::Changes => {
                event::find(&columns.values, event::is_change, events);
                return slide(columns, windows, ctx, out, event::count_inside(events));
            }
            Rollup::Rate => rate::Extrapolation::CounterPerSecond,
            Rollup::Increase => rate::Extrapolation::Counter,
            _ => rate::Extrapolation::Gauge,
        };
        if kind == rate::Extrapolation::Gauge {
            events.clear();
        } else {
            event::find(&columns.values, event::is_reset, events);
        }
        growth::roll(columns, windows, ctx, events, kind, out)
    }
}

/// The least or greatest value of a single window; `beaten(before, new)`: the new value replaces the one
/// before.
fn extreme_of(values: &[f64], beaten: impl Fn(f64, f64) -> bool) -> f64 {
    let numbers = values.iter().copied().filter(|value| !value.is_nan());
    let extreme = numbers.reduce(|before, new| if beaten(before, new) { new } else { before });
    extreme.unwrap_or_else(|| values.last().copied().unwrap_or(ABSENT))
}

/// Copies `values` into `buffer` and sorts them, NaN first.
fn sorted<'b>(buffer: &'b mut Vec<f64>, values: &[f64]) -> &'b [f64] {
    buffer.clear();
    buffer.extend_from_slice(values);
    moments::sort_nan_first(buffer);
    buffer
}

#[cfg(test)]
mod tests;
