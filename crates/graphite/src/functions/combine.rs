//! Aggregation of series: `sumSeries` and its relatives, with wildcards and over pairs of lists.
//!
//! Invariants: a point of the result needs as many values as the xFilesFactor asks for; tags that all series
//! share stay. Values of a point are added in the order of the series.
//! Not here: grouping by nodes and tags (`group`), percentages (`percent`).

use std::borrow::Cow;

use super::function::{Function, Group};
use super::grid::{all_points, for_each_row, normalize};
use super::node_key::group_by;
use super::signature::{SERIES_LIST, any_number, function, optional, repeated, required};
use crate::absent::ABSENT;
use crate::aggregation::{Aggregation, PercentileMethod, larger, percentile, smaller};
use crate::error::EvalError;
use crate::format_number::general;
use crate::parameters::{Bound, Parameter, ParameterType, Toggle};
use crate::scope::Scope;
use crate::series::{Series, Tags};
use crate::value::Value;

const LISTS: &[Parameter] = &[repeated("seriesLists", ParameterType::SeriesList)];
const PAIR: &[Parameter] = &[
    required("seriesListFirstPos", ParameterType::SeriesList),
    required("seriesListSecondPos", ParameterType::SeriesList),
];
const WILDCARDS: &[Parameter] = &[SERIES_LIST, any_number("position", ParameterType::Node)];

pub(super) const FUNCTIONS: &[Function] = &[
    function(
        "aggregate",
        Group::Combine,
        &[
            SERIES_LIST,
            required("func", ParameterType::AggFunc),
            optional("xFilesFactor", ParameterType::Float),
        ],
        run_aggregate,
        "Aggregates all series to one by the named function.",
    ),
    function(
        "sumSeries",
        Group::Combine,
        LISTS,
        |scope, args| over_lists(scope, args, "sum"),
        "Adds series point by point.",
    ),
    function(
        "sum",
        Group::Combine,
        LISTS,
        |scope, args| over_lists(scope, args, "sum"),
        "Short form of sumSeries.",
    ),
    function(
        "averageSeries",
        Group::Combine,
        LISTS,
        |scope, args| over_lists(scope, args, "average"),
        "Averages series point by point.",
    ),
    function(
        "avg",
        Group::Combine,
        LISTS,
        |scope, args| over_lists(scope, args, "average"),
        "Short form of averageSeries.",
    ),
    function(
        "diffSeries",
        Group::Combine,
        LISTS,
        |scope, args| over_lists(scope, args, "diff"),
        "Subtracts all other series from the first.",
    ),
    function(
        "stddevSeries",
        Group::Combine,
        LISTS,
        |scope, args| over_lists(scope, args, "stddev"),
        "Standard deviation across series.",
    ),
    function(
        "minSeries",
        Group::Combine,
        LISTS,
        |scope, args| over_lists(scope, args, "min"),
        "Smallest value across series.",
    ),
    function(
        "maxSeries",
        Group::Combine,
        LISTS,
        |scope, args| over_lists(scope, args, "max"),
        "Largest value across series.",
    ),
    function(
        "rangeOfSeries",
        Group::Combine,
        LISTS,
        |scope, args| over_lists(scope, args, "rangeOf"),
        "Largest minus smallest value across series.",
    ),
    function("multiplySeries", Group::Combine, LISTS, run_multiply, "Multiplies series point by point."),
    function(
        "countSeries",
        Group::Combine,
        &[any_number("seriesLists", ParameterType::SeriesList)],
        run_count,
        "Number of series.",
    ),
    function(
        "powSeries",
        Group::Combine,
        &[repeated("seriesList", ParameterType::SeriesList)],
        run_power,
        "Raises the first series to the power of each other.",
    ),
    function(
        "percentileOfSeries",
        Group::Combine,
        &[
            SERIES_LIST,
            required("n", ParameterType::Float),
            super::signature::with_bool("interpolate", false),
        ],
        run_percentile,
        "Percentile across series at each point.",
    ),
    function(
        "sumSeriesWithWildcards",
        Group::Combine,
        WILDCARDS,
        |scope, args| with_wildcards(scope, args, "sum"),
        "Adds series that agree in all nodes but these.",
    ),
    function(
        "averageSeriesWithWildcards",
        Group::Combine,
        WILDCARDS,
        |scope, args| with_wildcards(scope, args, "average"),
        "Averages series that agree in all nodes but these.",
    ),
    function(
        "multiplySeriesWithWildcards",
        Group::Combine,
        WILDCARDS,
        |scope, args| with_wildcards(scope, args, "multiply"),
        "Multiplies series that agree in all nodes but these.",
    ),
    function(
        "aggregateWithWildcards",
        Group::Combine,
        &[SERIES_LIST, required("func", ParameterType::AggFunc), any_number("position", ParameterType::Node)],
        |scope, args| {
            let name = args.text(1)?.to_owned();
            with_wildcards(scope, args, &name)
        },
        "Aggregates series that agree in all nodes but these.",
    ),
    function(
        "sumSeriesLists",
        Group::Combine,
        PAIR,
        |scope, args| over_pairs(scope, args, "sum", None),
        "Adds the lists pair by pair.",
    ),
    function(
        "diffSeriesLists",
        Group::Combine,
        PAIR,
        |scope, args| over_pairs(scope, args, "diff", None),
        "Subtracts the lists pair by pair.",
    ),
    function(
        "multiplySeriesLists",
        Group::Combine,
        PAIR,
        |scope, args| over_pairs(scope, args, "multiply", None),
        "Multiplies the lists pair by pair.",
    ),
    function(
        "aggregateSeriesLists",
        Group::Combine,
        &[
            required("seriesListFirstPos", ParameterType::SeriesList),
            required("seriesListSecondPos", ParameterType::SeriesList),
            required("func", ParameterType::AggFunc),
            optional("xFilesFactor", ParameterType::Float),
        ],
        |scope, args| {
            let name = args.text(2)?.to_owned();
            let factor = args.optional_number(3)?;
            over_pairs(scope, args, &name, factor)
        },
        "Aggregates the lists pair by pair.",
    ),
];

