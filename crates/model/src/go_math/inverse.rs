//! Arcsine, arccosine and arctangent: `atan.c` of S. Moshier's Cephes 2.8; the others are computed from it.

use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, PI};

use super::parts::polynomial;

/// Arcsine in radians; NaN outside of -1 to 1.
#[must_use]
pub fn asin(x: f64) -> f64 {
    if x == 0.0 {
        return x;
    }
    let sine = x.abs();
    if sine > 1.0 {
        return f64::NAN;
    }
    let cosine = (1.0 - sine * sine).sqrt();
    let angle =
        if sine > 0.7 { FRAC_PI_2 - positive_atan(cosine / sine) } else { positive_atan(sine / cosine) };
    if x < 0.0 { -angle } else { angle }
}

/// Arccosine in radians; NaN outside of -1 to 1.
#[must_use]
pub fn acos(x: f64) -> f64 {
    FRAC_PI_2 - asin(x)
}

/// Arctangent in radians.
#[must_use]
pub fn atan(x: f64) -> f64 {
    if x == 0.0 {
        x
    } else if x > 0.0 {
        positive_atan(x)
    } else {
        -positive_atan(-x)
    }
}

/// Angle of the point (`x`, `y`) in radians, between -π and π.
#[must_use]
pub fn atan2(y: f64, x: f64) -> f64 {
    if y.is_nan() || x.is_nan() {
        return f64::NAN;
    }
    let special = if y == 0.0 {
        Some(if x.is_sign_positive() { 0.0 } else { PI })
    } else if x == 0.0 {
        Some(FRAC_PI_2)
    } else if x == f64::INFINITY {
        Some(if y.is_infinite() { FRAC_PI_4 } else { 0.0 })
    } else if x == f64::NEG_INFINITY {
        Some(if y.is_infinite() { 3.0 * FRAC_PI_4 } else { PI })
    } else if y.is_infinite() {
        Some(FRAC_PI_2)
    } else {
        None
    };
    if let Some(angle) = special {
        return angle.copysign(y);
    }
    let angle = atan(y / x);
    if x > 0.0 {
        angle
    } else if angle <= 0.0 {
        angle + PI
    } else {
        angle - PI
    }
}

/// Arctangent of a positive number, which is reduced to 0 to 0.66.
fn positive_atan(x: f64) -> f64 {
    /// Part of π/2 that a number does not represent.
    const MORE_BITS: f64 = 6.123_233_995_736_766e-17;
    const TAN_3_PI_8: f64 = 2.414_213_562_373_095;

    if x <= 0.66 {
        near_atan(x)
    } else if x > TAN_3_PI_8 {
        FRAC_PI_2 - near_atan(1.0 / x) + MORE_BITS
    } else {
        FRAC_PI_4 + near_atan((x - 1.0) / (x + 1.0)) + 0.5 * MORE_BITS
    }
}

/// Arctangent of a number between -0.66 and 0.66.
fn near_atan(x: f64) -> f64 {
    const NUMERATOR: [f64; 5] = [
        -8.750_608_600_031_904e-1,
        -1.615_753_718_733_365_2e1,
        -7.500_855_792_314_705e1,
        -1.228_866_684_490_136_1e2,
        -6.485_021_904_942_025e1,
    ];
    const DENOMINATOR: [f64; 6] = [
        1.0,
        2.485_846_490_142_306_2e1,
        1.650_270_098_316_988_5e2,
        4.328_810_604_912_902_7e2,
        4.853_903_996_359_137e2,
        1.945_506_571_482_614e2,
    ];
    let square = x * x;
    let quotient = square * polynomial(square, NUMERATOR) / polynomial(square, DENOMINATOR);
    x * quotient + x
}
