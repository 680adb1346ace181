//! Properties of expressions that plans depend on: distinct without metric names, step-invariant, depth.

use chronolith_exec::error::Error;
use chronolith_exec::grid::Grid;
use chronolith_model::matcher::MatchOp;
use chronolith_model::{METRIC_NAME, Matcher};

use super::reference_time::shares_reference;
use crate::ast::{
    AggregateOp, Binary, BinaryOp, Call, Expr, ExprKind, MatchCardinality, UnaryOp, ValueType, VectorMatching,
};
use crate::engine::call::calendar::CalendarField;
use crate::engine::evaluation::Evaluation;

pub(super) fn unexpected(want: ValueType, expr: &Expr) -> Error {
    Error::Language(format!("expected {}, got {}", want.describe(), expr.value_type().describe()))
}

/// The text of a string expression.
///
/// # Errors
/// The expression is not a string.
pub(crate) fn string_of(expr: &Expr) -> Result<&str, Error> {
    match &expr.unwrap_parens().kind {
        ExprKind::String(text) => Ok(text),
        _ => Err(unexpected(ValueType::String, expr)),
    }
}

/// Returns true if a text can name a label. The parser leaves U+FFFD where a literal holds bytes that are not
/// UTF-8, so a name with that character in it counts as one of those.
pub(crate) fn is_label_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(char::REPLACEMENT_CHARACTER)
}

/// Returns true if the result of an operator stays distinct without metric names; `None` if its left side
/// decides.
pub(super) fn binary_stays_distinct(binary: &Binary) -> Option<bool> {
    match binary.op {
        BinaryOp::And | BinaryOp::Unless => None,
        BinaryOp::Or => Some(false),
        op if keeps_names(op) && !binary.return_bool => match &binary.matching {
            // Labels come from the "many" side, names from an included label, and none from what fills a gap.
            Some(m) if m.card == MatchCardinality::OneToMany => {
                Some(stays_distinct(&binary.rhs) && !brings_names(m))
            }
            Some(m) if brings_names(m) => Some(false),
            _ => None,
        },
        // Arithmetic drops names.
        _ => Some(!binary.matching.as_ref().is_some_and(brings_names)),
    }
}

/// Returns true if an operator returns elements, or parts of them, of one side.
fn keeps_names(op: BinaryOp) -> bool {
    op.is_comparison() || matches!(op, BinaryOp::TrimLower | BinaryOp::TrimUpper)
}

/// Returns true if `group_left(__name__)`, or a fill value, may give results other names than those of the
/// series.
fn brings_names(matching: &VectorMatching) -> bool {
    matching.include.iter().any(|label| label == METRIC_NAME)
        || matching.fill_left.is_some()
        || matching.fill_right.is_some()
}

/// Bytes of the columns that the operators of an expression work with, one each.
pub(crate) fn columns_bytes(expr: &Expr, grid: Grid) -> u64 {
    grid.column_bytes().saturating_mul(vector_depth(expr) as u64 + 1)
}

/// Greatest nesting depth of operators over vectors.
pub(crate) fn vector_depth(expr: &Expr) -> usize {
    let (mut deepest, mut left) = (0, vec![(expr, 1)]);
    while let Some((expr, depth)) = left.pop() {
        deepest = deepest.max(depth);
        match &expr.kind {
            ExprKind::Number(_) | ExprKind::String(_) | ExprKind::Selector(_) | ExprKind::Matrix(_) => {}
            ExprKind::Paren(inner) => left.push((inner, depth)),
            ExprKind::Unary(_, inner) => left.push((inner, depth + 1)),
            ExprKind::Subquery(subquery) => left.push((&subquery.expr, depth + 1)),
            ExprKind::Aggregate(aggregate) => {
                left.extend(aggregate.param.iter().map(|param| (param, depth + 1)));
                left.push((&aggregate.expr, depth + 1));
            }
            ExprKind::Binary(_) if expr.value_type() == ValueType::Scalar => {
                // Scalars are computed at once, a chain in a loop; what they are made of may still be deep.
                let (base, spine) = expr.left_spine();
                left.push((base, depth + 1));
                left.extend(spine.into_iter().map(|binary| (&binary.rhs, depth + 1)));
            }
            ExprKind::Binary(_) => {
                let (base, spine) = expr.left_spine();
                let count = spine.len();
                left.push((base, depth + count));
                left.extend(spine.into_iter().enumerate().map(|(at, b)| (&b.rhs, depth + count - at)));
            }
            ExprKind::Call(call) => left.extend(call.args.iter().map(|arg| (arg, depth + 1))),
        }
    }
    deepest
}

