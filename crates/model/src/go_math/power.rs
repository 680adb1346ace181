//! Powers: the integral part of an exponent by repeated squaring, its fraction by `exp` and `ln`.

use super::exponential::exp;
use super::logarithm::ln;
use super::parts::{scale, split};

/// `base` to the power of `exponent`.
#[must_use]
pub fn pow(base: f64, exponent: f64) -> f64 {
    if let Some(value) = special(base, exponent) {
        return value;
    }
    let mut whole = exponent.abs().trunc();
    let mut rest = exponent.abs() - whole;
    if rest != 0.0 && base < 0.0 {
        return f64::NAN;
    }
    // From here on integers are even, and powers are beyond all numbers.
    const WHOLE_MAX: f64 = (1_u64 << 63) as f64;
    if whole >= WHOLE_MAX {
        return limit(base, exponent > 0.0);
    }
    let mut value = 1.0;
    if rest != 0.0 {
        if rest > 0.5 {
            rest -= 1.0;
            whole += 1.0;
        }
        value = exp(rest * ln(base));
    }
    let (fraction, exponent_of_2) = times_power(value, base, whole as i64);
    if exponent < 0.0 { scale(1.0 / fraction, -exponent_of_2) } else { scale(fraction, exponent_of_2) }
}

/// `value * base^exponent` as a fraction and an exponent of 2, by squaring.
fn times_power(value: f64, base: f64, exponent: i64) -> (f64, i32) {
    /// A power of 2 beyond which the result is infinite or zero, whatever is multiplied to it.
    const EXPONENT_MAX: i32 = 1 << 12;

    let mut product = value;
    let mut product_exponent = 0;
    let (mut square, mut square_exponent) = split(base);
    let mut bits = exponent;
    while bits != 0 {
        if square_exponent.abs() > EXPONENT_MAX {
            product_exponent += square_exponent;
            break;
        }
        if bits & 1 == 1 {
            product *= square;
            product_exponent += square_exponent;
        }
        square *= square;
        square_exponent *= 2;
        if square < 0.5 {
            square += square;
            square_exponent -= 1;
        }
        bits >>= 1;
    }
    (product, product_exponent)
}

/// Powers that IEEE 754 defines, and square roots.
fn special(base: f64, exponent: f64) -> Option<f64> {
    let value = if exponent == 0.0 || base == 1.0 {
        1.0
    } else if exponent == 1.0 {
        base
    } else if base.is_nan() || exponent.is_nan() {
        f64::NAN
    } else if base == 0.0 {
        power_of_zero(base, exponent)
    } else if exponent.is_infinite() {
        limit(base, exponent > 0.0)
    } else if base == f64::INFINITY {
        if exponent < 0.0 { 0.0 } else { f64::INFINITY }
    } else if base == f64::NEG_INFINITY {
        power_of_zero(-0.0, -exponent)
    } else if exponent == 0.5 {
        base.sqrt()
    } else if exponent == -0.5 {
        1.0 / base.sqrt()
    } else {
        return None;
    };
    Some(value)
}

/// Power of a zero. An odd exponent keeps the sign of the zero.
fn power_of_zero(zero: f64, exponent: f64) -> f64 {
    // Numbers from 2^53 on are even.
    let is_odd = (exponent % 2.0).abs() == 1.0;
    let magnitude = if exponent < 0.0 { f64::INFINITY } else { 0.0 };
    if is_odd { magnitude.copysign(zero) } else { magnitude }
}

/// Power with an exponent that is infinite, or as good as.
fn limit(base: f64, exponent_is_positive: bool) -> f64 {
    if base == -1.0 {
        1.0
    } else if (base.abs() < 1.0) == exponent_is_positive {
        0.0
    } else {
        f64::INFINITY
    }
}
