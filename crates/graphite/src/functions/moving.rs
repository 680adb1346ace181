//! Moving windows over series that are fetched from before the range.
//!
//! Invariants: the window of a point ends before it; the fetched range begins one window earlier, so that the
//! first point has a whole one.
//! Not here: forecasts (`holt_winters`).

use super::combine::is_enough;
use super::function::{Function, Group};
use super::signature::{SERIES_LIST, function, optional, required, with_text};
use crate::absent::ABSENT;
use crate::aggregation::Aggregation;
use crate::error::EvalError;
use crate::format_number::round_to;
use crate::parameters::{Bound, Parameter, ParameterType};
use crate::scope::Scope;
use crate::series::Series;
use crate::time::interval_seconds;
use crate::value::Value;

const WINDOW: &[Parameter] = &[
    SERIES_LIST,
    required("windowSize", ParameterType::IntOrInterval),
    optional("xFilesFactor", ParameterType::Float),
];

pub(super) const FUNCTIONS: &[Function] = &[
    function(
        "movingWindow",
        Group::Calculate,
        &[
            SERIES_LIST,
            required("windowSize", ParameterType::IntOrInterval),
            with_text("func", ParameterType::AggFunc, "average"),
            optional("xFilesFactor", ParameterType::Float),
        ],
        |scope, args| {
            let name = args.text_or(2, "average")?.to_owned();
            let factor = args.optional_number(3)?;
            moving(scope, args, &name, factor)
        },
        "Aggregates a moving window.",
    ),
    function(
        "movingAverage",
        Group::Calculate,
        WINDOW,
        |scope, args| named(scope, args, "average"),
        "Average of a moving window.",
    ),
    function(
        "movingMedian",
        Group::Calculate,
        WINDOW,
        |scope, args| named(scope, args, "median"),
        "Median of a moving window.",
    ),
    function(
        "movingSum",
        Group::Calculate,
        WINDOW,
        |scope, args| named(scope, args, "sum"),
        "Sum of a moving window.",
    ),
    function(
        "movingMin",
        Group::Calculate,
        WINDOW,
        |scope, args| named(scope, args, "min"),
        "Smallest value of a moving window.",
    ),
    function(
        "movingMax",
        Group::Calculate,
        WINDOW,
        |scope, args| named(scope, args, "max"),
        "Largest value of a moving window.",
    ),
    function(
        "exponentialMovingAverage",
        Group::Calculate,
        &[SERIES_LIST, required("windowSize", ParameterType::IntOrInterval)],
        exponential,
        "Average with weights that decay.",
    ),
];

fn named(scope: &mut Scope<'_>, args: &mut Bound, name: &str) -> Result<Value, EvalError> {
    let factor = args.optional_number(2)?;
    moving(scope, args, name, factor)
}

/// Size of a window: points or an interval.
enum Window {
    Points(i64),
    Interval(i64),
}

impl Window {
    fn read(value: Option<&Value>) -> Result<Self, EvalError> {
        let window = match value {
            Some(Value::Text(text)) => Window::Interval(interval_seconds(text)?.abs()),
            Some(value) => Window::Points(value.whole().ok_or_else(|| {
                EvalError::Parameter("windowSize must be a number or an interval".to_owned())
            })?),
            None => return Err(EvalError::Parameter("windowSize is missing".to_owned())),
        };
        match window {
            Window::Points(count) if count < 0 => {
                Err(EvalError::Parameter(format!("windowSize {count} is negative")))
            }
            window => Ok(window),
        }
    }

    /// Seconds to fetch before the range.
    fn preview_seconds(&self, list: &[Series]) -> i64 {
        match self {
            Window::Points(count) => {
                list.iter().map(|series| series.step).max().unwrap_or(0).saturating_mul(*count)
            }
            Window::Interval(seconds) => *seconds,
        }
    }

    fn points(&self, series: &Series) -> usize {
        let points = match self {
            Window::Points(count) => *count,
            Window::Interval(seconds) => seconds.checked_div(series.step).unwrap_or(0),
        };
        usize::try_from(points).unwrap_or(usize::MAX)
    }
}

/// Text of the window in a name: intervals are quoted.
fn window_text(value: Option<&Value>) -> String {
    match value {
        Some(Value::Text(text)) => format!("\"{text}\""),
        Some(value) => value.text(),
        None => String::new(),
    }
}

/// The list again, from one window before the range.
fn preview(scope: &Scope<'_>, list: &[Series], window: &Window) -> Result<(Vec<Series>, i64), EvalError> {
    let seconds = window.preview_seconds(list);
    Ok((scope.reevaluate(scope.start.plus(-seconds), scope.end)?, seconds))
}

fn moving(
    scope: &mut Scope<'_>,
    args: &mut Bound,
    name: &str,
    factor: Option<f64>,
) -> Result<Value, EvalError> {
    let list = args.take_series(0)?;
    if list.is_empty() {
        return Ok(Value::Series(list));
    }
    let window = Window::read(args.value(1))?;
    let aggregation = Aggregation::named(name)?;
    let title = capitalized(name);
    let (preview, seconds) = preview(scope, &list, &window)?;
    let text = window_text(args.value(1));
    let tag = args.value(1).map(Value::text).unwrap_or_default();
    let mut results = Vec::with_capacity(preview.len());
    for mut series in preview {
        series.tag(&title, &tag);
        let count = window.points(&series);
        scope.shared.budget.reserve_points(series.values.len() as u64)?;
        let used_bytes = scope.shared.budget.used_bytes();
        // The values of a window, or the queue of its extremes.
        scope.shared.budget.reserve_bytes(4 * series.value_bytes())?;
        let factor = factor.unwrap_or(series.x_files_factor);
        let values = windows(scope, &series.values, count, aggregation, factor)?;
        scope.shared.budget.release_to(used_bytes);
        let mut result = series.derived(format!("{title}({},{text})", series.name), values);
        result.start = series.start.saturating_add(seconds);
        results.push(result);
    }
    Ok(Value::Series(results))
}

