//! Collisions: two different series of an expression that get the same labels when the metric name is removed
//! or labels are rewritten. Such a query fails if the two have a value at the same step, which may be one of
//! a subquery between the windows that the query looks at.
//!
//! Invariants: errs on the side of "possible". An expression that names its metrics and does not mix them
//! cannot collide.

use chronolith_exec::metric_name::NameRemoval;
use chronolith_model::{METRIC_NAME, MatchOp};

use crate::ast::{Aggregate, AggregateOp, Binary, Call, Expr, ExprKind, ValueType, VectorSelector};
use crate::engine::query::EngineOptions;

/// Deeper expressions are taken for colliding ones.
const DEPTH_MAX: usize = 200;

/// Metric names among the series of a vector.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Names<'e> {
    /// No series has a name.
    None,
    /// All series have this name.
    One(&'e str),
    /// Series may differ in nothing but the name.
    Many,
}

/// Some operator may see two series that differ only in what it removes.
struct Possible;

/// Returns true if the result over a range may be an error although the results over its parts are not.
pub(super) fn is_possible(expr: &Expr, options: &EngineOptions) -> bool {
    match names(expr, options, DEPTH_MAX) {
        Err(Possible) => true,
        // The name that an operator left in place is removed at the end.
        Ok(names) => names == Names::Many && options.name_removal == NameRemoval::Delayed,
    }
}

impl<'e> Names<'e> {
    fn joined(self, other: Names<'e>) -> Names<'e> {
        if self == other { self } else { Names::Many }
    }

    /// After the name may have been removed.
    fn without_name(self) -> Result<Names<'e>, Possible> {
        if self == Names::Many { Err(Possible) } else { Ok(self) }
    }
}

fn names<'e>(expr: &'e Expr, options: &EngineOptions, depth: usize) -> Result<Names<'e>, Possible> {
    let depth = depth.checked_sub(1).ok_or(Possible)?;
    match &expr.kind {
        ExprKind::Number(_) | ExprKind::String(_) => Ok(Names::None),
        ExprKind::Paren(inner) => names(inner, options, depth),
        ExprKind::Unary(_, inner) => names(inner, options, depth)?.without_name(),
        ExprKind::Selector(selector) => Ok(names_of_selector(selector, options)),
        ExprKind::Matrix(matrix) => Ok(names_of_selector(&matrix.selector, options)),
        ExprKind::Subquery(subquery) => names(&subquery.expr, options, depth),
        ExprKind::Call(call) => names_of_call(call, options, depth),
        ExprKind::Aggregate(aggregate) => names_of_aggregate(aggregate, options, depth),
        ExprKind::Binary(binary) => names_of_binary(binary, options, depth),
    }
}

fn names_of_selector<'e>(selector: &'e VectorSelector, options: &EngineOptions) -> Names<'e> {
    let name = selector.matchers.iter().find(|m| &*m.name == METRIC_NAME && m.op == MatchOp::Equal);
    match name {
        // Type and unit are removed with the name, and no matcher fixes them.
        Some(name) if !options.type_and_unit_labels => Names::One(&name.value),
        _ => Names::Many,
    }
}

/// Functions are taken to remove the name, as most do.
fn names_of_call<'e>(call: &'e Call, options: &EngineOptions, depth: usize) -> Result<Names<'e>, Possible> {
    if matches!(call.function.name, "label_replace" | "label_join") {
        return names_of_rewritten(call, options, depth);
    }
    let mut all = Names::None;
    for arg in &call.args {
        let of_arg = names(arg, options, depth)?;
        if matches!(arg.value_type(), ValueType::Vector | ValueType::Matrix) {
            all = of_arg.without_name()?;
        }
    }
    let is_scalar = call.function.returns == ValueType::Scalar;
    Ok(if is_scalar { Names::None } else { all })
}

