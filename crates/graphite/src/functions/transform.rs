//! Each value to another: scale, offset, powers, logarithms, rounding.
//!
//! Invariants: an empty value stays empty; what Python's `math` refuses becomes empty, except an overflow of
//! `exp`, which is an error.
//! Not here: functions that look at neighbours (`rate`, `gaps`).

use super::function::{Function, Group};
use super::signature::{SERIES_LIST, function, required, with_number};
use crate::absent::ABSENT;
use crate::aggregation::{largest, smallest};
use crate::consolidation::Consolidation;
use crate::error::EvalError;
use crate::format_number::{general, repr, round_to};
use crate::parameters::{Bound, Parameter, ParameterType};
use crate::scope::Scope;
use crate::series::Series;
use crate::value::Value;

const FACTOR: &[Parameter] = &[SERIES_LIST, required("factor", ParameterType::Float)];
const ONLY_LIST: &[Parameter] = &[SERIES_LIST];
const X_FILES_FACTOR: &[Parameter] = &[SERIES_LIST, required("xFilesFactor", ParameterType::Float)];

pub(super) const FUNCTIONS: &[Function] = &[
    function(
        "scale",
        Group::Transform,
        FACTOR,
        |_, args| by_number(args, "scale", |value, factor| value * factor),
        "Multiplies by a factor.",
    ),
    function(
        "offset",
        Group::Transform,
        FACTOR,
        |_, args| by_number(args, "offset", |value, factor| value + factor),
        "Adds a constant.",
    ),
    function("pow", Group::Transform, FACTOR, |_, args| by_number(args, "pow", power), "Raises to a power."),
    function(
        "add",
        Group::Transform,
        &[SERIES_LIST, required("constant", ParameterType::Float)],
        add,
        "Adds a constant.",
    ),
    function(
        "scaleToSeconds",
        Group::Transform,
        &[SERIES_LIST, required("seconds", ParameterType::Float)],
        scale_to_seconds,
        "Values per so many seconds.",
    ),
    function(
        "absolute",
        Group::Transform,
        ONLY_LIST,
        |_, args| plain(args, "absolute", "1", f64::abs),
        "Absolute values.",
    ),
    function(
        "squareRoot",
        Group::Transform,
        ONLY_LIST,
        |_, args| plain(args, "squareRoot", "1", |value| power(value, 0.5)),
        "Square roots.",
    ),
    function(
        "invert",
        Group::Transform,
        ONLY_LIST,
        |_, args| plain(args, "invert", "1", |value| power(value, -1.0)),
        "Reciprocals.",
    ),
    function(
        "logit",
        Group::Transform,
        ONLY_LIST,
        |_, args| plain(args, "logit", "logit", logit),
        "Logarithm of v / (1 - v).",
    ),
    function("exp", Group::Transform, ONLY_LIST, exponential, "e to the power of each value."),
    function("sigmoid", Group::Transform, ONLY_LIST, sigmoid, "1 / (1 + exp(-v))."),
    function(
        "log",
        Group::Transform,
        &[SERIES_LIST, with_number("base", ParameterType::Integer, 10.0)],
        logarithm,
        "Logarithms of positive values.",
    ),
    function(
        "round",
        Group::Transform,
        &[SERIES_LIST, with_number("precision", ParameterType::Integer, 0.0)],
        round,
        "Rounds to decimal places.",
    ),
    function("offsetToZero", Group::Transform, ONLY_LIST, offset_to_zero, "Subtracts the smallest value."),
    function("minMax", Group::Transform, ONLY_LIST, min_max, "Scales values to 0 to 1."),
    function(
        "consolidateBy",
        Group::Special,
        &[
            SERIES_LIST,
            Parameter {
                options: &["sum", "average", "avg", "avg_zero", "min", "max", "first", "last"],
                ..required("consolidationFunc", ParameterType::Text)
            },
        ],
        |_, args| {
            let name = args.text(1)?.to_owned();
            consolidate_by(args, &name)
        },
        "Chooses how values become points.",
    ),
    function(
        "cumulative",
        Group::Special,
        ONLY_LIST,
        |_, args| consolidate_by(args, "sum"),
        "Points are sums of values.",
    ),
    function(
        "setXFilesFactor",
        Group::Special,
        X_FILES_FACTOR,
        set_x_files_factor,
        "Share of values that a point needs.",
    ),
    function(
        "xFilesFactor",
        Group::Special,
        X_FILES_FACTOR,
        set_x_files_factor,
        "Short form of setXFilesFactor.",
    ),
];

/// Power; empty where it is not a real number or overflows.
pub(super) fn power(base: f64, exponent: f64) -> f64 {
    let result = base.powf(exponent);
    let is_overflow = result.is_infinite() && base.is_finite() && exponent.is_finite();
    if is_overflow || base.is_nan() || exponent.is_nan() { ABSENT } else { result }
}

fn logit(value: f64) -> f64 {
    let quotient = value / (1.0 - value);
    if quotient > 0.0 && value != 1.0 { quotient.ln() } else { ABSENT }
}

fn by_number(args: &mut Bound, name: &str, change: fn(f64, f64) -> f64) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    let number = match args.value(1) {
        Some(Value::Text(_)) | None => return Err(EvalError::of_function(name, "factor must be a number")),
        Some(value) => value.clone(),
    };
    let factor = args.number(1)?;
    for series in &mut list {
        series.tag(name, number.text());
        series.rename(format!("{name}({},{})", series.name, general(factor)));
        series.map_present(|value| change(value, factor));
    }
    Ok(Value::Series(list))
}

