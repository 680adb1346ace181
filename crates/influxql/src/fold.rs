//! Constant folding, with the typing rules of InfluxDB 1.8: integers are divided as floats, a string that
//! looks like a time is one next to times and durations, integers wrap.
//!
//! Invariants: the value of an expression does not change; only literals are computed.
//! Not here: times in conditions (`condition`).

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::ast::{BinaryOp, Call, Expr};
use crate::time::{looks_like_time, parse_literal};

/// Context of folding: everything that a value depends on besides the expression.
#[derive(Debug, Clone)]
pub struct FoldContext {
    /// Value of `now()`, in nanoseconds since 1970; without it calls stay.
    pub now_ns: Option<i64>,
    /// Zone of times without an offset.
    pub zone: TimeZone,
    /// Computes mathematical functions of literals, as fields of SELECT do and conditions do not.
    pub computes_math: bool,
}

impl FoldContext {
    /// Folding without a clock.
    #[must_use]
    pub fn timeless() -> FoldContext {
        FoldContext { now_ns: None, zone: TimeZone::UTC, computes_math: false }
    }
}

/// Folds constants; parentheses around the whole expression are removed.
#[must_use]
pub fn fold(expr: Expr, context: &FoldContext) -> Expr {
    match fold_inner(expr, context) {
        Expr::Paren(inner) => *inner,
        folded => folded,
    }
}

/// Folds constants; parentheses stay around operators.
pub(crate) fn fold_inner(expr: Expr, context: &FoldContext) -> Expr {
    match expr {
        Expr::Chain(chain) => {
            let mut folded = fold_inner(chain.first, context);
            for (op, operand) in chain.rest {
                folded = combine(folded, op, fold_inner(operand, context), context);
            }
            folded
        }
        Expr::Paren(inner) => match fold_inner(*inner, context) {
            chain @ Expr::Chain(_) => Expr::Paren(Box::new(chain)),
            folded => folded,
        },
        Expr::Call(mut call) => {
            match context.now_ns.and_then(|ns| Timestamp::from_nanosecond(ns.into()).ok()) {
                Some(now) if call.name == "now" && call.args.is_empty() => Expr::Time(now),
                _ => {
                    call.args = call.args.into_iter().map(|arg| fold_inner(arg, context)).collect();
                    match math(&call) {
                        Some(value) if context.computes_math => value,
                        _ => Expr::Call(call),
                    }
                }
            }
        }
        leaf => leaf,
    }
}

/// Value of a mathematical function of literals; nil if it has none.
fn math(call: &Call) -> Option<Expr> {
    let is_literal = call.args.iter().all(Expr::is_literal);
    if call.args.len() != math_arg_count(&call.name)? || !is_literal {
        return None;
    }
    let numbers: Vec<f64> = call.args.iter().filter_map(as_float).collect();
    let value = match (call.name.as_str(), call.args.as_slice()) {
        ("abs", [Expr::Integer(number)]) => Some(Expr::Integer(number.wrapping_abs())),
        ("ceil" | "floor" | "round", [Expr::Integer(number)]) => Some(Expr::Integer(*number)),
        ("abs" | "ceil" | "floor" | "round", [Expr::Unsigned(number)]) => Some(Expr::Unsigned(*number)),
        (name, args) if args.len() == numbers.len() => float_math(name, &numbers).map(Expr::Number),
        _ => None,
    };
    Some(value.unwrap_or(Expr::Nil))
}

/// Arguments of a mathematical function; `None` for names of other functions.
pub(crate) fn math_arg_count(name: &str) -> Option<usize> {
    match name {
        "abs" | "acos" | "asin" | "atan" | "ceil" | "cos" | "exp" | "floor" | "ln" | "log10" | "log2"
        | "round" | "sin" | "sqrt" | "tan" => Some(1),
        "atan2" | "log" | "pow" => Some(2),
        _ => None,
    }
}

fn float_math(name: &str, args: &[f64]) -> Option<f64> {
    match (name, args) {
        ("atan2", [y, x]) => Some(y.atan2(*x)),
        ("log", [number, base]) => Some(number.ln() / base.ln()),
        ("pow", [base, exponent]) => Some(base.powf(*exponent)),
        (_, [number]) => {
            let function: fn(f64) -> f64 = match name {
                "abs" => f64::abs,
                "acos" => f64::acos,
                "asin" => f64::asin,
                "atan" => f64::atan,
                "ceil" => f64::ceil,
                "cos" => f64::cos,
                "exp" => f64::exp,
                "floor" => f64::floor,
                "ln" => f64::ln,
                "log10" => f64::log10,
                "log2" => f64::log2,
                "round" => f64::round,
                "sin" => f64::sin,
                "sqrt" => f64::sqrt,
                _ => f64::tan,
            };
            Some(function(*number))
        }
        _ => None,
    }
}

