//! `parse_query`: the tree of a query as Prometheus's web interface reads it.
//! Invariants: names and nesting are Prometheus's; a chain of operators is walked in a loop, however long it
//! is.
//! Not here: parsing (`promql::parser`).

use chronolith_model::Matcher;
use chronolith_promql::ast::{
    AtModifier, Binary, DurationExpr, DurationNode, Expr, ExprKind, MatchCardinality, RangeExtension,
    UnaryOp, ValueType, VectorMatching, VectorSelector,
};
use chronolith_promql::functions::Function;
use serde_json::{Value, json};

use crate::json;

/// The tree of an expression.
pub(super) fn translate(expr: &Expr) -> Value {
    match &expr.kind {
        ExprKind::Number(number) => json!({ "type": "numberLiteral", "val": number_text(number.value) }),
        ExprKind::String(text) => json!({ "type": "stringLiteral", "val": text }),
        ExprKind::Paren(inner) => json!({ "type": "parenExpr", "expr": translate(inner) }),
        ExprKind::Unary(op, inner) => {
            let op = if *op == UnaryOp::Minus { "-" } else { "+" };
            json!({ "type": "unaryExpr", "op": op, "expr": translate(inner) })
        }
        ExprKind::Selector(selector) => {
            let mut node = selector_node("vectorSelector", selector);
            node["name"] = json!(selector.name.as_deref().unwrap_or(""));
            node
        }
        ExprKind::Matrix(matrix) => {
            let mut node = selector_node("matrixSelector", &matrix.selector);
            node["name"] = json!(matrix.selector.name.as_deref().unwrap_or(""));
            put_duration(&mut node, "range", Some(&matrix.range));
            node
        }
        ExprKind::Subquery(subquery) => {
            let mut node = json!({ "type": "subquery", "expr": translate(&subquery.expr) });
            put_duration(&mut node, "range", Some(&subquery.range));
            put_duration(&mut node, "offset", Some(&subquery.offset));
            put_duration(&mut node, "step", subquery.step.as_ref());
            put_at(&mut node, subquery.at);
            node
        }
        ExprKind::Call(call) => json!({
            "type": "call",
            "func": function_node(call.function),
            "args": call.args.iter().map(translate).collect::<Value>(),
        }),
        ExprKind::Aggregate(aggregate) => json!({
            "type": "aggregation",
            "op": aggregate.op.as_str(),
            "expr": translate(&aggregate.expr),
            "param": aggregate.param.as_ref().map(translate),
            "grouping": aggregate.grouping,
            "without": aggregate.without,
        }),
        ExprKind::Binary(_) => chain(expr),
    }
}

/// Builds a chain from its innermost left side outwards.
fn chain(expr: &Expr) -> Value {
    let mut spine: Vec<&Binary> = Vec::new();
    let mut lhs = expr;
    while let ExprKind::Binary(binary) = &lhs.kind {
        spine.push(binary);
        lhs = &binary.lhs;
    }
    spine.into_iter().rev().fold(translate(lhs), |left, binary| {
        let mut node = json!({
            "type": "binaryExpr",
            "op": binary.op.as_str(),
            "rhs": translate(&binary.rhs),
            "matching": binary.matching.as_ref().map(matching_node),
            "bool": binary.return_bool,
        });
        // Moved in, not copied as `json!` does it: the left side may be long.
        node["lhs"] = left;
        node
    })
}

fn matching_node(matching: &VectorMatching) -> Value {
    let card = match matching.card {
        MatchCardinality::OneToOne => "one-to-one",
        MatchCardinality::ManyToOne => "many-to-one",
        MatchCardinality::OneToMany => "one-to-many",
        MatchCardinality::ManyToMany => "many-to-many",
    };
    json!({
        "card": card,
        "labels": matching.labels,
        "on": matching.on,
        "include": matching.include,
        "fillValues": { "lhs": matching.fill_left.map(float), "rhs": matching.fill_right.map(float) },
    })
}

/// A number as Go prints it: without a fraction where it has none.
fn float(value: f64) -> Value {
    const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() < WHOLE_MAX { json!(value as i64) } else { json!(value) }
}

fn function_node(function: &Function) -> Value {
    json!({
        "name": function.name,
        "argTypes": function.args.iter().map(|kind| type_word(*kind)).collect::<Value>(),
        "variadic": function.variadic,
        "returnType": type_word(function.returns),
    })
}

