//! Conditions: WHERE as a range of time and the rest.
//!
//! Invariants: bounds of time are intersected whatever operators are between them, also OR; the rest has no
//! comparison of `time` at its logical level, and its constants are folded.
//! Not here: types of fields in the rest (`semantics`).

#[cfg(test)]
mod tests;

use chronolith_model::TimeRange;

use crate::ast::{BinaryOp, Chain, Expr};
use crate::error::SemanticError;
use crate::fold::{FoldContext, combine, fold, fold_inner};
use crate::time::{TIME_MAX_NS, TIME_MIN_NS, looks_like_time, parse_literal};

/// Bounds of time of a condition, both inclusive, in nanoseconds since 1970. `None` is no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TimeBounds {
    /// Earliest time.
    pub min_ns: Option<i64>,
    /// Latest time.
    pub max_ns: Option<i64>,
}

impl TimeBounds {
    /// The times of both.
    #[must_use]
    pub fn intersect(self, other: TimeBounds) -> TimeBounds {
        let both = |left: Option<i64>, right: Option<i64>, pick: fn(i64, i64) -> i64| match (left, right) {
            (Some(left), Some(right)) => Some(pick(left, right)),
            (left, right) => left.or(right),
        };
        TimeBounds {
            min_ns: both(self.min_ns, other.min_ns, i64::max),
            max_ns: both(self.max_ns, other.max_ns, i64::min),
        }
    }

    /// Returns a half-open range; missing bounds are open.
    #[must_use]
    pub fn range(self) -> TimeRange {
        let [min, max] = [self.min_ns.unwrap_or(TIME_MIN_NS), self.max_ns.unwrap_or(TIME_MAX_NS)];
        TimeRange::inclusive(min, max)
    }
}

/// A condition without its bounds of time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Condition {
    /// The rest; `None` if it is always true.
    pub rest: Option<Expr>,
    /// Bounds of time.
    pub bounds: TimeBounds,
}

/// Splits a condition.
///
/// # Errors
/// [`SemanticError`] for comparisons with `time` that have no meaning, and for operands of AND and OR that
/// are no comparisons.
pub fn split_condition(condition: Option<&Expr>, context: &FoldContext) -> Result<Condition, SemanticError> {
    let Some(condition) = condition else { return Ok(Condition::default()) };
    let split = split(condition, context)?;
    let rest = match split.rest {
        Some(Expr::Paren(inner)) => Some(*inner),
        rest => rest,
    };
    Ok(Condition { rest: rest.filter(|rest| *rest != Expr::Boolean(true)), bounds: split.bounds })
}

/// Refuses operands of AND and OR that folding has made constants that are no booleans, such as `1 + 1`.
///
/// # Errors
/// [`SemanticError`] with the text of the first one.
pub(crate) fn check_operands(condition: &Expr) -> Result<(), SemanticError> {
    match condition {
        Expr::Chain(chain) if chain.rest.iter().any(|(op, _)| op.is_logical()) => {
            // Operators that bind tighter are in the operands, or in front of the first AND or OR.
            let logical = chain.rest.iter().filter(|(op, _)| op.is_logical());
            let first = chain.rest.first().is_some_and(|(op, _)| op.is_logical()).then_some(&chain.first);
            first.into_iter().chain(logical.map(|(_, operand)| operand)).try_for_each(check_operands)
        }
        Expr::Paren(inner) => check_operands(inner),
        Expr::Chain(_) | Expr::Boolean(_) => Ok(()),
        condition => Err(SemanticError::new(format!("invalid condition expression: {condition}"))),
    }
}

fn split(condition: &Expr, context: &FoldContext) -> Result<Condition, SemanticError> {
    match condition {
        Expr::Chain(chain) => split_chain(chain, context),
        Expr::Paren(inner) => {
            let mut split = split(inner, context)?;
            let in_parens = |rest: Expr| fold_inner(Expr::Paren(Box::new(rest)), &FoldContext::timeless());
            split.rest = split.rest.map(in_parens);
            Ok(split)
        }
        Expr::Boolean(value) => {
            Ok(Condition { rest: Some(Expr::Boolean(*value)), bounds: TimeBounds::default() })
        }
        condition => Err(SemanticError::new(format!("invalid condition expression: {condition}"))),
    }
}

/// AND and OR from left to right, after the comparison that the chain may begin with.
fn split_chain(chain: &Chain, context: &FoldContext) -> Result<Condition, SemanticError> {
    let logical_idx = chain.rest.iter().position(|(op, _)| op.is_logical()).unwrap_or(chain.rest.len());
    let (comparison, logical) = chain.rest.split_at(logical_idx);
    let mut split_left = match comparison {
        [] => split(&chain.first, context)?,
        comparison => split_comparison(&chain.first, comparison, context)?,
    };
    for (op, operand) in logical {
        if !op.is_logical() {
            let whole = Expr::Chain(Box::new(chain.clone()));
            return Ok(Condition { rest: Some(fold_inner(whole, context)), bounds: TimeBounds::default() });
        }
        let split_right = split(operand, context)?;
        let bounds = split_left.bounds.intersect(split_right.bounds);
        let rest = match (split_left.rest, split_right.rest) {
            (Some(left), Some(right)) => Some(combine(left, *op, right, &FoldContext::timeless())),
            (left, right) => left.or(right),
        };
        split_left = Condition { rest, bounds };
    }
    Ok(split_left)
}

