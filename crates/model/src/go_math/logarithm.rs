//! Logarithms: msun's `e_log.c` and `s_log1p.c` (Sun, 1993).

use std::f64::consts::{FRAC_1_SQRT_2, LOG2_E, LOG10_E};

use super::parts::{LN_2_HIGH, LN_2_LOW, exponent_of, polynomial, split};

/// Even and odd coefficients of the series of ln((1 + s) / (1 - s)) in s².
const ODD: [f64; 4] = [
    1.479_819_860_511_658_6e-1,
    1.818_357_216_161_805e-1,
    2.857_142_874_366_239e-1,
    6.666_666_666_666_735e-1,
];
const EVEN: [f64; 3] = [1.531_383_769_920_937_3e-1, 2.222_219_843_214_978_4e-1, 3.999_999_999_940_942e-1];

/// Natural logarithm. As in Go on x86-64, the result of a subnormal number is wrong: its fraction is read as
/// if it were normal, so that the result is between ln 2^-1023 and ln 2^-1022.
#[must_use]
pub fn ln(x: f64) -> f64 {
    if x.is_nan() || x == f64::INFINITY {
        return x;
    }
    if x == 0.0 {
        return f64::NEG_INFINITY;
    }
    if x < 0.0 {
        return f64::NAN;
    }
    let exponent = exponent_of(x) + 1;
    let fraction = f64::from_bits(x.to_bits() & ((1 << 52) - 1) | 0.5_f64.to_bits());
    let (f, k) = if fraction <= FRAC_1_SQRT_2 {
        (fraction * 2.0 - 1.0, f64::from(exponent - 1))
    } else {
        (fraction - 1.0, f64::from(exponent))
    };
    let s = f / (2.0 + f);
    let s2 = s * s;
    let s4 = s2 * s2;
    let series = s2 * polynomial(s4, ODD) + s4 * polynomial(s4, EVEN);
    let half_square = 0.5 * f * f;
    k * LN_2_HIGH - ((half_square - (s * (half_square + series) + k * LN_2_LOW)) - f)
}

/// Logarithm to base 2, exact for powers of 2.
#[must_use]
pub fn log2(x: f64) -> f64 {
    let (fraction, exponent) = split(x);
    if fraction == 0.5 {
        return f64::from(exponent - 1);
    }
    ln(fraction) * LOG2_E + f64::from(exponent)
}

/// Logarithm to base 10; powers of 10 may be off by a bit.
#[must_use]
pub fn log10(x: f64) -> f64 {
    ln(x) * LOG10_E
}

/// Logarithm of `1 + x`, precise near 0.
pub(super) fn ln_1p(x: f64) -> f64 {
    /// Limits of 1 + x for which no power of 2 is taken out: √2 / 2 - 1 and √2 - 1.
    const LOW: f64 = -2.928_932_188_134_525e-1;
    const HIGH: f64 = 4.142_135_623_730_950_3e-1;
    const SMALL: f64 = 1.0 / (1_u64 << 29) as f64;
    const TINY: f64 = 1.0 / (1_u64 << 54) as f64;

    if x.is_nan() || x < -1.0 {
        return f64::NAN;
    }
    if x == -1.0 {
        return f64::NEG_INFINITY;
    }
    if x == f64::INFINITY {
        return x;
    }
    if x.abs() < TINY {
        return x;
    }
    if x.abs() < SMALL {
        return x - x * x * 0.5;
    }
    if x.abs() < HIGH && x > LOW {
        let half_square = 0.5 * x * x;
        let (s, series) = symmetric(x);
        return x - (half_square - s * (half_square + series));
    }
    ln_1p_reduced(x)
}

/// Logarithm of `1 + x` outside of √2 / 2 to √2.
fn ln_1p_reduced(x: f64) -> f64 {
    /// Fraction bits of √2.
    const SQRT_2_FRACTION: u64 = 0x6_a09e_667f_3bcd;
    const ONE: u64 = 1.0_f64.to_bits();
    const INTEGERS_FROM: f64 = (1_u64 << 53) as f64;

    let sum = if x.abs() < INTEGERS_FROM { 1.0 + x } else { x };
    let exponent = exponent_of(sum);
    // The digits of x that the sum has lost.
    let lost = match x.abs() < INTEGERS_FROM {
        true if exponent > 0 => (1.0 - (sum - x)) / sum,
        true => (x - (sum - 1.0)) / sum,
        false => 0.0,
    };
    let fraction = sum.to_bits() & ((1 << 52) - 1);
    let (f, k, is_near_1) = if fraction < SQRT_2_FRACTION {
        (f64::from_bits(fraction | ONE) - 1.0, f64::from(exponent), fraction == 0)
    } else {
        let is_near_1 = ((1 << 52) - fraction) >> 2 == 0;
        (f64::from_bits(fraction | 0.5_f64.to_bits()) - 1.0, f64::from(exponent + 1), is_near_1)
    };
    let low = k * LN_2_LOW + lost;
    if f == 0.0 {
        return if k == 0.0 { 0.0 } else { k * LN_2_HIGH + low };
    }
    let half_square = 0.5 * f * f;
    let two_thirds = 6.666_666_666_666_666e-1;
    if is_near_1 {
        let series = half_square * (1.0 - two_thirds * f);
        return if k == 0.0 { f - series } else { k * LN_2_HIGH - ((series - low) - f) };
    }
    let (s, series) = symmetric(f);
    if k == 0.0 {
        return f - (half_square - s * (half_square + series));
    }
    k * LN_2_HIGH - ((half_square - (s * (half_square + series) + low)) - f)
}

/// `s = f / (2 + f)` and the series of `ln_1p` in its square.
fn symmetric(f: f64) -> (f64, f64) {
    const COEFFICIENTS: [f64; 7] = [ODD[0], EVEN[0], ODD[1], EVEN[1], ODD[2], EVEN[2], ODD[3]];
    let s = f / (2.0 + f);
    let square = s * s;
    (s, square * polynomial(square, COEFFICIENTS))
}
