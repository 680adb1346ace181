//! Reads decimal-delta chunks from untrusted bytes.
//!
//! Invariants: no read is outside of the bytes; bits missing at the end read as zeros and are an error before
//! the sample that they belong to is emitted; times ascend strictly. Nothing is allocated.

use chronolith_base::bytes::unzigzag;
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::{Columns, TimeRange};

use super::rice::{QUOTIENT_MAX, RiceParameter, WIDTH_BITS, WIDTH_MAX};
use super::scale::INTEGER_LIMIT;
use super::{DecimalDeltaState, HEADER_BYTES, Scale};

/// Bits that a word has at least: of 64, up to 7 have been read before.
const WORD_BITS: u32 = 57;
const WHAT: &str = "decimal-delta chunk";

/// Iterator over the samples of a chunk; it ends after the first error.
#[derive(Clone)]
pub struct Samples<'a> {
    bytes: &'a [u8],
    scale: Scale,
    /// Samples that the header counts, and those that were read.
    count: u16,
    read_count: u16,
    rice: RiceParameter,
    /// Bits that were read.
    bit_len: u32,
    t: i64,
    t_delta: u64,
    integer: i64,
}

impl<'a> Samples<'a> {
    /// Reads the header of `bytes`.
    ///
    /// # Errors
    /// [`DecodeError`] for fewer bytes than a header, and for an unknown scale or Rice parameter.
    pub fn new(bytes: &'a [u8]) -> Result<Samples<'a>, DecodeError> {
        let Some((&[high, low, scale, rice], _)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            let left = bytes.len();
            return Err(DecodeError::Short { what: WHAT, offset: 0, needed: HEADER_BYTES, left });
        };
        let invalid = |what, offset, found| {
            let expected = "a code of this version";
            DecodeError::Invalid { what, offset, expected, found: u64::from(found) }
        };
        Ok(Samples {
            bytes,
            scale: Scale::from_code(scale).ok_or(invalid("decimal-delta scale", 2, scale))?,
            count: u16::from_be_bytes([high, low]),
            read_count: 0,
            rice: RiceParameter::from_byte(rice).ok_or(invalid("Rice parameter", 3, rice))?,
            bit_len: 8 * HEADER_BYTES as u32,
            t: 0,
            t_delta: 0,
            integer: 0,
        })
    }

    /// State after the last sample that was read.
    pub(super) fn state(&self) -> DecimalDeltaState {
        let mut state = DecimalDeltaState::with_rice(self.scale, self.rice);
        state.0.bit_len = self.bit_len;
        state.0.count = self.read_count;
        state.0.t = self.t;
        state.0.t_delta = self.t_delta;
        state.0.value_bits = self.integer.cast_unsigned();
        state
    }

    // PERF: inlined into the loop of `decode`, and one load for time and value: 13.4 -> 8.6 ns per sample.
    //   cargo bench -p chronolith-format --bench decimal_delta_speed
    #[inline]
    fn read(&mut self) -> Result<(i64, f64), DecodeError> {
        let (time, integer) = match self.read_count {
            0 => self.read_first()?,
            1 => self.read_second()?,
            _ => self.read_tail()?,
        };
        if self.bit_len as usize > 8 * self.bytes.len() {
            return Err(self.short());
        }
        if self.read_count > 0 && time <= self.t {
            return Err(self.invalid("decimal-delta time", "a later time", time.cast_unsigned()));
        }
        if integer.unsigned_abs() >= INTEGER_LIMIT.unsigned_abs() {
            return Err(self.invalid("decimal-delta value", "at most 51 bits", integer.cast_unsigned()));
        }
        self.t = time;
        self.integer = integer;
        self.read_count += 1;
        Ok((time, self.scale.value_of(integer)))
    }

    #[cold]
    fn read_first(&mut self) -> Result<(i64, i64), DecodeError> {
        let mut reader = ByteReader::at(self.bytes, HEADER_BYTES);
        let time = unzigzag(reader.uvarint(WHAT)?);
        let integer = unzigzag(reader.uvarint(WHAT)?);
        self.bit_len = 8 * reader.offset() as u32;
        Ok((time, integer))
    }

    #[cold]
    fn read_second(&mut self) -> Result<(i64, i64), DecodeError> {
        let mut reader = ByteReader::at(self.bytes, (self.bit_len / 8) as usize);
        self.t_delta = reader.uvarint(WHAT)?;
        self.bit_len = 8 * reader.offset() as u32;
        Ok((self.next_time(), self.next_integer()?))
    }

    /// Third sample and later: one word holds both codes unless one of them is long.
    #[inline]
    fn read_tail(&mut self) -> Result<(i64, i64), DecodeError> {
        let word = self.word();
        let (dod, time_bits) = match word.leading_ones() {
            0 => (0, 1),
            1 => (field(word, 2, 6), 8),
            2 => (field(word, 3, 12), 15),
            3 => (field(word, 4, 20), 24),
            _ => {
                self.bit_len += 4;
                let dod = (self.read_bits(32) << 32 | self.read_bits(32)).cast_signed();
                self.t_delta = self.t_delta.wrapping_add_signed(dod);
                return Ok((self.next_time(), self.next_integer()?));
            }
        };
        self.t_delta = self.t_delta.wrapping_add_signed(dod);
        self.bit_len += time_bits;
        let code = word << time_bits;
        let low_bits = self.rice.low_bits();
        let quotient = code.leading_ones();
        let code_bits = quotient + 1 + low_bits;
        if quotient >= QUOTIENT_MAX || time_bits + code_bits > WORD_BITS {
            return Ok((self.next_time(), self.next_integer()?));
        }
        self.bit_len += code_bits;
        self.rice.adapt(quotient);
        Ok((self.next_time(), self.integer + unzigzag(short_code_value(code, quotient, low_bits))))
    }

    /// Appends samples in `range` up to the first one that is not before its end, has a long code, is near
    /// the end of the bytes, or is damaged; that one is not read.
    // PERF: a loop over local variables, several codes of one word, samples collected in arrays. Each sample
    // waits for the length of the one before; complemented bits that are shifted in place shorten that chain:
    // 6.9 -> 6.5 ns per sample, 5.3 -> 4.9 before the range (the loop of both alone).
    //   cargo bench -p chronolith-format --bench decimal_delta_speed
    fn read_short_codes(&mut self, range: TimeRange, out: &mut Columns) {
        let Samples { bytes, scale, count, mut rice, mut bit_len, mut t, mut t_delta, mut integer, .. } =
            *self;
        let mut read_count = self.read_count;
        let mut decoded = Decoded::new();
        'words: while read_count < count {
            let at = (bit_len / 8) as usize;
            let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) else { break };
            let mut rest = !u64::from_be_bytes(*word) << (bit_len % 8);
            let mut left_bits = WORD_BITS;
            decoded.make_room(scale, out);
            loop {
                let codes = ShortCodes::read(rest, rice).filter(|codes| codes.bits <= left_bits);
                let Some(codes) = codes else {
                    if left_bits == WORD_BITS {
                        break 'words;
                    }
                    break;
                };
                let next_delta = t_delta.wrapping_add_signed(codes.dod);
                let time = t.wrapping_add_unsigned(next_delta);
                let next = integer + codes.difference;
                let is_small = next.unsigned_abs() < INTEGER_LIMIT.unsigned_abs();
                let is_short = codes.quotient < QUOTIENT_MAX;
                if !(is_short & is_small & (time > t) & (time < range.end)) {
                    break 'words;
                }
                rice.adapt(codes.quotient);
                (t, t_delta, integer) = (time, next_delta, next);
                rest <<= codes.bits;
                left_bits -= codes.bits;
                bit_len += codes.bits;
                read_count += 1;
                decoded.push_if(time >= range.start, time, next);
                if CODE_BITS_MIN + rice.low_bits() > left_bits || read_count >= count {
                    break;
                }
            }
        }
        decoded.flush(scale, out);
        *self = Samples { bytes, scale, count, read_count, rice, bit_len, t, t_delta, integer };
    }

    fn next_time(&self) -> i64 {
        self.t.wrapping_add_unsigned(self.t_delta)
    }

    /// The next bits of the chunk from the top of a word, at least [`WORD_BITS`]; zeros after the end.
    #[inline]
    fn word(&self) -> u64 {
        let at = (self.bit_len / 8) as usize;
        let rest = self.bytes.get(at..).unwrap_or_default();
        let word =
            rest.first_chunk::<8>().map_or_else(|| word_of_tail(rest), |word| u64::from_be_bytes(*word));
        word << (self.bit_len % 8)
    }

    /// The next `count` bits, 1 to 56.
    fn read_bits(&mut self, count: u32) -> u64 {
        let bits = self.word() >> (u64::BITS - count);
        self.bit_len += count;
        bits
    }

    /// The integer whose code is next, of any length.
    #[cold]
    fn next_integer(&mut self) -> Result<i64, DecodeError> {
        let word = self.word();
        let (quotient, low_bits) = (word.leading_ones().min(QUOTIENT_MAX), self.rice.low_bits());
        self.rice.adapt(quotient);
        if quotient < QUOTIENT_MAX {
            self.bit_len += quotient + 1 + low_bits;
            return Ok(self.integer + unzigzag(short_code_value(word, quotient, low_bits)));
        }
        self.bit_len += QUOTIENT_MAX;
        let width = self.read_bits(WIDTH_BITS) as u32;
        if !(1..=WIDTH_MAX).contains(&width) {
            return Err(self.invalid("decimal-delta width", "1 to 53 bits", u64::from(width)));
        }
        // Both are below 2^53, so the sum cannot overflow; nor can it above.
        Ok(self.integer + unzigzag(self.read_bits(width)))
    }

    #[cold]
    fn short(&self) -> DecodeError {
        let (offset, needed) = (self.bytes.len(), (self.bit_len as usize).div_ceil(8) - self.bytes.len());
        DecodeError::Short { what: WHAT, offset, needed, left: 0 }
    }

    #[cold]
    fn invalid(&self, what: &'static str, expected: &'static str, found: u64) -> DecodeError {
        DecodeError::Invalid { what, offset: (self.bit_len / 8) as usize, expected, found }
    }
}

