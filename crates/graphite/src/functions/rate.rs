//! Differences and sums along a series: derivatives, rates, integrals, delays.
//!
//! Invariant: results are named series of the same grid; the first point of a difference is empty.
//! Not here: windows (`moving`).

use super::function::{Function, Group};
use super::signature::{SERIES_LIST, function, optional, required};
use crate::absent::ABSENT;
use crate::error::EvalError;
use crate::format_number::round_to;
use crate::parameters::{Bound, Parameter, ParameterType};
use crate::scope::Scope;
use crate::series::Series;
use crate::time::interval_seconds;
use crate::value::Value;

const COUNTER: &[Parameter] =
    &[SERIES_LIST, optional("maxValue", ParameterType::Float), optional("minValue", ParameterType::Float)];

pub(super) const FUNCTIONS: &[Function] = &[
    function("derivative", Group::Transform, &[SERIES_LIST], derivative, "Difference to the value before."),
    function(
        "nonNegativeDerivative",
        Group::Transform,
        COUNTER,
        |_, args| counter(args, "nonNegativeDerivative", |delta, _| delta),
        "Increase of a counter; empty at a reset.",
    ),
    function(
        "perSecond",
        Group::Transform,
        COUNTER,
        |_, args| counter(args, "perSecond", |delta, step| round_to(delta / step as f64, 6)),
        "Increase of a counter per second.",
    ),
    function(
        "delay",
        Group::Transform,
        &[SERIES_LIST, required("steps", ParameterType::Integer)],
        delay,
        "Moves values by points.",
    ),
    function("integral", Group::Transform, &[SERIES_LIST], integral, "Running sum."),
    function(
        "integralByInterval",
        Group::Transform,
        &[SERIES_LIST, required("intervalUnit", ParameterType::Text)],
        integral_by_interval,
        "Running sum, from 0 in each interval.",
    ),
    function(
        "stdev",
        Group::Calculate,
        &[
            SERIES_LIST,
            required("points", ParameterType::Integer),
            super::signature::with_number("windowTolerance", ParameterType::Float, 0.1),
        ],
        deviation,
        "Moving standard deviation.",
    ),
];

/// Makes a series of each one under the name `function(name...)`, with a tag of 1.
fn derive(list: Vec<Series>, name: &str, values: impl Fn(&Series) -> Vec<f64>) -> Value {
    let derived = list.into_iter().map(|mut series| {
        series.tag(name, 1);
        series.derived(format!("{name}({})", series.name), values(&series))
    });
    Value::Series(derived.collect())
}

fn derivative(_scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let list = args.take_series(0)?;
    Ok(derive(list, "derivative", |series| {
        let mut previous = ABSENT;
        series.values.iter().map(|value| *value - std::mem::replace(&mut previous, *value)).collect()
    }))
}

/// Bounds of a counter.
#[derive(Clone, Copy)]
struct CounterRange {
    max: Option<f64>,
    min: Option<f64>,
}

impl CounterRange {
    /// The increase from `previous` to `value`, and the value to compare the next one with.
    fn increase(self, value: f64, previous: f64) -> (f64, f64) {
        if self.max.is_some_and(|max| value > max) || self.min.is_some_and(|min| value < min) {
            return (ABSENT, ABSENT);
        }
        if value.is_nan() || previous.is_nan() {
            return (ABSENT, value);
        }
        if value >= previous {
            return (value - previous, value);
        }
        let wrapped = match (self.max, self.min) {
            (Some(max), min) => max + 1.0 + value - previous - min.unwrap_or(0.0),
            (None, Some(min)) => value - min,
            (None, None) => ABSENT,
        };
        (wrapped, value)
    }
}

fn counter(args: &mut Bound, name: &str, rate: fn(f64, i64) -> f64) -> Result<Value, EvalError> {
    let list = args.take_series(0)?;
    let range = CounterRange { max: args.optional_number(1)?, min: args.optional_number(2)? };
    if list.iter().any(|series| series.step == 0) {
        return Err(EvalError::of_function(name, "a series has step 0"));
    }
    Ok(derive(list, name, |series| {
        let mut previous = ABSENT;
        let mut values = Vec::with_capacity(series.values.len());
        for value in series.values.iter() {
            let (delta, next) = range.increase(*value, previous);
            previous = next;
            values.push(if delta.is_nan() { ABSENT } else { rate(delta, series.step) });
        }
        values
    }))
}

