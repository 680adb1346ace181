//! Names of series: aliases, legends, case.
//!
//! Invariant: values and path expressions stay; only names change.
//! Not here: drawing (`draw`).

use super::function::{Function, Group};
use super::node_key::{key_bytes_max, key_of, slice_range};
use super::signature::{SERIES_LIST, any_number, function, optional, repeated, required, with_number};
use crate::aggregation::{Aggregation, largest, smallest};
use crate::error::EvalError;
use crate::format_number::{percent_format, repr};
use crate::parameters::{Bound, Parameter, ParameterType};
use crate::python_regex::PythonRegex;
use crate::scope::Scope;
use crate::series::Series;
use crate::value::Value;

const POSITIONS: &[Parameter] = &[SERIES_LIST, any_number("pos", ParameterType::Integer)];
const CACTI: &[Parameter] = &[
    SERIES_LIST,
    Parameter { options: &["si", "binary"], ..optional("system", ParameterType::Text) },
    optional("units", ParameterType::Text),
];

pub(super) const FUNCTIONS: &[Function] = &[
    function(
        "alias",
        Group::Alias,
        &[SERIES_LIST, required("newName", ParameterType::Text)],
        alias,
        "Gives all series this name.",
    ),
    function(
        "aliasByMetric",
        Group::Alias,
        &[SERIES_LIST],
        |_, args| substring(args, -1, 0),
        "Names each series by the last node.",
    ),
    function(
        "aliasByNode",
        Group::Alias,
        &[SERIES_LIST, repeated("nodes", ParameterType::NodeOrTag)],
        alias_by_node,
        "Names each series by nodes or tags.",
    ),
    function(
        "aliasByTags",
        Group::Alias,
        &[SERIES_LIST, repeated("tags", ParameterType::NodeOrTag)],
        alias_by_node,
        "Names each series by tags or nodes.",
    ),
    function(
        "aliasSub",
        Group::Alias,
        &[SERIES_LIST, required("search", ParameterType::Text), required("replace", ParameterType::Text)],
        alias_sub,
        "Replaces matches of a regex in names.",
    ),
    function(
        "aliasQuery",
        Group::Alias,
        &[
            SERIES_LIST,
            required("search", ParameterType::Text),
            required("replace", ParameterType::Text),
            required("newName", ParameterType::Text),
        ],
        alias_query,
        "Names each series by the last value of another.",
    ),
    function(
        "legendValue",
        Group::Alias,
        &[SERIES_LIST, any_number("valuesTypes", ParameterType::Text)],
        legend_value,
        "Adds aggregated values to names.",
    ),
    function(
        "upper",
        Group::Alias,
        POSITIONS,
        |_, args| change_case(args, |c| c.to_uppercase().collect()),
        "Names in upper case.",
    ),
    function(
        "lower",
        Group::Alias,
        POSITIONS,
        |_, args| change_case(args, |c| c.to_lowercase().collect()),
        "Names in lower case.",
    ),
    function(
        "substr",
        Group::Special,
        &[
            SERIES_LIST,
            with_number("start", ParameterType::Node, 0.0),
            with_number("stop", ParameterType::Node, 0.0),
        ],
        |_, args| {
            let start = whole_or_zero(args, 1)?;
            let stop = whole_or_zero(args, 2)?;
            substring(args, start, stop)
        },
        "Names each series by a range of nodes.",
    ),
    function(
        "cactiStyle",
        Group::Special,
        CACTI,
        cacti_style,
        "Adds current, largest and smallest value to names, in columns.",
    ),
];

fn whole_or_zero(args: &Bound, idx: usize) -> Result<i64, EvalError> {
    let Some(value) = args.value(idx) else { return Ok(0) };
    value.whole().ok_or_else(|| EvalError::of_function("substr", "start and stop must be whole numbers"))
}

fn alias(_scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    let name = args
        .value(1)
        .map(Value::text)
        .ok_or_else(|| EvalError::of_function("alias", "newName is missing"))?;
    for series in &mut list {
        series.name.clone_from(&name);
    }
    Ok(Value::Series(list))
}

