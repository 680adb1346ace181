//! Names of functions and what they are.

use crate::ast::{DataType, Expr};
use crate::fold::math_arg_count;

/// Kind of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FunctionKind {
    /// One value per window, of all its points.
    Aggregate,
    /// Points that occur.
    Selector,
    /// Point by point.
    Transformation,
    /// Mathematical function of the values of a row.
    Math,
}

const AGGREGATES: [&str; 9] =
    ["count", "distinct", "integral", "mean", "median", "mode", "spread", "stddev", "sum"];
const SELECTORS: [&str; 8] = ["bottom", "first", "last", "max", "min", "percentile", "sample", "top"];
const TRANSFORMATIONS: [&str; 17] = [
    "chande_momentum_oscillator",
    "cumulative_sum",
    "derivative",
    "difference",
    "double_exponential_moving_average",
    "elapsed",
    "exponential_moving_average",
    "holt_winters",
    "holt_winters_with_fit",
    "kaufmans_adaptive_moving_average",
    "kaufmans_efficiency_ratio",
    "moving_average",
    "non_negative_derivative",
    "non_negative_difference",
    "relative_strength_index",
    "triple_exponential_derivative",
    "triple_exponential_moving_average",
];
/// Returns the kind of a function, given its name in lower case.
#[must_use]
pub fn function_kind(name: &str) -> Option<FunctionKind> {
    let kinds = [
        (AGGREGATES.as_slice(), FunctionKind::Aggregate),
        (SELECTORS.as_slice(), FunctionKind::Selector),
        (TRANSFORMATIONS.as_slice(), FunctionKind::Transformation),
    ];
    if is_math(name) {
        return Some(FunctionKind::Math);
    }
    kinds.into_iter().find(|(names, _)| names.contains(&name)).map(|(_, kind)| kind)
}

/// Returns true for functions of the values of a row.
pub(super) fn is_math(name: &str) -> bool {
    math_arg_count(name).is_some()
}

/// Windows before its range that a transformation of an expression reads, at most. As in InfluxDB, windows of
/// nested calls do not add up.
pub(super) fn windows_before(expr: &Expr) -> i64 {
    let mut most = 0;
    expr.any(&mut |expr| {
        let own = match expr {
            Expr::Call(call) if function_kind(&call.name) == Some(FunctionKind::Transformation) => {
                match (call.name.as_str(), call.args.get(1)) {
                    ("holt_winters" | "holt_winters_with_fit", _) => 0,
                    (_, Some(Expr::Integer(count))) => *count,
                    _ => 1,
                }
            }
            _ => 0,
        };
        most = most.max(own);
        false
    });
    most
}

/// Type of the result of a function whose first argument has type `first`.
pub(super) fn result_type(name: &str, first: DataType) -> DataType {
    match name {
        "count" | "elapsed" => DataType::Integer,
        "mean"
        | "median"
        | "integral"
        | "stddev"
        | "derivative"
        | "non_negative_derivative"
        | "moving_average"
        | "exponential_moving_average"
        | "double_exponential_moving_average"
        | "triple_exponential_moving_average"
        | "relative_strength_index"
        | "triple_exponential_derivative"
        | "kaufmans_efficiency_ratio"
        | "kaufmans_adaptive_moving_average"
        | "chande_momentum_oscillator"
        | "holt_winters"
        | "holt_winters_with_fit" => DataType::Float,
        "abs" | "ceil" | "floor" | "round" => first,
        math if is_math(math) && first == DataType::Unknown => DataType::Float,
        _ => first,
    }
}
