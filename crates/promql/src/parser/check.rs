//! Types of arguments and operands, and the rules for selectors and vector matching.
//!
//! Invariants: checks run in Prometheus's order, so that the first error is the same one; afterwards
//! `matching` is `Some` exactly where both sides are vectors.
//! Not here: anything a reader of the text alone could refuse (grammar).

use crate::ast::{
    Aggregate, Binary, BinaryOp, Call, Expr, ExprKind, MatchCardinality, UnaryOp, ValueType, VectorMatching,
    VectorSelector,
};
use crate::parser::grammar::start_of;
use crate::parser::lexer::Failure;
use crate::parser::selector::NAME_LABEL;

/// Checks `expr` and all below it; returns its type.
pub(super) fn check(expr: &mut Expr) -> Result<ValueType, Failure> {
    let start = start_of(expr);
    match &mut expr.kind {
        ExprKind::Number(_) => Ok(ValueType::Scalar),
        ExprKind::String(_) => Ok(ValueType::String),
        ExprKind::Selector(selector) => check_selector(selector, start).map(|()| ValueType::Vector),
        ExprKind::Matrix(matrix) => check_selector(&matrix.selector, start).map(|()| ValueType::Matrix),
        ExprKind::Subquery(subquery) => match check(&mut subquery.expr)? {
            ValueType::Vector => Ok(ValueType::Matrix),
            other => {
                let got = raw_name(other);
                let message = format!("subquery is only allowed on instant vector, got {got} instead");
                Err(Failure::new(start, message))
            }
        },
        ExprKind::Call(call) => check_call(call, start),
        ExprKind::Aggregate(aggregate) => check_aggregate(aggregate),
        ExprKind::Binary(_) => check_chain(expr),
        ExprKind::Unary(UnaryOp::Plus | UnaryOp::Minus, operand) => match check(operand)? {
            valid @ (ValueType::Scalar | ValueType::Vector) => Ok(valid),
            other => {
                let allowed = "unary expression only allowed on expressions of type scalar or instant vector";
                Err(Failure::new(start, format!("{allowed}, got \"{}\"", other.describe())))
            }
        },
        ExprKind::Paren(inner) => check(inner),
    }
}

fn expect_type(expr: &mut Expr, wanted: ValueType, place: &str) -> Result<(), Failure> {
    let got = check(expr)?;
    if got == wanted { Ok(()) } else { Err(wrong_type(start_of(expr), wanted, place, got)) }
}

fn wrong_type(at: usize, wanted: ValueType, place: &str, got: ValueType) -> Failure {
    Failure::new(at, format!("expected type {} in {place}, got {}", wanted.describe(), got.describe()))
}

/// Prometheus's internal word, which slips into one message.
fn raw_name(value_type: ValueType) -> &'static str {
    match value_type {
        ValueType::Matrix => "matrix",
        ValueType::Vector => "vector",
        other => other.describe(),
    }
}

fn check_selector(selector: &VectorSelector, start: usize) -> Result<(), Failure> {
    let Some(name) = &selector.name else { return check_not_empty(selector, start) };
    // The last matcher is the name in front of the braces.
    let inside = selector.matchers.split_last().map_or(&[][..], |(_, inside)| inside);
    match inside.iter().find(|matcher| &*matcher.name == NAME_LABEL) {
        None => Ok(()),
        Some(twice) => {
            let message = format!("metric name must not be set twice: \"{name}\" or \"{}\"", twice.value);
            Err(Failure::new(start, message))
        }
    }
}

fn check_not_empty(selector: &VectorSelector, start: usize) -> Result<(), Failure> {
    if selector.matchers.iter().any(|matcher| !matcher.matches_empty()) {
        return Ok(());
    }
    Err(Failure::new(start, "vector selector must contain at least one non-empty matcher"))
}

fn check_call(call: &mut Call, start: usize) -> Result<ValueType, Failure> {
    let function = call.function;
    check_arg_count(call, start)?;
    let place = format!("call to function \"{}\"", function.name);
    let is_info = function.name == "info";
    if is_info && let Some(labels) = call.args.get(1) {
        check_info_labels(labels, &place, start)?;
    }
    for (idx, arg) in call.args.iter_mut().enumerate() {
        let Some(wanted) = function.arg_type(idx) else { break };
        // The second argument of info only names labels: it may match everything.
        if is_info && idx == 1 {
            continue;
        }
        expect_type(arg, wanted, &place)?;
    }
    Ok(function.returns)
}

fn check_arg_count(call: &Call, start: usize) -> Result<(), Failure> {
    let got = call.args.len();
    let min = call.function.args_min();
    let wanted = match call.function.args_max() {
        Some(max) if max == min && call.function.variadic == 0 && got != min => format!("{min}"),
        _ if got < min => format!("at least {min}"),
        Some(max) if got > max => format!("at most {max}"),
        _ => return Ok(()),
    };
    let name = call.function.name;
    Err(Failure::new(start, format!("expected {wanted} argument(s) in call to \"{name}\", got {got}")))
}

