//! Series that are not fetched: constants, times, sines, random walks, events.
//!
//! Invariant: a request gets the same random walk each time: its seed is name and start.
//! Not here: lines that only draw (`draw`).

use chronolith_base::hash::hash_bytes;

use super::alias::aggregated_text;
use super::function::{Function, Group};
use super::signature::{
    SERIES_LIST, function, optional, repeated, required, with_bool, with_number, with_text,
};
use crate::absent::ABSENT;
use crate::aggregation::Aggregation;
use crate::consolidation::Consolidation;
use crate::error::EvalError;
use crate::format_number::general;
use crate::parameters::{Bound, Parameter, ParameterType, Toggle};
use crate::scope::{POINT_BYTES, Scope};
use crate::series::{DrawOption, Grid, Series};
use crate::value::Value;

const NAMED_STEP: &[Parameter] =
    &[required("name", ParameterType::Text), with_number("step", ParameterType::Integer, 60.0)];
const SINE: &[Parameter] = &[
    required("name", ParameterType::Text),
    with_number("amplitude", ParameterType::Integer, 1.0),
    with_number("step", ParameterType::Integer, 60.0),
];

pub(super) const FUNCTIONS: &[Function] = &[
    function(
        "constantLine",
        Group::Special,
        &[required("value", ParameterType::Float)],
        constant,
        "A line at a value.",
    ),
    function(
        "threshold",
        Group::Graph,
        &[
            required("value", ParameterType::Float),
            optional("label", ParameterType::Text),
            optional("color", ParameterType::Text),
        ],
        threshold,
        "A line at a value, with label and colour.",
    ),
    function(
        "aggregateLine",
        Group::Calculate,
        &[SERIES_LIST, with_text("func", ParameterType::AggFunc, "average"), with_bool("keepStep", false)],
        aggregate_line,
        "A line at the aggregated value of each series.",
    ),
    function(
        "identity",
        Group::Calculate,
        &[required("name", ParameterType::Text)],
        identity,
        "Time as value, each minute.",
    ),
    function("time", Group::Transform, NAMED_STEP, time, "Time as value."),
    function("timeFunction", Group::Transform, NAMED_STEP, time, "Time as value."),
    function("sin", Group::Transform, SINE, sine, "Sine of the time."),
    function("sinFunction", Group::Transform, SINE, sine, "Sine of the time."),
    function("randomWalk", Group::Special, NAMED_STEP, random_walk, "A random walk."),
    function("randomWalkFunction", Group::Special, NAMED_STEP, random_walk, "A random walk."),
    function(
        "events",
        Group::Special,
        &[repeated("tags", ParameterType::Text)],
        events,
        "Number of events per second.",
    ),
    function(
        "seriesByTag",
        Group::Special,
        &[repeated("tagExpressions", ParameterType::Text)],
        |_, _| Err(EvalError::of_function("seriesByTag", "cannot be called by name")),
        "Series by expressions over tags.",
    ),
];

/// Three points at one value, from start to end of the request.
pub(super) fn constant_line(scope: &Scope<'_>, value: &Value) -> Result<Series, EvalError> {
    let number = match value {
        Value::None => ABSENT,
        value => value.number().ok_or_else(|| EvalError::Parameter("value must be a number".to_owned()))?,
    };
    let start = scope.start.seconds;
    let end = scope.end.seconds;
    let mut series = Series::new(
        value.text(),
        Grid { start, end, step: (end - start) / 2 },
        vec![number; 3],
        scope.x_files_factor,
    );
    series.path_expression = format!("constantLine({})", value.text());
    series.is_integral = matches!(value, Value::Int(_));
    Ok(series)
}

fn given_value(args: &Bound) -> Result<Value, EvalError> {
    args.value(0).cloned().ok_or_else(|| EvalError::Parameter("value is missing".to_owned()))
}

fn constant(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    Ok(Value::Series(vec![constant_line(scope, &given_value(args)?)?]))
}

fn threshold(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut series = constant_line(scope, &given_value(args)?)?;
    if let Some(label) = args.given(1).filter(|label| label.is_truthy()) {
        series.name = label.text();
    }
    if let Some(color) = args.given(2).filter(|color| color.is_truthy()) {
        series.options.push(DrawOption::Color(color.text()));
    }
    Ok(Value::Series(vec![series]))
}

