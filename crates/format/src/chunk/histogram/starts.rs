//! Chunks of histograms with start times: encodings 5 (integer counts) and 6 (float counts).
//!
//! Invariant: the bits of each sample equal its bits in a chunk without start times; start times stand
//! between samples, so that chunks of both kinds can be converted; Prometheus writes the same bytes for the
//! same samples.

use chronolith_base::DecodeError;
use chronolith_base::bytes::{unzigzag, zigzag};
use chronolith_model::{Columns, TimeRange};

use super::bits::{BitReader, BitWriter};
use super::counts::ChunkCount;
use super::decode::decode_plain;
use super::header::{ENCODING_FLOAT_HISTOGRAM, ENCODING_HISTOGRAM, HEADER_BYTES};
use super::state::State;
use crate::chunk::starts::{fill, runs_of};
use crate::chunk::xor::EncodedChunk;

/// Encoding byte of a chunk of histograms with integer counts and start times.
pub const ENCODING_HISTOGRAM_STARTS: u8 = 5;
/// Encoding byte of a chunk of histograms with float counts and start times.
pub const ENCODING_FLOAT_HISTOGRAM_STARTS: u8 = 6;

/// Bits of the first byte with the content of the third byte of other chunks; the other bits count samples.
const RESET_MASK: u8 = 0xc0;
/// Most samples in one chunk.
const SAMPLES_MAX: u16 = 0x3fff;
/// In the third byte: the first sample has a start time.
const FIRST_KNOWN: u8 = 0x80;
/// In the third byte: from which sample on start times follow; 0 = none do.
const FROM_MASK: u8 = 0x7f;

/// Returns the chunk with the start times of its samples; 0 or a missing one is unknown.
///
/// # Panics
/// If the chunk is none of histograms without start times, as it was encoded, or has more than 16383 samples.
#[must_use]
pub fn with_starts(chunk: &EncodedChunk, start_times: &[i64]) -> EncodedChunk {
    assert!(chunk.count <= SAMPLES_MAX, "the count has 14 bits");
    let (encoding, bytes) = match chunk.encoding {
        ENCODING_HISTOGRAM => (ENCODING_HISTOGRAM_STARTS, woven::<u64>(&chunk.bytes, start_times)),
        ENCODING_FLOAT_HISTOGRAM => {
            (ENCODING_FLOAT_HISTOGRAM_STARTS, woven::<f64>(&chunk.bytes, start_times))
        }
        other => panic!("encoding {other} is none of histograms without start times"),
    };
    let bytes = bytes.expect("an encoded chunk is readable");
    EncodedChunk { encoding, bytes, ..*chunk }
}

/// Appends the next `count` bits of `reader` to `out`.
fn copy_bits(reader: &mut BitReader<'_>, mut count: usize, out: &mut BitWriter) -> Result<(), DecodeError> {
    while count > 0 {
        let part = count.min(64) as u32;
        out.put(reader.bits(part)?, part);
        count -= part as usize;
    }
    Ok(())
}

/// Reads a sample without its start time and copies its bits to `out`.
fn copy_sample<C: ChunkCount>(
    reader: &mut BitReader<'_>,
    state: &mut Option<State<C>>,
    out: &mut BitWriter,
) -> Result<i64, DecodeError> {
    let mut copied = reader.clone();
    let time = match state {
        Some(state) => {
            state.get_next(reader)?;
            state.time
        }
        None => state.insert(State::get_first(reader)?).time,
    };
    let count = reader.bit_offset() - copied.bit_offset();
    copy_bits(&mut copied, count, out)?;
    Ok(time)
}

fn header(bytes: &[u8]) -> Result<[u8; HEADER_BYTES], DecodeError> {
    let (what, left) = ("histogram chunk", bytes.len());
    let short = DecodeError::Short { what, offset: 0, needed: HEADER_BYTES, left };
    bytes.first_chunk::<HEADER_BYTES>().copied().ok_or(short)
}

