//! Lowering of functions over points.
//!
//! Not here: mathematical functions of a row (`expr`).

use std::sync::Arc;

use chronolith_exec::rows::plan::{
    self, Aggregate, Extremes, Function, HoltWinters, Indicator, IndicatorKind, Input, Transform, Warmup,
};

use super::scope::Scope;
use super::ticks::span;
use crate::ast::{Call, DataType, Expr, VarRef};
use crate::error::SemanticError;
use crate::fold::math_arg_count;
use crate::semantics::type_of;

const NS_PER_SECOND: i64 = 1_000_000_000;

/// Lowers a call whose arguments have been checked.
pub(super) fn lower_call(call: &Call, scope: &Scope<'_>) -> Result<plan::Call, SemanticError> {
    let function = function(call, scope)?;
    let input = match call.args.first() {
        Some(Expr::Call(inner)) => Input::Call(Box::new(lower_call(inner, scope)?)),
        Some(Expr::Ref(var)) => Input::Points(scope.points(var)),
        _ => return Err(SemanticError::new(format!("expected field argument in {}()", call.name))),
    };
    let has_values = innermost_field(call).is_none_or(|var| !scope.is_without_values(var));
    if has_values && let Some(refused) = refused_type(call)? {
        return Err(type_error(call, refused));
    }
    Ok(plan::Call { function, input })
}

/// Returns the fields of an expression whose type a function over them refuses.
pub(super) fn refused_casts(expr: &Expr) -> Vec<VarRef> {
    let mut refused = Vec::new();
    expr.any(&mut |expr| {
        if let Expr::Call(call) = expr
            && math_arg_count(&call.name).is_none()
            && let Some(var) = innermost_field(call)
            && !matches!(refused_type(call), Ok(None))
        {
            refused.push(var.clone());
        }
        false
    });
    refused
}

/// The field at the bottom of nested calls.
fn innermost_field(call: &Call) -> Option<&VarRef> {
    match call.args.first() {
        Some(Expr::Call(inner)) => innermost_field(inner),
        argument => argument.and_then(Expr::as_ref),
    }
}

/// Type of the strings or booleans of an argument where a function computes with numbers.
fn refused_type(call: &Call) -> Result<Option<&'static str>, SemanticError> {
    let kind = call.args.first().map_or(Ok(DataType::Unknown), type_of)?;
    Ok(match (call.name.as_str(), kind) {
        ("count" | "distinct" | "elapsed" | "first" | "last" | "mode" | "sample", _) => None,
        ("max" | "min", DataType::Boolean) => None,
        (_, DataType::String) => Some("string"),
        (_, DataType::Boolean) => Some("boolean"),
        _ => None,
    })
}

/// The error of a function over strings or booleans.
fn type_error(call: &Call, refused: &str) -> SemanticError {
    let name = call.name.as_str();
    // With tags, InfluxDB selects the greatest or least value of each of them before.
    let has_tags = call.args.len() > 2;
    SemanticError::new(match (name, refused) {
        ("top" | "bottom", "boolean") if has_tags => {
            format!("unsupported {name} iterator type: *query.booleanReduceBooleanIterator")
        }
        ("top", "string") if has_tags => unsupported_iterator("max", refused),
        ("bottom", "string") if has_tags => unsupported_iterator("min", refused),
        _ => unsupported_iterator(name, refused),
    })
}

/// Error of a function over values of a type for which it is not defined.
pub(crate) fn unsupported_iterator(name: &str, refused: &str) -> String {
    let function = match name {
        "holt_winters" | "holt_winters_with_fit" => "elapsed".to_owned(),
        name => name.strip_prefix("non_negative_").unwrap_or(name).replace('_', " "),
    };
    format!("unsupported {function} iterator type: *query.{refused}InterruptIterator")
}

fn function(call: &Call, scope: &Scope<'_>) -> Result<Function, SemanticError> {
    let aggregate = match call.name.as_str() {
        "count" => Aggregate::Count,
        "distinct" => Aggregate::Distinct,
        "integral" => Aggregate::Integral { unit: unit(call, NS_PER_SECOND, scope) },
        "mean" => Aggregate::Mean,
        "median" => Aggregate::Median,
        "mode" => Aggregate::Mode,
        "spread" => Aggregate::Spread,
        "stddev" => Aggregate::Stddev,
        "sum" => Aggregate::Sum,
        "first" => Aggregate::First,
        "last" => Aggregate::Last,
        "max" => Aggregate::Max,
        "min" => Aggregate::Min,
        "percentile" => Aggregate::Percentile(float_arg(call, 1)),
        "sample" => Aggregate::Sample(count_arg(call, 1)),
        "top" => Aggregate::Top(extremes(call)),
        "bottom" => Aggregate::Bottom(extremes(call)),
        _ => return transformation(call, scope).map(Function::Transform),
    };
    Ok(Function::Aggregate(aggregate))
}