fn delay(_scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let list = args.take_series(0)?;
    let steps = args.integer(1)?;
    let count = usize::try_from(steps.unsigned_abs()).unwrap_or(usize::MAX);
    let mut results = Vec::with_capacity(list.len());
    for mut series in list {
        series.tag("delay", steps);
        let len = series.values.len();
        let mut values = vec![ABSENT; count.min(len)];
        let kept = len - values.len();
        if steps < 0 {
            let mut moved = series.values.get(len - kept..).unwrap_or(&[]).to_vec();
            moved.append(&mut values);
            values = moved;
        } else if steps > 0 {
            values.extend(series.values.iter().take(kept));
        }
        // No steps at all leave no values: graphite-web slices up to minus 0.
        results.push(series.derived(format!("delay({},{steps})", series.name), values));
    }
    Ok(Value::Series(results))
}

fn integral(_scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let list = args.take_series(0)?;
    Ok(derive(list, "integral", |series| {
        let mut sum = 0.0;
        let mut add = |value: f64| {
            sum += value;
            sum
        };
        series.values.iter().map(|value| if value.is_nan() { ABSENT } else { add(*value) }).collect()
    }))
}

fn integral_by_interval(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let list = args.take_series(0)?;
    let unit = args.text(1)?;
    let interval = interval_seconds(unit)?.abs();
    if interval == 0 {
        return Err(EvalError::of_function("integralByInterval", "the interval is 0"));
    }
    let origin = scope.wall_seconds(scope.start);
    let mut results = Vec::with_capacity(list.len());
    for mut series in list {
        let mut sum = 0.0;
        let mut time = series.start;
        let mut values = Vec::with_capacity(series.values.len());
        for value in series.values.iter() {
            if (time - origin).div_euclid(interval) != (time - origin - series.step).div_euclid(interval) {
                sum = 0.0;
            }
            if !value.is_nan() {
                sum += value;
            }
            values.push(sum);
            time += series.step;
        }
        series.tag("integralByInterval", unit);
        results.push(series.derived(format!("integralByInterval({},'{unit}')", series.name), values));
    }
    Ok(Value::Series(results))
}

/// Square by the C library's `pow`, as Python's `**` takes it: the last digit may differ from a product, and
/// differences of large sums show it.
pub(super) fn square(value: f64) -> f64 {
    value.powf(std::hint::black_box(2.0))
}

/// Running sums of the last `points` values, added and removed one by one as graphite-web does.
fn moving_deviation(values: &[f64], points: usize, tolerance: f64) -> Vec<f64> {
    let mut present = 0.0;
    let mut sum = 0.0;
    let mut squares = 0.0;
    let mut results = Vec::with_capacity(values.len());
    for (idx, value) in values.iter().enumerate() {
        let dropped = idx.checked_sub(points).and_then(|idx| values.get(idx)).copied().unwrap_or(ABSENT);
        if !dropped.is_nan() {
            present -= 1.0;
            sum -= dropped;
            squares -= square(dropped);
        }
        if !value.is_nan() {
            present += 1.0;
            sum += value;
            squares += square(*value);
        }
        let is_enough = present > 0.0 && present / points as f64 >= tolerance;
        // The root of a negative number is NaN, which is empty.
        results.push(if is_enough { (present * squares - square(sum)).sqrt() / present } else { ABSENT });
    }
    results
}

fn deviation(_scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let list = args.take_series(0)?;
    let points = args.integer(1)?;
    let tolerance = args.optional_number(2)?.unwrap_or(0.1);
    if points < 0 && !list.is_empty() {
        return Err(EvalError::of_function("stdev", "points must not be negative"));
    }
    let count = usize::try_from(points).unwrap_or(0);
    let mut results = Vec::with_capacity(list.len());
    for mut series in list {
        series.tag("stdev", points);
        let values = moving_deviation(&series.values, count, tolerance);
        results.push(series.derived(format!("stdev({},{points})", series.name), values));
    }
    Ok(Value::Series(results))
}
