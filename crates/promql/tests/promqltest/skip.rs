//! Which evals cannot pass yet: rules about what they contain.

use chronolith_model::matcher::Matcher;
use chronolith_model::{Labels, METRIC_NAME};
use chronolith_promql::ast::{Expr, ExprKind};

use super::script::Eval;

/// Functions of native histograms, and `info`, which needs two selections.
const FUNCTIONS: &[&str] = &[
    "histogram_avg",
    "histogram_count",
    "histogram_sum",
    "histogram_stddev",
    "histogram_stdvar",
    "info",
    "start_timestamp",
];

/// Why `eval` is skipped; `None` if it has to pass.
pub(crate) fn reason(eval: &Eval, expr: Option<&Expr>, histograms: &[Labels]) -> Option<&'static str> {
    if eval.series.iter().any(|series| series.has_histograms) {
        return Some("expects a native histogram");
    }
    let mut reason = None;
    walk(expr?, &mut |expr| {
        let found = match &expr.kind {
            ExprKind::Selector(selector) if selects_any(&selector.matchers, histograms) => {
                Some("selects a native histogram")
            }
            ExprKind::Matrix(matrix) if selects_any(&matrix.selector.matchers, histograms) => {
                Some("selects a native histogram")
            }
            ExprKind::Selector(selector) if selector.extension.is_some() => Some("anchored or smoothed"),
            ExprKind::Matrix(matrix) if matrix.selector.extension.is_some() => Some("anchored or smoothed"),
            ExprKind::Call(call) if FUNCTIONS.contains(&call.function.name) => Some("function left out"),
            _ => None,
        };
        reason = reason.or(found);
    });
    reason
}

/// Labels of the native histogram that upstream would make of a classic bucket.
pub(crate) fn converted_histogram(labels: &Labels) -> Option<Labels> {
    let name = labels.metric_name()?.strip_suffix("_bucket")?;
    labels.get("le")?;
    let mut builder = labels.to_builder();
    builder.remove("le");
    builder.set(METRIC_NAME, name);
    Some(builder.finish())
}

/// Calls `visit` for an expression and all below it.
pub(crate) fn walk<'e>(expr: &'e Expr, visit: &mut dyn FnMut(&'e Expr)) {
    visit(expr);
    match &expr.kind {
        ExprKind::Number(_) | ExprKind::String(_) | ExprKind::Selector(_) | ExprKind::Matrix(_) => {}
        ExprKind::Paren(inner) | ExprKind::Unary(_, inner) => walk(inner, visit),
        ExprKind::Subquery(subquery) => walk(&subquery.expr, visit),
        ExprKind::Call(call) => call.args.iter().for_each(|arg| walk(arg, visit)),
        ExprKind::Aggregate(aggregate) => {
            aggregate.param.iter().for_each(|param| walk(param, visit));
            walk(&aggregate.expr, visit);
        }
        ExprKind::Binary(binary) => {
            walk(&binary.lhs, visit);
            walk(&binary.rhs, visit);
        }
    }
}

fn selects_any(matchers: &[Matcher], series: &[Labels]) -> bool {
    series.iter().any(|labels| matchers.iter().all(|matcher| matcher.matches_labels(labels)))
}
