//! Prometheus's XOR float chunk (encoding 1), bit for bit: append, resume, decode.
//!
//! Invariant: any `f64` bits and any strictly ascending `i64` times round-trip; the decoder takes untrusted
//! bytes and reads exactly as many samples as the header counts.
//! Not here: end of a chunk (`head`), chunk files (`chunks`, `sealed`).

pub(crate) mod bits;

use std::ops::ControlFlow;

use bits::{BitReader, put_bits, put_uvarint, put_wide};
use chronolith_base::bytes::{unzigzag, zigzag};
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::{Columns, TimeRange};

/// Encoding byte of an XOR chunk in Prometheus's files.
pub const ENCODING_XOR: u8 = 1;
/// Samples in a chunk, as Prometheus cuts them.
pub const SAMPLES_PER_CHUNK: usize = 120;
/// Bytes of the header: big-endian u16 count.
pub const HEADER_BYTES: usize = 2;
/// No sample adds more bytes than this (the second one is the longest: 10 bytes of delta, 77 bits of value).
pub const SAMPLE_BYTES_MAX: usize = 20;
/// No chunk of [`SAMPLES_PER_CHUNK`] samples is longer.
pub const CHUNK_BYTES_MAX: usize = HEADER_BYTES + SAMPLES_PER_CHUNK * SAMPLE_BYTES_MAX;

/// Bytes of a stored [`XorState`].
pub const STATE_BYTES: usize = 32;

/// Marks "no window of significant bits yet".
const NO_WINDOW: u8 = 0xff;
/// More leading zeros than five bits can count.
const LEADING_MAX: u8 = 31;

/// A finished chunk with what readers must know without decoding it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedChunk {
    /// Encoding byte.
    pub encoding: u8,
    /// Time of the first sample.
    pub min_time: i64,
    /// Time of the last sample.
    pub max_time: i64,
    /// Samples.
    pub count: u16,
    /// Chunk data: big-endian u16 count, then the bit stream.
    pub bytes: Vec<u8>,
}

/// State of an open chunk: all that the next append needs besides the chunk's last byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XorState {
    pub(crate) t: i64,
    pub(crate) value_bits: u64,
    pub(crate) t_delta: u64,
    pub(crate) bit_len: u32,
    pub(crate) count: u16,
    pub(crate) leading: u8,
    pub(crate) trailing: u8,
}

impl XorState {
    /// A chunk without samples; it has no bytes yet.
    #[must_use]
    pub const fn new() -> XorState {
        XorState { t: 0, value_bits: 0, t_delta: 0, bit_len: 0, count: 0, leading: NO_WINDOW, trailing: 0 }
    }

    /// A finished chunk of which only the last sample matters; nothing may be appended.
    #[must_use]
    pub const fn ended(time: i64, value_bits: u64) -> XorState {
        XorState { t: time, value_bits, count: 1, ..XorState::new() }
    }