/// A function without parameters, its tag and its change.
fn plain(args: &mut Bound, name: &str, tag: &str, change: impl Fn(f64) -> f64) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    for series in &mut list {
        series.tag(name, tag);
        series.rename(format!("{name}({})", series.name));
        series.map_present(&change);
    }
    Ok(Value::Series(list))
}

fn add(_scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    let constant = args.number(1)?;
    let text = args
        .value(1)
        .and_then(Value::whole_text)
        .ok_or_else(|| EvalError::of_function("add", "constant must be finite"))?;
    let tag = args.value(1).map(Value::text).unwrap_or_default();
    for series in &mut list {
        series.tag("add", &tag);
        series.rename(format!("add({},{text})", series.name));
        series.map_present(|value| value + constant);
    }
    Ok(Value::Series(list))
}

fn scale_to_seconds(_scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    let seconds = args.number(1)?;
    let text = args
        .value(1)
        .and_then(Value::whole_text)
        .ok_or_else(|| EvalError::of_function("scaleToSeconds", "seconds must be finite"))?;
    let tag = args.value(1).map(Value::text).unwrap_or_default();
    for series in &mut list {
        series.tag("scaleToSeconds", &tag);
        series.rename(format!("scaleToSeconds({},{text})", series.name));
        if series.step == 0 {
            return Err(EvalError::of_function("scaleToSeconds", "a series has step 0"));
        }
        let factor = seconds / series.step as f64;
        series.map_present(|value| round_to(value * factor, 6));
    }
    Ok(Value::Series(list))
}

/// `exp`, which refuses to overflow.
fn exp(value: f64) -> Result<f64, EvalError> {
    let result = value.exp();
    if result.is_infinite() && value.is_finite() {
        return Err(EvalError::Parameter(format!("exp of {} overflows", repr(value))));
    }
    Ok(result)
}

fn try_map(series: &mut Series, change: impl Fn(f64) -> Result<f64, EvalError>) -> Result<(), EvalError> {
    series.is_integral = false;
    for value in series.values_mut() {
        if !value.is_nan() {
            *value = change(*value)?;
        }
    }
    Ok(())
}

fn exponential(_scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    for series in &mut list {
        series.tag("exp", "e");
        series.rename(format!("exp({})", series.name));
        try_map(series, exp)?;
    }
    Ok(Value::Series(list))
}

fn sigmoid(_scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    for series in &mut list {
        series.tag("sigmoid", "sigmoid");
        series.rename(format!("sigmoid({})", series.name));
        try_map(series, |value| exp(-value).map(|power| 1.0 / (1.0 + power)))?;
    }
    Ok(Value::Series(list))
}

fn logarithm(_scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let list = args.take_series(0)?;
    let base = args.value(1).cloned().unwrap_or(Value::Int(10));
    let number = base.number().filter(|base| *base > 0.0 && *base != 1.0);
    let is_used = list.iter().any(|series| series.values.iter().any(|value| *value > 0.0));
    let number = match number {
        Some(number) => number,
        None if is_used => return Err(EvalError::of_function("log", "base must be positive and not 1")),
        None => ABSENT,
    };
    let mut results = Vec::with_capacity(list.len());
    for mut series in list {
        series.tag("log", base.text());
        let values = series
            .values
            .iter()
            .map(|value| if *value > 0.0 { value.ln() / number.ln() } else { ABSENT })
            .collect();
        results.push(series.derived(format!("log({}, {})", series.name, base.text()), values));
    }
    Ok(Value::Series(results))
}

fn round(_scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    let precision = args.given(1).map(|value| {
        value.whole().ok_or_else(|| EvalError::of_function("round", "precision must be a whole number"))
    });
    let precision = precision.transpose()?;
    for series in &mut list {
        series.tag("round", precision.unwrap_or(0));
        let name = match precision {
            None => format!("round({})", series.name),
            Some(places) => format!("round({},{})", series.name, general(places as f64)),
        };
        series.rename(name);
        series.map_present(|value| round_to(value, precision.unwrap_or(0)));
    }
    Ok(Value::Series(list))
}

fn offset_to_zero(_scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    for series in &mut list {
        let minimum = smallest(&series.values);
        series.tag("offsetToZero", if minimum.is_nan() { "None".to_owned() } else { repr(minimum) });
        series.rename(format!("offsetToZero({})", series.name));
        series.map_present(|value| value - minimum);
    }
    Ok(Value::Series(list))
}

fn min_max(_scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    for series in &mut list {
        series.rename(format!("minMax({})", series.name));
        let minimum = smallest(&series.values);
        let maximum = largest(&series.values);
        series.map_present(
            |value| if maximum == minimum { 0.0 } else { (value - minimum) / (maximum - minimum) },
        );
    }
    Ok(Value::Series(list))
}

fn consolidate_by(args: &mut Bound, name: &str) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    for series in &mut list {
        series.consolidation = Consolidation::named(name);
        series.tag("consolidateBy", name);
        series.rename(format!("consolidateBy({},\"{name}\")", series.name));
    }
    Ok(Value::Series(list))
}

fn set_x_files_factor(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    let factor = args.number(1)?;
    let text = args.value(1).map(Value::text).unwrap_or_default();
    scope.x_files_factor = factor;
    for series in &mut list {
        series.x_files_factor = factor;
        series.tag("xFilesFactor", &text);
    }
    Ok(Value::Series(list))
}
