//! Who speaks after whom: upstream evaluates operands before what they are operands of, and says so in that order.
//! Holds: of two places of one message the one of whoever speaks last stays, whichever was said last here.

use chronolith_base::hash::HashMap;

use crate::ast::{Expr, ExprKind, Span, ValueType};
use crate::engine::plan::value_type;

/// Where something in the query is pointed at, and which part of the query points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Origin {
    /// What is pointed at.
    pub(crate) span: Span,
    /// The operator, function or selector that speaks.
    pub(crate) speaker: Span,
}

impl Origin {
    /// Of a speaker that points at itself.
    pub(crate) fn own(speaker: Span) -> Origin {
        Origin { span: speaker, speaker }
    }
}

/// Ranks of the parts of a query in order of evaluation.
#[derive(Debug, Default)]
pub(super) struct Order(HashMap<(u32, u32), usize>);

impl Order {
    /// Of all parts of `root`.
    pub(super) fn new(root: &Expr) -> Order {
        let mut ranks = HashMap::default();
        // Walking from the end, whatever is met first is evaluated last.
        let mut left = vec![root];
        let mut rank = usize::MAX;
        while let Some(expr) = left.pop() {
            rank -= 1;
            ranks.entry((expr.span.start, expr.span.end)).or_insert(rank);
            push_operands(expr, &mut left);
        }
        Order(ranks)
    }

    /// Greater for what is evaluated later; 0 for what is no part.
    pub(super) fn rank(&self, speaker: Span) -> usize {
        self.0.get(&(speaker.start, speaker.end)).copied().unwrap_or(0)
    }
}

/// Adds the operands of an expression in order of evaluation.
fn push_operands<'e>(expr: &'e Expr, out: &mut Vec<&'e Expr>) {
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
            // Ranges come before the arguments beside them.
            let (ranges, others): (Vec<&Expr>, Vec<&Expr>) =
                call.args.iter().partition(|arg| value_type(arg) == ValueType::Matrix);
            out.extend(ranges);
            out.extend(others);
        }
    }
}
