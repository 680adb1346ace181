//! Operators on two numbers, as Go's math package computes them.
//! Holds: a comparison filters (`None`) unless it is asked for a truth value.

use crate::ast::BinaryOp;

/// Arithmetic; `None` for operators that do not compute a number.
fn compute(op: BinaryOp, left: f64, right: f64) -> Option<f64> {
    Some(match op {
        BinaryOp::Add => left + right,
        BinaryOp::Sub => left - right,
        BinaryOp::Mul => left * right,
        BinaryOp::Div => left / right,
        // As in Go and C, the result has the sign of the dividend.
        BinaryOp::Mod => left % right,
        BinaryOp::Pow => left.powf(right),
        BinaryOp::Atan2 => left.atan2(right),
        _ => return None,
    })
}

/// Whether a comparison holds; false for other operators.
fn holds(op: BinaryOp, left: f64, right: f64) -> bool {
    match op {
        BinaryOp::Equal => left == right,
        BinaryOp::NotEqual => left != right,
        BinaryOp::Less => left < right,
        BinaryOp::LessEqual => left <= right,
        BinaryOp::Greater => left > right,
        BinaryOp::GreaterEqual => left >= right,
        _ => false,
    }
}

/// An operator between scalars: comparisons give 1 or 0.
pub(crate) fn scalar_op(op: BinaryOp, left: f64, right: f64) -> f64 {
    compute(op, left, right).unwrap_or_else(|| f64::from(u8::from(holds(op, left, right))))
}

/// What an operator does with elements of a vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ElementOp {
    /// Computes.
    Compute(BinaryOp),
    /// Keeps the value of the left element where the comparison holds.
    FilterLeft(BinaryOp),
    /// Keeps the value of the right element where the comparison holds.
    FilterRight(BinaryOp),
    /// 1 where the comparison holds, else 0.
    Truth(BinaryOp),
    /// An operator for native histograms (a trim): floats are dropped.
    Drop(BinaryOp),
}

impl ElementOp {
    /// `keeps_right`: a filter yields the right element (scalar on the left, vector on the right).
    pub(crate) fn new(op: BinaryOp, return_bool: bool, keeps: FilterSide) -> ElementOp {
        match op {
            BinaryOp::TrimLower | BinaryOp::TrimUpper => ElementOp::Drop(op),
            op if !op.is_comparison() => ElementOp::Compute(op),
            op if return_bool => ElementOp::Truth(op),
            op => match keeps {
                FilterSide::Left => ElementOp::FilterLeft(op),
                FilterSide::Right => ElementOp::FilterRight(op),
            },
        }
    }

    /// The result for two values that are there; `None` drops the element.
    pub(crate) fn apply(self, left: f64, right: f64) -> Option<f64> {
        match self {
            ElementOp::Compute(op) => compute(op, left, right),
            ElementOp::FilterLeft(op) => holds(op, left, right).then_some(left),
            ElementOp::FilterRight(op) => holds(op, left, right).then_some(right),
            ElementOp::Truth(op) => Some(f64::from(u8::from(holds(op, left, right)))),
            ElementOp::Drop(_) => None,
        }
    }

    /// The operator itself.
    pub(crate) fn symbol(self) -> BinaryOp {
        match self {
            ElementOp::Compute(op)
            | ElementOp::FilterLeft(op)
            | ElementOp::FilterRight(op)
            | ElementOp::Truth(op)
            | ElementOp::Drop(op) => op,
        }
    }

    /// Whether the result is no longer what the metric name says.
    pub(crate) fn drops_name(self) -> bool {
        matches!(self, ElementOp::Compute(_) | ElementOp::Truth(_))
    }
}

/// Whose value a filter keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FilterSide {
    /// The left element's.
    Left,
    /// The right element's.
    Right,
}

/// The lesser, NaN if one is, -0 before +0 (Go's `math.Min`).
pub(crate) fn go_min(a: f64, b: f64) -> f64 {
    if a == f64::NEG_INFINITY || b == f64::NEG_INFINITY {
        f64::NEG_INFINITY
    } else if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a == b {
        if a.is_sign_negative() { a } else { b }
    } else if a < b {
        a
    } else {
        b
    }
}

/// The greater, NaN if one is, +0 before -0 (Go's `math.Max`).
pub(crate) fn go_max(a: f64, b: f64) -> f64 {
    -go_min(-a, -b)
}