impl Iterator for Samples<'_> {
    type Item = Result<(i64, f64), DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.read_count >= self.count {
            return None;
        }
        let sample = self.read();
        if sample.is_err() {
            self.count = 0;
        }
        Some(sample)
    }
}

/// Bits of the shortest codes of a sample, besides the low bits: a time, and the end of the quotient.
const CODE_BITS_MIN: u32 = 2;

/// Codes of one sample at the top of a word of complemented bits: ones of a quotient are leading zeros, and
/// so are the bits after the end of the word.
struct ShortCodes {
    dod: i64,
    difference: i64,
    quotient: u32,
    /// Bits of both codes.
    bits: u32,
}

impl ShortCodes {
    /// `None` if the time has the longest code. The codes may be longer than the word has bits, and the
    /// quotient too large for a short code.
    // PERF: inlined into the loop over samples.
    #[inline(always)]
    fn read(complement: u64, rice: RiceParameter) -> Option<ShortCodes> {
        let (dod, time_bits) = if complement >> 63 == 1 { (0, 1) } else { time_field(!complement)? };
        let code = complement << time_bits;
        let low_bits = rice.low_bits();
        // The last bit, which no short code reaches, keeps the operand from being zero.
        let quotient = (code | 1).leading_zeros();
        let bits = time_bits + quotient + 1 + low_bits;
        let difference = unzigzag(short_code_value(!code, quotient.min(QUOTIENT_MAX), low_bits));
        Some(ShortCodes { dod, difference, quotient, bits })
    }
}

