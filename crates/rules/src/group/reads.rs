//! Series that a rule may read: the selectors of its expression.
//!
//! Invariant: conservative. A series that an evaluation of the rule selects is matched by one of its
//! selectors here, or the rule reads everything.
//! Not here: series that rules write (`series_pattern`).

use chronolith_model::{METRIC_NAME, Matcher};
use chronolith_promql::ast::{Expr, ExprKind};

use super::series_pattern::Output;
use crate::rule::Rule;

/// Metric that the function `info` reads without a selector.
const TARGET_INFO: &str = "target_info";

/// Selectors of a rule.
pub(super) struct Reads {
    selectors: Vec<Vec<Matcher>>,
    /// A template has a query, whose text is known when it is expanded.
    is_everything: bool,
}

impl Reads {
    pub(super) fn of(rule: &Rule) -> Reads {
        Reads { selectors: selectors(&rule.expr), is_everything: has_template_query(rule) }
    }

    /// Matchers of each selector.
    pub(super) fn selectors(&self) -> &[Vec<Matcher>] {
        &self.selectors
    }

    /// Returns true if the rule may read a series of `output`.
    pub(super) fn may_read(&self, output: &Output) -> bool {
        self.is_everything || self.selectors.iter().any(|matchers| output.may_match(matchers))
    }
}

/// Returns true if a template of an alert may call `query`.
fn has_template_query(rule: &Rule) -> bool {
    let Some(alerting) = rule.alerting() else { return false };
    let mut texts = rule.labels.values().chain(alerting.annotations.values());
    texts.any(|text| text.contains("{{") && text.contains("query"))
}

/// Matchers of all selectors of an expression.
fn selectors(expr: &Expr) -> Vec<Vec<Matcher>> {
    let mut found = Vec::new();
    // A list instead of recursion: chains of operators are as deep as they are long.
    let mut open = vec![expr];
    while let Some(expr) = open.pop() {
        match &expr.kind {
            ExprKind::Number(_) | ExprKind::String(_) => {}
            ExprKind::Selector(selector) => found.push(selector.matchers.clone()),
            ExprKind::Matrix(matrix) => found.push(matrix.selector.matchers.clone()),
            ExprKind::Subquery(subquery) => open.push(&subquery.expr),
            ExprKind::Call(call) => {
                let is_info = call.function.name == "info";
                if is_info {
                    found.push(info_selector(call.args.get(1)));
                }
                open.extend(call.args.iter().take(if is_info { 1 } else { usize::MAX }));
            }
            ExprKind::Aggregate(aggregate) => open.extend(aggregate.param.iter().chain([&aggregate.expr])),
            ExprKind::Binary(binary) => open.extend([&binary.lhs, &binary.rhs]),
            ExprKind::Unary(_, inner) | ExprKind::Paren(inner) => open.push(inner),
        }
    }
    found
}

/// Matchers of the series that the function `info` joins: the ones of its second argument, and the default
/// name if it has none.
fn info_selector(argument: Option<&Expr>) -> Vec<Matcher> {
    let mut matchers = match argument.map(|expr| &expr.kind) {
        Some(ExprKind::Selector(selector)) => selector.matchers.clone(),
        _ => Vec::new(),
    };
    if matchers.iter().all(|matcher| &*matcher.name != METRIC_NAME) {
        matchers.push(Matcher::equal(METRIC_NAME, TARGET_INFO));
    }
    matchers
}
