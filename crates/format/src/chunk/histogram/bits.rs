//! Bits of histogram chunks, most significant first: raw, in varbit classes, XORed with the value before.
//!
//! Invariant: the reader never reads beyond its bytes; running out of bits is an error.

use chronolith_base::DecodeError;

const WHAT: &str = "histogram chunk";
/// Marks "no window of significant bits yet".
const NO_WINDOW: u8 = 0xff;
/// More leading zeros than five bits can count.
const LEADING_MAX: u32 = 31;
/// Bits of a varbit number by the number of ones before it.
const VARBIT_WIDTHS: [u32; 9] = [0, 3, 6, 9, 12, 18, 25, 56, 64];

/// A float and the window of significant bits that its last change had.
#[derive(Debug, Clone, Copy)]
pub(super) struct XorTrack {
    pub(super) bits: u64,
    leading: u8,
    trailing: u8,
}

impl XorTrack {
    pub(super) fn new(bits: u64) -> XorTrack {
        XorTrack { bits, leading: NO_WINDOW, trailing: 0 }
    }
}

/// Appends bits to bytes; zeros follow in the last byte.
#[derive(Debug, Clone)]
pub(crate) struct BitWriter {
    pub(crate) bytes: Vec<u8>,
    /// Bits of the last byte that are not used yet.
    free: u32,
}

impl BitWriter {
    /// A writer that appends to whole bytes.
    pub(crate) fn after_bytes(bytes: Vec<u8>) -> BitWriter {
        BitWriter { bytes, free: 0 }
    }

    /// A writer that appends to the first `bit_len` bits of `bytes`.
    pub(super) fn resume(bytes: &[u8], bit_len: usize) -> BitWriter {
        let mut bytes = bytes.get(..bit_len.div_ceil(8)).unwrap_or(bytes).to_vec();
        let free = (8 * bytes.len() - bit_len) as u32;
        if let Some(last) = bytes.last_mut() {
            *last &= 0xff << free;
        }
        BitWriter { bytes, free }
    }

    /// Writes the low `count` (at most 64) bits of `value`.
    pub(crate) fn put(&mut self, value: u64, count: u32) {
        let mut left = count;
        if self.free > 0
            && left > 0
            && let Some(last) = self.bytes.last_mut()
        {
            let take = left.min(self.free);
            let part = (value >> (left - take)) as u8 & (0xff >> (8 - take));
            *last |= part << (self.free - take);
            self.free -= take;
            left -= take;
        }
        while left >= 8 {
            left -= 8;
            self.bytes.push((value >> left) as u8);
        }
        if left > 0 {
            self.bytes.push(((value << (8 - left)) & 0xff) as u8);
            self.free = 8 - left;
        }
    }

    /// Writes an unsigned LEB128 number, which need not begin at a byte.
    pub(crate) fn put_uvarint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.put(value & 0x7f | 0x80, 8);
            value >>= 7;
        }
        self.put(value, 8);
    }

    fn put_class(&mut self, class: usize, value: u64) {
        let ones = class as u32;
        match ones {
            8 => self.put(0xff, 8),
            _ => self.put((1 << (ones + 1)) - 2, ones + 1),
        }
        self.put(value, VARBIT_WIDTHS[class]);
    }

    /// Writes an unsigned number in the shortest class that holds it.
    pub(super) fn put_varbit_uint(&mut self, value: u64) {
        let bits = 64 - value.leading_zeros();
        let class = VARBIT_WIDTHS.iter().position(|&width| bits <= width).unwrap_or(8);
        self.put_class(class, value);
    }

    /// Writes a signed number: a class of n bits reaches from -(2^(n-1) - 1) to 2^(n-1).
    pub(crate) fn put_varbit_int(&mut self, value: i64) {
        let fits = |&width: &u32| match width {
            0 => value == 0,
            64 => true,
            width => (-((1i64 << (width - 1)) - 1)..=1i64 << (width - 1)).contains(&value),
        };
        let class = VARBIT_WIDTHS.iter().position(fits).unwrap_or(8);
        self.put_class(class, value.cast_unsigned());
    }

    /// Writes the change of a float since the value before.
    pub(super) fn put_xor(&mut self, track: &mut XorTrack, bits: u64) {
        let delta = bits ^ track.bits;
        track.bits = bits;
        if delta == 0 {
            self.put(0, 1);
            return;
        }
        let (leading, trailing) = (delta.leading_zeros().min(LEADING_MAX), delta.trailing_zeros());
        if track.leading != NO_WINDOW
            && leading >= u32::from(track.leading)
            && trailing >= u32::from(track.trailing)
        {
            self.put(0b10, 2);
            let significant = 64 - u32::from(track.leading) - u32::from(track.trailing);
            self.put(delta >> track.trailing, significant);
            return;
        }
        (track.leading, track.trailing) = (leading as u8, trailing as u8);
        let significant = 64 - leading - trailing;
        // A count of 64 does not fit six bits and is written as 0.
        self.put(0b11 << 11 | u64::from(leading) << 6 | u64::from(significant & 63), 13);
        self.put(delta >> trailing, significant);
    }
}