/// Delta of deltas at the top of a word, and the bits of its code, which is neither the shortest nor the
/// longest; `None` for the longest.
fn time_field(word: u64) -> Option<(i64, u32)> {
    match word.leading_ones() {
        0 => Some((0, 1)),
        1 => Some((field(word, 2, 6), 8)),
        2 => Some((field(word, 3, 12), 15)),
        3 => Some((field(word, 4, 20), 24)),
        _ => None,
    }
}

/// Samples that are appended to columns together.
const DECODED_COUNT: usize = 64;
const _: () = assert!(DECODED_COUNT.is_power_of_two());
/// Samples whose codes one word can hold.
const WORD_SAMPLES_MAX: usize = (WORD_BITS / CODE_BITS_MIN) as usize;
const _: () = assert!(WORD_SAMPLES_MAX < DECODED_COUNT);

/// Samples on their way to columns.
struct Decoded {
    times: [i64; DECODED_COUNT],
    integers: [i64; DECODED_COUNT],
    len: usize,
}

impl Decoded {
    fn new() -> Decoded {
        Decoded { times: [0; DECODED_COUNT], integers: [0; DECODED_COUNT], len: 0 }
    }

    /// Leaves room for the samples of one word.
    fn make_room(&mut self, scale: Scale, out: &mut Columns) {
        if self.len > DECODED_COUNT - WORD_SAMPLES_MAX {
            self.flush(scale, out);
        }
    }

