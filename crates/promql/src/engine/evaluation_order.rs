//! Order in which Prometheus evaluates the parts of a query: operands before their operator. Of two positions
//! of one annotation, that of the part evaluated last is reported.

use chronolith_base::hash::HashMap;
use chronolith_exec::position::Position;

use crate::ast::{Expr, ExprKind, ValueType};

/// Ranks of the parts of a query in order of evaluation.
#[derive(Debug, Default)]
pub(super) struct Order(HashMap<Position, usize>);

impl Order {
    /// The ranks of all parts of `root`.
    pub(super) fn new(root: &Expr) -> Order {
        let mut ranks = HashMap::default();
        // Walking from the end, whatever is met first is evaluated last.
        let mut left = vec![root];
        let mut rank = usize::MAX;
        while let Some(expr) = left.pop() {
            rank -= 1;
            ranks.entry(expr.span.position()).or_insert(rank);
            push_operands(expr, &mut left);
        }
        Order(ranks)
    }

    /// Greater for what is evaluated later; 0 for what is not a part.
    pub(super) fn rank(&self, emitter: Position) -> usize {
        self.0.get(&emitter).copied().unwrap_or(0)
    }
}

/// Appends the operands of an expression in order of evaluation.
pub(super) fn push_operands<'e>(expr: &'e Expr, out: &mut Vec<&'e Expr>) {
    match &expr.kind {
        ExprKind::Number(_) | ExprKind::String(_) | ExprKind::Selector(_) | ExprKind::Matrix(_) => {}
        ExprKind::Paren(inner) | ExprKind::Unary(_, inner) => out.push(inner),
        ExprKind::Subquery(subquery) => out.push(&subquery.expr),
        ExprKind::Aggregate(aggregate) => {
            out.extend(&aggregate.param);
            out.push(&aggregate.expr);
        }
        ExprKind::Binary(binary) => out.extend([&binary.lhs, &binary.rhs]),
        ExprKind::Call(call) => {
            // Ranges come before the other arguments.
            let is_range = |arg: &&Expr| arg.value_type() == ValueType::Matrix;
            out.extend(call.args.iter().filter(is_range));
            out.extend(call.args.iter().filter(|arg| !is_range(arg)));
        }
    }
}
