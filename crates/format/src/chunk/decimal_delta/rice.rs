//! Adaptive Golomb-Rice code of value differences: a quotient in unary, then a fixed number of low bits that
//! follows the size of the differences seen so far.
//!
//! Invariants: encoder and decoder adapt by the same function of the quotient alone; a code has at most
//! [`CODE_BITS_MAX`] bits, and all but the escape at most 52.

use chronolith_base::bytes::zigzag;

/// Bits of the longest code: the escape, 6 bits of width, and the zig-zag difference of two integers below
/// 2^51.
pub(super) const CODE_BITS_MAX: u32 = QUOTIENT_MAX + WIDTH_BITS + WIDTH_MAX;
/// Number of ones in a quotient that stands for the escape.
pub(super) const QUOTIENT_MAX: u32 = 12;
/// Bits of the width after the escape.
pub(super) const WIDTH_BITS: u32 = 6;
/// Largest width after the escape.
pub(super) const WIDTH_MAX: u32 = 53;
/// Largest number of low bits.
const LOW_BITS_MAX: u8 = 40;
/// Fractions of a low bit in which the parameter moves.
const FRACTION_BITS: u8 = 2;
const PARAMETER_MAX: u8 = LOW_BITS_MAX << FRACTION_BITS;

/// Number of low bits of the next code, in quarters of a bit.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct RiceParameter(u8);

impl RiceParameter {
    pub(super) fn from_byte(byte: u8) -> Option<RiceParameter> {
        (byte <= PARAMETER_MAX).then_some(RiceParameter(byte))
    }

    pub(super) fn to_byte(self) -> u8 {
        self.0
    }

    /// The parameter for differences of this size.
    pub(super) fn of_differences(differences: impl Iterator<Item = i64>) -> RiceParameter {
        let (mut sum, mut count) = (0u64, 0u64);
        for difference in differences {
            sum = sum.saturating_add(zigzag(difference));
            count += 1;
        }
        let mean = sum / count.max(1);
        let low_bits = (u64::BITS - mean.leading_zeros()).saturating_sub(1) as u8;
        RiceParameter(low_bits.min(LOW_BITS_MAX) << FRACTION_BITS)
    }

    /// The parameter of a state in memory, which [`RiceParameter::to_byte`] gave; larger bytes are clamped.
    pub(super) fn of_byte(byte: u8) -> RiceParameter {
        RiceParameter(byte.min(PARAMETER_MAX))
    }

    pub(super) fn low_bits(self) -> u32 {
        u32::from(self.0 >> FRACTION_BITS)
    }

    /// Adapts to a code with this quotient, at most [`QUOTIENT_MAX`].
    // PERF: without branches, since the quotients of noisy values are random.
    //   cargo bench -p chronolith-format --bench decimal_delta_speed
    pub(super) fn adapt(&mut self, quotient: u32) {
        let parameter = i32::from(self.0) + (quotient / 2).cast_signed() - i32::from(quotient == 0);
        self.0 = parameter.clamp(0, i32::from(PARAMETER_MAX)) as u8;
    }

    /// The code of `difference`, right-aligned, and its length in bits; adapts. None, and no change, if only
    /// the escape can hold it.
    // PERF: inlined, which the note at `append_part` measures.
    #[inline]
    pub(super) fn short_code(&mut self, difference: i64) -> Option<(u64, u32)> {
        let folded = zigzag(difference);
        let low_bits = self.low_bits();
        let quotient = folded >> low_bits;
        if quotient >= u64::from(QUOTIENT_MAX) {
            return None;
        }
        self.adapt(quotient as u32);
        let ones = (1u64 << quotient) - 1;
        let low = folded & ((1 << low_bits) - 1);
        Some((ones << (low_bits + 1) | low, quotient as u32 + 1 + low_bits))
    }

    /// As [`RiceParameter::short_code`] for any difference.
    pub(super) fn code(&mut self, difference: i64) -> (u128, u32) {
        if let Some((code, code_bits)) = self.short_code(difference) {
            return (u128::from(code), code_bits);
        }
        self.adapt(QUOTIENT_MAX);
        let folded = zigzag(difference);
        let width = u64::BITS - folded.leading_zeros();
        let prefix = ((1u64 << QUOTIENT_MAX) - 1) << WIDTH_BITS | u64::from(width);
        (u128::from(prefix) << width | u128::from(folded), QUOTIENT_MAX + WIDTH_BITS + width)
    }
}
