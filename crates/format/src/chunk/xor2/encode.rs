//! Writing XOR2 chunks.
//! Invariant: bit for bit what Prometheus's appender writes of the same samples.

use chronolith_base::bytes::zigzag;
use chronolith_model::sample::STALE_NAN_BITS;

use super::{FIRST_START_KNOWN, HEADER_BYTES};
use crate::chunk::histogram::bits::BitWriter;

/// The sample from which on start timestamps are written, whether they change or not: no later one fits the
/// header.
const START_FROM_MAX: usize = 0x7f;
/// Marks "no window of significant bits yet".
const NO_WINDOW: u8 = 0xff;
/// More leading zeros than five bits can count.
const LEADING_MAX: u32 = 31;

/// State that the next sample depends on.
struct Encoder {
    bits: BitWriter,
    time: i64,
    time_delta: u64,
    /// Bits of the last value that was no staleness marker.
    baseline: u64,
    leading: u8,
    trailing: u8,
    start_ms: i64,
    start_age: i64,
    /// Sample from which on start timestamps follow; 0 = none do.
    start_from: usize,
}

/// Appends one chunk with all samples to `out`. A start timestamp is unknown if it is 0, or if `start_times`
/// ends before its sample.
///
/// # Panics
/// If there is no sample or more than a u16 counts, or the lengths of times and values differ.
pub fn encode(times: &[i64], values: &[f64], start_times: &[i64], out: &mut Vec<u8>) {
    assert_eq!(times.len(), values.len(), "one value per time");
    let count = u16::try_from(times.len()).expect("the count is a u16");
    assert!(count > 0, "a chunk has a sample");
    let starts = start_times.iter().copied().chain(std::iter::repeat(0));
    let mut encoder = Encoder {
        bits: BitWriter::after_bytes(vec![0; HEADER_BYTES]),
        time: 0,
        time_delta: 0,
        baseline: 0,
        leading: NO_WINDOW,
        trailing: 0,
        start_ms: 0,
        start_age: 0,
        start_from: 0,
    };
    let first_known = start_times.first().is_some_and(|&start_ms| start_ms != 0);
    for (idx, ((&time, value), start_ms)) in times.iter().zip(values).zip(starts).enumerate() {
        encoder.put(idx, time, value.to_bits(), start_ms);
    }
    let [high, low] = count.to_be_bytes();
    let flags = if first_known { FIRST_START_KNOWN } else { 0 } | encoder.start_from as u8;
    let mut bytes = encoder.bits.bytes;
    bytes[..HEADER_BYTES].copy_from_slice(&[high, low, flags]);
    out.append(&mut bytes);
}

impl Encoder {
    fn put(&mut self, idx: usize, time: i64, value: u64, start_ms: i64) {
        let before = self.time;
        let time_delta = time.wrapping_sub(before).cast_unsigned();
        match idx {
            0 => {
                self.bits.put_uvarint(zigzag(time));
                self.bits.put(value, 64);
                if start_ms != 0 {
                    self.bits.put_uvarint(zigzag(time.wrapping_sub(start_ms)));
                }
                self.start_ms = start_ms;
            }
            1 => {
                self.bits.put_uvarint(time_delta);
                self.put_value(value);
            }
            _ => self.put_joint(time_delta.wrapping_sub(self.time_delta).cast_signed(), value),
        }
        if idx > 0 {
            self.put_start(idx, before, start_ms);
            self.time_delta = time_delta;
        }
        self.time = time;
        if value != STALE_NAN_BITS {
            self.baseline = value;
        }
    }

    fn put_start(&mut self, idx: usize, before: i64, start_ms: i64) {
        let age = before.wrapping_sub(start_ms);
        if self.start_from > 0 {
            self.bits.put_varbit_int(age.wrapping_sub(self.start_age));
        } else if start_ms != self.start_ms || idx == START_FROM_MAX {
            self.start_from = idx;
            self.bits.put_varbit_int(age);
        }
        (self.start_ms, self.start_age) = (start_ms, age);
    }

    /// Writes change of the time step and value of the third sample and later ones.
    fn put_joint(&mut self, change: i64, value: u64) {
        let delta = value ^ self.baseline;
        match change {
            0 if value == STALE_NAN_BITS => return self.bits.put(0b11111, 5),
            0 if delta == 0 => return self.bits.put(0, 1),
            0 => {
                self.bits.put(0b10, 2);
                return self.put_window(delta, [(0b0, 1), (0b1, 1)]);
            }
            -0x1000..=0xfff => self.bits.put(0b110 << 13 | change.cast_unsigned() & 0x1fff, 16),
            -0x8_0000..=0x7_ffff => self.bits.put(0b1110 << 20 | change.cast_unsigned() & 0xf_ffff, 24),
            _ => {
                self.bits.put(0b11110, 5);
                self.bits.put(change.cast_unsigned(), 64);
            }
        }
        self.put_value(value);
    }

    fn put_value(&mut self, value: u64) {
        match value ^ self.baseline {
            _ if value == STALE_NAN_BITS => self.bits.put(0b111, 3),
            0 => self.bits.put(0, 1),
            delta => self.put_window(delta, [(0b10, 2), (0b110, 3)]),
        }
    }

    /// Writes the significant bits after the prefix for the window before or for a new one.
    fn put_window(&mut self, delta: u64, prefixes: [(u64, u32); 2]) {
        let (leading, trailing) = (delta.leading_zeros().min(LEADING_MAX), delta.trailing_zeros());
        let [(same, same_len), (new, new_len)] = prefixes;
        let fits = self.leading != NO_WINDOW
            && leading >= u32::from(self.leading)
            && trailing >= u32::from(self.trailing);
        if fits {
            self.bits.put(same, same_len);
        } else {
            (self.leading, self.trailing) = (leading as u8, trailing as u8);
            self.bits.put(new, new_len);
            self.bits.put(u64::from(leading), 5);
            // A count of 64 does not fit six bits and is written as 0.
            self.bits.put(u64::from(64 - leading - trailing) & 63, 6);
        }
        let significant = 64 - u32::from(self.leading) - u32::from(self.trailing);
        self.bits.put(delta >> self.trailing, significant);
    }
}
