//! Operators that are watched: one node of the trace for every node of the tree that yields series.
//! Holds: a chain of binary operators is one node, with its operands below; parentheses are none.
//! Not here: what is counted (`trace`).

use std::sync::Arc;

use super::Planner;
use crate::ast::{Expr, ExprKind, UnaryOp};
use crate::engine::EvalError;
use crate::engine::grid::Grid;
use crate::engine::series::{BoxOperator, SeriesOperator, StepSeries};
use crate::engine::trace::{Node, NodePlace, Use};

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
        match self.repeated(expr, grid) {
            Some(key) => self.shared_vector(expr, grid, key),
            None => Ok(self.traced(expr, grid)?.0),
        }
    }

    /// Operators of an instant vector that is computed here, and the node that watches them.
    pub(super) fn traced(
        &self,
        expr: &'q Expr,
        grid: Grid,
    ) -> Result<(BoxOperator<'q>, Option<Arc<Node>>), EvalError> {
        match self.place(expr, Use::First) {
            None => Ok((self.vector_untraced(expr, grid)?, None)),
            Some(place) => {
                let inner = place.run(|| self.vector_untraced(expr, grid))?;
                let node = place.node();
                Ok((Box::new(Traced { inner, place }), Some(node)))
            }
        }
    }

    /// A node for an expression.
    pub(super) fn place(&self, expr: &'q Expr, of_shared: Use) -> Option<NodePlace<'q>> {
        let text = self.run.query.text.get(expr.span.start as usize..expr.span.end as usize);
        name_of(expr).and_then(|op| self.run.trace.node(op, text.unwrap_or_default(), of_shared))
    }
}

/// Watches an operator that reads what another one has computed.
pub(super) fn watched<'q>(inner: BoxOperator<'q>, place: Option<NodePlace<'q>>) -> BoxOperator<'q> {
    match place {
        None => inner,
        Some(place) => Box::new(Traced { inner, place }),
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
