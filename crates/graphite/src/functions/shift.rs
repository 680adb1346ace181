//! Other ranges of time: shifts, stacks of shifts, slices.
//!
//! Invariant: a shifted series is fetched from its own range and shown in the range of the request.
//! Not here: windows before the range (`moving`).

use super::function::{Function, Group};
use super::signature::{SERIES_LIST, function, required, with_bool, with_number, with_text};
use crate::absent::ABSENT;
use crate::error::EvalError;
use crate::parameters::{Bound, Parameter, ParameterType, Toggle};
use crate::scope::Scope;
use crate::time::{Moment, interval_seconds, parse_time};
use crate::value::Value;

/// The keyword is `alignDST`, as the implementation of graphite-web has it, not its table.
const SHIFT: &[Parameter] = &[
    SERIES_LIST,
    required("timeShift", ParameterType::Interval),
    with_bool("resetEnd", true),
    with_bool("alignDST", false),
];

pub(super) const FUNCTIONS: &[Function] = &[
    function("timeShift", Group::Transform, SHIFT, time_shift, "The same series at another time."),
    function(
        "timeStack",
        Group::Transform,
        &[
            SERIES_LIST,
            with_text("timeShiftUnit", ParameterType::Interval, "1d"),
            with_number("timeShiftStart", ParameterType::Integer, 0.0),
            with_number("timeShiftEnd", ParameterType::Integer, 7.0),
        ],
        time_stack,
        "The same series at several other times.",
    ),
    function(
        "timeSlice",
        Group::Transform,
        &[
            SERIES_LIST,
            required("startSliceAt", ParameterType::Date),
            with_text("endSliceAt", ParameterType::Date, "now"),
        ],
        time_slice,
        "Values within a range of time only.",
    ),
];

/// Shifts of one `timeStack`.
const SHIFTS_MAX: i64 = 1000;

/// An offset without a sign goes back.
fn backward(text: &str) -> String {
    if text.starts_with(|c: char| c.is_ascii_digit()) { format!("-{text}") } else { text.to_owned() }
}

fn is_summer(scope: &Scope<'_>, moment: Moment) -> bool {
    let Ok(timestamp) = jiff::Timestamp::from_second(scope.wall_seconds(moment)) else { return false };
    scope.shared.server_zone.to_offset_info(timestamp).dst().is_dst()
}

/// One hour if the two ranges lie in different halves of the year, 0 if either spans a change.
fn summer_correction(scope: &Scope<'_>, start: Moment, end: Moment) -> i64 {
    let request = (is_summer(scope, scope.start), is_summer(scope, scope.end));
    match (request, (is_summer(scope, start), is_summer(scope, end))) {
        ((true, true), (false, false)) => 3600,
        ((false, false), (true, true)) => -3600,
        _ => 0,
    }
}

fn time_shift(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let list = args.take_series(0)?;
    let shift = backward(args.text(1)?);
    let mut delta = interval_seconds(&shift)?;
    let start = scope.start.plus(delta);
    let end = scope.end.plus(delta);
    if args.is_set_or(3, Toggle::Off) {
        delta = summer_correction(scope, start, end);
    } else {
        delta = 0;
    }
    let Some(first) = list.first() else { return Ok(Value::Series(Vec::new())) };
    let mut shifted = scope.reevaluate(start.plus(delta), end.plus(delta))?;
    for series in &mut shifted {
        series.tag("timeShift", &shift);
        series.name = format!("timeShift({}, \"{shift}\")", series.name);
        series.end =
            if args.is_set_or(2, Toggle::On) { first.end } else { series.end - series.start + first.start };
        series.start = first.start;
    }
    Ok(Value::Series(shifted))
}

fn time_stack(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let list = args.take_series(0)?;
    let unit = backward(args.text_or(1, "1d")?);
    let delta = interval_seconds(&unit)?;
    let Some(first) = list.first() else { return Ok(Value::Series(Vec::new())) };
    let bound = |idx: usize, default: i64| {
        let whole = args.value(idx).map_or(Some(default), Value::whole);
        whole.ok_or_else(|| EvalError::of_function("timeStack", "start and end must be whole numbers"))
    };
    let from = bound(2, 0)?;
    let to = bound(3, 7)?;
    if to.saturating_sub(from) > SHIFTS_MAX {
        return Err(EvalError::Limit {
            what: "shifts of timeStack",
            found: to.saturating_sub(from).unsigned_abs(),
            limit: SHIFTS_MAX.unsigned_abs(),
        });
    }
    let mut results = Vec::new();
    for shift in from..to {
        let seconds = delta.saturating_mul(shift);
        for mut series in scope.reevaluate(scope.start.plus(seconds), scope.end.plus(seconds))? {
            series.tag("timeShiftUnit", &unit);
            series.tag("timeShift", shift);
            series.rename(format!("timeShift({}, {unit}, {shift})", series.name));
            (series.start, series.end) = (first.start, first.end);
            results.push(series);
        }
    }
    Ok(Value::Series(results))
}

/// A time in the zone of the server, which is where functions read theirs. As in graphite-web, it is relative
/// to the clock, not to the time of the request.
pub(super) fn server_time(scope: &Scope<'_>, value: Option<&Value>, default: &str) -> Result<i64, EvalError> {
    let text = value.map_or_else(|| default.to_owned(), Value::text);
    Ok(parse_time(&text, &scope.shared.server_zone, scope.shared.clock)?)
}

fn time_slice(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    let start = server_time(scope, args.value(1), "")?;
    let end = server_time(scope, args.value(2), "now")?;
    for series in &mut list {
        series.tag("timeSliceStart", start);
        series.tag("timeSliceEnd", end);
        series.name = format!("timeSlice({}, {start}, {end})", series.name);
        // graphite-web counts from the start of the request, not from the start of the series.
        let mut time = scope.wall_seconds(scope.start);
        let step = series.step;
        for value in series.values_mut() {
            if time < start || time > end {
                *value = ABSENT;
            }
            time += step;
        }
    }
    Ok(Value::Series(list))
}