/// Returns true if series of `expr` stay distinct without their metric names.
pub(super) fn stays_distinct(expr: &Expr) -> bool {
    let one_name = |matchers: &[Matcher]| {
        matchers.iter().any(|m| &*m.name == METRIC_NAME && m.op == MatchOp::Equal && !m.value.is_empty())
    };
    match &expr.kind {
        ExprKind::Number(_) | ExprKind::String(_) => true,
        ExprKind::Selector(selector) => one_name(&selector.matchers),
        ExprKind::Matrix(matrix) => one_name(&matrix.selector.matchers),
        ExprKind::Subquery(subquery) => stays_distinct(&subquery.expr),
        ExprKind::Paren(inner) => stays_distinct(inner),
        // The name is gone already.
        ExprKind::Unary(op, inner) => *op == UnaryOp::Minus || stays_distinct(inner),
        ExprKind::Aggregate(aggregate) => match aggregate.op {
            AggregateOp::Select(_) => stays_distinct(&aggregate.expr),
            // Values become names.
            AggregateOp::CountValues
                if aggregate
                    .param
                    .as_ref()
                    .is_some_and(|label| string_of(label).is_ok_and(|l| l == METRIC_NAME)) =>
            {
                false
            }
            _ => aggregate.without || !aggregate.grouping.iter().any(|label| label == METRIC_NAME),
        },
        ExprKind::Binary(_) => {
            let (base, spine) = expr.left_spine();
            let mut scalar = base.value_type() == ValueType::Scalar;
            let mut distinct = stays_distinct(base);
            for binary in spine {
                // A filter yields the series of its vector, whichever side that is.
                let of_vector = if scalar { stays_distinct(&binary.rhs) } else { distinct };
                distinct = binary_stays_distinct(binary).unwrap_or(of_vector);
                scalar &= binary.rhs.value_type() == ValueType::Scalar;
            }
            distinct
        }
        ExprKind::Call(call) => result_stays_distinct(call),
    }
}

/// Returns true if an expression has the same value in all steps.
pub(super) fn is_step_invariant(evaluation: &Evaluation<'_>, expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Number(_) | ExprKind::String(_) => true,
        ExprKind::Selector(selector) => selector.at.is_some(),
        ExprKind::Matrix(matrix) => matrix.selector.at.is_some(),
        ExprKind::Subquery(subquery) => subquery.at.is_some(),
        ExprKind::Paren(inner) | ExprKind::Unary(_, inner) => is_step_invariant(evaluation, inner),
        ExprKind::Aggregate(aggregate) => {
            aggregate.param.as_ref().is_none_or(|param| is_step_invariant(evaluation, param))
                && is_step_invariant(evaluation, &aggregate.expr)
        }
        ExprKind::Binary(_) => {
            let (base, spine) = expr.left_spine();
            is_step_invariant(evaluation, base)
                && spine.into_iter().all(|binary| is_step_invariant(evaluation, &binary.rhs))
        }
        // The time of a sample that stays the same does, too.
        ExprKind::Call(call) if call.function.name == "timestamp" => call.args.iter().all(|arg| {
            let arg = arg.unwrap_parens();
            matches!(arg.kind, ExprKind::Selector(_)) && is_step_invariant(evaluation, arg)
        }),
        // Without a reference in common, info series of the evaluation time are looked up.
        ExprKind::Call(call) if call.function.name == "info" => call
            .args
            .first()
            .is_some_and(|arg| is_step_invariant(evaluation, arg) && shares_reference(evaluation, arg)),
        ExprKind::Call(call) => {
            !depends_on_time(call) && call.args.iter().all(|arg| is_step_invariant(evaluation, arg))
        }
    }
}

/// Returns true if a function depends on the evaluation time, its arguments being the same.
fn depends_on_time(call: &Call) -> bool {
    let name = call.function.name;
    // Parts of a date do not depend on it if they have an argument, but Prometheus treats them so.
    matches!(name, "time" | "timestamp" | "predict_linear") || CalendarField::function(name).is_some()
}

/// Returns true if the series that a function returns stay distinct without their metric names.
fn result_stays_distinct(call: &Call) -> bool {
    match call.function.name {
        "label_replace" | "label_join" | "info" => false,
        "last_over_time" | "first_over_time" | "sort" | "sort_desc" | "sort_by_label"
        | "sort_by_label_desc" => call.args.iter().all(stays_distinct),
        _ => true,
    }
}
