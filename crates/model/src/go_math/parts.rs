//! Fraction and exponent of a number, and polynomials.

/// ln 2 in two parts, the first of which has 32 bits: products with exponents are exact (msun).
pub(super) const LN_2_HIGH: f64 = 6.931_471_803_691_238e-1;
pub(super) const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;

const FRACTION_BITS: u32 = 52;
const EXPONENT_BIAS: i32 = 1023;
const EXPONENT_FIELD: u64 = 0x7ff << FRACTION_BITS;

/// 2 to the power of `exponent`, which is one of a normal number.
pub(super) fn power_of_2(exponent: i32) -> f64 {
    debug_assert!((-1022..=1023).contains(&exponent), "{exponent}");
    f64::from_bits(u64::from((exponent + EXPONENT_BIAS).cast_unsigned()) << FRACTION_BITS)
}

/// Exponent of a positive normal number, as in 1.5 * 2^exponent.
pub(super) fn exponent_of(x: f64) -> i32 {
    (x.to_bits() >> FRACTION_BITS) as i32 - EXPONENT_BIAS
}

/// A fraction from 0.5 to below 1, with the sign of `x`, and an exponent of 2 that make `x`; zero, infinities
/// and NaN as they are, with exponent 0.
pub(super) fn split(x: f64) -> (f64, i32) {
    if x == 0.0 || !x.is_finite() {
        return (x, 0);
    }
    let (normal, shift) = if x.is_normal() { (x, 0) } else { (x * power_of_2(52), -52) };
    let exponent = exponent_of(normal.abs()) + 1;
    (f64::from_bits(normal.to_bits() & !EXPONENT_FIELD | 0.5_f64.to_bits()), exponent + shift)
}

/// `x` times 2 to the power of `exponent`, rounded once.
pub(super) fn scale(x: f64, exponent: i32) -> f64 {
    let (fraction, own) = split(x);
    if fraction == 0.0 || !fraction.is_finite() {
        return x;
    }
    match own.saturating_add(exponent) {
        1025.. => fraction * f64::INFINITY,
        total @ -1020.. => fraction * 2.0 * power_of_2(total - 1),
        // Normal up to the last multiplication, which rounds.
        total @ -1080.. => fraction * power_of_2(total + 60) * power_of_2(-60),
        _ => fraction * 0.0,
    }
}

/// The polynomial with these coefficients, which begin with the highest power, by Horner's rule.
pub(super) fn polynomial<const N: usize>(x: f64, coefficients: [f64; N]) -> f64 {
    let [first, rest @ ..] = coefficients.as_slice() else { return 0.0 };
    rest.iter().fold(*first, |sum, coefficient| sum * x + coefficient)
}
