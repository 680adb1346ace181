//! Binary operators on two numbers, with the results of Go's math package.
//! Invariants: a comparison filters (`None`) unless the operator has the bool modifier.

use chronolith_model::go_math;

#[cfg(test)]
mod tests;

/// Binary operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Pow,
    Atan2,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    And,
    Or,
    Unless,
    /// Removes the observations of a native histogram above a value.
    TrimUpper,
    /// Removes the observations of a native histogram below a value.
    TrimLower,
}

impl BinaryOp {
    /// Returns true for `== != < <= > >=`.
    #[must_use]
    pub fn is_comparison(self) -> bool {
        use BinaryOp::{Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual};
        matches!(self, Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual)
    }

    /// Returns true for `and or unless`.
    #[must_use]
    pub fn is_set(self) -> bool {
        matches!(self, BinaryOp::And | BinaryOp::Or | BinaryOp::Unless)
    }

    /// The symbol, as in most languages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
            BinaryOp::Mod => "%",
            BinaryOp::Pow => "^",
            BinaryOp::Atan2 => "atan2",
            BinaryOp::Equal => "==",
            BinaryOp::NotEqual => "!=",
            BinaryOp::Less => "<",
            BinaryOp::LessEqual => "<=",
            BinaryOp::Greater => ">",
            BinaryOp::GreaterEqual => ">=",
            BinaryOp::And => "and",
            BinaryOp::Or => "or",
            BinaryOp::Unless => "unless",
            BinaryOp::TrimUpper => "</",
            BinaryOp::TrimLower => ">/",
        }
    }
}

/// Arithmetic; `None` for operators that do not compute a number.
fn compute(op: BinaryOp, left: f64, right: f64) -> Option<f64> {
    Some(match op {
        BinaryOp::Add => left + right,
        BinaryOp::Sub => left - right,
        BinaryOp::Mul => left * right,
        BinaryOp::Div => left / right,
        // As in Go and C, the result has the sign of the dividend.
        BinaryOp::Mod => left % right,
        BinaryOp::Pow => go_math::pow(left, right),
        BinaryOp::Atan2 => go_math::atan2(left, right),
        _ => return None,
    })
}

/// Returns true if a comparison holds; false for other operators.
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

/// A binary operator between scalars: comparisons return 1 or 0.
#[must_use]
pub fn scalar_op(op: BinaryOp, left: f64, right: f64) -> f64 {
    compute(op, left, right).unwrap_or_else(|| f64::from(u8::from(holds(op, left, right))))
}

/// Effect of a binary operator on two elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ElementOp {
    /// Computes.
    Compute(BinaryOp),
    /// Keeps the value of the left element where the comparison holds.
    FilterLeft(BinaryOp),
    /// Keeps the value of the right element where the comparison holds.
    FilterRight(BinaryOp),
    /// 1 where the comparison holds, else 0 (bool modifier).
    Bool(BinaryOp),
    /// Trims native histograms; floats are dropped.
    Trim(BinaryOp),
}

impl ElementOp {
    /// `keeps` is the side whose value a filter keeps.
    #[must_use]
    pub fn new(op: BinaryOp, return_bool: bool, keeps: FilterSide) -> ElementOp {
        match op {
            BinaryOp::TrimLower | BinaryOp::TrimUpper => ElementOp::Trim(op),
            op if !op.is_comparison() => ElementOp::Compute(op),
            op if return_bool => ElementOp::Bool(op),
            op => match keeps {
                FilterSide::Left => ElementOp::FilterLeft(op),
                FilterSide::Right => ElementOp::FilterRight(op),
            },
        }
    }

    /// The result for two values that are present; `None` drops the element.
    #[must_use]
    pub fn apply(self, left: f64, right: f64) -> Option<f64> {
        match self {
            ElementOp::Compute(op) => compute(op, left, right),
            ElementOp::FilterLeft(op) => holds(op, left, right).then_some(left),
            ElementOp::FilterRight(op) => holds(op, left, right).then_some(right),
            ElementOp::Bool(op) => Some(f64::from(u8::from(holds(op, left, right)))),
            ElementOp::Trim(_) => None,
        }
    }

    /// The binary operator.
    #[must_use]
    pub fn symbol(self) -> BinaryOp {
        match self {
            ElementOp::Compute(op)
            | ElementOp::FilterLeft(op)
            | ElementOp::FilterRight(op)
            | ElementOp::Bool(op)
            | ElementOp::Trim(op) => op,
        }
    }

    /// Returns true if the result is no longer a value of the metric.
    #[must_use]
    pub fn drops_name(self) -> bool {
        matches!(self, ElementOp::Compute(_) | ElementOp::Bool(_))
    }
}

/// Side whose value a filter keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterSide {
    /// The left element's.
    Left,
    /// The right element's.
    Right,
}

/// The lesser, NaN if one is, -0 before +0 (Go's `math.Min`).
#[must_use]
pub fn go_min(a: f64, b: f64) -> f64 {
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
#[must_use]
pub fn go_max(a: f64, b: f64) -> f64 {
    -go_min(-a, -b)
}
