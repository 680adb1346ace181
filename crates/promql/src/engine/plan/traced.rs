//! Operators that are watched: one node of the trace for every node of the tree that yields series.
//! Holds: a chain of binary operators is one node, with its operands below; parentheses are none.
//! Not here: what is counted (`trace`).

use super::Planner;
use crate::ast::{Expr, ExprKind, UnaryOp};
use crate::engine::EvalError;
use crate::engine::grid::Grid;
use crate::engine::series::{BoxOperator, SeriesOperator, StepSeries};
use crate::engine::trace::NodePlace;

/// Counts what its inner operator does.
struct Traced<'q> {
    inner: BoxOperator<'q>,
    place: NodePlace<'q>,
}

impl SeriesOperator for Traced<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, EvalError> {
        let any = self.place.run(|| self.inner.next(out))?;
        if any {
            self.place.count_yielded();
        }
        Ok(any)
    }
}

impl<'q> Planner<'q> {
    /// Operators of an instant vector.
    pub(crate) fn vector(&self, expr: &'q Expr, grid: Grid) -> Result<BoxOperator<'q>, EvalError> {
        let text = self.run.query.text.get(expr.span.start as usize..expr.span.end as usize);
        let place = name_of(expr).and_then(|op| self.run.trace.node(op, text.unwrap_or_default()));
        match place {
            None => self.vector_untraced(expr, grid),
            Some(place) => {
                let inner = place.run(|| self.vector_untraced(expr, grid))?;
                Ok(Box::new(Traced { inner, place }))
            }
        }
    }
}

/// The word for an operator in reports; `None` for what is no operator.
fn name_of(expr: &Expr) -> Option<&'static str> {
    match &expr.kind {
        ExprKind::Selector(_) => Some("select"),
        ExprKind::Aggregate(aggregate) => Some(aggregate.op.as_str()),
        ExprKind::Call(call) => Some(call.function.name),
        ExprKind::Binary(binary) => Some(binary.op.as_str()),
        ExprKind::Unary(UnaryOp::Minus, _) => Some("negate"),
        ExprKind::Unary(UnaryOp::Plus, _) | ExprKind::Paren(_) => None,
        ExprKind::Number(_) | ExprKind::String(_) | ExprKind::Matrix(_) | ExprKind::Subquery(_) => None,
    }
}
