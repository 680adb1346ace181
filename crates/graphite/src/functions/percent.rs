//! Quotients of series: `asPercent`, `divideSeries`, `weightedAverage`.
//!
//! Invariant: a quotient by 0 or by nothing is empty.
//! Not here: sums (`combine`).

use super::combine::{aggregate, path_expressions};
use super::function::{Function, Group};
use super::grid::{all_points, divide, for_each_row, normalize, zip_longest};
use super::node_key::{group_by, key_bytes_max, key_of};
use super::signature::{SERIES_LIST, any_number, function, optional, required};
use crate::absent::ABSENT;
use crate::aggregation::Aggregation;
use crate::error::EvalError;
use crate::parameters::{Bound, Parameter, ParameterType};
use crate::scope::Scope;
use crate::series::{Grid, Series};
use crate::value::Value;

const PERCENT: &[Parameter] =
    &[SERIES_LIST, optional("total", ParameterType::Any), any_number("nodes", ParameterType::NodeOrTag)];

pub(super) const FUNCTIONS: &[Function] = &[
    function("asPercent", Group::Combine, PERCENT, as_percent, "Each series in per cent of a total."),
    function("pct", Group::Combine, PERCENT, as_percent, "Short form of asPercent."),
    function(
        "divideSeries",
        Group::Combine,
        &[
            required("dividendSeriesList", ParameterType::SeriesList),
            required("divisorSeries", ParameterType::SeriesList),
        ],
        divide_series,
        "Divides each series by one series.",
    ),
    function(
        "divideSeriesLists",
        Group::Combine,
        &[
            required("dividendSeriesList", ParameterType::SeriesList),
            required("divisorSeriesList", ParameterType::SeriesList),
        ],
        divide_series_lists,
        "Divides the lists pair by pair.",
    ),
    function(
        "weightedAverage",
        Group::Combine,
        &[
            required("seriesListAvg", ParameterType::SeriesList),
            required("seriesListWeight", ParameterType::SeriesList),
            any_number("nodes", ParameterType::NodeOrTag),
        ],
        weighted_average,
        "Average of series, weighted by others that agree in these nodes.",
    ),
];

fn percent(value: f64, total: f64) -> f64 {
    divide(value, total) * 100.0
}

fn as_percent(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    if normalize(&mut list)?.is_none() {
        return Ok(Value::Series(list));
    }
    let total = args.given(1).cloned();
    if args.repeated().is_empty() {
        return percent_of_total(scope, list, total).map(Value::Series);
    }
    let keys = args.repeated().to_vec();
    match total {
        None => percent_by_key(scope, list, None, &keys),
        Some(Value::Series(total)) => percent_by_key(scope, list, Some(total), &keys),
        Some(_) => Err(EvalError::of_function(
            "asPercent",
            "total must be none or a list of series if nodes are given",
        )),
    }
    .map(Value::Series)
}

fn percent_of_total(
    scope: &Scope<'_>,
    list: Vec<Series>,
    total: Option<Value>,
) -> Result<Vec<Series>, EvalError> {
    let total = match total {
        Some(Value::Series(total)) if total.len() == list.len() => {
            return percent_by_pair(scope, list, total);
        }
        other => other,
    };
    let mut list = list;
    let (totals, text) = match total {
        None => (row_sums(&list)?, format!("sumSeries({})", path_expressions(&list))),
        Some(Value::Series(mut total)) if total.len() == 1 => {
            normalize(list.iter_mut().chain(&mut total))?;
            let name = total.first().map(|series| series.name.clone()).unwrap_or_default();
            (
                total
                    .first()
                    .map(|series| series.points().map(|points| points.into_owned()))
                    .transpose()?
                    .unwrap_or_default(),
                name,
            )
        }
        Some(Value::Series(total)) => {
            let reason = format!(
                "total must be missing, a number, one series or as many as the first list ({}), found {}",
                list.len(),
                total.len()
            );
            return Err(EvalError::of_function("asPercent", &reason));
        }
        Some(constant) => {
            let number = constant
                .number()
                .ok_or_else(|| EvalError::of_function("asPercent", "total must be a number or series"))?;
            let len = list.first().map_or(0, |series| series.values.len());
            (vec![number; len], constant.text())
        }
    };
    let mut results = Vec::with_capacity(list.len());
    for series in list {
        scope.shared.budget.reserve_points(series.values.len().max(totals.len()) as u64)?;
        let values = zip_longest(&series.points()?, &totals, percent);
        let total_text = if text.is_empty() { &series.path_expression } else { &text };
        reserve_names(scope, &series.name, total_text)?;
        let grid = Grid { start: series.start, end: series.end, step: series.step };
        results.push(Series::new(
            format!("asPercent({},{total_text})", series.name),
            grid,
            values,
            scope.x_files_factor,
        ));
    }
    Ok(results)
}

