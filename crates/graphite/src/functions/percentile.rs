//! Percentiles of series, and filters by them.
//!
//! Invariant: a percentile is the value of a rank among count + 1.
//! Not here: percentiles across series at each point (`combine`).

use super::function::{Function, Group};
use super::signature::{SERIES_LIST, function, required};
use crate::absent::ABSENT;
use crate::aggregation::{Aggregation, PercentileMethod, percentile};
use crate::error::EvalError;
use crate::format_number::general;
use crate::parameters::{Bound, Parameter, ParameterType};
use crate::scope::Scope;
use crate::series::Series;
use crate::value::Value;

const PERCENT: &[Parameter] = &[SERIES_LIST, required("n", ParameterType::Float)];

pub(super) const FUNCTIONS: &[Function] = &[
    function("nPercentile", Group::Calculate, PERCENT, n_percentile, "Percentile of each series as a line."),
    function(
        "averageOutsidePercentile",
        Group::FilterSeries,
        PERCENT,
        outside,
        "Series with an average outside of percentiles.",
    ),
    function(
        "removeBetweenPercentile",
        Group::FilterSeries,
        PERCENT,
        between,
        "Series with a value outside of percentiles.",
    ),
    function(
        "removeAbovePercentile",
        Group::FilterData,
        PERCENT,
        |_, args| remove(args, "removeAbovePercentile", |value, limit| value <= limit),
        "Removes values above a percentile.",
    ),
    function(
        "removeBelowPercentile",
        Group::FilterData,
        PERCENT,
        |_, args| remove(args, "removeBelowPercentile", |value, limit| value >= limit),
        "Removes values below a percentile.",
    ),
];

fn nearest(values: &[f64], n: f64) -> Result<f64, EvalError> {
    percentile(values, n, PercentileMethod::Nearest)
}

fn non_zero(args: &Bound, name: &str) -> Result<f64, EvalError> {
    let n = args.number(1)?;
    let is_used = matches!(args.value(0), Some(Value::Series(list)) if !list.is_empty());
    if n == 0.0 && is_used {
        Err(EvalError::of_function(name, "the percentage must be greater than 0"))
    } else {
        Ok(n)
    }
}

/// Points of a line over the range of a series.
fn line_len(series: &Series) -> usize {
    (series.end - series.start)
        .checked_div(series.step)
        .and_then(|count| usize::try_from(count).ok())
        .unwrap_or(0)
}

fn n_percentile(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let n = non_zero(args, "nPercentile")?;
    let list = args.take_series(0)?;
    let tag = args.value(1).map(Value::text).unwrap_or_default();
    let mut results = Vec::new();
    for mut series in list {
        let value = nearest(&series.values, n)?;
        if value.is_nan() {
            continue;
        }
        series.tag("nPercentile", &tag);
        let len = line_len(&series);
        scope.shared.budget.reserve_points(len as u64)?;
        results
            .push(series.derived(format!("nPercentile({}, {})", series.name, general(n)), vec![value; len]));
    }
    Ok(Value::Series(results))
}

/// The upper of the two percentages that `n` stands for.
fn upper_percent(n: f64) -> f64 {
    if n < 50.0 { 100.0 - n } else { n }
}

fn outside(_scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    let n = upper_percent(args.number(1)?);
    let average = |series: &Series| Aggregation::Average.apply(&series.values);
    let averages: Vec<f64> = list.iter().map(average).collect();
    let low = nearest(&averages, 100.0 - n)?;
    let high = nearest(&averages, n)?;
    list.retain(|series| !(low < average(series) && average(series) < high));
    Ok(Value::Series(list))
}

fn between(_scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let list = args.take_series(0)?;
    let n = upper_percent(args.number(1)?);
    let len = list.iter().map(|series| series.values.len()).min().unwrap_or(0);
    if let Some(longer) = list.iter().find(|series| series.values.len() > len) {
        return Err(EvalError::of_function(
            "removeBetweenPercentile",
            &format!("{} has more points than others", longer.name),
        ));
    }
    let mut limits = Vec::with_capacity(len);
    for idx in 0..len {
        let column: Vec<f64> = list.iter().filter_map(|series| series.values.get(idx).copied()).collect();
        debug_assert_eq!(column.len(), list.len(), "a column has a point of each series");
        limits.push((nearest(&column, 100.0 - n)?, nearest(&column, n)?));
    }
    let is_outside = |series: &Series| {
        series
            .values
            .iter()
            .zip(&limits)
            .any(|(value, (low, high))| !value.is_nan() && (value <= low || value >= high))
    };
    Ok(Value::Series(list.into_iter().filter(is_outside).collect()))
}

fn remove(args: &mut Bound, name: &str, keeps: fn(f64, f64) -> bool) -> Result<Value, EvalError> {
    let n = non_zero(args, name)?;
    let mut list = args.take_series(0)?;
    let tag = args.value(1).map(Value::text).unwrap_or_default();
    for series in &mut list {
        series.rename(format!("{name}({}, {})", series.name, general(n)));
        // A percentage beyond the values removes nothing.
        let limit = nearest(&series.values, n).unwrap_or(ABSENT);
        if limit.is_nan() {
            continue;
        }
        series.tag("nPercentile", &tag);
        if line_len(series) > 0 {
            series.map_present(|value| if keeps(value, limit) { value } else { ABSENT });
        }
    }
    Ok(Value::Series(list))
}
