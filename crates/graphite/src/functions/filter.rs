//! Series by their values or names, and values by limits.
//!
//! Invariant: filters of series change neither names nor values; filters of values rename.
//! Not here: percentiles (`percentile`), order (`sort`).

use super::combine::is_enough;
use super::function::{Function, Group};
use super::node_key::slice_range;
use super::signature::{SERIES_LIST, function, optional, repeated, required};
use crate::absent::ABSENT;
use crate::aggregation::{Aggregation, largest, sum_in_order};
use crate::error::EvalError;
use crate::format_number::general;
use crate::parameters::{Bound, Parameter, ParameterType};
use crate::python_regex::PythonRegex;
use crate::scope::Scope;
use crate::series::Series;
use crate::value::Value;

const THRESHOLD: &[Parameter] = &[SERIES_LIST, required("n", ParameterType::Float)];
const COUNT: &[Parameter] = &[SERIES_LIST, required("n", ParameterType::Integer)];
const PATTERN: &[Parameter] = &[SERIES_LIST, required("pattern", ParameterType::Text)];
const FACTOR: &[Parameter] = &[SERIES_LIST, optional("xFilesFactor", ParameterType::Float)];

pub(super) const FUNCTIONS: &[Function] = &[
    function(
        "filterSeries",
        Group::FilterSeries,
        &[
            SERIES_LIST,
            required("func", ParameterType::AggFunc),
            Parameter {
                options: &["!=", "<", "<=", "=", ">", ">="],
                ..required("operator", ParameterType::Text)
            },
            required("threshold", ParameterType::Float),
        ],
        |_, args| {
            let name = args.text(1)?.to_owned();
            let operator = args.text(2)?.to_owned();
            let threshold = args.number(3)?;
            filter_by(args, &name, &operator, threshold)
        },
        "Series whose aggregated value compares to a threshold.",
    ),
    function(
        "averageAbove",
        Group::FilterSeries,
        THRESHOLD,
        |_, args| threshold(args, "average", ">"),
        "Series with an average above a threshold.",
    ),
    function(
        "averageBelow",
        Group::FilterSeries,
        THRESHOLD,
        |_, args| threshold(args, "average", "<="),
        "Series with an average of a threshold at most.",
    ),
    function(
        "currentAbove",
        Group::FilterSeries,
        THRESHOLD,
        |_, args| threshold(args, "last", ">"),
        "Series with a last value above a threshold.",
    ),
    function(
        "currentBelow",
        Group::FilterSeries,
        THRESHOLD,
        |_, args| threshold(args, "last", "<="),
        "Series with a last value of a threshold at most.",
    ),
    function(
        "maximumAbove",
        Group::FilterSeries,
        THRESHOLD,
        |_, args| threshold(args, "max", ">"),
        "Series with a largest value above a threshold.",
    ),
    function(
        "maximumBelow",
        Group::FilterSeries,
        THRESHOLD,
        |_, args| threshold(args, "max", "<="),
        "Series with a largest value of a threshold at most.",
    ),
    function(
        "minimumAbove",
        Group::FilterSeries,
        THRESHOLD,
        |_, args| threshold(args, "min", ">"),
        "Series with a smallest value above a threshold.",
    ),
    function(
        "minimumBelow",
        Group::FilterSeries,
        THRESHOLD,
        |_, args| threshold(args, "min", "<="),
        "Series with a smallest value of a threshold at most.",
    ),
    function("limit", Group::FilterSeries, COUNT, |_, args| first_of(args), "The first series of a list."),
    function("mostDeviant", Group::FilterSeries, COUNT, most_deviant, "Series with the largest variance."),
    function(
        "exclude",
        Group::FilterSeries,
        PATTERN,
        |scope, args| by_pattern(scope, args, |is_match| !is_match),
        "Series whose names do not match a regex.",
    ),
    function(
        "grep",
        Group::FilterSeries,
        PATTERN,
        |scope, args| by_pattern(scope, args, |is_match| is_match),
        "Series whose names match a regex.",
    ),
    function(
        "removeEmptySeries",
        Group::FilterSeries,
        FACTOR,
        |_, args| by_share(args, |value| !value.is_nan()),
        "Series with values.",
    ),
    function(
        "removeZeroSeries",
        Group::FilterSeries,
        FACTOR,
        |_, args| by_share(args, |value| !value.is_nan() && value != 0.0),
        "Series with values other than 0.",
    ),
    function(
        "unique",
        Group::FilterSeries,
        &[repeated("seriesLists", ParameterType::SeriesList)],
        unique,
        "Series without those of the same name.",
    ),
    function(
        "useSeriesAbove",
        Group::FilterSeries,
        &[
            SERIES_LIST,
            required("value", ParameterType::Float),
            required("search", ParameterType::Text),
            required("replace", ParameterType::Text),
        ],
        use_series_above,
        "Other series for those with a value above a threshold.",
    ),
    function(
        "removeAboveValue",
        Group::FilterData,
        THRESHOLD,
        |_, args| by_value(args, "removeAboveValue", |value, n| value <= n),
        "Removes values above a limit.",
    ),
    function(
        "removeBelowValue",
        Group::FilterData,
        THRESHOLD,
        |_, args| by_value(args, "removeBelowValue", |value, n| value >= n),
        "Removes values below a limit.",
    ),
    function(
        "fallbackSeries",
        Group::Special,
        &[SERIES_LIST, required("fallback", ParameterType::SeriesList)],
        |_, args| {
            let list = args.take_series(0)?;
            if list.is_empty() { args.take_series(1).map(Value::Series) } else { Ok(Value::Series(list)) }
        },
        "Another list if the first is empty.",
    ),
];