fn transformation(call: &Call, scope: &Scope<'_>) -> Result<Transform, SemanticError> {
    use IndicatorKind as Kind;
    Ok(match call.name.as_str() {
        "derivative" | "non_negative_derivative" => {
            let default_ns = scope.interval_ns.unwrap_or(NS_PER_SECOND);
            let non_negative = call.name == "non_negative_derivative";
            Transform::Derivative { unit: unit(call, default_ns, scope), non_negative }
        }
        "difference" => Transform::Difference { non_negative: false },
        "non_negative_difference" => Transform::Difference { non_negative: true },
        "moving_average" => Transform::MovingAverage { count: count_arg(call, 1) },
        "cumulative_sum" => Transform::CumulativeSum,
        "elapsed" => Transform::Elapsed { unit: unit(call, 1, scope) },
        "holt_winters" | "holt_winters_with_fit" => Transform::HoltWinters(HoltWinters {
            horizon: count_arg(call, 1),
            season: count_arg(call, 2),
            with_fit: call.name == "holt_winters_with_fit",
        }),
        "chande_momentum_oscillator" => indicator(call, Kind::ChandeMomentumOscillator, None),
        "exponential_moving_average" => {
            indicator(call, Kind::ExponentialMovingAverage, Some(Warmup::Exponential))
        }
        "double_exponential_moving_average" => {
            indicator(call, Kind::DoubleExponentialMovingAverage, Some(Warmup::Exponential))
        }
        "triple_exponential_moving_average" => {
            indicator(call, Kind::TripleExponentialMovingAverage, Some(Warmup::Exponential))
        }
        "triple_exponential_derivative" => {
            indicator(call, Kind::TripleExponentialDerivative, Some(Warmup::Exponential))
        }
        "relative_strength_index" => indicator(call, Kind::RelativeStrengthIndex, Some(Warmup::Exponential)),
        "kaufmans_efficiency_ratio" => indicator(call, Kind::KaufmansEfficiencyRatio, None),
        "kaufmans_adaptive_moving_average" => indicator(call, Kind::KaufmansAdaptiveMovingAverage, None),
        name => return Err(SemanticError::new(format!("undefined function {name}()"))),
    })
}

/// The span of the second argument, in ticks.
fn unit(call: &Call, default_ns: i64, scope: &Scope<'_>) -> i64 {
    match call.args.get(1) {
        Some(Expr::Duration(ns)) => span(*ns, scope.unit),
        _ => span(default_ns, scope.unit),
    }
}

/// A number that has been checked to be positive.
fn count_arg(call: &Call, idx: usize) -> usize {
    match call.args.get(idx) {
        Some(Expr::Integer(count)) => usize::try_from(*count).unwrap_or(0),
        _ => 0,
    }
}

#[allow(clippy::cast_precision_loss, reason = "a percentile is a float")]
fn float_arg(call: &Call, idx: usize) -> f64 {
    match call.args.get(idx) {
        Some(Expr::Integer(number)) => *number as f64,
        Some(Expr::Number(number)) => *number,
        _ => 0.0,
    }
}

/// Arguments of `top(field, tag, .., count)`.
fn extremes(call: &Call) -> Extremes {
    let names = call.args.iter().skip(1).filter_map(Expr::as_ref);
    Extremes {
        count: count_arg(call, call.args.len().saturating_sub(1)),
        distinct_tags: names.map(|var| Arc::from(var.name.as_str())).collect(),
    }
}

fn indicator(call: &Call, kind: IndicatorKind, default_warmup: Option<Warmup>) -> Transform {
    let hold = match call.args.get(2) {
        Some(Expr::Integer(hold)) => usize::try_from(*hold).ok(),
        _ => None,
    };
    let warmup = match call.args.get(3) {
        Some(Expr::Text(warmup)) => match warmup.as_str() {
            "simple" => Some(Warmup::Simple),
            "exponential" => Some(Warmup::Exponential),
            _ => None,
        },
        _ => default_warmup,
    };
    Transform::Indicator(Indicator { kind, period: count_arg(call, 1), hold, warmup })
}