fn check_info_labels(labels: &Expr, place: &str, start: usize) -> Result<(), Failure> {
    let got = labels.value_type();
    if got != ValueType::Vector {
        return Err(wrong_type(start, ValueType::Vector, place, got));
    }
    let failed = |message: &str| Err(Failure::new(start_of(labels), message));
    match &labels.kind {
        ExprKind::Selector(VectorSelector { name: None, .. }) => Ok(()),
        ExprKind::Selector(_) => failed("expected label selectors only, got vector selector instead"),
        _ => failed("expected label selectors only"),
    }
}

fn check_aggregate(aggregate: &mut Aggregate) -> Result<ValueType, Failure> {
    expect_type(&mut aggregate.expr, ValueType::Vector, "aggregation expression")?;
    if let (Some(param), Some(wanted)) = (&mut aggregate.param, aggregate.op.param_type()) {
        expect_type(param, wanted, "aggregation parameter")?;
    }
    Ok(ValueType::Vector)
}

/// Checks operators along the left spine in a loop: a chain is as deep as it is long.
fn check_chain(expr: &mut Expr) -> Result<ValueType, Failure> {
    let mut chain = Vec::new();
    let mut lhs = std::mem::replace(expr, Expr::placeholder());
    loop {
        match lhs.kind {
            ExprKind::Binary(mut binary) => {
                let inner = std::mem::replace(&mut binary.lhs, Expr::placeholder());
                chain.push((binary, lhs.span));
                lhs = inner;
            }
            kind => {
                lhs.kind = kind;
                break;
            }
        }
    }
    let mut lhs_type = check(&mut lhs)?;
    while let Some((mut binary, span)) = chain.pop() {
        binary.lhs = lhs;
        let rhs_type = check(&mut binary.rhs)?;
        lhs_type = check_operator(&mut binary, span.start as usize, lhs_type, rhs_type)?;
        lhs = Expr { kind: ExprKind::Binary(binary), span };
    }
    *expr = lhs;
    Ok(lhs_type)
}

fn check_operator(
    binary: &mut Binary,
    start: usize,
    lhs: ValueType,
    rhs: ValueType,
) -> Result<ValueType, Failure> {
    let at_operator = |message: String| Err(Failure::new(binary.op_span.start as usize, message));
    let both_scalar = lhs == ValueType::Scalar && rhs == ValueType::Scalar;
    if binary.return_bool && !binary.op.is_comparison() {
        return at_operator("bool modifier can only be used on comparison operators".to_owned());
    }
    if binary.op.is_comparison() && !binary.return_bool && both_scalar {
        return at_operator("comparisons between scalars must use BOOL modifier".to_owned());
    }
    if let Some(matching) = &binary.matching
        && matching.on
        && let Some(label) = matching.labels.iter().find(|label| matching.include.contains(label))
    {
        return at_operator(format!("label \"{label}\" must not occur in ON and GROUP clause at once"));
    }
    for (side, side_type) in [(&binary.lhs, lhs), (&binary.rhs, rhs)] {
        if !matches!(side_type, ValueType::Scalar | ValueType::Vector) {
            let message = "binary expression must contain only scalar and instant vector types";
            return Err(Failure::new(start_of(side), message));
        }
    }
    let both_vector = lhs == ValueType::Vector && rhs == ValueType::Vector;
    let matching = binary.matching.take().unwrap_or_default();
    if both_vector {
        binary.matching = Some(check_matching(binary.op, matching).map_err(|e| Failure::new(start, e))?);
    } else {
        check_no_matching(&matching).map_err(|e| Failure::new(start, e))?;
    }
    if !both_vector && binary.op.is_set() {
        let op = binary.op.as_str();
        let message = format!("set operator \"{op}\" not allowed in binary scalar expression");
        return Err(Failure::new(start, message));
    }
    Ok(if both_scalar { ValueType::Scalar } else { ValueType::Vector })
}

/// Matching between two vectors.
fn check_matching(op: BinaryOp, mut matching: VectorMatching) -> Result<VectorMatching, String> {
    if op.is_set() {
        if matching.card != MatchCardinality::OneToOne {
            return Err(format!("no grouping allowed for \"{}\" operation", op.as_str()));
        }
        if matching.fill_left.is_some() || matching.fill_right.is_some() {
            return Err("filling in missing series not allowed for set operators".to_owned());
        }
        matching.card = MatchCardinality::ManyToMany;
    }
    Ok(matching)
}

/// Refuses matching where a side is a number: there is nothing to match.
fn check_no_matching(matching: &VectorMatching) -> Result<(), String> {
    if !matching.labels.is_empty() {
        return Err("vector matching only allowed between instant vectors".to_owned());
    }
    if matching.fill_left.is_some() || matching.fill_right.is_some() {
        return Err("filling in missing series only allowed between instant vectors".to_owned());
    }
    Ok(())
}