fn aggregate_line(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let list = args.take_series(0)?;
    let aggregation = Aggregation::named(args.text_or(1, "average")?)?;
    let mut results = Vec::with_capacity(list.len());
    for series in list {
        let value = aggregation.apply(&series.values);
        let text = if value.is_nan() { "None".to_owned() } else { general(value) };
        let name = format!("aggregateLine({}, {text})", series.name);
        if args.is_set_or(2, Toggle::Off) {
            results.push(series.derived(name, vec![value; series.values.len()]));
            continue;
        }
        let constant = match aggregated_text(aggregation, &series, value).parse() {
            Ok(whole) => Value::Int(whole),
            Err(_) if value.is_nan() => Value::None,
            Err(_) => Value::Float(value),
        };
        let mut line = constant_line(scope, &constant)?;
        line.rename(name);
        results.push(line);
    }
    Ok(Value::Series(results))
}

/// Times of the request from `start` until before the end, each `step` seconds.
fn times(scope: &Scope<'_>, step: i64) -> Result<Vec<i64>, EvalError> {
    let start = scope.start.seconds;
    let end = scope.end.seconds;
    if step <= 0 {
        return Err(EvalError::Parameter(format!("step {step} is not positive")));
    }
    let count = (end - start).unsigned_abs().div_ceil(step.unsigned_abs());
    scope.shared.budget.reserve_points(count)?;
    // The times, the wall clock's, and the values, which grow by doubling.
    scope.shared.budget.reserve_bytes(count.saturating_mul(4 * POINT_BYTES))?;
    let mut times = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
    let mut time = start;
    while time < end {
        times.push(time);
        time += step;
    }
    assert!(times.len() as u64 <= count, "times are reserved before they are made");
    Ok(times)
}

fn named(scope: &Scope<'_>, args: &Bound, step: i64, values: Vec<f64>) -> Result<Series, EvalError> {
    let grid = Grid { start: scope.start.seconds, end: scope.end.seconds, step };
    Ok(Series::new(args.text(0)?.to_owned(), grid, values, scope.x_files_factor))
}

fn identity(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let values = times(scope, 60)?.into_iter().map(|time| time as f64).collect();
    let mut series = named(scope, args, 60, values)?;
    series.path_expression = format!("identity(\"{}\")", series.name);
    series.is_integral = true;
    Ok(Value::Series(vec![series]))
}

/// Seconds of the wall clock at each time of the request.
fn wall_times(scope: &Scope<'_>, step: i64) -> Result<Vec<f64>, EvalError> {
    let shift = scope.wall_seconds(scope.start) - scope.start.seconds;
    Ok(times(scope, step)?.into_iter().map(|time| (time + shift) as f64).collect())
}

fn time(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let step = args.integer_or(1, 60)?;
    let mut series = named(scope, args, step, wall_times(scope, step)?)?;
    (series.start, series.end) = (scope.wall_seconds(scope.start), scope.wall_seconds(scope.end));
    Ok(Value::Series(vec![series]))
}

fn sine(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let amplitude = args.value(1).map_or(Some(1.0), Value::number);
    let amplitude = amplitude.ok_or_else(|| EvalError::of_function("sin", "amplitude must be a number"))?;
    let step = args.integer_or(2, 60)?;
    let values = wall_times(scope, step)?.into_iter().map(|time| time.sin() * amplitude).collect();
    Ok(Value::Series(vec![named(scope, args, step, values)?]))
}

fn random_walk(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let step = args.integer_or(1, 60)?;
    let mut state = hash_bytes(args.text(0)?.as_bytes()) ^ scope.start.seconds.unsigned_abs();
    let mut current = 0.0;
    let mut values = Vec::new();
    for _ in times(scope, step)? {
        values.push(current);
        state = hash_bytes(&state.to_le_bytes());
        // The upper 53 bits are a uniform number in [0, 1).
        current += (state >> 11) as f64 / (1u64 << 53) as f64 - 0.5;
    }
    Ok(Value::Series(vec![named(scope, args, step, values)?]))
}

fn events(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let tags: Vec<String> = args.repeated().iter().map(Value::text).collect();
    let name = format!("events(\"{}\")", tags.join("\", \""));
    let tags = if tags.as_slice() == ["*"] { Vec::new() } else { tags };
    let start = scope.start.seconds;
    let end = scope.end.seconds;
    let len = (end - start).unsigned_abs();
    scope.shared.budget.reserve_points(len)?;
    let mut values = vec![ABSENT; usize::try_from(len).unwrap_or(0)];
    for time in scope.shared.source.event_times(&tags, start, end)? {
        if let Some(value) = usize::try_from(time - start).ok().and_then(|idx| values.get_mut(idx)) {
            *value = if value.is_nan() { 1.0 } else { *value + 1.0 };
        }
    }
    let mut series = Series::new(name, Grid { start, end, step: 1 }, values, scope.x_files_factor);
    series.consolidation = Consolidation::Sum;
    series.is_integral = true;
    Ok(Value::Series(vec![series]))
}