/// Path expressions without duplicates, joined by commas.
pub(super) fn path_expressions(list: &[Series]) -> String {
    let mut seen = chronolith_base::hash::HashSet::default();
    let expressions: Vec<&str> =
        list.iter().map(|series| series.path_expression.as_str()).filter(|text| seen.insert(*text)).collect();
    expressions.join(",")
}

/// Tags that all series have with the same value.
fn shared_tags(list: &[Series]) -> Tags {
    let mut tags = list.first().map(|series| series.tags.clone()).unwrap_or_default();
    for series in list {
        tags.retain(|key, value| series.tags.get(key) == Some(value));
    }
    tags
}

/// Aggregates a list to one series; `None` if the list is empty.
/// # Errors
/// [`EvalError::Parameter`] for an unknown aggregation or grids without a common step; limits.
pub(super) fn aggregate(
    scope: &Scope<'_>,
    mut list: Vec<Series>,
    name: &str,
    factor: Option<f64>,
) -> Result<Option<Series>, EvalError> {
    let name = name.strip_suffix("Series").unwrap_or(name);
    let aggregation = Aggregation::named(name)?;
    let Some(grid) = normalize(&mut list)? else { return Ok(None) };
    let factor = factor.unwrap_or(scope.x_files_factor);
    let expression_bytes = list.iter().map(|series| series.path_expression.len() as u64).sum::<u64>();
    let longest = list.iter().map(|series| series.values.len()).max().unwrap_or(0);
    scope.shared.budget.reserve_bytes(3 * expression_bytes)?;
    scope.shared.budget.reserve_points(longest as u64)?;
    let title = format!("{name}Series({})", path_expressions(&list));
    let points = all_points(&list)?;
    let values = aggregate_points(&points, aggregation, factor);
    assert!(values.len() <= longest, "points are reserved before they are computed");
    let mut series = Series::new(title.clone(), grid, values, factor);
    series.is_integral = aggregation == Aggregation::Count
        || aggregation.keeps_integers() && list.iter().all(|one| one.is_integral);
    series.tags = shared_tags(&list);
    series.tags.entry("name".to_owned()).or_insert(title);
    series.tag("aggregatedBy", name);
    Ok(Some(series))
}