fn type_word(kind: ValueType) -> &'static str {
    match kind {
        ValueType::None => "none",
        ValueType::Scalar => "scalar",
        ValueType::Vector => "vector",
        ValueType::Matrix => "matrix",
        ValueType::String => "string",
    }
}

fn selector_node(kind: &str, selector: &VectorSelector) -> Value {
    let mut node = json!({
        "type": kind,
        "matchers": selector.matchers.iter().map(matcher_node).collect::<Value>(),
        "anchored": selector.extension == Some(RangeExtension::Anchored),
        "smoothed": selector.extension == Some(RangeExtension::Smoothed),
    });
    put_duration(&mut node, "offset", Some(&selector.offset));
    put_at(&mut node, selector.at);
    node
}

fn matcher_node(matcher: &Matcher) -> Value {
    json!({ "name": &*matcher.name, "value": &*matcher.value, "type": matcher.op.as_str() })
}

fn put_at(node: &mut Value, at: Option<AtModifier>) {
    let (time_ms, word) = match at {
        None => (None, None),
        Some(AtModifier::Time(ms)) => (Some(ms), None),
        Some(AtModifier::Start) => (None, Some("start")),
        Some(AtModifier::End) => (None, Some("end")),
    };
    node["timestamp"] = json!(time_ms);
    node["startOrEnd"] = json!(word);
}

/// Sets `name` in milliseconds, and `nameExpr` where it is computed.
fn put_duration(node: &mut Value, name: &str, duration: Option<&DurationExpr>) {
    let (ms, computed) = match duration {
        None => (0, Value::Null),
        Some(DurationExpr::Literal(ms)) => (*ms, Value::Null),
        Some(DurationExpr::Computed(duration, _)) => (0, duration_node(duration)),
    };
    node[name] = json!(ms);
    node[format!("{name}Expr")] = computed;
}

fn duration_node(node: &DurationNode) -> Value {
    match node {
        DurationNode::Number(seconds) => duration_number(*seconds, false),
        DurationNode::Units(seconds) => duration_number(*seconds, true),
        DurationNode::Step => operation("step", Value::Null, Value::Null),
        DurationNode::Range => operation("range", Value::Null, Value::Null),
        DurationNode::Neg(inner) => operation("-", Value::Null, duration_node(inner)),
        DurationNode::Binary(op, lhs, rhs, _) => {
            operation(op.as_str(), duration_node(lhs), duration_node(rhs))
        }
        DurationNode::MinOf(a, b) => operation("min_of", duration_node(a), duration_node(b)),
        DurationNode::MaxOf(a, b) => operation("max_of", duration_node(a), duration_node(b)),
        DurationNode::Paren(inner) => {
            // A literal in parentheses is the operand of a plus: only operations are marked as wrapped.
            let mut node = match duration_node(inner) {
                literal if literal["type"] == "numberLiteral" => operation("+", Value::Null, literal),
                node => node,
            };
            node["wrapped"] = json!(true);
            node
        }
    }
}

fn operation(op: &str, lhs: Value, rhs: Value) -> Value {
    json!({ "type": "durationExpr", "op": op, "lhs": lhs, "rhs": rhs, "wrapped": false })
}

fn duration_number(seconds: f64, is_duration: bool) -> Value {
    json!({ "type": "numberLiteral", "val": number_text(seconds), "duration": is_duration })
}

/// All digits, never an exponent.
fn number_text(value: f64) -> String {
    if value.is_finite() {
        return value.to_string();
    }
    let mut out = Vec::new();
    json::put_float(&mut out, value);
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use chronolith_promql::parser::{ParserOptions, parse_expr};

    const OPTIONS: ParserOptions = ParserOptions {
        experimental_functions: true,
        binop_fill_modifiers: true,
        unquoted_utf8_names: false,
    };

    /// `[query, tree]` as Prometheus 3.16 gives them.
    const EXPECTED: &str = include_str!("../../testdata/parse_query.json");

    #[test]
    fn trees_are_those_of_prometheus() {
        let cases: Vec<(String, Value)> = serde_json::from_str(EXPECTED).expect("a list of pairs");
        assert!(cases.len() > 90);
        for (query, want) in cases {
            let expr = parse_expr(&query, OPTIONS).unwrap_or_else(|error| panic!("{query}: {error}"));
            assert_eq!(translate(&expr), want, "{query}");
        }
    }
}
