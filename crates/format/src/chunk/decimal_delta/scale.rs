//! Scale of a chunk: the factor that turns its decimal values into integers, and back bit for bit.
//!
//! Invariants: [`Scale::integer_of`] gives an integer only if [`Scale::value_of`] returns the very same 64
//! bits. Division by a power of ten up to 10^14 rounds once, as parsing of the decimal text does, so every
//! decimal number with at most 14 decimals fits. Negative zero, NaN and the infinities fit no scale.

/// Integers lie between minus and plus this, both exclusive.
pub(super) const INTEGER_LIMIT: i64 = 1 << 51;
/// Largest decimal exponent.
const EXPONENT_MAX: u8 = 14;
/// Largest exponent of a common power of two; codes then fit into five bits.
const SHIFT_MAX: u8 = 17;
/// Common trailing zero bits that are worth a scale: fewer are mostly the chance of a few integers.
const SHIFT_MIN: u32 = 4;
const SCALE_COUNT: usize = 1 + EXPONENT_MAX as usize + SHIFT_MAX as usize;

/// Powers of ten, then the reciprocals of powers of two from 2 on.
const FACTORS: [f64; SCALE_COUNT] = {
    let mut factors = [1.0; SCALE_COUNT];
    let mut code = 1;
    while code < SCALE_COUNT {
        // Both products are exact: 10^14 has 33 significant bits.
        factors[code] = match code {
            0..=14 => factors[code - 1] * 10.0,
            15 => 0.5,
            _ => factors[code - 1] * 0.5,
        };
        code += 1;
    }
    factors
};

/// 1.5 * 2^52: the sum with a float within the limit has the nearest integer in its low bits.
const ROUNDER: f64 = 6_755_399_441_055_744.0;

/// 10^0 to 10^14 as the codes 0 to 14, 2^-1 to 2^-17 as the codes 15 to 31.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale(u8);

impl Scale {
    /// Bits of a code; each of their values is a scale.
    pub(super) const CODE_MASK: u8 = SCALE_COUNT as u8 - 1;

    /// The scale with this code; none for a code that no version wrote.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Scale> {
        (usize::from(code) < SCALE_COUNT).then_some(Scale(code))
    }

    /// Code in the header of a chunk.
    #[must_use]
    pub fn code(self) -> u8 {
        self.0
    }

    /// The scale whose code is the low five bits of `byte`.
    pub(super) fn of_low_bits(byte: u8) -> Scale {
        Scale(byte & Scale::CODE_MASK)
    }

    fn factor(self) -> f64 {
        FACTORS[usize::from(self.0 & Scale::CODE_MASK)]
    }

    /// The integer of `value`; none if it does not return the same bits.
    pub(super) fn integer_of(self, value: f64) -> Option<i64> {
        let factor = self.factor();
        let scaled = value * factor;
        let rounded = scaled + ROUNDER;
        let back = (rounded - ROUNDER) / factor;
        let fits = (scaled.abs() < INTEGER_LIMIT as f64) & (back.to_bits() == value.to_bits());
        fits.then(|| rounded.to_bits().wrapping_sub(ROUNDER.to_bits()).cast_signed())
    }

    /// The value of `integer`, which is within the limit.
    pub(super) fn value_of(self, integer: i64) -> f64 {
        integer as f64 / self.factor()
    }

    /// The smallest power of ten that fits all `values`, or for integers their largest common power of two;
    /// none if a value fits no scale.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Scale> {
        let mut scale = Scale(0);
        let mut common_bits = 0;
        for &value in values {
            let mut integer = scale.integer_of(value);
            while integer.is_none() && scale.0 < EXPONENT_MAX {
                scale.0 += 1;
                integer = scale.integer_of(value);
            }
            common_bits |= integer?;
        }
        let shift = common_bits.trailing_zeros();
        if scale.0 > 0 || common_bits == 0 || shift < SHIFT_MIN {
            return Some(scale);
        }
        Some(Scale(EXPONENT_MAX + (shift as u8).min(SHIFT_MAX)))
    }
}
