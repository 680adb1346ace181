//! Reference time of an expression: the time at which its selectors look, where that is one.
//!
//! Invariants: selectors share a reference if their time minus their offset is the same in every step.
//! Scalars do not count, nor does the second argument of `info`, which selects labels.
//! Not here: what `info` does with it (`call::target_info`).

use chronolith_exec::error::Error;
use chronolith_exec::grid::TimeShift;

use crate::ast::{AtModifier, DurationExpr, Expr, ExprKind, ValueType};
use crate::engine::evaluation::Evaluation;

/// `@` and `offset` of the subqueries around an expression, innermost last.
type Enclosing<'e> = Vec<(&'e DurationExpr, Option<AtModifier>)>;

/// References found so far.
#[derive(Default)]
struct References {
    shared: Option<TimeShift>,
    /// Two selectors differ, or a vector without selectors depends on the evaluation time.
    mixed: bool,
}

impl References {
    fn add(&mut self, shift: TimeShift) {
        let effective = |shift: TimeShift| match shift.fixed_ms {
            Some(fixed_ms) => (Some(fixed_ms.saturating_sub(shift.offset_ms)), 0),
            None => (None, shift.offset_ms),
        };
        match self.shared {
            None => self.shared = Some(shift),
            Some(first) => self.mixed |= effective(first) != effective(shift),
        }
    }
}

/// The shift that all selectors of a vector share; none at all where they share none.
pub(super) fn reference_shift(evaluation: &Evaluation<'_>, expr: &Expr) -> Result<TimeShift, Error> {
    let evaluation_time = TimeShift { fixed_ms: None, offset_ms: 0 };
    Ok(shared_reference(evaluation, expr)?.unwrap_or(evaluation_time))
}

/// Returns true if all selectors of a vector share a reference. A duration that cannot be computed is
/// reported when the selector is planned.
pub(super) fn shares_reference(evaluation: &Evaluation<'_>, expr: &Expr) -> bool {
    matches!(shared_reference(evaluation, expr), Ok(Some(_)))
}

fn shared_reference(evaluation: &Evaluation<'_>, expr: &Expr) -> Result<Option<TimeShift>, Error> {
    let mut found = References::default();
    find_references(evaluation, expr, &mut Vec::new(), &mut found)?;
    Ok(found.shared.filter(|_| !found.mixed))
}

/// Returns true if there is a selector in `expr`.
fn find_references<'e>(
    evaluation: &Evaluation<'_>,
    expr: &'e Expr,
    enclosing: &mut Enclosing<'e>,
    found: &mut References,
) -> Result<bool, Error> {
    if !matches!(expr.value_type(), ValueType::Vector | ValueType::Matrix) {
        return Ok(false);
    }
    let mut any = false;
    match &expr.kind {
        ExprKind::Number(_) | ExprKind::String(_) => {}
        ExprKind::Selector(selector) => {
            found.add(shift_within(evaluation, &selector.offset, selector.at, enclosing)?);
            return Ok(true);
        }
        ExprKind::Matrix(matrix) => {
            found.add(shift_within(evaluation, &matrix.selector.offset, matrix.selector.at, enclosing)?);
            return Ok(true);
        }
        ExprKind::Subquery(subquery) => {
            enclosing.push((&subquery.offset, subquery.at));
            any = find_references(evaluation, &subquery.expr, enclosing, found)?;
            enclosing.pop();
        }
        ExprKind::Paren(inner) | ExprKind::Unary(_, inner) => {
            any = find_references(evaluation, inner, enclosing, found)?;
        }
        ExprKind::Call(call) if call.function.name == "info" => {
            return call
                .args
                .first()
                .map_or(Ok(false), |arg| find_references(evaluation, arg, enclosing, found));
        }
        ExprKind::Call(call) => {
            for arg in &call.args {
                any |= find_references(evaluation, arg, enclosing, found)?;
            }
        }
        ExprKind::Aggregate(aggregate) => {
            any = find_references(evaluation, &aggregate.expr, enclosing, found)?
        }
        ExprKind::Binary(_) => {
            let (base, spine) = expr.left_spine();
            any = find_references(evaluation, base, enclosing, found)?;
            for binary in spine {
                any |= find_references(evaluation, &binary.rhs, enclosing, found)?;
            }
        }
    }
    found.mixed |= !any;
    Ok(any)
}

/// Offsets of subqueries add up until an `@` fixes the time.
fn shift_within(
    evaluation: &Evaluation<'_>,
    offset: &DurationExpr,
    at: Option<AtModifier>,
    enclosing: &Enclosing<'_>,
) -> Result<TimeShift, Error> {
    let mut shift = evaluation.shift(offset, at)?;
    for (offset, at) in enclosing.iter().rev() {
        if shift.fixed_ms.is_some() {
            break;
        }
        let outer = evaluation.shift(offset, *at)?;
        shift.offset_ms = shift.offset_ms.saturating_add(outer.offset_ms);
        shift.fixed_ms = outer.fixed_ms;
    }
    Ok(shift)
}
