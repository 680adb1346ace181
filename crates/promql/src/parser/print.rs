//! Prints a tree as a query: Prometheus's form, which reads back to the same tree.
//!
//! Invariants: no parentheses are added or dropped; matchers are sorted as Prometheus sorts them.
//! Not here: indented output (`parser::pretty`).

use std::fmt::{self, Display, Formatter, Write as _};

use chronolith_model::{MatchOp, Matcher};

use crate::ast::{
    Aggregate, AtModifier, Binary, Call, DurationExpr, DurationNode, Expr, ExprKind, MatchCardinality,
    RangeExtension, Subquery, UnaryOp, VectorMatching, VectorSelector,
};
use crate::parser::number::{write_duration_ms, write_number, write_number_general, write_seconds};
use crate::parser::quote::write_go_quoted;
use crate::parser::selector::NAME_LABEL;

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ExprKind::Number(literal) if literal.is_duration => write_seconds(f, literal.value),
            ExprKind::Number(literal) => write_number(f, literal.value),
            ExprKind::String(text) => write_quoted(f, text),
            ExprKind::Selector(selector) => write_selector(f, selector),
            ExprKind::Matrix(matrix) => write_matrix(f, &matrix.selector, &matrix.range),
            ExprKind::Subquery(subquery) => write_subquery(f, subquery),
            ExprKind::Call(call) => write_call(f, call),
            ExprKind::Aggregate(aggregate) => write_aggregate(f, aggregate),
            ExprKind::Binary(binary) => write_chain(f, binary),
            ExprKind::Unary(UnaryOp::Plus, operand) => write!(f, "+{operand}"),
            ExprKind::Unary(UnaryOp::Minus, operand) => write!(f, "-{operand}"),
            ExprKind::Paren(inner) => write!(f, "({inner})"),
        }
    }
}

impl Display for DurationNode {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            DurationNode::Number(seconds) => write_number(f, *seconds),
            DurationNode::Units(seconds) => write_seconds(f, *seconds),
            DurationNode::Step => f.write_str("step()"),
            DurationNode::Range => f.write_str("range()"),
            DurationNode::Neg(inner) => write!(f, "-{inner}"),
            DurationNode::Binary(op, lhs, rhs, _) => write!(f, "{lhs} {} {rhs}", op.as_str()),
            DurationNode::MinOf(a, b) => write!(f, "min_of({a}, {b})"),
            DurationNode::MaxOf(a, b) => write!(f, "max_of({a}, {b})"),
            DurationNode::Paren(inner) => write!(f, "({inner})"),
        }
    }
}

impl Display for DurationExpr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            DurationExpr::Literal(ms) => write_duration_ms(f, *ms),
            DurationExpr::Computed(node, _) => write!(f, "{node}"),
        }
    }
}

fn write_quoted(f: &mut Formatter<'_>, text: &str) -> fmt::Result {
    let mut quoted = String::with_capacity(text.len() + 2);
    write_go_quoted(&mut quoted, text);
    f.write_str(&quoted)
}

fn write_selector(f: &mut Formatter<'_>, selector: &VectorSelector) -> fmt::Result {
    write_matchers(f, selector)?;
    write_at(f, selector.at)?;
    write_extension(f, selector.extension)?;
    write_offset(f, &selector.offset)
}

fn write_matrix(f: &mut Formatter<'_>, selector: &VectorSelector, range: &DurationExpr) -> fmt::Result {
    write_matchers(f, selector)?;
    write!(f, "[{range}]")?;
    write_extension(f, selector.extension)?;
    write_at(f, selector.at)?;
    write_offset(f, &selector.offset)
}

fn write_subquery(f: &mut Formatter<'_>, subquery: &Subquery) -> fmt::Result {
    write!(f, "{}{}", subquery.expr, SubqueryTail(subquery))
}

/// The text after the expression of a subquery.
pub(super) struct SubqueryTail<'a>(pub(super) &'a Subquery);

impl Display for SubqueryTail<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "[{}:", self.0.range)?;
        if let Some(step) = &self.0.step {
            write!(f, "{step}")?;
        }
        f.write_char(']')?;
        write_at(f, self.0.at)?;
        write_offset(f, &self.0.offset)
    }
}

/// The name and what else is in braces.
fn write_matchers(f: &mut Formatter<'_>, selector: &VectorSelector) -> fmt::Result {
    let name = selector.name.as_deref();
    f.write_str(name.unwrap_or(""))?;
    let is_name = |matcher: &&Matcher| {
        &*matcher.name == NAME_LABEL && matcher.op == MatchOp::Equal && Some(&*matcher.value) == name
    };
    let shown = selector.matchers.iter().filter(|matcher| name.is_none() || !is_name(matcher));
    let mut texts: Vec<String> = shown.map(matcher_text).collect();
    if texts.is_empty() {
        return Ok(());
    }
    texts.sort_unstable();
    write!(f, "{{{}}}", texts.join(","))
}

fn matcher_text(matcher: &Matcher) -> String {
    let mut out = label_text(&matcher.name);
    out.push_str(matcher.op.as_str());
    write_go_quoted(&mut out, &matcher.value);
    out
}

