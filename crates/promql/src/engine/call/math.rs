//! Functions of one number by name, with the results of Go's math package.

use chronolith_exec::column::StepScalar;
use chronolith_exec::map::ElementFn;
use chronolith_exec::plan::node::{MapFn, Params};

use super::calendar::CalendarField;

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