    /// The state as stored in a checkpoint slice.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; STATE_BYTES] {
        let mut out = [0; STATE_BYTES];
        out[..8].copy_from_slice(&self.t.to_le_bytes());
        out[8..16].copy_from_slice(&self.value_bits.to_le_bytes());
        out[16..24].copy_from_slice(&self.t_delta.to_le_bytes());
        out[24..28].copy_from_slice(&self.bit_len.to_le_bytes());
        out[28..30].copy_from_slice(&self.count.to_le_bytes());
        (out[30], out[31]) = (self.leading, self.trailing);
        out
    }

    /// Reads what [`XorState::to_bytes`] wrote: a chunk with samples that can go on.
    ///
    /// # Errors
    /// [`DecodeError`] for a state that no chunk has.
    pub fn from_bytes(bytes: &[u8]) -> Result<XorState, DecodeError> {
        let state = XorState::from_bytes_unchecked(bytes)?;
        let len_fits = state.byte_len() > HEADER_BYTES && state.byte_len() <= CHUNK_BYTES_MAX;
        let count_fits = (1..=SAMPLES_PER_CHUNK).contains(&usize::from(state.count));
        let window_fits = if state.leading == NO_WINDOW {
            state.trailing == 0
        } else {
            state.leading <= LEADING_MAX && state.leading + (state.trailing & 63) < 64 && state.trailing < 64
        };
        if len_fits && count_fits && window_fits {
            return Ok(state);
        }
        let (what, expected) = ("chunk state", "the state of an open chunk");
        Err(DecodeError::Invalid { what, offset: 0, expected, found: u64::from(state.bit_len) })
    }

    /// The fields of a stored state, whatever their values.
    pub(crate) fn from_bytes_unchecked(bytes: &[u8]) -> Result<XorState, DecodeError> {
        let mut reader = ByteReader::new(bytes);
        Ok(XorState {
            t: reader.le_u64("chunk state")?.cast_signed(),
            value_bits: reader.le_u64("chunk state")?,
            t_delta: reader.le_u64("chunk state")?,
            bit_len: reader.le_u32("chunk state")?,
            count: reader.le_u16("chunk state")?,
            leading: reader.u8("chunk state")?,
            trailing: reader.u8("chunk state")?,
        })
    }

    /// Time of the last sample; 0 when there is none.
    #[must_use]
    pub fn time(&self) -> i64 {
        self.t
    }

    /// Bits of the last value.
    #[must_use]
    pub fn value_bits(&self) -> u64 {
        self.value_bits
    }

    /// Time between the last two samples; 0 when there are no two.
    #[must_use]
    pub fn step_ms(&self) -> i64 {
        self.t_delta.cast_signed()
    }

    /// Samples in the chunk.
    #[must_use]
    pub fn count(&self) -> u16 {
        self.count
    }

    /// Bytes in use, the header included.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        (self.bit_len as usize).div_ceil(8)
    }

    /// Length that the buffer must have for one more append. At most [`SAMPLE_BYTES_MAX`] over
    /// [`XorState::byte_len`], and the header for the first.
    #[must_use]
    pub fn byte_len_needed(&self) -> usize {
        self.byte_len().max(HEADER_BYTES) + SAMPLE_BYTES_MAX
    }

    /// Appends a sample to the chunk in `buf`, whose first [`XorState::byte_len`] bytes earlier appends
    /// wrote; bytes after them may have any content.
    ///
    /// # Panics
    /// If `buf` is shorter than [`XorState::byte_len_needed`] or the chunk has 65535 samples.
    pub fn append(&mut self, buf: &mut [u8], time: i64, value: f64) {
        self.append_part(buf, 0, time, value);
        buf[..HEADER_BYTES].copy_from_slice(&self.count.to_be_bytes());
    }

    /// As [`XorState::append`] where only the part of the chunk from byte `base` on is in `buf`, the last
    /// byte in use among it. The sample count in the header is not changed: the caller that joins the parts
    /// fills it in from [`XorState::count`].
    ///
    /// # Panics
    /// If `base` is not below [`XorState::byte_len`] (0 for the first sample), `buf` is shorter than
    /// [`XorState::byte_len_needed`] less `base`, or the chunk has 65535 samples.
    pub fn append_part(&mut self, buf: &mut [u8], base: usize, time: i64, value: f64) {
        assert!(base == 0 || base < self.byte_len(), "the part has the last byte in use");
        assert!(base + buf.len() >= self.byte_len_needed(), "the buffer has room for one more sample");
        assert!(self.count < u16::MAX, "the count is a u16");
        let base_bits = 8 * base as u32;
        self.bit_len -= base_bits;
        let value_bits = value.to_bits();
        if self.count < 2 {
            self.append_head(buf, time, value_bits);
        } else {
            self.append_tail(buf, time, value_bits);
        }
        self.bit_len += base_bits;
        self.t = time;
        self.value_bits = value_bits;
        self.count += 1;
    }

    #[cold]
    fn append_head(&mut self, buf: &mut [u8], time: i64, value_bits: u64) {
        if self.count == 0 {
            self.bit_len = 8 * HEADER_BYTES as u32;
            put_uvarint(buf, &mut self.bit_len, zigzag(time));
            put_bits(buf, &mut self.bit_len, value_bits, 64);
            return;
        }
        self.t_delta = time.wrapping_sub(self.t).cast_unsigned();
        put_uvarint(buf, &mut self.bit_len, self.t_delta);
        let (field, field_bits) = self.value_field(value_bits);
        put_wide(buf, &mut self.bit_len, field, field_bits);
    }

    /// Appends the third sample and later ones: time and value make one field of up to 101 bits after the
    /// bits in use, which two words hold; only a delta of deltas beyond 20 bits takes the long way.
    fn append_tail(&mut self, buf: &mut [u8], time: i64, value_bits: u64) {
        let t_delta = time.wrapping_sub(self.t).cast_unsigned();
        let dod = t_delta.wrapping_sub(self.t_delta).cast_signed();
        self.t_delta = t_delta;
        let (value_field, value_field_bits) = self.value_field(value_bits);
        let (time_field, time_bits) = match dod {
            0 => (0, 1),
            -8191..=8192 => (0b10 << 14 | low_bits(dod, 14), 16),
            -65535..=65536 => (0b110 << 17 | low_bits(dod, 17), 20),
            -524_287..=524_288 => (0b1110 << 20 | low_bits(dod, 20), 24),
            _ => {
                put_bits(buf, &mut self.bit_len, 0b1111, 4);
                put_bits(buf, &mut self.bit_len, dod.cast_unsigned(), 64);
                put_wide(buf, &mut self.bit_len, value_field, value_field_bits);
                return;
            }
        };
        let field = u128::from(time_field) << value_field_bits | value_field;
        put_field(buf, &mut self.bit_len, field, time_bits + value_field_bits);
    }

    /// The bits that encode `value_bits`, and their number; at most 77.
    fn value_field(&mut self, value_bits: u64) -> (u128, u32) {
        let delta = value_bits ^ self.value_bits;
        if delta == 0 {
            return (0, 1);
        }
        let leading = (delta.leading_zeros() as u8).min(LEADING_MAX);
        let trailing = delta.trailing_zeros() as u8;
        if self.leading != NO_WINDOW && leading >= self.leading && trailing >= self.trailing {
            let significant = 64 - u32::from(self.leading) - u32::from(self.trailing);
            return (0b10 << significant | u128::from(delta >> self.trailing), 2 + significant);
        }
        (self.leading, self.trailing) = (leading, trailing);
        let significant = 64 - u32::from(leading) - u32::from(trailing);
        let window = 0b11 << 11 | u128::from(leading) << 6 | u128::from(significant & 63);
        (window << significant | u128::from(delta >> trailing), 13 + significant)
    }

    /// The state after the samples of `bytes`, which must be a whole chunk and nothing else.
    ///
    /// # Errors
    /// [`DecodeError`] as [`decode`], and for bytes after the last sample.
    pub fn resume(bytes: &[u8]) -> Result<XorState, DecodeError> {
        let state = walk(bytes, |_, _| ControlFlow::Continue(()))?;
        let len = state.byte_len().max(HEADER_BYTES);
        if bytes.len() != len {
            let expected = "the end of the chunk";
            let found = bytes.len() as u64;
            return Err(DecodeError::Invalid { what: "XOR chunk", offset: len, expected, found });
        }
        Ok(state)
    }
}

