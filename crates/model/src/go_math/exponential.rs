//! Powers of e and 2.
//!
//! `exp`: N. Shibata, "Efficient evaluation methods of elementary functions suitable for SIMD computation"
//! (2010), as in SLEEF: a Taylor series of x / 16, squared four times. `exp2`: msun's `e_exp.c` (Sun, 1993).

use std::f64::consts::LOG2_E;

use super::parts::{LN_2_HIGH, LN_2_LOW, polynomial, power_of_2, scale};

/// e to the power of `x`. As in Go, results above 2^1023.5 are infinite.
#[must_use]
pub fn exp(x: f64) -> f64 {
    /// ln 2 in two parts, of which the first has 40 bits.
    const HIGH: f64 = 6.931_471_805_596_63e-1;
    const LOW: f64 = 2.823_529_056_303_157_7e-13;
    /// 1/8! to 1/0!
    const TAYLOR: [f64; 8] = [
        2.480_158_730_158_73e-5,
        1.984_126_984_126_984e-4,
        1.388_888_888_888_889e-3,
        8.333_333_333_333_333e-3,
        4.166_666_666_666_666_4e-2,
        1.666_666_666_666_666_6e-1,
        0.5,
        1.0,
    ];
    /// Adding it rounds to an integer, ties to even.
    const ROUNDER: f64 = 6_755_399_441_055_744.0;
    const OVERFLOW: f64 = 709.782_712_893_384;
    const UNDERFLOW: f64 = -746.0;

    if x.is_nan() {
        return x;
    }
    if x > OVERFLOW {
        return f64::INFINITY;
    }
    if x < UNDERFLOW {
        return 0.0;
    }
    let whole = (x * LOG2_E + ROUNDER) - ROUNDER;
    let rest = (-whole).mul_add(LOW, (-whole).mul_add(HIGH, x)) / 16.0;
    let [first, others @ ..] = TAYLOR;
    let series = others.iter().fold(first, |sum, coefficient| sum.mul_add(rest, *coefficient));
    // e^r - 1 of r, of 2 r, 4 r and 8 r.
    let mut less_one = rest * series;
    for _ in 0..3 {
        less_one *= less_one + 2.0;
    }
    let value = (less_one + 2.0).mul_add(less_one, 1.0);
    match whole as i32 {
        1024.. => f64::INFINITY,
        exponent @ -1022.. => value * power_of_2(exponent),
        exponent @ -1075.. => value * power_of_2(exponent + 1022) * power_of_2(-1022),
        _ => 0.0,
    }
}

/// 2 to the power of `x`.
#[must_use]
pub fn exp2(x: f64) -> f64 {
    const OVERFLOW: f64 = 1_023.999_999_999_999_9;
    const UNDERFLOW: f64 = -1074.0;

    if x.is_nan() {
        return x;
    }
    if x > OVERFLOW {
        return f64::INFINITY;
    }
    if x < UNDERFLOW {
        return 0.0;
    }
    let half = if x > 0.0 { 0.5 } else { -0.5 };
    let whole = if x == 0.0 { 0.0 } else { (x + half).trunc() };
    let rest = x - whole;
    scale(exp_of_difference(rest * LN_2_HIGH, -rest * LN_2_LOW), whole as i32)
}

/// e to the power of `high - low`, which is between -ln 2 / 2 and ln 2 / 2.
fn exp_of_difference(high: f64, low: f64) -> f64 {
    const COEFFICIENTS: [f64; 5] = [
        4.138_136_797_057_238_5e-8,
        -1.653_390_220_546_525_2e-6,
        6.613_756_321_437_934e-5,
        -2.777_777_777_701_559_3e-3,
        1.666_666_666_666_666_6e-1,
    ];
    let r = high - low;
    let square = r * r;
    let c = r - square * polynomial(square, COEFFICIENTS);
    1.0 - ((low - (r * c) / (2.0 - c)) - high)
}