/// The bytes of a chunk with start times.
fn woven<C: ChunkCount>(bytes: &[u8], start_times: &[i64]) -> Result<Vec<u8>, DecodeError> {
    let [high, low, reset] = header(bytes)?;
    let mut reader = BitReader::new(bytes, HEADER_BYTES);
    let mut out = BitWriter::after_bytes(vec![high | reset & RESET_MASK, low, 0]);
    let (mut state, mut before) = (None, Written::default());
    let starts = start_times.iter().copied().chain(std::iter::repeat(0));
    for (idx, start_ms) in (0..u16::from_be_bytes([high, low])).zip(starts) {
        let time = copy_sample::<C>(&mut reader, &mut state, &mut out)?;
        before.put(idx, time, start_ms, &mut out);
    }
    let first_known = start_times.first().is_some_and(|&start_ms| start_ms != 0);
    let flags = if first_known { FIRST_KNOWN } else { 0 } | before.from as u8;
    if let Some(byte) = out.bytes.get_mut(HEADER_BYTES - 1) {
        *byte = flags;
    }
    Ok(out.bytes)
}

/// State of start times that the next sample depends on.
#[derive(Default)]
struct Written {
    time: i64,
    start_ms: i64,
    age: i64,
    /// Index of the first sample with a written start time.
    from: u16,
}

impl Written {
    fn put(&mut self, idx: u16, time: i64, start_ms: i64, out: &mut BitWriter) {
        let age = self.time.wrapping_sub(start_ms);
        if idx == 0 {
            if start_ms != 0 {
                out.put_uvarint(zigzag(time.wrapping_sub(start_ms)));
            }
        } else if self.from > 0 {
            out.put_varbit_int(age.wrapping_sub(self.age));
        } else if start_ms != self.start_ms || idx == u16::from(FROM_MASK) {
            self.from = idx;
            out.put_varbit_int(age);
        }
        (self.time, self.start_ms, self.age) = (time, start_ms, age);
    }
}

/// A chunk of another encoding without start times, and these.
struct Split {
    bytes: Vec<u8>,
    times: Vec<i64>,
    start_times: Vec<i64>,
}

fn split<C: ChunkCount>(bytes: &[u8]) -> Result<Split, DecodeError> {
    let [high, low, flags] = header(bytes)?;
    let (from, count_high) = (u16::from(flags & FROM_MASK), high & !RESET_MASK);
    let mut reader = BitReader::new(bytes, HEADER_BYTES);
    let mut out = BitWriter::after_bytes(vec![count_high, low, high & RESET_MASK]);
    let (mut state, mut before, mut start_ms, mut age) = (None, 0i64, 0i64, 0i64);
    let (mut times, mut start_times) = (Vec::new(), Vec::new());
    for idx in 0..u16::from_be_bytes([count_high, low]) {
        let time = copy_sample::<C>(&mut reader, &mut state, &mut out)?;
        if idx == 0 && flags & FIRST_KNOWN != 0 {
            start_ms = time.wrapping_sub(unzigzag(reader.uvarint()?));
        } else if from > 0 && idx >= from {
            let change = reader.varbit_int()?;
            age = if idx == from { change } else { age.wrapping_add(change) };
            start_ms = before.wrapping_sub(age);
        }
        times.push(time);
        start_times.push(start_ms);
        before = time;
    }
    Ok(Split { bytes: out.bytes, times, start_times })
}

/// Appends the samples of `bytes` in `range` to `out`, with their start times. Custom bounds are shared by
/// the histograms of the chunk; empty spans are folded into the next. Histograms finer than schema 8 are made
/// coarser.
///
/// # Errors
/// [`DecodeError`] for another encoding, if the stream ends early, if times do not ascend, or if a layout
/// cannot be; samples before have been appended.
pub fn decode(encoding: u8, bytes: &[u8], range: TimeRange, out: &mut Columns) -> Result<(), DecodeError> {
    let (encoding, split) = match encoding {
        ENCODING_HISTOGRAM_STARTS => (ENCODING_HISTOGRAM, split::<u64>(bytes)?),
        ENCODING_FLOAT_HISTOGRAM_STARTS => (ENCODING_FLOAT_HISTOGRAM, split::<f64>(bytes)?),
        other => return decode_plain(other, bytes, range, out),
    };
    let (first, mut runs) = (out.len(), Vec::new());
    let done = decode_plain(encoding, &split.bytes, range, out);
    runs_of(&split.times, &split.start_times, &mut runs);
    fill(&runs, first, out);
    done
}

#[cfg(test)]
mod tests;