fn alias_by_node(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    for series in &mut list {
        scope.shared.budget.reserve_bytes(key_bytes_max(series, args.repeated().len()))?;
        series.name = key_of(series, args.repeated())?;
    }
    Ok(Value::Series(list))
}

fn alias_sub(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    let regex = PythonRegex::new(args.text(1)?)?;
    let template = args.text(2)?;
    for series in &mut list {
        scope.shared.budget.check()?;
        series.name = regex.substitute(template, &series.name)?;
        scope.shared.budget.reserve_bytes(series.name.len() as u64)?;
    }
    Ok(Value::Series(list))
}

fn alias_query(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    let regex = PythonRegex::new(args.text(1)?)?;
    let template = args.text(2)?;
    let pattern = args.text(3)?;
    for series in &mut list {
        let query = regex.substitute(template, &series.name)?;
        let used_bytes = scope.shared.budget.used_bytes();
        let found = scope.evaluate_text(&query)?;
        let first = found.first().ok_or_else(|| {
            EvalError::of_function("aliasQuery", &format!("no series found with query: {query}"))
        })?;
        let last = Aggregation::Last.apply(&first.values);
        if last.is_nan() {
            return Err(EvalError::of_function(
                "aliasQuery",
                &format!("series {} has no last value", first.name),
            ));
        }
        let named = percent_format(pattern, last);
        series.name = named.ok_or_else(|| {
            EvalError::of_function("aliasQuery", &format!("newName '{pattern}' must format one number"))
        })?;
        drop(found);
        scope.shared.budget.release_to(used_bytes);
        scope.shared.budget.reserve_bytes(series.name.len() as u64)?;
    }
    Ok(Value::Series(list))
}

fn substring(args: &mut Bound, start: i64, stop: i64) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    for series in &mut list {
        let left = series.name.rfind('(').map_or(0, |at| at + 1);
        let right = series.name.find(')').unwrap_or(series.name.len());
        let clean = series.name.get(left..right.max(left)).unwrap_or("");
        let nodes: Vec<&str> = clean.split('.').collect();
        let range = slice_range(nodes.len(), Some(start), (stop != 0).then_some(stop));
        let name = nodes.get(range).unwrap_or(&[]).join(".");
        series.name = name.split(',').next().unwrap_or("").to_owned();
    }
    Ok(Value::Series(list))
}

fn change_case(args: &mut Bound, change: fn(char) -> String) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    let positions: Option<Vec<i64>> = args
        .repeated()
        .iter()
        .map(|value| if let Value::Int(idx) = value { Some(*idx) } else { None })
        .collect();
    let positions =
        positions.ok_or_else(|| EvalError::Parameter("positions must be whole numbers".to_owned()))?;
    for series in &mut list {
        let len = i64::try_from(series.name.chars().count()).unwrap_or(i64::MAX);
        let mut changed = String::with_capacity(series.name.len());
        for (idx, c) in (0..).zip(series.name.chars()) {
            if positions.is_empty() || positions.contains(&idx) || positions.contains(&(idx - len)) {
                changed.push_str(&change(c));
            } else {
                changed.push(c);
            }
        }
        series.name = changed;
    }
    Ok(Value::Series(list))
}

/// Text of an aggregated value; counts print without a fraction.
pub(super) fn aggregated_text(aggregation: Aggregation, series: &Series, value: f64) -> String {
    if value.is_nan() {
        return "None".to_owned();
    }
    let is_whole = aggregation == Aggregation::Count || series.is_integral && aggregation.keeps_integers();
    if is_whole && value.fract() == 0.0 { format!("{value:.0}") } else { repr(value) }
}

