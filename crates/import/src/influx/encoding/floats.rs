//! Floats of a block: XOR with the value before, as in Facebook's Gorilla, ended by a NaN of its own.
//!
//! A value is one bit 0 (equal to the one before), bits 10 and the meaningful bits of the XOR at the borders
//! of the last one, or bits 11, five bits of leading zeros, six bits of length (0 = 64) and those bits.

use chronolith_base::DecodeError;

use super::bits::BitReader;
use crate::influx::fault::invalid;

/// Upper half of the first byte.
const GORILLA: u8 = 1;
/// Bits of the NaN after the last value.
const END: u64 = 0x7ff8_0000_0000_0001;

/// Appends the floats in `bytes`, at most `count`, to `out`.
pub(super) fn decode(bytes: &[u8], count: usize, out: &mut Vec<f64>) -> Result<(), DecodeError> {
    let Some((header, coded)) = bytes.split_first() else {
        let what = "encoding of floats";
        let offset = 0;
        return Err(DecodeError::Short { what, offset, needed: 1, left: 0 });
    };
    if header >> 4 != GORILLA {
        return Err(invalid("encoding of floats", 0, "1", u64::from(header >> 4)));
    }
    let mut bits = BitReader::new(coded);
    let short = |bits: &BitReader<'_>| {
        let offset = bits.byte_offset() + 1;
        DecodeError::Short { what: "float", offset, needed: 8, left: bytes.len().saturating_sub(offset) }
    };
    let Some(mut value) = bits.read(64) else { return Err(short(&bits)) };
    let mut window = Window { leading: 0, len: 64 };
    while value != END {
        if out.len() == count {
            return Err(invalid("floats", bits.byte_offset() + 1, "as many as times", count as u64 + 1));
        }
        out.push(f64::from_bits(value));
        let Some(xor) = window.read(&mut bits) else { return Err(short(&bits)) };
        value ^= xor;
    }
    Ok(())
}

/// Meaningful bits of the last XOR.
struct Window {
    leading: u32,
    len: u32,
}

impl Window {
    /// Reads the XOR of the next value; `None` beyond the end and for borders outside of 64 bits.
    fn read(&mut self, bits: &mut BitReader<'_>) -> Option<u64> {
        if bits.read(1)? == 0 {
            return Some(0);
        }
        if bits.read(1)? == 1 {
            let borders = bits.read(11)?;
            self.leading = (borders >> 6) as u32;
            self.len = match (borders & 0x3f) as u32 {
                0 => 64,
                len => len,
            };
        }
        let trailing = 64u32.checked_sub(self.leading + self.len)?;
        Some(bits.read(self.len)? << trailing)
    }
}
