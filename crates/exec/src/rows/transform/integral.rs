//! Area under the curve by the trapezium rule, per window; the curve is interpolated at borders of windows.
//!
//! Invariants: points are in the order of the plan; of points at one time the last one counts.

use chronolith_model::query::TypedValues;

use crate::rows::accumulate::Points;
use crate::rows::bounds::WindowBounds;
use crate::rows::column::RowColumn;
use crate::rows::plan::Order;

/// Computes the area per `unit` ticks of time. A descending plan has negative areas. Without windows the
/// time of the result is the start of the range, 0 if it is open.
pub(crate) fn integrate(
    times: &[i64],
    values: &[f64],
    unit: i64,
    bounds: &WindowBounds,
    order: Order,
) -> Points {
    let mut out = (Vec::new(), Vec::new());
    let start = bounds.shown_start(bounds.range.start);
    let mut curve = Curve { unit: unit.max(1) as f64, start, end: None, sum: 0.0 };
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
                let slope = (value - last_value) / distance(last_time, time);
                let border = slope * distance(last_time, end) + last_value;
                curve.add(distance(last_time, end), last_value, border);
                (last_time, last_value) = (end, border);
            }
            out.0.push(curve.start);
            out.1.push(curve.sum);
            let (start, end) = window_of(time);
            curve = Curve { start, end: Some(end), sum: 0.0, ..curve };
        }
        curve.add(distance(last_time, time), last_value, value);
        last = Some((time, value));
    }
    // A point at the start of a window has no area.
    let first = if bounds.windows.is_some() { curve.start } else { 0 };
    if last.is_some_and(|(time, _)| time != first) {
        out.0.push(curve.start);
        out.1.push(curve.sum);
    }
    Points { times: out.0, values: RowColumn::of(TypedValues::Floats(out.1)), aux: Vec::new() }
}

/// Ticks between two times. As floats they would be off by hundreds of nanoseconds.
fn distance(from: i64, to: i64) -> f64 {
    to.wrapping_sub(from) as f64
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
