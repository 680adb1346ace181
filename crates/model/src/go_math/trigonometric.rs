//! Sine, cosine and tangent: `sin.c` and `tan.c` of S. Moshier's Cephes 2.8. Large numbers are reduced as
//! Payne and Hanek do (K. C. Ng, "Argument reduction for huge arguments: good to the last bit", 1992).

use std::f64::consts::{FRAC_2_PI, FRAC_PI_4};

use super::parts::polynomial;

/// Sine of an angle in radians.
#[must_use]
pub fn sin(x: f64) -> f64 {
    if x == 0.0 || x.is_nan() {
        return x;
    }
    if x.is_infinite() {
        return f64::NAN;
    }
    let (octant, rest) = reduce(x.abs());
    let value = if octant & 2 == 0 { near_sin(rest) } else { near_cos(rest) };
    if (octant & 4 != 0) != (x < 0.0) { -value } else { value }
}

/// Cosine of an angle in radians.
#[must_use]
pub fn cos(x: f64) -> f64 {
    if !x.is_finite() {
        return f64::NAN;
    }
    let (octant, rest) = reduce(x.abs());
    let value = if octant & 2 == 0 { near_cos(rest) } else { near_sin(rest) };
    if (octant & 4 != 0) != (octant & 2 != 0) { -value } else { value }
}

/// Tangent of an angle in radians.
#[must_use]
pub fn tan(x: f64) -> f64 {
    const NUMERATOR: [f64; 3] =
        [-1.309_369_391_813_837_9e4, 1.153_516_648_385_874_2e6, -1.795_652_519_764_848_8e7];
    const DENOMINATOR: [f64; 5] = [
        1.0,
        1.368_129_634_706_929_6e4,
        -1.320_892_344_402_109_7e6,
        2.500_838_018_233_579e7,
        -5.386_957_559_294_546_4e7,
    ];
    /// Square of a number that is its own tangent.
    const TINY: f64 = 1e-14;

    if x == 0.0 || x.is_nan() {
        return x;
    }
    if x.is_infinite() {
        return f64::NAN;
    }
    let (octant, rest) = reduce(x.abs());
    let square = rest * rest;
    let mut value = rest;
    if square > TINY {
        let quotient = square * polynomial(square, NUMERATOR) / polynomial(square, DENOMINATOR);
        value = rest + rest * quotient;
    }
    if octant & 2 != 0 {
        value = -1.0 / value;
    }
    if x < 0.0 { -value } else { value }
}

/// Sine of an angle between -π/4 and π/4.
fn near_sin(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 6] = [
        1.589_623_015_765_465_6e-10,
        -2.505_074_776_285_780_7e-8,
        2.755_731_362_138_572_2e-6,
        -1.984_126_982_958_954e-4,
        8.333_333_333_322_118e-3,
        -1.666_666_666_666_663e-1,
    ];
    let square = x * x;
    x + x * square * polynomial(square, COEFFICIENTS)
}

/// Cosine of an angle between -π/4 and π/4.
fn near_cos(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 6] = [
        -1.135_853_652_138_768_2e-11,
        2.087_570_084_197_473e-9,
        -2.755_731_417_929_674e-7,
        2.480_158_728_885_170_4e-5,
        -1.388_888_888_887_305_6e-3,
        4.166_666_666_666_659_5e-2,
    ];
    let square = x * x;
    1.0 - 0.5 * square + square * square * polynomial(square, COEFFICIENTS)
}

/// The nearest even multiple of π/4, modulo 8, and the difference to it, of a positive number.
fn reduce(x: f64) -> (u64, f64) {
    /// Least number of which the products below are not exact.
    const LARGE: f64 = (1 << 29) as f64;
    /// π/4 in three parts, with 30, 32 and 53 bits.
    const PARTS: [f64; 3] = [7.853_981_256_484_985e-1, 3.774_894_707_930_798e-8, 2.695_151_429_079_059_5e-15];

    if x >= LARGE {
        return reduce_large(x);
    }
    let count = (x * (2.0 * FRAC_2_PI)) as u64;
    let even = count + (count & 1);
    (even & 7, PARTS.iter().fold(x, |rest, part| rest - even as f64 * part))
}

/// Reduces by a product with the digits of 4/π that decide the result: those above make multiples of 8.
fn reduce_large(x: f64) -> (u64, f64) {
    let fraction = x.to_bits() & ((1 << 52) - 1) | 1 << 52;
    // The first digit in the product has the value 2^61.
    let skipped = (x.to_bits() >> 52) as usize - (1023 + 52 - 61);
    let first = skipped / 64;
    let shift = skipped % 64;
    let times_digits = |at: usize| {
        let pair = u128::from(FOUR_OVER_PI[first + at]) << 64 | u128::from(FOUR_OVER_PI[first + at + 1]);
        u128::from((pair << shift >> 64) as u64) * u128::from(fraction)
    };
    let product = (times_digits(0) << 64).wrapping_add(times_digits(1)).wrapping_add(times_digits(2) >> 64);
    let octant = (product >> 125) as u64;
    let high = (product << 3 >> 64) as u64;
    let low = product as u64;
    let zeros = high.leading_zeros();
    // After many zeros Go appends bits of `low` from its highest one, although three are in `high`, too.
    let bits = high.unbounded_shl(zeros + 1) | low.unbounded_shr(63_u32.saturating_sub(zeros));
    let unit = f64::from_bits(bits >> 12 | (1022 - u64::from(zeros)) << 52);
    if octant & 1 == 1 { ((octant + 1) & 7, (unit - 1.0) * FRAC_PI_4) } else { (octant, unit * FRAC_PI_4) }
}

/// Binary digits of 4/π: the integral part, and 1,216 bits of the fraction.
const FOUR_OVER_PI: [u64; 20] = [
    0x0000_0000_0000_0001,
    0x45f3_06dc_9c88_2a53,
    0xf84e_afa3_ea69_bb81,
    0xb6c5_2b32_7887_2083,
    0xfca2_c757_bd77_8ac3,
    0x6e48_dc74_849b_a5c0,
    0x0c92_5dd4_13a3_2439,
    0xfc3b_d639_6253_4e7d,
    0xd104_6bea_5d76_8909,
    0xd338_e04d_68be_fc82,
    0x7323_ac73_06a6_73e9,
    0x3908_bf17_7bf2_5076,
    0x3ff1_2fff_bc0b_301f,
    0xde5e_2316_b414_da3e,
    0xda6c_fd9e_4f96_136e,
    0x9e8c_7ecd_3cbf_d45a,
    0xea4f_758f_d7cb_e2f6,
    0x7a0e_73ef_14a5_25d4,
    0xd7f6_bf62_3f1a_ba10,
    0xac06_608d_f8f6_d757,
];
