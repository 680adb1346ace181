//! Points without a value: filled, marked, compressed.
//!
//! Invariant: a gap that is longer than its limit stays as it is.
//! Not here: removal of whole series (`filter`).

use super::function::{Function, Group};
use super::grid::{all_points, for_each_row};
use super::signature::{SERIES_LIST, function, optional, with_number};
use crate::absent::ABSENT;
use crate::aggregation::Aggregation;
use crate::error::EvalError;
use crate::parameters::{Bound, Parameter, ParameterType};
use crate::scope::Scope;
use crate::series::Series;
use crate::value::Value;

const LIMITED: &[Parameter] = &[SERIES_LIST, with_number("limit", ParameterType::IntOrInf, f64::INFINITY)];

pub(super) const FUNCTIONS: &[Function] = &[
    function(
        "keepLastValue",
        Group::Transform,
        LIMITED,
        |_, args| fill(args, "keepLastValue", keep_last),
        "Fills gaps with the value before.",
    ),
    function(
        "interpolate",
        Group::Transform,
        LIMITED,
        |_, args| fill(args, "interpolate", interpolate),
        "Fills gaps with a straight line.",
    ),
    function(
        "transformNull",
        Group::Transform,
        &[
            SERIES_LIST,
            with_number("default", ParameterType::Float, 0.0),
            optional("referenceSeries", ParameterType::SeriesList),
        ],
        transform_null,
        "Fills gaps with a constant.",
    ),
    function(
        "isNonNull",
        Group::Combine,
        &[SERIES_LIST],
        is_non_null,
        "1 where there is a value, 0 elsewhere.",
    ),
    function("changed", Group::Special, &[SERIES_LIST], changed, "1 where the value changes, 0 elsewhere."),
    function(
        "compressPeriodicGaps",
        Group::Transform,
        &[SERIES_LIST],
        compress,
        "Finds the step of a series that has gaps in a regular pattern.",
    ),
];

fn fill(args: &mut Bound, name: &str, fill: fn(&mut [f64], f64)) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    let limit = match args.value(1) {
        None => f64::INFINITY,
        Some(value) => {
            value.number().ok_or_else(|| EvalError::of_function(name, "limit must be a number"))?
        }
    };
    for series in &mut list {
        series.rename(format!("{name}({})", series.name));
        fill(series.values_mut(), limit);
    }
    Ok(Value::Series(list))
}

/// Calls `fill` for each gap that is as long as `limit` at most: values, start, end.
fn for_each_gap(values: &mut [f64], limit: f64, fill: fn(&mut [f64], usize, usize)) {
    let mut gap_start = None;
    for idx in 0..=values.len() {
        match (gap_start, values.get(idx).is_none_or(|value| !value.is_nan())) {
            (None, false) => gap_start = Some(idx),
            (Some(start), true) => {
                if (idx - start) as f64 <= limit {
                    fill(values, start, idx);
                }
                gap_start = None;
            }
            _ => {}
        }
    }
}

fn keep_last(values: &mut [f64], limit: f64) {
    for_each_gap(values, limit, |values, start, end| {
        if let Some(last) = start.checked_sub(1).and_then(|idx| values.get(idx)).copied()
            && let Some(gap) = values.get_mut(start..end)
        {
            gap.fill(last);
        }
    });
}

fn interpolate(values: &mut [f64], limit: f64) {
    for_each_gap(values, limit, |values, start, end| {
        let before = start.checked_sub(1).and_then(|idx| values.get(idx)).copied();
        let (Some(before), Some(after)) = (before, values.get(end).copied()) else { return };
        let steps = (end - start + 1) as f64;
        for (idx, value) in values.iter_mut().enumerate().take(end).skip(start) {
            *value = before + (idx + 1 - start) as f64 * (after - before) / steps;
        }
    });
}

fn transform_null(_scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    let default = args.value(1).cloned().unwrap_or(Value::Int(0));
    let invalid = || EvalError::of_function("transformNull", "default must be a number");
    let number = default.number().ok_or_else(invalid)?;
    let general = default.general_text().ok_or_else(invalid)?;
    let reference = match args.given(2) {
        None => Vec::new(),
        Some(_) => args.take_series(2)?,
    };
    let mut is_filled = Vec::new();
    for_each_row(&all_points(&reference)?, |row| is_filled.push(row.iter().any(|value| !value.is_nan())));
    for series in &mut list {
        series.tag("transformNull", default.text());
        if reference.is_empty() {
            series.rename(format!("transformNull({},{general})", series.name));
        } else {
            series.tag("referenceSeries", 1);
            series.rename(format!("transformNull({},{general},referenceSeries)", series.name));
        }
        let fills = |idx: usize| reference.is_empty() || is_filled.get(idx) == Some(&true);
        let len = series.values.len();
        let mut values = series.values.to_vec();
        values.resize(len.max(is_filled.len()), ABSENT);
        for (idx, value) in values.iter_mut().enumerate() {
            if value.is_nan() && fills(idx) {
                *value = number;
            }
        }
        // A longer reference moves the values: as many stay as there were, the last ones.
        *series.values_mut() = values.split_off(values.len() - len);
    }
    Ok(Value::Series(list))
}

fn is_non_null(_scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    for series in &mut list {
        series.tag("isNonNull", 1);
        series.rename(format!("isNonNull({})", series.name));
        for value in series.values_mut() {
            *value = f64::from(u8::from(!value.is_nan()));
        }
        series.is_integral = true;
    }
    Ok(Value::Series(list))
}

fn changed(_scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    for series in &mut list {
        series.rename(format!("changed({})", series.name));
        let mut previous = ABSENT;
        for value in series.values_mut() {
            let is_change = !previous.is_nan() && !value.is_nan() && *value != previous;
            if previous.is_nan() || is_change {
                previous = *value;
            }
            *value = f64::from(u8::from(is_change));
        }
        series.is_integral = true;
    }
    Ok(Value::Series(list))
}

/// Points between the first two values that are neither empty nor 0, if a third one confirms them.
fn gap_period(values: &[f64]) -> Option<(usize, usize)> {
    let is_set = |idx: usize| values.get(idx).is_some_and(|value| !value.is_nan() && *value != 0.0);
    let is_empty = |idx: usize| values.get(idx).is_some_and(|value| value.is_nan());
    let mut first = 0;
    let mut second = 0;
    for idx in (0..values.len()).filter(|idx| is_set(*idx)) {
        if first > 0 {
            second = idx;
            break;
        }
        first = idx;
    }
    let period = second.checked_sub(first).filter(|period| *period > 1)?;
    let third = second + period;
    let is_inside = third + 2 <= values.len();
    (is_inside && is_set(third) && is_empty(third - 1) && is_empty(third + 1)).then_some((first, period))
}

fn compressed(series: &Series) -> Result<Option<Series>, EvalError> {
    let Some((first, period)) = gap_period(&series.values) else { return Ok(None) };
    let points = |count: usize| i64::try_from(count).unwrap_or(i64::MAX).saturating_mul(series.step);
    let interval = points(period);
    let start = series.start + points(first);
    let (values, _) = super::summarize::summarized(series, Aggregation::Last, interval, start, series.end)?;
    let mut result = series.clone();
    result.end = start + interval * (i64::try_from(values.len()).unwrap_or(0) - 1);
    (result.start, result.step) = (start, interval);
    *result.values_mut() = values;
    result.options.clear();
    Ok(Some(result))
}

fn compress(_scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    for series in &mut list {
        series.rename(format!("compressPeriodicGaps({})", series.name));
        if let Some(result) = compressed(series)? {
            *series = result;
        }
    }
    Ok(Value::Series(list))
}
