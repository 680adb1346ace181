//! Printing and reading back gives the same tree, but for positions.

use chronolith_promql::ast::{DurationExpr, DurationNode, Expr, ExprKind, Span};
use chronolith_promql::parser::{ParserOptions, parse_expr};
use proptest::prelude::{BoxedStrategy, Just, ProptestConfig, Strategy, prop_oneof, proptest};
use proptest::{collection, sample};

const ALL_ON: ParserOptions =
    ParserOptions { experimental_functions: true, binop_fill_modifiers: true, unquoted_utf8_names: false };

fn forget_duration(duration: &mut DurationExpr) {
    if let DurationExpr::Computed(node, span) = duration {
        *span = Span::default();
        forget_node(node);
    }
}

fn forget_node(node: &mut DurationNode) {
    match node {
        DurationNode::Number(_) | DurationNode::Units(_) | DurationNode::Step | DurationNode::Range => {}
        DurationNode::Neg(inner) | DurationNode::Paren(inner) => forget_node(inner),
        DurationNode::MinOf(a, b) | DurationNode::MaxOf(a, b) => {
            [a, b].into_iter().for_each(|node| forget_node(node))
        }
        DurationNode::Binary(_, a, b, span) => {
            *span = Span::default();
            [a, b].into_iter().for_each(|node| forget_node(node));
        }
    }
}

/// Sets all positions to zero, and sorts matchers, whose order printing does not keep.
fn forget_positions(expr: &mut Expr) {
    expr.span = Span::default();
    match &mut expr.kind {
        ExprKind::Number(_) | ExprKind::String(_) => {}
        ExprKind::Selector(selector) => {
            selector.matchers.sort_by_key(ToString::to_string);
            forget_duration(&mut selector.offset);
        }
        ExprKind::Matrix(matrix) => {
            matrix.selector.matchers.sort_by_key(ToString::to_string);
            forget_duration(&mut matrix.selector.offset);
            forget_duration(&mut matrix.range);
        }
        ExprKind::Subquery(subquery) => {
            forget_positions(&mut subquery.expr);
            forget_duration(&mut subquery.range);
            forget_duration(&mut subquery.offset);
            subquery.step.iter_mut().for_each(forget_duration);
        }
        ExprKind::Call(call) => call.args.iter_mut().for_each(forget_positions),
        ExprKind::Aggregate(aggregate) => {
            forget_positions(&mut aggregate.expr);
            aggregate.param.iter_mut().for_each(forget_positions);
        }
        ExprKind::Binary(binary) => {
            binary.op_span = Span::default();
            forget_positions(&mut binary.lhs);
            forget_positions(&mut binary.rhs);
        }
        ExprKind::Unary(_, inner) | ExprKind::Paren(inner) => forget_positions(inner),
    }
}

#[track_caller]
fn check(query: &str) {
    let mut first = parse_expr(query, ALL_ON).unwrap_or_else(|error| panic!("{query:?}: {error}"));
    let printed = first.to_string();
    let mut second = parse_expr(&printed, ALL_ON).unwrap_or_else(|error| panic!("{printed:?}: {error}"));
    forget_positions(&mut first);
    forget_positions(&mut second);
    assert_eq!(first, second, "{query:?} prints as {printed:?}");
}

/// A vector, as text.
fn vector() -> BoxedStrategy<String> {
    let offset =
        sample::select(&["", " offset 5m", " offset -step()", " @ 12.345", " @ end() offset (1m*2)"][..]);
    let matchers = sample::select(&["", "{}", "{a=\"b\"}", "{b!~\"c|d\",\"x.y\"='\\n',a=\"\"}"][..]);
    let name = sample::select(&["foo", "a:b", "sum", "by", "start", "offset"][..]);
    let selector =
        (name, matchers, offset).prop_map(|(name, matchers, offset)| format!("{name}{matchers}{offset}"));
    selector
        .boxed()
        .prop_recursive(5, 40, 3, |inner| {
            let arithmetic = sample::select(&["+", "-", "*", "/", "%", "^", "atan2", "</", ">/"][..]);
            let comparison = sample::select(&["==", "!= bool", "<", ">= bool"][..]);
            let set = sample::select(&["and", "or", "unless on(a)", "and ignoring(b, \"c d\")"][..]);
            let matching = sample::select(
                &["", " on(a) ", " ignoring(a) group_left(b) ", " on() group_right ", " fill(1) "][..],
            );
            let op = prop_oneof![
                (arithmetic, matching).prop_map(|(op, matching)| format!("{op}{matching}")),
                comparison.prop_map(str::to_owned),
                set.prop_map(str::to_owned)
            ];
            let scalar =
                sample::select(&["1", "-2.5", "5m", "time()", "1e21", "0x1F", "-1 ^ 2", "(3 - 4)"][..]);
            let arithmetic = sample::select(&["+", "-", "*", "/", "%", "^", "==", "<"][..]);
            let range = sample::select(
                &["[5m]", "[1h:]", "[1h:5m] offset 3m", "[step()*2:min_of(1m,range())] @ start()"][..],
            );
            let aggregation = sample::select(
                &["sum(", "topk by (a) (3, ", "count_values without () (\"x\", ", "avg by (\"é\") ("][..],
            );
            let sign = prop_oneof![Just("-"), Just("+")];
            prop_oneof![
                (inner.clone(), op, inner.clone()).prop_map(|(a, op, b)| format!("{a} {op} {b}")),
                (inner.clone(), arithmetic.clone(), scalar.clone())
                    .prop_map(|(a, op, b)| format!("{a} {op} {b}")),
                (scalar, arithmetic, inner.clone()).prop_map(|(a, op, b)| format!("{a} {op} {b}")),
                (sign, inner.clone()).prop_map(|(sign, a)| format!("{sign}{a}")),
                inner.clone().prop_map(|a| format!("({a})")),
                (inner.clone(), range)
                    .prop_map(|(a, range)| format!("rate(({a}){}", range.replacen("[5m]", "[5m:]", 1) + ")")),
                (aggregation, inner.clone()).prop_map(|(open, a)| format!("{open}{a})")),
                collection::vec(inner, 1..3)
                    .prop_map(|args| format!("label_join({}, \"a\", \"-\", \"b\")", args[0])),
            ]
        })
        .boxed()
}

#[test]
fn printed_forms_read_back() {
    check("foo{a=\"b\"}[5m:1m] offset -(step() + 2 * 1m30s) @ 1.5");
    check("foo anchored[5m * 2 ^ -1] @ start()");
    check("sum by (\"a b\", c) (foo) / on (c) group_left (d) fill_left (-0.5) max without () (bar)");
    check("-1 ^ 2 - -foo ^ (2 + 3) == bool bar");
    check("info(foo, {a=\"\"})");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_reads_back(query in vector()) {
        // Precedence can bring a number to a place where only a vector may stand.
        if parse_expr(&query, ALL_ON).is_ok() {
            check(&query);
        }
    }
}
