//! Functions of one number, as Go's math package computes them.

use crate::engine::arith::{go_max, go_min};
use crate::engine::series::{ABSENT, StepScalar};

use super::calendar::CalendarField;

/// What happens to every value of a vector.
#[derive(Debug, Clone)]
pub(crate) enum ElementFn {
    /// A plain function.
    Plain(fn(f64) -> f64),
    /// `-x`
    Negate,
    /// `clamp` with least and greatest value.
    Clamp(StepScalar, StepScalar),
    /// `clamp_min`
    ClampMin(StepScalar),
    /// `clamp_max`
    ClampMax(StepScalar),
    /// `round` with the unit to round to.
    Round(StepScalar),
    /// A part of the date that the value stands for, in seconds since 1970.
    Calendar(CalendarField),
}

impl ElementFn {
    /// The result for a value that is there; [`ABSENT`] drops it.
    pub(crate) fn apply(&self, step: usize, value: f64) -> f64 {
        match self {
            ElementFn::Plain(function) => function(value),
            ElementFn::Negate => -value,
            ElementFn::Clamp(least, greatest) => {
                let (least, greatest) = (least.at(step), greatest.at(step));
                if greatest < least { ABSENT } else { go_max(least, go_min(greatest, value)) }
            }
            ElementFn::ClampMin(least) => go_max(least.at(step), value),
            ElementFn::ClampMax(greatest) => go_min(greatest.at(step), value),
            ElementFn::Round(unit) => {
                // Multiplying by the inverse gives 0.3 where dividing gives 0.30000000000000004.
                let inverse = 1.0 / unit.at(step);
                (value * inverse + 0.5).floor() / inverse
            }
            ElementFn::Calendar(field) => field.of(value),
        }
    }

    /// The function of this name, if it is one of a vector alone.
    pub(crate) fn plain(name: &str) -> Option<ElementFn> {
        let function: fn(f64) -> f64 = match name {
            "abs" => f64::abs,
            "ceil" => f64::ceil,
            "floor" => f64::floor,
            "exp" => f64::exp,
            "sqrt" => f64::sqrt,
            "ln" => f64::ln,
            "log2" => f64::log2,
            "log10" => f64::log10,
            "sin" => f64::sin,
            "cos" => f64::cos,
            "tan" => f64::tan,
            "asin" => f64::asin,
            "acos" => f64::acos,
            "atan" => f64::atan,
            "sinh" => f64::sinh,
            "cosh" => f64::cosh,
            "tanh" => f64::tanh,
            "asinh" => f64::asinh,
            "acosh" => f64::acosh,
            "atanh" => f64::atanh,
            "deg" => |v| v * DEGREES_PER_RADIAN,
            "rad" => |v| v * RADIANS_PER_DEGREE,
            "sgn" => sign,
            _ => return CalendarField::named(name).map(ElementFn::Calendar),
        };
        Some(ElementFn::Plain(function))
    }
}

/// 180/π and π/180, each rounded once: dividing one rounded constant by another may lose the last bit.
const DEGREES_PER_RADIAN: f64 = 57.295_779_513_082_32;
const RADIANS_PER_DEGREE: f64 = 0.017_453_292_519_943_295;

fn sign(value: f64) -> f64 {
    if value < 0.0 {
        -1.0
    } else if value > 0.0 {
        1.0
    } else {
        value
    }
}