/// An overwritten label may be the only difference of two series: only one that cannot be present is safe.
fn names_of_rewritten<'e>(
    call: &'e Call,
    options: &EngineOptions,
    depth: usize,
) -> Result<Names<'e>, Possible> {
    let [vector, target, ..] = &call.args[..] else { return Err(Possible) };
    let ExprKind::String(target) = &target.kind else { return Err(Possible) };
    let mut inner = vector;
    while let ExprKind::Paren(paren) = &inner.kind {
        inner = paren;
    }
    let is_absent = match &inner.kind {
        ExprKind::Aggregate(aggregate) => {
            !keeps_series(aggregate.op) && !aggregate.without && !aggregate.grouping.contains(target)
                // The label of count_values is added to those of the group.
                && aggregate.op != AggregateOp::CountValues
        }
        _ => false,
    };
    if target == METRIC_NAME || !is_absent {
        return Err(Possible);
    }
    names(inner, options, depth)
}

fn names_of_aggregate<'e>(
    aggregate: &'e Aggregate,
    options: &EngineOptions,
    depth: usize,
) -> Result<Names<'e>, Possible> {
    if let Some(param) = &aggregate.param {
        names(param, options, depth)?;
    }
    let inner = names(&aggregate.expr, options, depth)?;
    let keeps_name = !aggregate.without && aggregate.grouping.iter().any(|label| label == METRIC_NAME);
    Ok(if keeps_series(aggregate.op) || keeps_name { inner } else { Names::None })
}

fn keeps_series(op: AggregateOp) -> bool {
    matches!(op, AggregateOp::Select(_))
}

/// Operators between vectors look at one step at a time; one with a number is taken for a function.
fn names_of_binary<'e>(
    binary: &'e Binary,
    options: &EngineOptions,
    depth: usize,
) -> Result<Names<'e>, Possible> {
    let lhs = names(&binary.lhs, options, depth)?;
    let rhs = names(&binary.rhs, options, depth)?;
    let is_vector = |expr: &Expr| expr.value_type() == ValueType::Vector;
    match (is_vector(&binary.lhs), is_vector(&binary.rhs)) {
        (true, true) => Ok(lhs.joined(rhs)),
        (true, false) => lhs.without_name(),
        (false, true) => rhs.without_name(),
        (false, false) => Ok(Names::None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::{ParserOptions, parse_expr};

    #[track_caller]
    fn check(text: &str, want: bool) {
        let expr =
            parse_expr(text, ParserOptions::default()).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(is_possible(&expr, &EngineOptions::default()), want, "{text}");
    }

    #[test]
    fn named_metrics_do_not_collide() {
        for text in [
            "1 + time()",
            "m",
            "{__name__=~\"a|b\"}",
            "rate(m[5m])",
            "sum by (a) (rate(m[5m])) / on (a) sum by (a) (n)",
            "-m > 1",
            "max_over_time(rate(m[1m])[1h:1m])",
            "topk(3, -m)",
            "sum({__name__=~\"a|b\"}) * 2",
            "label_replace(sum by (a) (m), \"b\", \"$1\", \"a\", \"(.*)\")",
            "histogram_quantile(0.9, sum by (le) (rate(m_bucket[5m])))",
            "a or b",
        ] {
            check(text, false);
        }
    }

    #[test]
    fn series_that_differ_in_what_is_removed_collide() {
        for text in [
            "rate({__name__=~\"a|b\"}[1m])",
            "sum(rate({__name__=~\"a|b\"}[1m]))",
            "count_over_time({job=\"x\"}[1m]) > 1",
            "-{job=\"x\"}",
            "max_over_time((a or b)[5m:1m])",
            "label_replace(m, \"b\", \"$1\", \"a\", \"(.*)\")",
            "label_join(sum by (a) (m), \"a\", \"-\", \"b\")",
            "abs(a or b)",
        ] {
            check(text, true);
        }
    }

    #[test]
    fn deep_expressions_do_not_overflow_the_stack() {
        check(&format!("m{}", " + m".repeat(5000)), true);
    }
}