/// Returns true if `present` of `total` values satisfy the factor.
pub(super) fn is_enough(present: usize, total: f64, factor: f64) -> bool {
    present > 0 && total != 0.0 && present as f64 / total >= factor
}

/// PERF: the common aggregations run series by series over columns of sums and counts, so that each series is
/// read once and in order, without a branch per point; points are added in the order of the series either
/// way.
fn aggregate_points(points: &[Cow<'_, [f64]>], aggregation: Aggregation, factor: f64) -> Vec<f64> {
    let (mut values, counts) = match aggregation {
        Aggregation::Sum | Aggregation::Average | Aggregation::AverageZero => {
            fold_points(points, |sum, point, _| sum + point)
        }
        Aggregation::Min => {
            fold_points(points, |least, point, count| if count == 0 { point } else { smaller(least, point) })
        }
        Aggregation::Max => {
            fold_points(points, |most, point, count| if count == 0 { point } else { larger(most, point) })
        }
        Aggregation::Last => fold_points(points, |_, point, _| point),
        _ => return aggregate_rows(points, aggregation, factor),
    };
    assert_eq!(values.len(), counts.len(), "each result has its number of values");
    let total = points.len() as f64;
    for (value, count) in values.iter_mut().zip(counts) {
        if !is_enough(count as usize, total, factor) {
            *value = ABSENT;
        } else if aggregation == Aggregation::Average {
            *value /= count as f64;
        } else if aggregation == Aggregation::AverageZero {
            *value /= total;
        }
    }
    values
}

/// Folds the points of all series that have a value, position by position from 0 on; `fold` is also given the
/// number of values before. Returns the results, and the numbers of values.
fn fold_points(points: &[Cow<'_, [f64]>], fold: impl Fn(f64, f64, u64) -> f64) -> (Vec<f64>, Vec<u64>) {
    let len = points.iter().map(|points| points.len()).max().unwrap_or(0);
    let mut values = vec![0.0; len];
    let mut counts = vec![0u64; len];
    for series in points {
        for ((value, count), point) in values.iter_mut().zip(&mut counts).zip(series.iter()) {
            let is_present = !point.is_nan();
            let folded = fold(*value, *point, *count);
            *value = if is_present { folded } else { *value };
            *count += u64::from(is_present);
        }
    }
    (values, counts)
}

fn aggregate_rows(points: &[Cow<'_, [f64]>], aggregation: Aggregation, factor: f64) -> Vec<f64> {
    let mut values = Vec::new();
    for_each_row(points, |row| {
        let present = row.iter().filter(|value| !value.is_nan()).count();
        values.push(if is_enough(present, row.len() as f64, factor) {
            aggregation.apply(row)
        } else {
            ABSENT
        });
    });
    values
}

fn run_aggregate(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let list = args.take_series(0)?;
    let aggregated = aggregate(scope, list, args.text(1)?, args.optional_number(2)?)?;
    Ok(Value::Series(aggregated.into_iter().collect()))
}

fn over_lists(scope: &mut Scope<'_>, args: &mut Bound, name: &str) -> Result<Value, EvalError> {
    let list = args.take_repeated_series()?.into_iter().flatten().collect();
    Ok(Value::Series(aggregate(scope, list, name, None)?.into_iter().collect()))
}

fn run_multiply(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut lists = args.take_repeated_series()?;
    // A single series is returned as it is, under its own name.
    if lists.len() == 1 && lists.first().is_some_and(|list| list.len() == 1) {
        return Ok(Value::Series(lists.pop().unwrap_or_default()));
    }
    let list = lists.into_iter().flatten().collect();
    Ok(Value::Series(aggregate(scope, list, "multiply", None)?.into_iter().collect()))
}

fn run_count(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    if args.repeated().is_empty() {
        let mut series = super::generate::constant_line(scope, &Value::Int(0))?;
        series.path_expression = "countSeries()".to_owned();
        return Ok(Value::Series(vec![series]));
    }
    let mut list: Vec<Series> = args.take_repeated_series()?.into_iter().flatten().collect();
    let Some(grid) = normalize(&mut list)? else { return Ok(Value::Series(Vec::new())) };
    let len = all_points(&list)?.iter().map(|points| points.len()).max().unwrap_or(0);
    let name = format!("countSeries({})", path_expressions(&list));
    let mut series = Series::new(name, grid, vec![list.len() as f64; len], scope.x_files_factor);
    series.is_integral = true;
    Ok(Value::Series(vec![series]))
}

fn run_power(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut list: Vec<Series> = args.take_repeated_series()?.into_iter().flatten().collect();
    let Some(grid) = normalize(&mut list)? else { return Ok(Value::Series(Vec::new())) };
    let names: Vec<&str> = list.iter().map(|series| series.name.as_str()).collect();
    let mut values = Vec::new();
    for_each_row(&all_points(&list)?, |row| {
        values.push(row.iter().copied().reduce(super::transform::power).unwrap_or(ABSENT));
    });
    Ok(Value::Series(vec![Series::new(
        format!("powSeries({})", names.join(",")),
        grid,
        values,
        scope.x_files_factor,
    )]))
}

fn run_percentile(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let percent = args.number(1)?;
    if percent <= 0.0 {
        return Err(EvalError::of_function("percentileOfSeries", "the percentage must be greater than 0"));
    }
    let mut list = args.take_series(0)?;
    let method = if args.is_set_or(2, Toggle::Off) {
        PercentileMethod::Interpolated
    } else {
        PercentileMethod::Nearest
    };
    let Some(grid) = normalize(&mut list)? else { return Ok(Value::Series(Vec::new())) };
    let first = list.first().map(|series| series.path_expression.clone()).unwrap_or_default();
    let mut values = Ok(Vec::new());
    for_each_row(&all_points(&list)?, |row| match percentile(row, percent, method) {
        Ok(value) => {
            if let Ok(values) = &mut values {
                values.push(value);
            }
        }
        Err(error) => values = Err(error),
    });
    let name = format!("percentileOfSeries({first},{})", general(percent));
    Ok(Value::Series(vec![Series::new(name, grid, values?, scope.x_files_factor)]))
}

fn with_wildcards(scope: &mut Scope<'_>, args: &mut Bound, name: &str) -> Result<Value, EvalError> {
    let list = args.take_series(0)?;
    let positions: Vec<f64> = args.repeated().iter().filter_map(Value::number).collect();
    let groups = group_by(list, |series| {
        let nodes = series.name.split('.').enumerate().filter(|(idx, _)| !positions.contains(&(*idx as f64)));
        Ok(nodes.map(|(_, node)| node).collect::<Vec<_>>().join("."))
    })?;
    let mut results = Vec::new();
    for (key, members) in groups {
        if let Some(mut series) = aggregate(scope, members, name, None)? {
            series.name = key;
            results.push(series);
        }
    }
    Ok(Value::Series(results))
}

fn over_pairs(
    scope: &mut Scope<'_>,
    args: &mut Bound,
    name: &str,
    factor: Option<f64>,
) -> Result<Value, EvalError> {
    let first = args.take_series(0)?;
    let second = args.take_series(1)?;
    if first.len() != second.len() {
        return Err(EvalError::Parameter(format!(
            "both lists must have the same length, found {} and {}",
            first.len(),
            second.len()
        )));
    }
    let mut results = Vec::new();
    for (left, right) in first.into_iter().zip(second) {
        let names = format!("Series({},{})", left.name, right.name);
        if let Some(mut series) = aggregate(scope, vec![left, right], name, factor)? {
            let prefix = series.name.find("Series(").unwrap_or(0);
            series.name.truncate(prefix);
            series.name.push_str(&names);
            results.push(series);
        }
    }
    Ok(Value::Series(results))
}
