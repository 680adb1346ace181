//! Functions of one number by name, with the results of Go's math package.

use chronolith_exec::column::StepScalar;
use chronolith_exec::map::ElementFn;
use chronolith_exec::plan::node::{MapFn, Params};
use chronolith_model::go_math;

use super::calendar::CalendarField;

#[cfg(test)]
mod tests;

/// The function of this name, if it is one of the values of a vector.
pub(crate) fn map_fn(name: &str) -> Option<MapFn> {
    let function: fn(f64) -> f64 = match name {
        "clamp" => {
            return Some(MapFn::Make(|params| ElementFn::Clamp(params.take_or_nan(), params.take_or_nan())));
        }
        "clamp_min" => return Some(MapFn::Make(|params| ElementFn::ClampMin(params.take_or_nan()))),
        "clamp_max" => return Some(MapFn::Make(|params| ElementFn::ClampMax(params.take_or_nan()))),
        "round" => {
            let round =
                |params: &mut Params| ElementFn::Round(params.take().unwrap_or(StepScalar::Constant(1.0)));
            return Some(MapFn::Make(round));
        }
        "abs" => f64::abs,
        "ceil" => f64::ceil,
        "floor" => f64::floor,
        "exp" => go_math::exp,
        "sqrt" => f64::sqrt,
        "ln" => go_math::ln,
        "log2" => go_math::log2,
        "log10" => go_math::log10,
        "sin" => go_math::sin,
        "cos" => go_math::cos,
        "tan" => go_math::tan,
        "asin" => go_math::asin,
        "acos" => go_math::acos,
        "atan" => go_math::atan,
        "sinh" => go_math::sinh,
        "cosh" => go_math::cosh,
        "tanh" => go_math::tanh,
        "asinh" => go_math::asinh,
        "acosh" => go_math::acosh,
        "atanh" => go_math::atanh,
        "deg" => |v| v * DEGREES_PER_RADIAN,
        "rad" => |v| v * RADIANS_PER_DEGREE,
        "sgn" => sign,
        // Prometheus takes parts of a date for functions of the evaluation time.
        _ => return CalendarField::function(name).map(MapFn::EachStep),
    };
    Some(MapFn::Plain(function))
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