/// `moving`, then the name with only its first letter in upper case.
fn capitalized(name: &str) -> String {
    let mut chars = name.chars();
    let first = chars.next().map(|c| c.to_ascii_uppercase());
    format!("moving{}{}", first.into_iter().collect::<String>(), chars.as_str().to_ascii_lowercase())
}

/// One value per window of `count` points, from the second window on.
/// # Errors
/// [`EvalError::Canceled`]
fn windows(
    scope: &Scope<'_>,
    values: &[f64],
    count: usize,
    aggregation: Aggregation,
    factor: f64,
) -> Result<Vec<f64>, EvalError> {
    if count == 0 || count >= values.len() {
        return Ok(vec![ABSENT; if count == 0 { values.len() } else { 0 }]);
    }
    if matches!(aggregation, Aggregation::Min | Aggregation::Max) {
        return Ok(extremes(values, count, aggregation, factor));
    }
    // Only values are aggregated: an empty point neither ends a product nor counts in avg_zero.
    let mut present = Vec::with_capacity(count);
    let mut results = Vec::with_capacity(values.len() - count);
    let mut unchecked = 0;
    for window in values.windows(count).skip(1) {
        unchecked += count;
        if unchecked > UNCHECKED_VALUES_MAX {
            scope.shared.budget.check()?;
            unchecked = 0;
        }
        present.clear();
        present.extend(window.iter().copied().filter(|value| !value.is_nan()));
        let is_kept = is_enough(present.len(), count as f64, factor);
        results.push(if is_kept { aggregation.apply(&present) } else { ABSENT });
    }
    // The result begins one window after the fetched range.
    assert_eq!(results.len(), values.len() - count, "each point after the first window has a value");
    Ok(results)
}

/// Values of windows that are read before the request is asked whether it goes on.
const UNCHECKED_VALUES_MAX: usize = 1 << 22;

/// PERF: a monotonic queue makes smallest and largest values O(1) per point.
fn extremes(values: &[f64], count: usize, aggregation: Aggregation, factor: f64) -> Vec<f64> {
    assert!(count > 0 && count < values.len(), "a window has points, and a point after it");
    let mut queue: std::collections::VecDeque<(usize, f64)> = std::collections::VecDeque::new();
    let mut present = 0usize;
    let mut results = Vec::with_capacity(values.len() - count);
    for (idx, value) in values.iter().enumerate() {
        if !value.is_nan() {
            present += 1;
            while queue.back().is_some_and(|(_, last)| {
                if aggregation == Aggregation::Min { last > value } else { last < value }
            }) {
                queue.pop_back();
            }
            queue.push_back((idx, *value));
        }
        if let Some(dropped) = idx.checked_sub(count) {
            present -= usize::from(values.get(dropped).is_some_and(|value| !value.is_nan()));
            while queue.front().is_some_and(|(at, _)| *at <= dropped) {
                queue.pop_front();
            }
            debug_assert!(present >= queue.len() && present <= count, "the queue has values of the window");
            let best = queue.front().map_or(ABSENT, |(_, value)| *value);
            results.push(if is_enough(present, count as f64, factor) { best } else { ABSENT });
        }
    }
    assert_eq!(results.len(), values.len() - count, "each point after the first window has a value");
    results
}

fn exponential(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let list = args.take_series(0)?;
    if list.is_empty() {
        return Ok(Value::Series(list));
    }
    let window = Window::read(args.value(1))?;
    let (preview, seconds) = preview(scope, &list, &window)?;
    let divisor = match window {
        Window::Points(count) => count,
        Window::Interval(_) => seconds,
    };
    let weight = 2.0 / (divisor as f64 + 1.0);
    let text = window_text(args.value(1));
    let tag = args.value(1).map(Value::text).unwrap_or_default();
    let mut results = Vec::with_capacity(preview.len());
    for mut series in preview {
        series.tag("exponentialMovingAverage", &tag);
        // Grows by doubling.
        scope.shared.budget.reserve_points(2 * series.values.len() as u64)?;
        let count = window.points(&series).min(series.values.len());
        let (first, rest) = series.values.split_at(count);
        let mut average = Aggregation::Average.apply(first);
        if average.is_nan() {
            average = 0.0;
        }
        let mut values = vec![round_to(average, 6)];
        for value in rest {
            if value.is_nan() {
                values.push(ABSENT);
            } else {
                average = weight * value + (1.0 - weight) * average;
                values.push(round_to(average, 6));
            }
        }
        let mut result = series.derived(format!("exponentialMovingAverage({},{text})", series.name), values);
        result.start = series.start.saturating_add(seconds);
        results.push(result);
    }
    Ok(Value::Series(results))
}