/// Returns `left op right`, computed if both are literals, or if one decides a logical operator.
pub(crate) fn combine(left: Expr, op: BinaryOp, right: Expr, context: &FoldContext) -> Expr {
    match (op, &left, &right) {
        (BinaryOp::And, Expr::Boolean(false), _) | (BinaryOp::And, _, Expr::Boolean(false)) => {
            return Expr::Boolean(false);
        }
        (BinaryOp::Or, Expr::Boolean(true), _) | (BinaryOp::Or, _, Expr::Boolean(true)) => {
            return Expr::Boolean(true);
        }
        (BinaryOp::And, Expr::Boolean(true), _) | (BinaryOp::Or, Expr::Boolean(false), _) => return right,
        (BinaryOp::And, _, Expr::Boolean(true)) | (BinaryOp::Or, _, Expr::Boolean(false)) => return left,
        // Nothing is true of nil.
        (_, Expr::Nil, right) if right.is_literal() => return Expr::Boolean(false),
        (_, left, Expr::Nil) if left.is_literal() => return Expr::Boolean(false),
        _ => {}
    }
    // Appended in place: a chain of N texts would be copied N times.
    if let (BinaryOp::Add, Expr::Text(right)) = (op, &right)
        && let Expr::Text(mut joined) = left
    {
        joined.push_str(right);
        return Expr::Text(joined);
    }
    compute(op, &left, &right, &context.zone).unwrap_or_else(|| Expr::binary(left, op, right))
}

/// Value of an operator on two literals, if it has one.
fn compute(op: BinaryOp, left: &Expr, right: &Expr, zone: &TimeZone) -> Option<Expr> {
    use Expr as E;
    match (left, right) {
        (E::Boolean(left), E::Boolean(right)) => booleans(op, *left, *right),
        (E::Duration(left), _) => duration(op, *left, right, zone),
        (E::Integer(left), E::Integer(right)) => integers(op, *left, *right),
        (E::Integer(left), E::Unsigned(_)) if *left < 0 && is_order(op) => Some(E::Boolean(is_less(op))),
        (E::Integer(left), E::Unsigned(right)) => unsigned(op, left.cast_unsigned(), *right),
        (E::Unsigned(_), E::Integer(right)) if *right < 0 && is_order(op) => Some(E::Boolean(!is_less(op))),
        (E::Unsigned(left), E::Integer(right)) => unsigned(op, *left, right.cast_unsigned()),
        (E::Unsigned(left), E::Unsigned(right)) => unsigned(op, *left, *right),
        (E::Integer(ns), E::Duration(span)) => match op {
            BinaryOp::Add => time_plus(at(*ns)?, *span),
            BinaryOp::Sub => time_plus(at(*ns)?, span.wrapping_neg()),
            _ => None,
        },
        (E::Integer(ns), E::Time(_) | E::Text(_)) => duration(op, *ns, right, zone),
        (E::Number(_) | E::Integer(_) | E::Unsigned(_), _) => floats(op, as_float(left)?, as_float(right)?),
        (E::Text(left), E::Text(right)) => texts(op, left, right, zone),
        (E::Text(text), E::Duration(_) | E::Time(_) | E::Integer(_)) => {
            time(op, time_of(text, zone)?, right, zone)
        }
        (E::Time(left), _) => time(op, *left, right, zone),
        _ => None,
    }
}

fn is_order(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::Less | BinaryOp::LessEq | BinaryOp::Greater | BinaryOp::GreaterEq)
}

fn is_less(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::Less | BinaryOp::LessEq)
}

fn at(ns: i64) -> Option<Timestamp> {
    Timestamp::from_nanosecond(i128::from(ns)).ok()
}

fn time_of(text: &str, zone: &TimeZone) -> Option<Timestamp> {
    if looks_like_time(text) { parse_literal(text, zone) } else { None }
}

#[allow(clippy::cast_precision_loss, reason = "the nearest float is the value next to floats")]
fn as_float(literal: &Expr) -> Option<f64> {
    match literal {
        Expr::Number(number) => Some(*number),
        Expr::Integer(number) => Some(*number as f64),
        Expr::Unsigned(number) => Some(*number as f64),
        _ => None,
    }
}

/// Result of a comparison.
fn compare<T: PartialOrd>(op: BinaryOp, left: &T, right: &T) -> Option<Expr> {
    Some(Expr::Boolean(match op {
        BinaryOp::Eq => left == right,
        BinaryOp::NotEq => left != right,
        BinaryOp::Less => left < right,
        BinaryOp::LessEq => left <= right,
        BinaryOp::Greater => left > right,
        BinaryOp::GreaterEq => left >= right,
        _ => return None,
    }))
}

fn booleans(op: BinaryOp, left: bool, right: bool) -> Option<Expr> {
    Some(Expr::Boolean(match op {
        BinaryOp::Eq => left == right,
        BinaryOp::NotEq | BinaryOp::BitXor => left != right,
        BinaryOp::And | BinaryOp::BitAnd => left && right,
        BinaryOp::Or | BinaryOp::BitOr => left || right,
        _ => return None,
    }))
}

