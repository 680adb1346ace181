//! Coverage of our own scripts: functions, aggregations with their grouping, operators with their matching.
//!
//! Invariants: only evals with an answer count, so that a form is not covered by its refusal.
//! Not here: checks of the answers (the scripts themselves).

use std::collections::BTreeSet;

use chronolith_promql::ast::{
    AggregateOp, Aggregation, Binary, BinaryOp, Expr, ExprKind, MatchCardinality, TopKOp,
};
use chronolith_promql::functions;

/// Every aggregation.
const AGGREGATIONS: [AggregateOp; 14] = [
    AggregateOp::Fold(Aggregation::Sum),
    AggregateOp::Fold(Aggregation::Avg),
    AggregateOp::Fold(Aggregation::Count),
    AggregateOp::Fold(Aggregation::Min),
    AggregateOp::Fold(Aggregation::Max),
    AggregateOp::Fold(Aggregation::Group),
    AggregateOp::Fold(Aggregation::Stddev),
    AggregateOp::Fold(Aggregation::Stdvar),
    AggregateOp::Select(TopKOp::Topk),
    AggregateOp::Select(TopKOp::Bottomk),
    AggregateOp::CountValues,
    AggregateOp::Fold(Aggregation::Quantile),
    AggregateOp::Select(TopKOp::Limitk),
    AggregateOp::Select(TopKOp::LimitRatio),
];

/// Every operator that computes or compares, for which all forms of matching exist.
const OPERATORS: [BinaryOp; 13] = [
    BinaryOp::Add,
    BinaryOp::Sub,
    BinaryOp::Mul,
    BinaryOp::Div,
    BinaryOp::Mod,
    BinaryOp::Pow,
    BinaryOp::Atan2,
    BinaryOp::Equal,
    BinaryOp::NotEqual,
    BinaryOp::Less,
    BinaryOp::LessEqual,
    BinaryOp::Greater,
    BinaryOp::GreaterEqual,
];

/// Adds the forms that stand in `expr`.
pub(crate) fn note(expr: &Expr, forms: &mut BTreeSet<String>) {
    match &expr.kind {
        ExprKind::Number(_) | ExprKind::String(_) | ExprKind::Selector(_) | ExprKind::Matrix(_) => {}
        ExprKind::Subquery(subquery) => note(&subquery.expr, forms),
        ExprKind::Call(call) => {
            forms.insert(format!("{}()", call.function.name));
            call.args.iter().for_each(|arg| note(arg, forms));
        }
        ExprKind::Aggregate(aggregate) => {
            let grouping = match (aggregate.without, aggregate.grouping.is_empty()) {
                (true, _) => " without",
                (false, true) => "",
                (false, false) => " by",
            };
            forms.insert(format!("{}{grouping}", aggregate.op.as_str()));
            note(&aggregate.expr, forms);
            aggregate.param.iter().for_each(|param| note(param, forms));
        }
        ExprKind::Binary(binary) => {
            forms.insert(binary_form(binary));
            note(&binary.lhs, forms);
            note(&binary.rhs, forms);
        }
        ExprKind::Unary(_, inner) | ExprKind::Paren(inner) => note(inner, forms),
    }
}

fn binary_form(binary: &Binary) -> String {
    let word = binary.op.as_str();
    let modifier = if binary.return_bool { " bool" } else { "" };
    let Some(matching) = &binary.matching else { return format!("{word}{modifier} scalar") };
    let labels = match (matching.on, matching.labels.is_empty()) {
        (true, _) => " on",
        (false, true) => "",
        (false, false) => " ignoring",
    };
    let group = match matching.card {
        MatchCardinality::OneToOne | MatchCardinality::ManyToMany => "",
        MatchCardinality::ManyToOne => " group_left",
        MatchCardinality::OneToMany => " group_right",
    };
    format!("{word}{modifier}{labels}{group}")
}

/// Features that the scripts have to cover.
pub(crate) fn wanted() -> BTreeSet<String> {
    let mut wanted: BTreeSet<String> = functions::all().iter().map(|f| format!("{}()", f.name)).collect();
    for op in AGGREGATIONS {
        wanted.extend(["", " by", " without"].map(|grouping| format!("{}{grouping}", op.as_str())));
    }
    for op in OPERATORS {
        for modifier in if op.is_comparison() { &["", " bool"][..] } else { &[""] } {
            let word = format!("{}{modifier}", op.as_str());
            let forms = ["", " on", " ignoring", " on group_left", " on group_right"];
            wanted.extend(forms.map(|form| format!("{word}{form}")));
            wanted.extend(
                [" ignoring group_left", " ignoring group_right", " scalar"]
                    .map(|form| format!("{word}{form}")),
            );
        }
    }
    for op in [BinaryOp::And, BinaryOp::Or, BinaryOp::Unless] {
        wanted.extend(["", " on", " ignoring"].map(|form| format!("{}{form}", op.as_str())));
    }
    wanted.extend([BinaryOp::TrimUpper, BinaryOp::TrimLower].map(|op| format!("{} scalar", op.as_str())));
    wanted
}