/// Compares; an empty value is unequal to and below every threshold.
fn compares(value: f64, operator: &str, threshold: f64) -> Option<bool> {
    let is_absent = value.is_nan();
    Some(match operator {
        "=" => value == threshold,
        "!=" => is_absent || value != threshold,
        ">" => value > threshold,
        ">=" => value >= threshold,
        "<" => is_absent || value < threshold,
        "<=" => is_absent || value <= threshold,
        _ => return None,
    })
}

fn filter_by(args: &mut Bound, name: &str, operator: &str, threshold: f64) -> Result<Value, EvalError> {
    let aggregation = Aggregation::named(name)?;
    if compares(0.0, operator, threshold).is_none() {
        return Err(EvalError::of_function("filterSeries", &format!("unsupported operator: {operator}")));
    }
    let mut list = args.take_series(0)?;
    list.retain(|series| compares(aggregation.apply(&series.values), operator, threshold) == Some(true));
    Ok(Value::Series(list))
}

fn threshold(args: &mut Bound, name: &str, operator: &str) -> Result<Value, EvalError> {
    let n = args.number(1)?;
    filter_by(args, name, operator, n)
}

/// Keeps the first `n` of a list; a negative number leaves as many out at the end.
pub(super) fn keep_first<T>(list: &mut Vec<T>, n: i64) {
    let len = slice_range(list.len(), Some(0), Some(n)).len();
    list.truncate(len);
}

fn first_of(args: &mut Bound) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    keep_first(&mut list, args.integer(1)?);
    Ok(Value::Series(list))
}

fn most_deviant(_scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let list = args.take_series(0)?;
    let mut deviants = Vec::new();
    for series in list {
        let mean = Aggregation::Average.apply(&series.values);
        let squares = sum_in_order(
            series
                .values
                .iter()
                .filter(|value| !value.is_nan())
                .map(|value| super::rate::square(value - mean)),
        );
        let variance = squares / Aggregation::Count.apply(&series.values);
        if !variance.is_nan() {
            deviants.push((variance, series));
        }
    }
    deviants.sort_by(|a, b| b.0.total_cmp(&a.0));
    keep_first(&mut deviants, args.integer(1)?);
    Ok(Value::Series(deviants.into_iter().map(|(_, series)| series).collect()))
}

fn by_pattern(scope: &mut Scope<'_>, args: &mut Bound, keeps: fn(bool) -> bool) -> Result<Value, EvalError> {
    let list = args.take_series(0)?;
    let regex = PythonRegex::new(args.text(1)?)?;
    let mut kept = Vec::new();
    for series in list {
        scope.shared.budget.check()?;
        if keeps(regex.is_match(&series.name)?) {
            kept.push(series);
        }
    }
    Ok(Value::Series(kept))
}

fn by_share(args: &mut Bound, counts: fn(f64) -> bool) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    let factor = args.optional_number(1)?.unwrap_or(0.0);
    list.retain(|series| {
        let present = series.values.iter().filter(|value| counts(**value)).count();
        is_enough(present, series.values.len() as f64, factor)
    });
    Ok(Value::Series(list))
}

fn unique(_scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut list: Vec<Series> = args.take_repeated_series()?.into_iter().flatten().collect();
    let mut seen = chronolith_base::hash::HashSet::default();
    list.retain(|series| seen.insert(series.name.clone()));
    Ok(Value::Series(list))
}

fn use_series_above(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let list = args.take_series(0)?;
    let threshold = args.number(1)?;
    let regex = PythonRegex::new(args.text(2)?)?;
    let template = args.text(3)?;
    let mut names = Vec::new();
    for series in &list {
        let name = regex.substitute(template, &series.name)?;
        if largest(&series.values) > threshold {
            // The name, and its copy in the target.
            scope.shared.budget.reserve_bytes(2 * name.len() as u64)?;
            names.push(name);
        }
    }
    if names.is_empty() {
        return Ok(Value::Series(Vec::new()));
    }
    let mut found = scope.evaluate_text(&format!("group({})", names.join(",")))?;
    found.retain(|series| !series.values.is_empty());
    Ok(Value::Series(found))
}

fn by_value(args: &mut Bound, name: &str, keeps: fn(f64, f64) -> bool) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    let n = args.number(1)?;
    for series in &mut list {
        series.rename(format!("{name}({}, {})", series.name, general(n)));
        series.map_present(|value| if keeps(value, n) { value } else { ABSENT });
    }
    Ok(Value::Series(list))
}