fn legend_value(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    let mut types: Vec<String> = args.repeated().iter().map(Value::text).collect();
    let last = types.last().ok_or_else(|| EvalError::of_function("legendValue", "no value types given"))?;
    let system = UnitSystem::named(last);
    if system.is_some() {
        types.pop();
    }
    for kind in types {
        scope.shared.budget.reserve_bytes(product(list.len(), kind.len() + LEGEND_BYTES))?;
        let aggregation = Aggregation::named(&kind).ok();
        for series in &mut list {
            let value = aggregation.map(|aggregation| aggregation.apply(&series.values));
            let plain = match (aggregation, value) {
                (Some(aggregation), Some(value)) => aggregated_text(aggregation, series, value),
                _ => "(?)".to_owned(),
            };
            match system {
                None => series.name.push_str(&format!(" ({kind}: {plain})")),
                Some(system) => {
                    let formatted = value
                        .filter(|value| !value.is_nan())
                        .map_or(plain, |value| system.formatted(value, ""));
                    series.name = format!("{:<20}{kind:<5}{formatted:<10}", series.name);
                }
            }
        }
    }
    Ok(Value::Series(list))
}

/// Bytes of a value in a legend with its signs, about.
const LEGEND_BYTES: usize = 48;

/// Bytes of `count` texts of `len` bytes.
fn product(count: usize, len: usize) -> u64 {
    (count as u64).saturating_mul(len as u64)
}

/// Prefixes for large values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnitSystem {
    Si,
    Binary,
}

impl UnitSystem {
    fn named(name: &str) -> Option<Self> {
        match name {
            "si" => Some(UnitSystem::Si),
            "binary" => Some(UnitSystem::Binary),
            _ => None,
        }
    }

    fn formatted(self, value: f64, units: &str) -> String {
        let (base, prefixes): (f64, [&str; 5]) = match self {
            UnitSystem::Si => (1000.0, ["P", "T", "G", "M", "k"]),
            UnitSystem::Binary => (1024.0, ["Pi", "Ti", "Gi", "Mi", "Ki"]),
        };
        let mut scaled = value;
        let mut prefix = "";
        for (name, exponent) in prefixes.into_iter().zip((1..=5).rev()) {
            let size = base.powi(exponent);
            if value.abs() >= size {
                (scaled, prefix) = (value / size, name);
                break;
            }
        }
        if scaled - scaled.floor() < 1e-11 && value > 1.0 {
            scaled = scaled.floor();
        }
        let space = if units.is_empty() { "" } else { " " };
        format!("{scaled:.2}{space}{prefix}{units}")
    }
}

fn cacti_style(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    let system = args.given(1).filter(|value| value.is_truthy()).map(Value::text);
    let units = args.given(2).filter(|value| value.is_truthy()).map(Value::text).unwrap_or_default();
    let system = match system {
        None => None,
        Some(name) => Some(
            UnitSystem::named(&name)
                .ok_or_else(|| EvalError::of_function("cactiStyle", &format!("unknown system {name}")))?,
        ),
    };
    let formatted = |value: f64| match system {
        Some(system) => system.formatted(value, &units),
        None if units.is_empty() => format!("{value:.2}"),
        None => format!("{value:.2} {units}"),
    };
    // Width of the whole part of each value, 3 where there is no value.
    let width = |value: f64| {
        formatted(if value.is_nan() || value == 0.0 { 3.0 } else { value.trunc() + 0.0 }).chars().count()
    };
    let parts: [fn(&[f64]) -> f64; 3] = [|values| Aggregation::Last.apply(values), largest, smallest];
    let name_width = list.iter().map(|series| series.name.chars().count()).max().unwrap_or(0);
    let widths =
        parts.map(|part| list.iter().map(|series| width(part(&series.values))).max().unwrap_or(0) + 3);
    let line_width = 4 * name_width + widths.iter().sum::<usize>() + LEGEND_BYTES;
    scope.shared.budget.reserve_bytes(product(list.len(), line_width))?;
    for series in &mut list {
        let mut name = format!("{:<name_width$}", series.name);
        for ((part, width), title) in parts.iter().zip(widths).zip(["Current", "Max", "Min"]) {
            let value = part(&series.values);
            let text = if value.is_nan() { "nan".to_owned() } else { formatted(value) };
            name.push_str(&format!(" {title}:{text:<width$}"));
        }
        series.name = name + " ";
    }
    Ok(Value::Series(list))
}
