//! Drawing properties: colours, stacks, lines.
//!
//! Invariant: values stay, except in a stack, where they become running sums over series.
//! Not here: the picture.

use std::rc::Rc;

use super::function::{Function, Group};
use super::signature::{SERIES_LIST, function, optional, required, with_number};
use crate::absent::ABSENT;
use crate::error::EvalError;
use crate::parameters::{Bound, ParameterType};
use crate::scope::{POINT_BYTES, Scope};
use crate::series::{DrawOption, Grid, Series};
use crate::time::parse_time;
use crate::value::Value;

pub(super) const FUNCTIONS: &[Function] = &[
    function(
        "alpha",
        Group::Graph,
        &[SERIES_LIST, required("alpha", ParameterType::Float)],
        |_, args| {
            let alpha = args.number(1)?;
            with_option(args, |_| DrawOption::Alpha(alpha))
        },
        "Transparency of the colour.",
    ),
    function(
        "color",
        Group::Graph,
        &[SERIES_LIST, required("theColor", ParameterType::Text)],
        |_, args| {
            let color = args
                .value(1)
                .map(Value::text)
                .ok_or_else(|| EvalError::of_function("color", "theColor is missing"))?;
            with_option(args, |_| DrawOption::Color(color.clone()))
        },
        "Colour of the line.",
    ),
    function(
        "lineWidth",
        Group::Graph,
        &[SERIES_LIST, required("width", ParameterType::Float)],
        |_, args| {
            let width = args.number(1)?;
            with_option(args, |_| DrawOption::LineWidth(width))
        },
        "Width of the line.",
    ),
    function(
        "dashed",
        Group::Graph,
        &[SERIES_LIST, with_number("dashLength", ParameterType::Integer, 5.0)],
        dashed,
        "Draws a dashed line.",
    ),
    function(
        "drawAsInfinite",
        Group::Graph,
        &[SERIES_LIST],
        |_, args| {
            with_option(args, |series| {
                series.tag("drawAsInfinite", 1);
                series.name = format!("drawAsInfinite({})", series.name);
                DrawOption::DrawAsInfinite
            })
        },
        "Draws vertical lines where values are not 0.",
    ),
    function(
        "secondYAxis",
        Group::Graph,
        &[SERIES_LIST],
        |_, args| {
            with_option(args, |series| {
                series.tag("secondYAxis", 1);
                series.name = format!("secondYAxis({})", series.name);
                DrawOption::SecondYAxis
            })
        },
        "Draws against the right axis.",
    ),
    function(
        "areaBetween",
        Group::Graph,
        &[SERIES_LIST],
        |_, args| area_between(args.take_series(0)?).map(Value::Series),
        "Fills the area between two series.",
    ),
    function(
        "stacked",
        Group::Graph,
        &[SERIES_LIST, optional("stackName", ParameterType::Text)],
        stacked,
        "Adds each series to those before it.",
    ),
    function(
        "verticalLine",
        Group::Graph,
        &[
            required("ts", ParameterType::Date),
            optional("label", ParameterType::Text),
            optional("color", ParameterType::Text),
        ],
        vertical_line,
        "A vertical line at a time.",
    ),
];

fn with_option(args: &mut Bound, option: impl Fn(&mut Series) -> DrawOption) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    for series in &mut list {
        let option = option(series);
        series.options.push(option);
    }
    Ok(Value::Series(list))
}

fn dashed(_scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let length = args.value(1).cloned().unwrap_or(Value::Int(5));
    let invalid = || EvalError::of_function("dashed", "dashLength must be a number");
    let number = length.number().ok_or_else(invalid)?;
    let text = length.general_text().ok_or_else(invalid)?;
    with_option(args, |series| {
        series.tag("dashed", length.text());
        series.name = format!("dashed({}, {text})", series.name);
        DrawOption::Dashed(number)
    })
}

/// Two series as the edges of an area; both get the tags of the upper one.
pub(super) fn area_between(mut list: Vec<Series>) -> Result<Vec<Series>, EvalError> {
    let count = list.len();
    let [lower, upper] = list.as_mut_slice() else {
        return Err(EvalError::of_function(
            "areaBetween",
            &format!("expected exactly 2 series, found {count}"),
        ));
    };
    lower.options.extend([DrawOption::Stacked, DrawOption::Invisible]);
    upper.options.push(DrawOption::Stacked);
    upper.tag("areaBetween", 1);
    lower.tags = upper.tags.clone();
    upper.name = format!("areaBetween({})", upper.path_expression);
    lower.name.clone_from(&upper.name);
    Ok(list)
}

/// The stack of `stacked` without a name.
const DEFAULT_STACK: &str = "__DEFAULT__";

fn stacked(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let list = args.take_series(0)?;
    let stack = args.value(1).map_or_else(|| DEFAULT_STACK.to_owned(), Value::text);
    let stacks = Rc::clone(scope.stacks.get_or_insert_default());
    let mut stacks = stacks.borrow_mut();
    let totals = stacks.entry(stack.clone()).or_default();
    let mut results = Vec::with_capacity(list.len());
    for mut series in list {
        // The sums stay for further calls.
        let more = series.values.len().saturating_sub(totals.len());
        scope.shared.budget.keep_bytes((more as u64).saturating_mul(2 * POINT_BYTES))?;
        totals.resize(totals.len().max(series.values.len()), 0.0);
        let add = |(value, total): (&f64, &mut f64)| {
            if value.is_nan() {
                return ABSENT;
            }
            *total += value;
            *total
        };
        let values = series.values.iter().zip(totals.iter_mut()).map(add).collect();
        // A named stack keeps names: they are legends already.
        let name = if stack == DEFAULT_STACK {
            series.tag("stacked", &stack);
            format!("stacked({})", series.name)
        } else {
            series.name.clone()
        };
        let mut result = series.derived(name, values);
        result.options.push(DrawOption::Stacked);
        results.push(result);
    }
    Ok(Value::Series(results))
}

fn vertical_line(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let text = args
        .value(0)
        .map(Value::text)
        .ok_or_else(|| EvalError::of_function("verticalLine", "ts is missing"))?;
    let zone = &scope.shared.zone;
    let moment = crate::time::Moment::new(parse_time(&text, zone, scope.shared.now)?, zone);
    let time = scope.wall_seconds(moment);
    let start = scope.wall_seconds(scope.start);
    let end = scope.wall_seconds(scope.end);
    if time < start {
        return Err(EvalError::of_function(
            "verticalLine",
            &format!("timestamp {time} exists before start of range"),
        ));
    }
    if time > end {
        return Err(EvalError::of_function(
            "verticalLine",
            &format!("timestamp {time} exists after end of range"),
        ));
    }
    let label = args.given(1).map_or_else(|| "None".to_owned(), Value::text);
    let mut series =
        Series::new(label, Grid { start: time, end: time, step: 1 }, vec![1.0, 1.0], scope.x_files_factor);
    series.options.push(DrawOption::DrawAsInfinite);
    if let Some(color) = args.given(2).filter(|color| color.is_truthy()) {
        series.options.push(DrawOption::Color(color.text()));
    }
    Ok(Value::Series(vec![series]))
}
