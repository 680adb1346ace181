//! Hyperbolic functions and their inverses. `sinh`: Hart and Cheney's approximation 2029 near 0; `tanh`:
//! `tanh.c` of S. Moshier's Cephes 2.8; inverses: msun's `s_asinh.c`, `e_acosh.c` and `e_atanh.c`.

use std::f64::consts::LN_2;

use super::exponential::exp;
use super::logarithm::{ln, ln_1p};
use super::parts::polynomial;

/// Beyond it, e^-x is lost in e^x.
const LARGE_EXPONENT: f64 = 21.0;
/// 2^28: beyond it, 1 is lost in the square.
const LARGE: f64 = (1 << 28) as f64;
const TINY: f64 = 1.0 / LARGE;

/// Hyperbolic sine.
#[must_use]
pub fn sinh(x: f64) -> f64 {
    const NUMERATOR: [f64; 4] = [
        -2.630_563_213_397_497e1,
        -2.894_211_355_989_564e3,
        -8.991_272_022_039_509e4,
        -6.307_673_640_497_717e5,
    ];
    const DENOMINATOR: [f64; 4] =
        [1.0, -1.736_789_535_582_337e2, 1.521_517_378_790_019e4, -6.307_673_640_497_717e5];

    let magnitude = if x < 0.0 { -x } else { x };
    let value = if magnitude > LARGE_EXPONENT {
        exp(magnitude) * 0.5
    } else if magnitude > 0.5 {
        let power = exp(magnitude);
        (power - 1.0 / power) * 0.5
    } else {
        let square = magnitude * magnitude;
        polynomial(square, NUMERATOR) * magnitude / polynomial(square, DENOMINATOR)
    };
    if x < 0.0 { -value } else { value }
}

/// Hyperbolic cosine.
#[must_use]
pub fn cosh(x: f64) -> f64 {
    let power = exp(x.abs());
    if x.abs() > LARGE_EXPONENT { power * 0.5 } else { (power + 1.0 / power) * 0.5 }
}

/// Hyperbolic tangent.
#[must_use]
pub fn tanh(x: f64) -> f64 {
    const NUMERATOR: [f64; 3] =
        [-9.643_991_794_250_523e-1, -9.928_772_310_019_185e1, -1.614_687_684_417_084_5e3];
    const DENOMINATOR: [f64; 4] =
        [1.0, 1.128_116_784_916_329_3e2, 2.235_488_390_601_004_5e3, 4.844_063_053_251_255e3];
    /// ln(2^127) / 2
    const ONE_FROM: f64 = 0.5 * 8.802_969_193_111_305e1;

    if x.abs() > ONE_FROM {
        return 1.0_f64.copysign(x);
    }
    if x.abs() >= 0.625 {
        let value = 1.0 - 2.0 / (exp(2.0 * x.abs()) + 1.0);
        return value.copysign(x);
    }
    if x == 0.0 {
        return x;
    }
    let square = x * x;
    x + x * square * polynomial(square, NUMERATOR) / polynomial(square, DENOMINATOR)
}

/// Inverse of the hyperbolic sine.
#[must_use]
pub fn asinh(x: f64) -> f64 {
    if !x.is_finite() {
        return x;
    }
    let sinh = x.abs();
    let value = if sinh > LARGE {
        ln(sinh) + LN_2
    } else if sinh > 2.0 {
        ln(2.0 * sinh + 1.0 / ((sinh * sinh + 1.0).sqrt() + sinh))
    } else if sinh < TINY {
        sinh
    } else {
        ln_1p(sinh + sinh * sinh / (1.0 + (1.0 + sinh * sinh).sqrt()))
    };
    value.copysign(x)
}

/// Inverse of the hyperbolic cosine; NaN below 1.
#[must_use]
pub fn acosh(x: f64) -> f64 {
    if x.is_nan() || x < 1.0 {
        f64::NAN
    } else if x == 1.0 {
        0.0
    } else if x >= LARGE {
        ln(x) + LN_2
    } else if x > 2.0 {
        ln(2.0 * x - 1.0 / (x + (x * x - 1.0).sqrt()))
    } else {
        let above = x - 1.0;
        ln_1p(above + (2.0 * above + above * above).sqrt())
    }
}

/// Inverse of the hyperbolic tangent; NaN outside of -1 to 1.
#[must_use]
pub fn atanh(x: f64) -> f64 {
    if x.is_nan() || x.abs() > 1.0 {
        return f64::NAN;
    }
    if x.abs() == 1.0 {
        return f64::INFINITY.copysign(x);
    }
    let tanh = x.abs();
    let twice = tanh + tanh;
    let value = if tanh < TINY {
        tanh
    } else if tanh < 0.5 {
        0.5 * ln_1p(twice + twice * tanh / (1.0 - tanh))
    } else {
        0.5 * ln_1p(twice / (1.0 - tanh))
    };
    value.copysign(x)
}
