//! Order of series, and the first ones in an order.
//!
//! Invariant: sorting is stable in both directions; a series without a value comes before all in
//! ascending order.
//! Not here: filters by value (`filter`).

use super::filter::keep_first;
use super::function::{Function, Group};
use super::signature::{SERIES_LIST, function, required, with_bool, with_text};
use crate::aggregation::{Aggregation, largest, smallest};
use crate::error::EvalError;
use crate::parameters::{Bound, Parameter, ParameterType, Toggle};
use crate::scope::Scope;
use crate::series::Series;
use crate::value::Value;

const COUNT: &[Parameter] = &[SERIES_LIST, required("n", ParameterType::Integer)];
const COUNT_BY: &[Parameter] = &[
    SERIES_LIST,
    required("n", ParameterType::Integer),
    with_text("func", ParameterType::AggFunc, "average"),
];

pub(super) const FUNCTIONS: &[Function] = &[
    function(
        "highest",
        Group::FilterSeries,
        COUNT_BY,
        |_, args| first_by(args, None, Order::Descending),
        "The series that an aggregation orders last.",
    ),
    function(
        "highestAverage",
        Group::FilterSeries,
        COUNT,
        |_, args| first_by(args, Some("average"), Order::Descending),
        "Series with the largest averages.",
    ),
    function(
        "highestCurrent",
        Group::FilterSeries,
        COUNT,
        |_, args| first_by(args, Some("current"), Order::Descending),
        "Series with the largest last values.",
    ),
    function(
        "highestMax",
        Group::FilterSeries,
        COUNT,
        |_, args| first_by(args, Some("max"), Order::Descending),
        "Series with the largest values.",
    ),
    function(
        "lowest",
        Group::FilterSeries,
        COUNT_BY,
        |_, args| first_by(args, None, Order::Ascending),
        "The series that an aggregation orders first.",
    ),
    function(
        "lowestAverage",
        Group::FilterSeries,
        COUNT,
        |_, args| first_by(args, Some("average"), Order::Ascending),
        "Series with the smallest averages.",
    ),
    function(
        "lowestCurrent",
        Group::FilterSeries,
        COUNT,
        |_, args| first_by(args, Some("current"), Order::Ascending),
        "Series with the smallest last values.",
    ),
    function(
        "sortBy",
        Group::Sorting,
        &[SERIES_LIST, with_text("func", ParameterType::AggFunc, "average"), with_bool("reverse", false)],
        |_, args| {
            let mut list = args.take_series(0)?;
            let aggregation = Aggregation::named(args.text_or(1, "average")?)?;
            sort_by(&mut list, |values| aggregation.apply(values), Order::of(args.is_set_or(2, Toggle::Off)));
            Ok(Value::Series(list))
        },
        "Sorts by an aggregated value.",
    ),
    function(
        "sortByTotal",
        Group::Sorting,
        &[SERIES_LIST],
        |_, args| sorted_by(args, |values| Aggregation::Sum.apply(values)),
        "Sorts by sums, largest first.",
    ),
    function(
        "sortByMaxima",
        Group::Sorting,
        &[SERIES_LIST],
        |_, args| sorted_by(args, largest),
        "Sorts by largest values, largest first.",
    ),
    function(
        "sortByMinima",
        Group::Sorting,
        &[SERIES_LIST],
        |_, args| {
            let mut list = args.take_series(0)?;
            list.retain(|series| largest(&series.values) > 0.0);
            sort_by(&mut list, smallest, Order::Ascending);
            Ok(Value::Series(list))
        },
        "Sorts series with positive values by smallest values.",
    ),
    function(
        "sortByName",
        Group::Sorting,
        &[SERIES_LIST, with_bool("natural", false), with_bool("reverse", false)],
        sort_by_name,
        "Sorts by names, numbers by value if natural.",
    ),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Ascending,
    Descending,
}

impl Order {
    fn of(is_reversed: bool) -> Self {
        if is_reversed { Order::Descending } else { Order::Ascending }
    }
}

fn sort_by(list: &mut Vec<Series>, value: impl Fn(&[f64]) -> f64, order: Order) {
    let key = |series: &Series| {
        let value = value(&series.values);
        // Adding 0 makes -0 equal to 0.
        if value.is_nan() { f64::NEG_INFINITY } else { value + 0.0 }
    };
    let mut keyed: Vec<(f64, Series)> =
        std::mem::take(list).into_iter().map(|series| (key(&series), series)).collect();
    keyed.sort_by(|a, b| if order == Order::Ascending { a.0.total_cmp(&b.0) } else { b.0.total_cmp(&a.0) });
    list.extend(keyed.into_iter().map(|(_, series)| series));
}

fn sorted_by(args: &mut Bound, value: fn(&[f64]) -> f64) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    sort_by(&mut list, value, Order::Descending);
    Ok(Value::Series(list))
}

fn first_by(args: &mut Bound, name: Option<&str>, order: Order) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    let n = args.value(1).map_or(Some(1), Value::whole);
    let n = n.ok_or_else(|| EvalError::Parameter("n must be a whole number".to_owned()))?;
    let aggregation = match name {
        Some(name) => Aggregation::named(name)?,
        None => Aggregation::named(args.text_or(2, "average")?)?,
    };
    sort_by(&mut list, |values| aggregation.apply(values), order);
    keep_first(&mut list, n);
    Ok(Value::Series(list))
}

/// Digits of a number in a name are filled up with zeros to this width.
const NATURAL_WIDTH: usize = 10;

fn natural_key(name: &str) -> String {
    let mut key = String::with_capacity(name.len() + NATURAL_WIDTH);
    let mut rest = name;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, after) = rest.split_at(start);
        let len = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let (digits, after) = after.split_at(len);
        key.push_str(before);
        let digits = digits.trim_start_matches('0');
        key.push_str(&format!("{:0>NATURAL_WIDTH$}", if digits.is_empty() { "0" } else { digits }));
        rest = after;
    }
    key.push_str(rest);
    key
}

fn sort_by_name(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    let is_natural = args.is_set_or(1, Toggle::Off);
    // Every other character may be a digit.
    let growth = if is_natural { 1 + NATURAL_WIDTH / 2 } else { 1 };
    let name_bytes: usize = list.iter().map(|series| series.name.len()).sum();
    scope.shared.budget.reserve_bytes((growth as u64).saturating_mul(name_bytes as u64))?;
    let key = |series: &Series| if is_natural { natural_key(&series.name) } else { series.name.clone() };
    let mut keyed: Vec<(String, Series)> = list.drain(..).map(|series| (key(&series), series)).collect();
    if args.is_set_or(2, Toggle::Off) {
        keyed.sort_by(|a, b| b.0.cmp(&a.0));
    } else {
        keyed.sort_by(|a, b| a.0.cmp(&b.0));
    }
    Ok(Value::Series(keyed.into_iter().map(|(_, series)| series).collect()))
}