/// Reads bits through a 64-bit buffer whose upper `valid` bits are the next ones.
#[derive(Debug, Clone)]
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    next: usize,
    buffer: u64,
    valid: u32,
}

impl<'a> BitReader<'a> {
    /// Reads from byte `start` on.
    pub(super) fn new(bytes: &'a [u8], start: usize) -> BitReader<'a> {
        BitReader { bytes, next: start.min(bytes.len()), buffer: 0, valid: 0 }
    }

    /// Number of bits that were read, including those before the start.
    pub(super) fn bit_offset(&self) -> usize {
        self.next * 8 - self.valid as usize
    }

    /// Bits that are left.
    pub(super) fn bits_left(&self) -> usize {
        (self.bytes.len() - self.next) * 8 + self.valid as usize
    }

    fn refill(&mut self) {
        while self.valid <= 56
            && let Some(&byte) = self.bytes.get(self.next)
        {
            self.buffer |= u64::from(byte) << (56 - self.valid);
            self.next += 1;
            self.valid += 8;
        }
    }

    /// The next `count` bits, at most 64.
    pub(super) fn bits(&mut self, count: u32) -> Result<u64, DecodeError> {
        if count > 32 {
            let high = self.bits(count - 32)?;
            return Ok(high << 32 | self.bits(32)?);
        }
        if count == 0 {
            return Ok(0);
        }
        if self.valid < count {
            self.refill();
            if self.valid < count {
                return Err(self.short(count));
            }
        }
        let value = self.buffer >> (64 - count);
        self.buffer <<= count;
        self.valid -= count;
        Ok(value)
    }

    /// Unsigned LEB128 of at most 10 bytes.
    pub(super) fn uvarint(&mut self) -> Result<u64, DecodeError> {
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
        Err(self.invalid("varint of a histogram chunk", "at most 64 bits", value))
    }

    /// The class of a varbit number.
    fn class(&mut self) -> Result<u32, DecodeError> {
        if self.valid < 9 {
            self.refill();
        }
        let ones = (!self.buffer).leading_zeros().min(8);
        self.bits(if ones == 8 { 8 } else { ones + 1 })?;
        Ok(VARBIT_WIDTHS[ones as usize])
    }

    pub(super) fn varbit_uint(&mut self) -> Result<u64, DecodeError> {
        let width = self.class()?;
        self.bits(width)
    }

    pub(super) fn varbit_int(&mut self) -> Result<i64, DecodeError> {
        let width = self.class()?;
        let field = self.bits(width)?;
        // Classes below the last reach one further up than two's complement does.
        let wraps = (1..64).contains(&width) && field > 1 << (width - 1);
        Ok(if wraps { field.wrapping_sub(1 << width) } else { field }.cast_signed())
    }

    pub(super) fn xor(&mut self, track: &mut XorTrack) -> Result<(), DecodeError> {
        if self.bits(1)? == 0 {
            return Ok(());
        }
        if self.bits(1)? == 1 {
            let leading = self.bits(5)? as u8;
            let significant = match self.bits(6)? as u8 {
                0 => 64,
                other => other,
            };
            let Some(trailing) = 64u8.checked_sub(leading + significant) else {
                let expected = "at most 64 leading and significant bits";
                return Err(self.invalid(
                    "window of a histogram chunk",
                    expected,
                    u64::from(leading + significant),
                ));
            };
            (track.leading, track.trailing) = (leading, trailing);
        } else if track.leading == NO_WINDOW {
            // Prometheus's appender, resumed on a chunk without a window, uses all 64 bits.
            (track.leading, track.trailing) = (0, 0);
        }
        let significant = 64 - u32::from(track.leading) - u32::from(track.trailing);
        track.bits ^= self.bits(significant)? << track.trailing;
        Ok(())
    }

    #[cold]
    fn short(&self, count: u32) -> DecodeError {
        let left = self.bytes.len() - self.next;
        DecodeError::Short { what: WHAT, offset: self.next, needed: count.div_ceil(8) as usize, left }
    }

    #[cold]
    pub(super) fn invalid(&self, what: &'static str, expected: &'static str, found: u64) -> DecodeError {
        DecodeError::Invalid { what, offset: self.bit_offset() / 8, expected, found }
    }
}
