//! Powers and logarithms of 2 as Go computes them, so that quantiles have Prometheus's bits.
//!
//! The C library rounds some results the other way. Algorithms: FreeBSD's `e_exp.c` and `e_log.c` (Sun
//! Microsystems, 1993), in the order of operations of Go's package `math` on x86-64.
//! Not here: the functions `exp`, `ln`, `log2` and `log10` of PromQL.

use std::f64::consts::{LN_2, SQRT_2};

/// ln 2 in two parts.
const LN_2_HIGH: f64 = 6.931_471_803_691_238e-1;
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
/// Exponents of the largest power, and of the smallest one.
const EXPONENT_MAX: f64 = 1_023.999_999_999_999_9;
const EXPONENT_MIN: f64 = -1074.0;

/// 2 to the power of `x`.
pub(super) fn exp2(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x > EXPONENT_MAX {
        return f64::INFINITY;
    }
    if x < EXPONENT_MIN {
        return 0.0;
    }
    let half = if x > 0.0 { 0.5 } else { -0.5 };
    let whole = if x == 0.0 { 0.0 } else { (x + half).trunc() };
    let rest = x - whole;
    scaled(exp_of(rest * LN_2_HIGH, -rest * LN_2_LOW), whole as i32)
}

/// e to the power of `high - low`, which is small.
fn exp_of(high: f64, low: f64) -> f64 {
    const COEFFICIENTS: [f64; 5] = [
        1.666_666_666_666_666_6e-1,
        -2.777_777_777_701_559_3e-3,
        6.613_756_321_437_934e-5,
        -1.653_390_220_546_525_2e-6,
        4.138_136_797_057_238_5e-8,
    ];
    let [p1, p2, p3, p4, p5] = COEFFICIENTS;
    let r = high - low;
    let t = r * r;
    let c = r - t * (p1 + t * (p2 + t * (p3 + t * (p4 + t * p5))));
    1.0 - ((low - (r * c) / (2.0 - c)) - high)
}

/// `value` times 2 to the power of `exponent`, rounded once. `value` is near 1.
fn scaled(value: f64, exponent: i32) -> f64 {
    let power = |exponent: i32| f64::from_bits(((1023 + exponent) as u64) << 52);
    match exponent {
        -1022..=1023 => value * power(exponent),
        1024.. => value * power(1023) * 2.0,
        // Normal up to the last multiplication, which rounds.
        _ => value * power(exponent + 60) * power(-60),
    }
}

/// Logarithm to base 2.
pub(super) fn log2(x: f64) -> f64 {
    let (fraction, exponent) = fraction_and_exponent(x);
    if fraction == 0.5 {
        return f64::from(exponent - 1);
    }
    ln(fraction) * (1.0 / LN_2) + f64::from(exponent)
}

/// A fraction from 0.5 to below 1 and an exponent of 2 that make `x`; zero, infinities, NaN as they are.
fn fraction_and_exponent(x: f64) -> (f64, i32) {
    if x == 0.0 || !x.is_finite() {
        return (x, 0);
    }
    let (normal, shift) = if x.is_normal() { (x, 0) } else { (x * (1u64 << 52) as f64, -52) };
    let bits = normal.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i32 - 1022;
    (f64::from_bits(bits & !(0x7ff << 52) | 1022 << 52), exponent + shift)
}

/// Natural logarithm of a fraction as [`fraction_and_exponent`] returns it.
fn ln(x: f64) -> f64 {
    if x.is_nan() || x == f64::INFINITY {
        return x;
    }
    if x < 0.0 {
        return f64::NAN;
    }
    if x == 0.0 {
        return f64::NEG_INFINITY;
    }
    const COEFFICIENTS: [f64; 7] = [
        6.666_666_666_666_735e-1,
        3.999_999_999_940_942e-1,
        2.857_142_874_366_239e-1,
        2.222_219_843_214_978_4e-1,
        1.818_357_216_161_805e-1,
        1.531_383_769_920_937_3e-1,
        1.479_819_860_511_658_6e-1,
    ];
    let [l1, l2, l3, l4, l5, l6, l7] = COEFFICIENTS;
    let (f, k) = if x < SQRT_2 / 2.0 { (x * 2.0 - 1.0, -1.0) } else { (x - 1.0, 0.0) };
    let s = f / (2.0 + f);
    let s2 = s * s;
    let s4 = s2 * s2;
    let t1 = s2 * (l1 + s4 * (l3 + s4 * (l5 + s4 * l7)));
    let t2 = s4 * (l2 + s4 * (l4 + s4 * l6));
    let r = t1 + t2;
    let half_square = 0.5 * f * f;
    k * LN_2_HIGH - ((half_square - (s * (half_square + r) + k * LN_2_LOW)) - f)
}

#[cfg(test)]
mod tests {
    /// Made by `tools/go-math-golden`.
    const GOLDEN: &str = include_str!("go_math.golden");

    #[test]
    fn powers_and_logarithms_have_the_bits_of_go() {
        let bits = |text: &str| u64::from_str_radix(text, 16).expect("hexadecimal digits");
        for line in GOLDEN.lines() {
            let [name, x, want] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let x = f64::from_bits(bits(x));
            let found = if name == "exp2" { super::exp2(x) } else { super::log2(x) };
            assert_eq!(found.to_bits(), bits(want), "{name}({x}) is {found}");
        }
        assert!(GOLDEN.lines().count() > 600);
    }
}