fn row_sums(list: &[Series]) -> Result<Vec<f64>, EvalError> {
    let mut sums = Vec::new();
    for_each_row(&all_points(list)?, |row| sums.push(Aggregation::Sum.apply(row)));
    Ok(sums)
}

/// Both lists by name, pair by pair.
fn percent_by_pair(
    scope: &Scope<'_>,
    mut list: Vec<Series>,
    mut total: Vec<Series>,
) -> Result<Vec<Series>, EvalError> {
    list.sort_by(|a, b| a.name.cmp(&b.name));
    total.sort_by(|a, b| a.name.cmp(&b.name));
    let mut results = Vec::with_capacity(list.len());
    for (mut series, mut total) in list.into_iter().zip(total) {
        reserve_names(scope, &series.name, &total.name)?;
        let name = format!("asPercent({},{})", series.name, total.name);
        if let Some((grid, values)) = percent_of(scope, &mut series, &mut total)? {
            results.push(Series::new(name, grid, values, scope.x_files_factor));
        }
    }
    Ok(results)
}

/// Reserves the name of a series that is made of two names, which is its path expression and its tag as well.
fn reserve_names(scope: &Scope<'_>, first: &str, second: &str) -> Result<(), EvalError> {
    scope.shared.budget.reserve_bytes(4 * (first.len() as u64 + second.len() as u64))
}

fn percent_of(
    scope: &Scope<'_>,
    series: &mut Series,
    total: &mut Series,
) -> Result<Option<(Grid, Vec<f64>)>, EvalError> {
    scope.shared.budget.reserve_points(series.values.len().max(total.values.len()) as u64)?;
    let Some(grid) = normalize([&mut *series, &mut *total])? else { return Ok(None) };
    Ok(Some((grid, zip_longest(&series.points()?, &total.points()?, percent))))
}

/// One total per key: the sum of the series with that key, or the series itself if it is alone.
fn total_of(
    scope: &Scope<'_>,
    mut members: Vec<Series>,
    last_grid: &mut Option<Grid>,
) -> Result<Option<Series>, EvalError> {
    if members.len() < 2 {
        return Ok(members.pop());
    }
    let name = format!("sumSeries({})", path_expressions(&members));
    let Some(grid) = normalize(&mut members)? else { return Ok(None) };
    *last_grid = Some(grid);
    Ok(Some(Series::new(name, grid, row_sums(&members)?, scope.x_files_factor)))
}

fn percent_by_key(
    scope: &Scope<'_>,
    list: Vec<Series>,
    total: Option<Vec<Series>>,
    keys: &[Value],
) -> Result<Vec<Series>, EvalError> {
    let key = |series: &Series| {
        scope.shared.budget.reserve_bytes(2 * key_bytes_max(series, keys.len()))?;
        key_of(series, keys)
    };
    scope.shared.budget.reserve_bytes(list.iter().map(Series::label_bytes).sum())?;
    let groups = group_by(list, key)?;
    let mut last_grid = None;
    let mut totals = Vec::new();
    let total_groups = match total {
        None => groups.clone(),
        Some(total) => group_by(total, key)?,
    };
    for (key, members) in total_groups {
        if let Some(total) = total_of(scope, members, &mut last_grid)? {
            totals.push((key, total));
        }
    }
    let mut results = Vec::new();
    let missing = |name: String, len: usize, grid: Option<Grid>| {
        let grid =
            grid.ok_or_else(|| EvalError::of_function("asPercent", "no group has both series and total"))?;
        scope.shared.budget.reserve_points(len as u64)?;
        Ok::<Series, EvalError>(Series::new(name, grid, vec![ABSENT; len], scope.x_files_factor))
    };
    let only_totals: Vec<usize> = totals
        .iter()
        .enumerate()
        .filter(|(_, (key, _))| !groups.iter().any(|(known, _)| known == key))
        .map(|(idx, _)| idx)
        .collect();
    for (key, members) in groups {
        for mut series in members {
            let Some((_, total)) = totals.iter_mut().find(|(known, _)| *known == key) else {
                results.push(missing(
                    format!("asPercent({},MISSING)", series.name),
                    series.points()?.len(),
                    last_grid,
                )?);
                continue;
            };
            reserve_names(scope, &series.name, &total.name)?;
            let name = format!("asPercent({},{})", series.name, total.name);
            if let Some((grid, values)) = percent_of(scope, &mut series, total)? {
                last_grid = Some(grid);
                results.push(Series::new(name, grid, values, scope.x_files_factor));
            }
        }
    }
    for (_, total) in only_totals.into_iter().filter_map(|idx| totals.get(idx)) {
        results.push(missing(
            format!("asPercent(MISSING,{})", total.name),
            total.points()?.len(),
            last_grid,
        )?);
    }
    Ok(results)
}