impl Default for XorState {
    fn default() -> Self {
        XorState::new()
    }
}

fn low_bits(value: i64, count: u32) -> u64 {
    value.cast_unsigned() & ((1 << count) - 1)
}

/// Writes the low `count` (at most 101) bits of `field`: sixteen bytes at once, of which those after the
/// field are zeros that the next append writes over.
fn put_field(buf: &mut [u8], bit_len: &mut u32, field: u128, count: u32) {
    let at = (*bit_len / 8) as usize;
    let used = *bit_len % 8;
    debug_assert!(used + count <= 128, "the field fits the two words");
    let kept = if used == 0 { 0 } else { buf[at] & !(0xff >> used) };
    let words = u128::from(kept) << 120 | field << (128 - used - count);
    buf[at..at + 16].copy_from_slice(&words.to_be_bytes());
    *bit_len += count;
}

/// Appends the samples of `bytes` in `range` to `out`.
///
/// # Errors
/// [`DecodeError`] when the stream ends early or its times do not ascend; samples before have been appended.
pub fn decode(bytes: &[u8], range: TimeRange, out: &mut Columns) -> Result<(), DecodeError> {
    walk(bytes, |time, value_bits| {
        if time >= range.end {
            return ControlFlow::Break(());
        }
        if time >= range.start {
            out.times.push(time);
            out.values.push(f64::from_bits(value_bits));
        }
        ControlFlow::Continue(())
    })?;
    Ok(())
}

