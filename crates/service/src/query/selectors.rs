//! Selectors of a query.

use chronolith_model::Matcher;
use chronolith_promql::ast::{Expr, ExprKind};

/// Returns the matchers of every selector in the query, in order.
pub fn selectors_of(expr: &Expr) -> Vec<&[Matcher]> {
    let mut selectors = Vec::new();
    collect(expr, &mut selectors);
    selectors
}

fn collect<'a>(expr: &'a Expr, out: &mut Vec<&'a [Matcher]>) {
    match &expr.kind {
        ExprKind::Number(_) | ExprKind::String(_) => {}
        ExprKind::Selector(selector) => out.push(&selector.matchers),
        ExprKind::Matrix(matrix) => out.push(&matrix.selector.matchers),
        ExprKind::Subquery(subquery) => collect(&subquery.expr, out),
        ExprKind::Call(call) => call.args.iter().for_each(|arg| collect(arg, out)),
        ExprKind::Aggregate(aggregate) => {
            aggregate.param.iter().for_each(|param| collect(param, out));
            collect(&aggregate.expr, out);
        }
        ExprKind::Binary(binary) => {
            collect(&binary.lhs, out);
            collect(&binary.rhs, out);
        }
        ExprKind::Unary(_, inner) | ExprKind::Paren(inner) => collect(inner, out),
    }
}
