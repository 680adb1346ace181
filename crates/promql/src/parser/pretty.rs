//! Prints a query over several lines, as Prometheus's `format_query` does: a node that is longer than
//! [`LINE_BYTES_MAX`] is split, its parts indented.
//!
//! Invariants: without long nodes the text equals `Display`; it reads back to the same tree. A chain of more
//! than [`CHAIN_SPLIT_MAX`] operators stays on one line: each level is indented further, so its text would be
//! quadratic.
//! Not here: the text of one line (`parser::print`).

use std::fmt::Write as _;

use crate::ast::{Binary, Expr, ExprKind, UnaryOp};
use crate::parser::print::{AggregateHead, OperatorText, SubqueryTail};

/// A node with a longer text is split.
const LINE_BYTES_MAX: usize = 100;
/// Operators of a chain that is still split.
const CHAIN_SPLIT_MAX: usize = 500;

/// The query over as many lines as it takes.
#[must_use]
pub fn pretty(expr: &Expr) -> String {
    let mut out = String::new();
    put(expr, 0, &mut out);
    out
}

fn put(expr: &Expr, level: usize, out: &mut String) {
    match &expr.kind {
        ExprKind::Unary(op, inner) => {
            let mut operand = String::new();
            put(inner, level, &mut operand);
            indent(level, out);
            out.push(if *op == UnaryOp::Minus { '-' } else { '+' });
            out.push_str(operand.trim());
            return;
        }
        ExprKind::Binary(_) => return put_chain(expr, level, out),
        _ => {}
    }
    let plain = expr.to_string();
    let is_short = plain.len() <= LINE_BYTES_MAX;
    match &expr.kind {
        // Prometheus does not indent a short subquery.
        ExprKind::Subquery(_) if is_short => out.push_str(&plain),
        ExprKind::Subquery(subquery) => {
            put(&subquery.expr, level, out);
            write(out, SubqueryTail(subquery));
        }
        ExprKind::Aggregate(aggregate) if !is_short => {
            indent(level, out);
            write(out, AggregateHead(aggregate));
            out.push_str("(\n");
            if let Some(param) = &aggregate.param {
                put(param, level + 1, out);
                out.push_str(",\n");
            }
            put(&aggregate.expr, level + 1, out);
            close(level, out);
        }
        ExprKind::Call(call) if !is_short => {
            indent(level, out);
            out.push_str(call.function.name);
            out.push_str("(\n");
            for (idx, arg) in call.args.iter().enumerate() {
                out.push_str(if idx > 0 { ",\n" } else { "" });
                put(arg, level + 1, out);
            }
            close(level, out);
        }
        ExprKind::Paren(inner) if !is_short => {
            indent(level, out);
            out.push_str("(\n");
            put(inner, level + 1, out);
            close(level, out);
        }
        _ => {
            indent(level, out);
            out.push_str(&plain);
        }
    }
}

/// Splits a chain from its last operator inwards, while the left side is too long for a line.
fn put_chain(expr: &Expr, level: usize, out: &mut String) {
    let mut spine: Vec<&Binary> = Vec::new();
    let mut lhs = expr;
    while let ExprKind::Binary(binary) = &lhs.kind {
        spine.push(binary);
        lhs = &binary.lhs;
    }
    // From the innermost operator outwards: the text of each and of all that is on its left.
    let mut text = lhs.to_string();
    let mut split_from = None;
    for (idx, binary) in spine.iter().rev().enumerate() {
        write(&mut text, format_args!(" {} {}", OperatorText(binary), binary.rhs));
        if split_from.is_none() && text.len() > LINE_BYTES_MAX {
            split_from = Some(idx);
        }
    }
    let Some(split_from) = split_from.filter(|_| spine.len() <= CHAIN_SPLIT_MAX) else {
        indent(level, out);
        out.push_str(&text);
        return;
    };
    let split: Vec<&Binary> = spine.iter().rev().skip(split_from).copied().collect();
    let deepest = level + split.len();
    if let Some(first) = split.first() {
        put(&first.lhs, deepest, out);
    }
    for (idx, binary) in split.iter().enumerate() {
        let level = deepest - 1 - idx;
        out.push('\n');
        indent(level, out);
        write(out, OperatorText(binary));
        out.push('\n');
        put(&binary.rhs, level + 1, out);
    }
}

fn indent(level: usize, out: &mut String) {
    for _ in 0..level {
        out.push_str("  ");
    }
}

fn close(level: usize, out: &mut String) {
    out.push('\n');
    indent(level, out);
    out.push(')');
}

fn write(out: &mut String, what: impl std::fmt::Display) {
    let written = write!(out, "{what}");
    debug_assert!(written.is_ok(), "a String takes all");
}

#[cfg(test)]
mod tests {
    use super::pretty;
    use crate::parser::{ParserOptions, parse_expr};

    /// `[query, text]` as Prometheus 3.14 gives them.
    const EXPECTED: &str = include_str!("../../tests/it/parser/format_query.json");

    #[test]
    fn texts_are_those_of_prometheus() {
        let all = ParserOptions {
            experimental_functions: true,
            binop_fill_modifiers: true,
            unquoted_utf8_names: false,
        };
        let cases: Vec<(String, String)> = serde_json::from_str(EXPECTED).expect("a list of pairs");
        assert!(cases.iter().filter(|(_, text)| text.contains('\n')).count() > 10);
        for (query, want) in cases {
            let expr = parse_expr(&query, all).unwrap_or_else(|error| panic!("{query}: {error}"));
            assert_eq!(pretty(&expr), want, "{query}");
        }
    }

    #[test]
    fn long_chains_stay_on_one_line() {
        let chain = vec!["some_metric_with_a_name"; 2000].join(" + ");
        let expr = parse_expr(&chain, ParserOptions::default()).expect("parses");
        assert_eq!(pretty(&expr), chain);
    }
}