/// Time of the first sample.
///
/// # Errors
/// [`DecodeError`], also for a chunk without samples.
pub fn first_time(bytes: &[u8]) -> Result<i64, DecodeError> {
    let state = walk(bytes, |_, _| ControlFlow::Break(()))?;
    if state.count == 0 {
        let (what, expected) = ("XOR chunk", "a sample");
        return Err(DecodeError::Invalid { what, offset: 0, expected, found: 0 });
    }
    Ok(state.t)
}

/// Calls `visit` with every sample until it breaks; returns the state after the last one visited.
fn walk(bytes: &[u8], mut visit: impl FnMut(i64, u64) -> ControlFlow<()>) -> Result<XorState, DecodeError> {
    let (mut reader, count) = BitReader::new(bytes)?;
    let mut state = XorState::new();
    for sample_idx in 0..count {
        let time = match sample_idx {
            0 => unzigzag(reader.uvarint()?),
            1 => {
                state.t_delta = reader.uvarint()?;
                state.t.wrapping_add_unsigned(state.t_delta)
            }
            _ => {
                let dod = reader.delta_of_delta()?;
                state.t_delta = state.t_delta.wrapping_add_signed(dod);
                state.t.wrapping_add_unsigned(state.t_delta)
            }
        };
        if sample_idx == 0 {
            state.value_bits = reader.bits64()?;
        } else if time <= state.t {
            return Err(reader.invalid(
                "XOR chunk time",
                "a time after the one before",
                time.cast_unsigned(),
            ));
        } else {
            state.value_bits ^= reader.value_delta(&mut state.leading, &mut state.trailing)?;
        }
        state.t = time;
        state.count = sample_idx + 1;
        if visit(time, state.value_bits).is_break() {
            break;
        }
    }
    state.bit_len = reader.bit_offset();
    Ok(state)
}

/// Encodes ascending samples into chunks of at most [`SAMPLES_PER_CHUNK`].
///
/// # Panics
/// If times do not ascend strictly or the lengths differ.
#[must_use]
pub fn encode(times: &[i64], values: &[f64]) -> Vec<EncodedChunk> {
    assert_eq!(times.len(), values.len(), "one value per time");
    assert!(times.is_sorted_by(|a, b| a < b), "times ascend strictly");
    let mut buf = [0u8; CHUNK_BYTES_MAX];
    let mut out = Vec::with_capacity(times.len().div_ceil(SAMPLES_PER_CHUNK));
    for (times, values) in times.chunks(SAMPLES_PER_CHUNK).zip(values.chunks(SAMPLES_PER_CHUNK)) {
        let mut state = XorState::new();
        for (&time, &value) in times.iter().zip(values) {
            state.append(&mut buf, time, value);
        }
        out.push(EncodedChunk {
            encoding: ENCODING_XOR,
            min_time: times[0],
            max_time: state.time(),
            count: state.count(),
            bytes: buf[..state.byte_len()].to_vec(),
        });
    }
    out
}

/// Encodes ascending samples as one chunk, however many they are.
///
/// # Panics
/// As [`encode`], and beyond 65535 samples.
#[must_use]
pub fn encode_whole(times: &[i64], values: &[f64]) -> Vec<u8> {
    assert_eq!(times.len(), values.len(), "one value per time");
    assert!(times.is_sorted_by(|a, b| a < b), "times ascend strictly");
    let mut state = XorState::new();
    let mut buf = vec![0; HEADER_BYTES + SAMPLE_BYTES_MAX * (times.len() + 1)];
    for (&time, &value) in times.iter().zip(values) {
        state.append(&mut buf, time, value);
    }
    buf.truncate(state.byte_len());
    buf.shrink_to_fit();
    buf
}

#[cfg(test)]
mod tests;