    /// Adds a sample if it is wanted; there must be room.
    // PERF: inlined into the loop over samples, without a branch.
    #[inline(always)]
    fn push_if(&mut self, is_wanted: bool, time: i64, integer: i64) {
        let at = self.len % DECODED_COUNT;
        self.times[at] = time;
        self.integers[at] = integer;
        self.len += usize::from(is_wanted);
    }

    fn flush(&mut self, scale: Scale, out: &mut Columns) {
        let len = self.len.min(DECODED_COUNT);
        out.times.extend_from_slice(&self.times[..len]);
        out.values.extend(self.integers[..len].iter().map(|&integer| scale.value_of(integer)));
        self.len = 0;
    }
}

/// `width` bits of a word after its first `prefix_bits`, as a signed number.
fn field(word: u64, prefix_bits: u32, width: u32) -> i64 {
    (word << prefix_bits).cast_signed() >> (u64::BITS - width)
}

/// Value of the code at the top of `word`: `quotient` ones, a zero, `low_bits` below 64.
fn short_code_value(word: u64, quotient: u32, low_bits: u32) -> u64 {
    // Two shifts right, as none by 64 is defined.
    u64::from(quotient) << low_bits | (word << (quotient + 1)) >> 1 >> (63 - low_bits)
}

/// Up to seven bytes at the end of a chunk, followed by zeros.
#[cold]
fn word_of_tail(tail: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(tail).for_each(|(to, from)| *to = *from);
    u64::from_be_bytes(bytes)
}

/// Appends the samples of `bytes` in `range` to `out`.
///
/// # Errors
/// [`DecodeError`] if the chunk ends early, has an unknown code, an integer beyond the limit, or times that
/// do not ascend; the samples before have been appended.
pub fn decode(bytes: &[u8], range: TimeRange, out: &mut Columns) -> Result<(), DecodeError> {
    let mut samples = Samples::new(bytes)?;
    while let Some(sample) = samples.next() {
        let (time, value) = sample?;
        if time >= range.end {
            break;
        }
        if time >= range.start {
            out.times.push(time);
            out.values.push(value);
        }
        if samples.read_count > 1 {
            samples.read_short_codes(range, out);
        }
    }
    Ok(())
}
