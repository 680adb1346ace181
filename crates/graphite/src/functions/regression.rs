//! Straight lines through series: least squares.
//!
//! Invariant: a series with less than two values has no line and is left out.
//! Not here: seasonal forecasts (`holt_winters`).

use super::function::{Function, Group};
use super::shift::server_time;
use super::signature::{SERIES_LIST, function, optional};
use crate::error::EvalError;
use crate::parameters::{Bound, ParameterType};
use crate::scope::Scope;
use crate::series::{Grid, Series};
use crate::time::Moment;
use crate::value::Value;

pub(super) const FUNCTIONS: &[Function] = &[function(
    "linearRegression",
    Group::Calculate,
    &[
        SERIES_LIST,
        optional("startSourceAt", ParameterType::Date),
        optional("endSourceAt", ParameterType::Date),
    ],
    linear_regression,
    "Line of least squares through each series.",
)];

/// Line over time: value per second, and value at time 0.
struct Line {
    factor: f64,
    offset: f64,
}

fn line_of(series: &Series) -> Option<Line> {
    let mut count: i128 = 0;
    let mut sum_i: i128 = 0;
    let mut sum_ii: i128 = 0;
    let mut sum_v = 0.0;
    let mut sum_iv = 0.0;
    for (idx, value) in (0i128..).zip(series.values.iter()).filter(|(_, value)| !value.is_nan()) {
        count += 1;
        sum_i += idx;
        sum_ii += idx * idx;
        sum_v += value;
        sum_iv += idx as f64 * value;
    }
    let denominator = (count * sum_ii - sum_i * sum_i) as f64;
    if denominator == 0.0 || series.step == 0 {
        return None;
    }
    let factor = (count as f64 * sum_iv - sum_i as f64 * sum_v) / denominator / series.step as f64;
    let offset = (sum_ii as f64 * sum_v - sum_iv * sum_i as f64) / denominator - factor * series.start as f64;
    Some(Line { factor, offset })
}

/// A bound of the source range; by default the bound of the request.
fn source_bound(scope: &Scope<'_>, value: Option<&Value>, default: Moment) -> Result<Moment, EvalError> {
    match value {
        None => Ok(default),
        Some(value) => Ok(Moment::new(server_time(scope, Some(value), "")?, &scope.shared.server_zone)),
    }
}

fn linear_regression(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let list = args.take_series(0)?;
    let start = source_bound(scope, args.given(1), scope.start)?;
    let end = source_bound(scope, args.given(2), scope.end)?;
    let sources = scope.reevaluate(start, end)?;
    let start = scope.wall_seconds(start);
    let end = scope.wall_seconds(end);
    let mut results = Vec::new();
    for (source, mut series) in sources.iter().zip(list) {
        series.tag("linearRegressions", format!("{start}, {end}"));
        let Some(line) = line_of(source) else { continue };
        let times =
            (0..series.values.len()).map(|idx| series.start + i64::try_from(idx).unwrap_or(0) * series.step);
        let values: Vec<f64> = times.map(|time| line.offset + time as f64 * line.factor).collect();
        let grid = Grid { start: series.start, end: series.end, step: series.step };
        let mut result = Series::new(
            format!("linearRegression({}, {start}, {end})", series.name),
            grid,
            values,
            series.x_files_factor,
        );
        result.tags = series.tags;
        results.push(result);
    }
    Ok(Value::Series(results))
}
