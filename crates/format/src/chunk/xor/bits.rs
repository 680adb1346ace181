//! Bits of an XOR or XOR2 chunk, most significant first: a writer over a slice and a reader with a 64-bit
//! buffer. Invariant: the reader never reads past its bytes; running out is an error.

use chronolith_base::DecodeError;

use super::{HEADER_BYTES, NO_WINDOW};

const WHAT: &str = "XOR chunk";

/// Writes the low `count` (at most 64) bits of `value` byte by byte; zeros follow in the last byte.
pub(crate) fn put_bits(buf: &mut [u8], bit_len: &mut u32, value: u64, count: u32) {
    let mut left = count;
    while left > 0 {
        let at = (*bit_len / 8) as usize;
        let used = *bit_len % 8;
        let take = left.min(8 - used);
        let part = (value >> (left - take)) as u8 & (0xff >> (8 - take));
        let kept = if used == 0 { 0 } else { buf[at] & !(0xff >> used) };
        buf[at] = kept | part << (8 - used - take);
        *bit_len += take;
        left -= take;
    }
}

/// As [`put_bits`] for up to 128 bits.
pub(crate) fn put_wide(buf: &mut [u8], bit_len: &mut u32, value: u128, count: u32) {
    if count > 64 {
        put_bits(buf, bit_len, (value >> 64) as u64, count - 64);
    }
    put_bits(buf, bit_len, value as u64, count.min(64));
}

/// Writes unsigned LEB128.
pub(crate) fn put_uvarint(buf: &mut [u8], bit_len: &mut u32, mut value: u64) {
    while value >= 0x80 {
        put_bits(buf, bit_len, value & 0x7f | 0x80, 8);
        value >>= 7;
    }
    put_bits(buf, bit_len, value, 8);
}

/// Reads bits through a 64-bit buffer whose upper `valid` bits are the next ones; the bits below are zeros
/// or bits of the bytes at `next`, which the next refill sets again to the same.
pub(crate) struct BitReader<'a> {
    bytes: &'a [u8],
    next: usize,
    buffer: u64,
    valid: u32,
}

impl<'a> BitReader<'a> {
    /// Reads the header; returns the reader after it and the sample count.
    pub(crate) fn new(bytes: &'a [u8]) -> Result<(BitReader<'a>, u16), DecodeError> {
        let Some((&header, _)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            let left = bytes.len();
            return Err(DecodeError::Short { what: WHAT, offset: 0, needed: HEADER_BYTES, left });
        };
        Ok((BitReader { bytes, next: HEADER_BYTES, buffer: 0, valid: 0 }, u16::from_be_bytes(header)))
    }

    /// A reader that starts after a header of `header_bytes`, which the caller has read.
    pub(crate) fn after_header(bytes: &'a [u8], header_bytes: usize) -> BitReader<'a> {
        BitReader { bytes, next: header_bytes, buffer: 0, valid: 0 }
    }

    /// Number of bits that were read, including the header.
    pub(crate) fn bit_offset(&self) -> u32 {
        (self.next as u32) * 8 - self.valid
    }

    /// Afterwards at least 56 bits are valid, or all that are left.
    fn refill(&mut self) {
        if let Some(word) = self.bytes.get(self.next..).and_then(|rest| rest.first_chunk::<8>()) {
            // Valid stays below 64, so the shift is legal and at least 56 bits are valid afterwards.
            self.buffer |= u64::from_be_bytes(*word) >> self.valid;
            self.next += ((63 - self.valid) / 8) as usize;
            self.valid |= 56;
            return;
        }
        while self.valid <= 55
            && let Some(&byte) = self.bytes.get(self.next)
        {
            // The buffer may hold these very bits already: a refill by word sets more than it counts.
            self.buffer |= u64::from(byte) << (56 - self.valid);
            self.next += 1;
            self.valid += 8;
        }
    }

    fn consume(&mut self, count: u32) -> Result<(), DecodeError> {
        if count > self.valid {
            return Err(self.short(count));
        }
        self.buffer <<= count;
        self.valid -= count;
        Ok(())
    }

    /// The next `count` bits, 1 to 56.
    pub(crate) fn bits(&mut self, count: u32) -> Result<u64, DecodeError> {
        debug_assert!((1..=56).contains(&count), "a refill gives 56 bits");
        if self.valid < count {
            self.refill();
        }
        let value = self.buffer >> (64 - count);
        self.consume(count)?;
        Ok(value)
    }

    /// The next 64 bits.
    pub(crate) fn bits64(&mut self) -> Result<u64, DecodeError> {
        Ok(self.bits(32)? << 32 | self.bits(32)?)
    }

    /// Unsigned LEB128 of at most 10 bytes.
    pub(crate) fn uvarint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.bits(8)?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= (byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.invalid("XOR chunk varint", "at most 64 bits", value))
    }

    /// Change of the time step since the last sample.
    pub(crate) fn delta_of_delta(&mut self) -> Result<i64, DecodeError> {
        if self.valid < 24 {
            self.refill();
        }
        let width = match (!self.buffer).leading_zeros() {
            0 => {
                self.consume(1)?;
                return Ok(0);
            }
            1 => 14,
            2 => 17,
            3 => 20,
            _ => {
                self.consume(4)?;
                return Ok(self.bits64()?.cast_signed());
            }
        };
        // Prefixes are 2, 3 and 4 bits for 14, 17 and 20.
        let prefix = (width - 8) / 3;
        let field = (self.buffer << prefix) >> (64 - width);
        self.consume(prefix + width)?;
        // The largest value of the field is positive, unlike in two's complement: the range is
        // [-(2^(width-1) - 1), 2^(width-1)].
        let field = field.cast_signed();
        Ok(if field > 1 << (width - 1) { field - (1 << width) } else { field })
    }

    /// XOR of this value and the last.
    pub(crate) fn value_delta(&mut self, leading: &mut u8, trailing: &mut u8) -> Result<u64, DecodeError> {
        if self.valid < 13 {
            self.refill();
        }
        if self.buffer >> 63 == 0 {
            self.consume(1)?;
            return Ok(0);
        }
        if self.buffer >> 62 & 1 == 1 {
            let window_leading = (self.buffer >> 57 & 31) as u8;
            let significant = match (self.buffer >> 51 & 63) as u8 {
                0 => 64,
                other => other,
            };
            self.consume(13)?;
            let Some(window_trailing) = 64u8.checked_sub(window_leading + significant) else {
                return Err(self.invalid(
                    "XOR chunk window",
                    "at most 64 leading and significant bits",
                    u64::from(window_leading + significant),
                ));
            };
            (*leading, *trailing) = (window_leading, window_trailing);
        } else {
            self.consume(2)?;
            if *leading == NO_WINDOW {
                // Prometheus's appender, resumed on a chunk without a window, uses all 64 bits.
                (*leading, *trailing) = (0, 0);
            }
        }
        let significant = 64 - u32::from(*leading) - u32::from(*trailing);
        let field = if significant > 56 {
            let high = self.bits(significant - 32)?;
            high << 32 | self.bits(32)?
        } else {
            self.bits(significant)?
        };
        Ok(field << *trailing)
    }

    #[cold]
    fn short(&self, count: u32) -> DecodeError {
        let left = self.bytes.len().saturating_sub(self.next);
        DecodeError::Short { what: WHAT, offset: self.next, needed: count.div_ceil(8) as usize, left }
    }

    #[cold]
    pub(crate) fn invalid(&self, what: &'static str, expected: &'static str, found: u64) -> DecodeError {
        DecodeError::Invalid { what, offset: (self.bit_offset() / 8) as usize, expected, found }
    }
}