fn quotient(scope: &Scope<'_>, dividend: &mut Series, divisor: &mut Series) -> Result<Series, EvalError> {
    reserve_names(scope, &dividend.name, &divisor.name)?;
    let name = format!("divideSeries({},{})", dividend.name, divisor.name);
    let grid = normalize([&mut *dividend, &mut *divisor])?.unwrap_or(Grid { start: 0, end: 0, step: 1 });
    let values = zip_longest(&dividend.points()?, &divisor.points()?, divide);
    scope.shared.budget.reserve_points(values.len() as u64)?;
    Ok(Series::new(name, grid, values, scope.x_files_factor))
}

fn divide_series(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    let mut divisors = args.take_series(1)?;
    if divisors.len() > 1 {
        let reason = format!("second argument must be exactly 1 series, found {}", divisors.len());
        return Err(EvalError::of_function("divideSeries", &reason));
    }
    let Some(mut divisor) = divisors.pop() else {
        for series in &mut list {
            series.rename(format!("divideSeries({},MISSING)", series.name));
            series.values_mut().fill(ABSENT);
        }
        return Ok(Value::Series(list));
    };
    let results: Result<Vec<Series>, EvalError> =
        list.iter_mut().map(|series| quotient(scope, series, &mut divisor)).collect();
    results.map(Value::Series)
}

fn divide_series_lists(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut dividends = args.take_series(0)?;
    let mut divisors = args.take_series(1)?;
    if dividends.len() != divisors.len() {
        let reason =
            format!("both lists must have the same length, found {} and {}", dividends.len(), divisors.len());
        return Err(EvalError::of_function("divideSeriesLists", &reason));
    }
    let pairs = dividends.iter_mut().zip(&mut divisors);
    let results: Result<Vec<Series>, EvalError> =
        pairs.map(|(dividend, divisor)| quotient(scope, dividend, divisor)).collect();
    results.map(Value::Series)
}

fn weighted_average(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let averages = args.take_series(0)?;
    let weights = args.take_series(1)?;
    let nodes = args.repeated().to_vec();
    if averages.len() != weights.len() {
        let reason =
            format!("both lists must have the same length, found {} and {}", averages.len(), weights.len());
        return Err(EvalError::of_function("weightedAverage", &reason));
    }
    let names = |list: &[Series]| {
        let mut names: Vec<&str> = list.iter().map(|series| series.path_expression.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names.join(",")
    };
    let node_texts: Vec<String> = nodes.iter().map(Value::text).collect();
    let name =
        format!("weightedAverage({}, {}, {})", names(&averages), names(&weights), node_texts.join(","));
    let products = weighted_products(scope, &averages, &weights, &nodes)?;
    let Some(sum) = aggregate(scope, products, "sum", None)? else { return Ok(Value::Series(Vec::new())) };
    let Some(weight) = aggregate(scope, weights, "sum", None)? else { return Ok(Value::Series(Vec::new())) };
    let values = zip_longest(&sum.values, &weight.values, divide);
    let grid = Grid { start: sum.start, end: sum.end, step: sum.step };
    Ok(Value::Series(vec![Series::new(name, grid, values, scope.x_files_factor)]))
}

/// Products of the last average and the last weight of each key that has both.
fn weighted_products(
    scope: &Scope<'_>,
    averages: &[Series],
    weights: &[Series],
    nodes: &[Value],
) -> Result<Vec<Series>, EvalError> {
    let mut pairs: Vec<(String, Option<&Series>, Option<&Series>)> = Vec::new();
    for (average, weight) in averages.iter().zip(weights) {
        for (series, is_average) in [(average, true), (weight, false)] {
            scope.shared.budget.reserve_bytes(key_bytes_max(series, nodes.len()))?;
            let key = key_of(series, nodes)?;
            let idx = pairs.iter().position(|(known, ..)| *known == key).unwrap_or_else(|| {
                pairs.push((key, None, None));
                pairs.len() - 1
            });
            if let Some((_, average, weight)) = pairs.get_mut(idx) {
                *(if is_average { average } else { weight }) = Some(series);
            }
        }
    }
    let mut products = Vec::new();
    for (_, average, weight) in pairs {
        let (Some(average), Some(weight)) = (average, weight) else { continue };
        scope.shared.budget.reserve_points(average.values.len().max(weight.values.len()) as u64)?;
        reserve_names(scope, &average.name, &weight.name)?;
        let values = zip_longest(&average.points()?, &weight.points()?, |a, b| a * b);
        let grid = Grid { start: average.start, end: average.end, step: average.step };
        products.push(Series::new(
            format!("product({},{})", weight.name, average.name),
            grid,
            values,
            scope.x_files_factor,
        ));
    }
    Ok(products)
}