/// A label name, in quotes where it is not of the classic kind.
fn label_text(label: &str) -> String {
    if chronolith_model::labels::is_legacy_label_name(label) {
        return label.to_owned();
    }
    let mut out = String::new();
    write_go_quoted(&mut out, label);
    out
}

fn write_at(f: &mut Formatter<'_>, at: Option<AtModifier>) -> fmt::Result {
    match at {
        None => Ok(()),
        Some(AtModifier::Start) => f.write_str(" @ start()"),
        Some(AtModifier::End) => f.write_str(" @ end()"),
        Some(AtModifier::Time(ms)) => {
            let sign = if ms < 0 { "-" } else { "" };
            let ms = ms.unsigned_abs();
            write!(f, " @ {sign}{}.{:03}", ms / 1000, ms % 1000)
        }
    }
}

fn write_extension(f: &mut Formatter<'_>, extension: Option<RangeExtension>) -> fmt::Result {
    f.write_str(match extension {
        None => "",
        Some(RangeExtension::Anchored) => " anchored",
        Some(RangeExtension::Smoothed) => " smoothed",
    })
}

fn write_offset(f: &mut Formatter<'_>, offset: &DurationExpr) -> fmt::Result {
    if *offset == DurationExpr::ZERO { Ok(()) } else { write!(f, " offset {offset}") }
}

fn write_call(f: &mut Formatter<'_>, call: &Call) -> fmt::Result {
    write!(f, "{}(", call.function.name)?;
    for (idx, arg) in call.args.iter().enumerate() {
        f.write_str(if idx > 0 { ", " } else { "" })?;
        write!(f, "{arg}")?;
    }
    f.write_char(')')
}

/// The text before the parentheses of an aggregation.
pub(super) struct AggregateHead<'a>(pub(super) &'a Aggregate);

impl Display for AggregateHead<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let aggregate = self.0;
        f.write_str(aggregate.op.as_str())?;
        if aggregate.without || !aggregate.grouping.is_empty() {
            f.write_str(if aggregate.without { " without " } else { " by " })?;
            write_labels(f, &aggregate.grouping)?;
            f.write_char(' ')?;
        }
        Ok(())
    }
}

fn write_aggregate(f: &mut Formatter<'_>, aggregate: &Aggregate) -> fmt::Result {
    write!(f, "{}", AggregateHead(aggregate))?;
    match &aggregate.param {
        Some(param) => write!(f, "({param}, {})", aggregate.expr),
        None => write!(f, "({})", aggregate.expr),
    }
}

fn write_labels(f: &mut Formatter<'_>, labels: &[String]) -> fmt::Result {
    f.write_char('(')?;
    for (idx, label) in labels.iter().enumerate() {
        f.write_str(if idx > 0 { ", " } else { "" })?;
        f.write_str(&label_text(label))?;
    }
    f.write_char(')')
}

/// Prints along the left spine in a loop: a chain is as deep as it is long.
fn write_chain(f: &mut Formatter<'_>, top: &Binary) -> fmt::Result {
    let mut chain = vec![top];
    let mut lhs = &top.lhs;
    while let ExprKind::Binary(binary) = &lhs.kind {
        chain.push(binary);
        lhs = &binary.lhs;
    }
    write!(f, "{lhs}")?;
    while let Some(binary) = chain.pop() {
        write!(f, " {} {}", OperatorText(binary), binary.rhs)?;
    }
    Ok(())
}

/// An operator with its modifiers.
pub(super) struct OperatorText<'a>(pub(super) &'a Binary);

impl Display for OperatorText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.op.as_str())?;
        f.write_str(if self.0.return_bool { " bool" } else { "" })?;
        match &self.0.matching {
            Some(matching) => write_matching(f, matching),
            None => Ok(()),
        }
    }
}

fn write_matching(f: &mut Formatter<'_>, matching: &VectorMatching) -> fmt::Result {
    let group = match matching.card {
        MatchCardinality::ManyToOne => " group_left ",
        MatchCardinality::OneToMany => " group_right ",
        MatchCardinality::OneToOne | MatchCardinality::ManyToMany => "",
    };
    if matching.on || !matching.labels.is_empty() || !group.is_empty() {
        f.write_str(if matching.on { " on " } else { " ignoring " })?;
        write_labels(f, &matching.labels)?;
    }
    if !group.is_empty() {
        f.write_str(group)?;
        write_labels(f, &matching.include)?;
    }
    match (matching.fill_left, matching.fill_right) {
        (Some(left), Some(right)) if left == right => write_fill(f, "fill", Some(left)),
        (left, right) => {
            write_fill(f, "fill_left", left)?;
            write_fill(f, "fill_right", right)
        }
    }
}

fn write_fill(f: &mut Formatter<'_>, word: &str, value: Option<f64>) -> fmt::Result {
    let Some(value) = value else { return Ok(()) };
    write!(f, " {word} (")?;
    write_number_general(f, value)?;
    f.write_char(')')
}