/// `first op operand ..`, the last of which is the comparison.
fn split_comparison(
    first: &Expr,
    rest: &[(BinaryOp, Expr)],
    context: &FoldContext,
) -> Result<Condition, SemanticError> {
    if let ([(op, right)], true) = (rest, is_time(first)) {
        let bounds = bounds(*op, right.clone(), context)?;
        return Ok(Condition { rest: None, bounds });
    }
    let (last_op, last) = match rest.split_last() {
        Some(((op, last), before)) if is_time(last) => {
            let left = chain_of(first, before);
            let bounds = bounds(mirrored(*op), left, context)?;
            return Ok(Condition { rest: None, bounds });
        }
        Some(((op, last), _)) => (*op, last),
        None => return split(first, context),
    };
    debug_assert!(!last_op.is_logical(), "{last} is an operand of a comparison");
    let folded = fold_inner(chain_of(first, rest), context);
    Ok(Condition { rest: Some(folded), bounds: TimeBounds::default() })
}

fn chain_of(first: &Expr, rest: &[(BinaryOp, Expr)]) -> Expr {
    let mut chain = first.clone();
    for (op, operand) in rest {
        chain = Expr::binary(chain, *op, operand.clone());
    }
    chain
}

fn is_time(expr: &Expr) -> bool {
    matches!(expr, Expr::Ref(var) if var.name.eq_ignore_ascii_case("time"))
}

/// The operator with its operands swapped.
fn mirrored(op: BinaryOp) -> BinaryOp {
    match op {
        BinaryOp::Less => BinaryOp::Greater,
        BinaryOp::LessEq => BinaryOp::GreaterEq,
        BinaryOp::Greater => BinaryOp::Less,
        BinaryOp::GreaterEq => BinaryOp::LessEq,
        op => op,
    }
}

/// Bounds of `time op value`.
fn bounds(op: BinaryOp, value: Expr, context: &FoldContext) -> Result<TimeBounds, SemanticError> {
    let ns = time_of(value, context)?;
    let [min_ns, max_ns] = match op {
        BinaryOp::Greater => [Some(ns.saturating_add(1)), None],
        BinaryOp::GreaterEq => [Some(ns), None],
        BinaryOp::Less => [None, Some(ns.saturating_sub(1))],
        BinaryOp::LessEq => [None, Some(ns)],
        BinaryOp::Eq => [Some(ns), Some(ns)],
        op => return Err(SemanticError::new(format!("invalid time comparison operator: {op}"))),
    };
    Ok(TimeBounds { min_ns, max_ns })
}

/// Nanoseconds since 1970 of a value that `time` is compared with.
#[allow(clippy::cast_possible_truncation, reason = "a float saturates at the limits of integers")]
fn time_of(value: Expr, context: &FoldContext) -> Result<i64, SemanticError> {
    let value = match value {
        Expr::Text(text) if looks_like_time(&text) => {
            let time = parse_literal(&text, &context.zone);
            Expr::Time(time.ok_or_else(|| SemanticError::new("invalid timestamp string"))?)
        }
        value => value,
    };
    match fold(value, context) {
        Expr::Time(time) => {
            let ns = time.as_nanosecond();
            let text = time.strftime("%Y-%m-%dT%H:%M:%SZ");
            if ns > i128::from(TIME_MAX_NS) {
                return Err(SemanticError::new(format!("time {text} overflows time literal")));
            }
            if ns <= i128::from(TIME_MIN_NS) {
                return Err(SemanticError::new(format!("time {text} underflows time literal")));
            }
            Ok(i64::try_from(ns).unwrap_or(i64::MAX))
        }
        Expr::Duration(ns) | Expr::Integer(ns) => Ok(ns),
        Expr::Number(ns) => Ok(ns as i64),
        other => {
            let kind = type_name(&other);
            Err(SemanticError::new(format!("invalid operation: time and {kind} are not compatible")))
        }
    }
}

/// Type of an expression in error texts that clients know.
pub(crate) fn type_name(expr: &Expr) -> &'static str {
    match expr {
        Expr::Chain(_) => "*influxql.BinaryExpr",
        Expr::Paren(_) => "*influxql.ParenExpr",
        Expr::Call(_) => "*influxql.Call",
        Expr::Ref(_) => "*influxql.VarRef",
        Expr::Distinct(_) => "*influxql.Distinct",
        Expr::Wildcard(_) => "*influxql.Wildcard",
        Expr::Regex(_) => "*influxql.RegexLiteral",
        Expr::Number(_) => "*influxql.NumberLiteral",
        Expr::Integer(_) => "*influxql.IntegerLiteral",
        Expr::Unsigned(_) => "*influxql.UnsignedLiteral",
        Expr::Text(_) => "*influxql.StringLiteral",
        Expr::Boolean(_) => "*influxql.BooleanLiteral",
        Expr::Duration(_) => "*influxql.DurationLiteral",
        Expr::Time(_) => "*influxql.TimeLiteral",
        Expr::Nil => "*influxql.NilLiteral",
    }
}
