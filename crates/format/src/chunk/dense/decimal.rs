//! Floats as scaled decimal integers: `value == integer / (10^exponent / 2^shift)`, bit for bit.
//!
//! Invariant: an integer is returned only when the inverse returns the very same bits. Division by a power of
//! ten up to 10^14 rounds once, as parsing the decimal text does, so every short decimal passes.
//! Not here: coding of values that do not fit (`values`).

/// Largest decimal exponent.
pub(super) const EXPONENT_MAX: u8 = 14;
/// Largest common power of two: integers have no more bits.
pub(super) const SHIFT_MAX: u8 = 51;
/// Stands for a value that does not fit; beyond all integers that fit.
pub(super) const MISFIT: i64 = i64::MIN;

const POWERS: [f64; EXPONENT_MAX as usize + 1] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14];
/// Integers are between plus and minus this.
const LIMIT: f64 = (1u64 << 51) as f64;
/// 1.5 * 2^52: added to a float of the above range it leaves the nearest integer in the low bits, and taken
/// away again that integer as a float; both ways without a conversion instruction, so the loops vectorise.
const ROUNDER: f64 = 6_755_399_441_055_744.0;

/// Values that the choice of an exponent looks at first.
const SAMPLED_MAX: usize = 32;
/// Estimated bits of a value that does not fit.
const MISFIT_BITS: usize = 72;
/// Bits that one more decimal digit adds to every value, in tenths.
const DIGIT_TENTH_BITS: usize = 33;

/// The integer of `value` at 10^exponent, or [`MISFIT`]; and whether it fits.
fn integer(value: f64, power: f64) -> (i64, bool) {
    let scaled = value * power;
    let rounded = scaled + ROUNDER;
    let back = (rounded - ROUNDER) / power;
    let fits = (scaled.abs() < LIMIT) & (back.to_bits() == value.to_bits());
    let integer = rounded.to_bits().wrapping_sub(ROUNDER.to_bits()).cast_signed();
    (if fits { integer } else { MISFIT }, fits)
}

/// Replaces `out` with the integers of `values`; returns the number of values that do not fit.
pub(super) fn put_integers(values: &[f64], exponent: u8, out: &mut Vec<i64>) -> usize {
    let power = POWERS[usize::from(exponent)];
    out.clear();
    out.resize(values.len(), 0);
    let mut fit_count = 0u64;
    for (slot, &value) in out.iter_mut().zip(values) {
        let (integer, fits) = integer(value, power);
        *slot = integer;
        fit_count += u64::from(fits);
    }
    values.len() - fit_count as usize
}

/// Turns integers back: the decoder's inner loop.
pub(super) fn put_values(integers: &[i64], exponent: u8, shift: u8, out: &mut [f64]) {
    let scale = (1u64 << shift.min(SHIFT_MAX)) as f64;
    let float =
        |integer: i64| f64::from_bits(ROUNDER.to_bits().wrapping_add(integer.cast_unsigned())) - ROUNDER;
    if exponent == 0 {
        for (value, &integer) in out.iter_mut().zip(integers) {
            *value = float(integer) * scale;
        }
        return;
    }
    // Powers of two scale exactly, so one division does both.
    let divisor = POWERS[usize::from(exponent.min(EXPONENT_MAX))] / scale;
    for (value, &integer) in out.iter_mut().zip(integers) {
        *value = float(integer) / divisor;
    }
}

/// The exponent that suits `values` best, or none when most of them are no short decimals.
pub(super) fn exponent_of(values: &[f64]) -> Option<u8> {
    let sampled = values.len().min(SAMPLED_MAX);
    let mut needs = Needs::default();
    for idx in 0..sampled {
        needs.add(values[idx * values.len() / sampled]);
    }
    // The last value is the one most likely to differ: a marker, or the end of a climb.
    needs.add(values[values.len() - 1]);
    needs.best()
}

/// A second look at all values that do not fit `exponent`, for when they are more than in the sample.
pub(super) fn exponent_above(values: &[f64], integers: &[i64], exponent: u8) -> Option<u8> {
    let mut needs = Needs::default();
    for (&value, &integer) in values.iter().zip(integers) {
        if integer == MISFIT {
            needs.add(value);
        } else {
            needs.counts[usize::from(exponent)] += 1;
        }
    }
    needs.best()
}

/// Number of values by the exponent that they need at least; the last count is for those that fit none.
#[derive(Default)]
struct Needs {
    counts: [usize; EXPONENT_MAX as usize + 2],
}

impl Needs {
    /// Counts an ordinary value; markers, infinities and -0 fit no exponent and tell nothing about the
    /// others.
    fn add(&mut self, value: f64) {
        if !value.is_finite() || value.to_bits() == (-0.0f64).to_bits() {
            return;
        }
        let fitting = POWERS.iter().position(|&power| integer(value, power).1);
        self.counts[fitting.unwrap_or(POWERS.len())] += 1;
    }

    fn best(&self) -> Option<u8> {
        let total: usize = self.counts.iter().sum();
        let mut misfit_count = total;
        let mut best = (usize::MAX, 0u8, 0usize);
        for (exponent, &count) in (0..=EXPONENT_MAX).zip(&self.counts) {
            misfit_count -= count;
            let bits = misfit_count * MISFIT_BITS + total * usize::from(exponent) * DIGIT_TENTH_BITS / 10;
            if bits < best.0 {
                best = (bits, exponent, misfit_count);
            }
        }
        (2 * best.2 <= total).then_some(best.1)
    }
}