#[allow(clippy::cast_precision_loss, reason = "integers are divided as floats")]
fn integers(op: BinaryOp, left: i64, right: i64) -> Option<Expr> {
    Some(Expr::Integer(match op {
        BinaryOp::Add => left.wrapping_add(right),
        BinaryOp::Sub => left.wrapping_sub(right),
        BinaryOp::Mul => left.wrapping_mul(right),
        BinaryOp::Div if right == 0 => return Some(Expr::Number(0.0)),
        BinaryOp::Div => return Some(Expr::Number(left as f64 / right as f64)),
        BinaryOp::Mod if right == 0 => 0,
        BinaryOp::Mod => left.wrapping_rem(right),
        BinaryOp::BitAnd => left & right,
        BinaryOp::BitOr => left | right,
        BinaryOp::BitXor => left ^ right,
        _ => return compare(op, &left, &right),
    }))
}

fn unsigned(op: BinaryOp, left: u64, right: u64) -> Option<Expr> {
    Some(Expr::Unsigned(match op {
        BinaryOp::Add => left.wrapping_add(right),
        BinaryOp::Sub => left.wrapping_sub(right),
        BinaryOp::Mul => left.wrapping_mul(right),
        BinaryOp::Div => left.checked_div(right).unwrap_or(0),
        BinaryOp::Mod => left.checked_rem(right).unwrap_or(0),
        _ => return compare(op, &left, &right),
    }))
}

fn floats(op: BinaryOp, left: f64, right: f64) -> Option<Expr> {
    Some(Expr::Number(match op {
        BinaryOp::Add => left + right,
        BinaryOp::Sub => left - right,
        BinaryOp::Mul => left * right,
        BinaryOp::Div if right == 0.0 => 0.0,
        BinaryOp::Div => left / right,
        BinaryOp::Mod => left % right,
        _ => return compare(op, &left, &right),
    }))
}

/// A duration on the left; factors and divisors lose their fraction.
#[allow(clippy::cast_possible_truncation, reason = "a float saturates at the limits of integers")]
fn duration(op: BinaryOp, left: i64, right: &Expr, zone: &TimeZone) -> Option<Expr> {
    let factor = match right {
        Expr::Duration(right) => {
            return match op {
                BinaryOp::Add => Some(Expr::Duration(left.wrapping_add(*right))),
                BinaryOp::Sub => Some(Expr::Duration(left.wrapping_sub(*right))),
                _ => compare(op, &left, right),
            };
        }
        Expr::Time(time) if op == BinaryOp::Add => return time_plus(*time, left),
        Expr::Text(text) if op == BinaryOp::Add => return time_plus(time_of(text, zone)?, left),
        Expr::Integer(factor) => *factor,
        Expr::Number(factor) => *factor as i64,
        _ => return None,
    };
    match op {
        BinaryOp::Mul => Some(Expr::Duration(left.wrapping_mul(factor))),
        BinaryOp::Div if factor == 0 => Some(Expr::Duration(0)),
        BinaryOp::Div => Some(Expr::Duration(left.wrapping_div(factor))),
        _ => None,
    }
}

fn time_plus(time: Timestamp, ns: i64) -> Option<Expr> {
    time.checked_add(SignedDuration::from_nanos(ns)).ok().map(Expr::Time)
}

/// A time on the left.
fn time(op: BinaryOp, left: Timestamp, right: &Expr, zone: &TimeZone) -> Option<Expr> {
    match right {
        Expr::Duration(ns) | Expr::Integer(ns) => match op {
            BinaryOp::Add => time_plus(left, *ns),
            BinaryOp::Sub => time_plus(left, ns.wrapping_neg()),
            _ => None,
        },
        Expr::Time(right) if op == BinaryOp::Sub => {
            let ns = left.as_nanosecond() - right.as_nanosecond();
            let limits = [i128::from(i64::MIN), i128::from(i64::MAX)];
            i64::try_from(ns.clamp(limits[0], limits[1])).ok().map(Expr::Duration)
        }
        Expr::Time(right) => compare(op, &left, right),
        Expr::Text(text) => time(op, left, &Expr::Time(time_of(text, zone)?), zone),
        _ => None,
    }
}

fn texts(op: BinaryOp, left: &str, right: &str, zone: &TimeZone) -> Option<Expr> {
    let times = || Some((time_of(left, zone)?, time_of(right, zone)?));
    match op {
        BinaryOp::Eq | BinaryOp::NotEq => match times() {
            Some((left, right)) => compare(op, &left, &right),
            None => compare(op, &left, &right),
        },
        _ => {
            let (left, right) = times()?;
            time(op, left, &Expr::Time(right), zone)
        }
    }
}
