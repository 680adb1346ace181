//! Area under the curve by the trapezium rule, per window; the curve is interpolated at borders of windows.
//!
//! Invariants: points are in the order of the plan; of points at one time the last one counts.

use chronolith_model::query::TypedValues;

use crate::rows::accumulate::Points;
use crate::rows::bounds::WindowBounds;
use crate::rows::column::RowColumn;
use crate::rows::plan::Order;

/// Computes the area per `unit` ticks of time. A descending plan has negative areas. Without windows the
/// time of the result is 0.
pub(crate) fn integrate(
    times: &[i64],
    values: &[f64],
    unit: i64,
    bounds: &WindowBounds,
    order: Order,
) -> Points {
    let mut out = (Vec::new(), Vec::new());
    let mut curve = Curve { unit: unit.max(1) as f64, start: 0, end: None, sum: 0.0 };
    let mut last: Option<(i64, f64)> = None;
    let window_of = |time: i64| {
        let window = bounds.window_of(time);
        match order {
            Order::Ascending => (window.start, window.end),
            Order::Descending => (window.end, window.start),
        }
    };
    for (&time, &value) in times.iter().zip(values) {
        let Some((mut last_time, mut last_value)) = last else {
            last = Some((time, value));
            if bounds.windows.is_some() {
                let (start, end) = window_of(time);
                (curve.start, curve.end) = (start, Some(end));
            }
            continue;
        };
        if time == last_time {
            last = Some((time, value));
            continue;
        }
        let is_after = |end: i64| match order {
            Order::Ascending => time >= end,
            Order::Descending => time <= end,
        };
        if let Some(end) = curve.end.filter(|end| is_after(*end)) {
            if last_time != end {
                let share = (end as f64 - last_time as f64) / (time as f64 - last_time as f64);
                let border = last_value + (value - last_value) * share;
                curve.add(end as f64 - last_time as f64, last_value, border);
                (last_time, last_value) = (end, border);
            }
            out.0.push(curve.start);
            out.1.push(curve.sum);
            let (start, end) = window_of(time);
            curve = Curve { start, end: Some(end), sum: 0.0, ..curve };
        }
        curve.add(time as f64 - last_time as f64, last_value, value);
        last = Some((time, value));
    }
    // A point at the start of a window has no area.
    if last.is_some_and(|(time, _)| time != curve.start) {
        out.0.push(curve.start);
        out.1.push(curve.sum);
    }
    Points { times: out.0, values: RowColumn::of(TypedValues::Floats(out.1)), aux: Vec::new() }
}

struct Curve {
    unit: f64,
    start: i64,
    end: Option<i64>,
    sum: f64,
}

impl Curve {
    fn add(&mut self, elapsed: f64, from: f64, to: f64) {
        self.sum += 0.5 * (from + to) * (elapsed / self.unit);
    }
}
