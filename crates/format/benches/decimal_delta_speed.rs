//! Bytes and nanoseconds per sample of decimal-delta chunks next to XOR chunks.
//!
//! `cargo bench -p chronolith-format --bench decimal_delta_speed`. `cargo test` runs one round over two
//! series per family.
//!
//! The families and clocks equal the benchmark's (`crates/bench/src/families.rs`). Every series is appended
//! as the head does it, chunk after chunk of 120 samples, once as XOR alone and once by the rule; every chunk
//! is decoded and compared bit for bit. Times are the best of several rounds of wall clock per series.

#[expect(dead_code, reason = "the benchmark uses the rest of the file")]
#[allow(unused_imports, reason = "tests of the file have no harness here")]
#[path = "../../bench/src/families.rs"]
#[rustfmt::skip]
mod families;

use chronolith_base::{Clock, SystemClock};
use chronolith_format::chunk::decimal_delta::{
    self, ENCODING_DECIMAL_DELTA, OpenState, convert, is_conversion_due, reencode,
};
use chronolith_format::chunk::xor::{self, CHUNK_BYTES_MAX, SAMPLE_BYTES_MAX, SAMPLES_PER_CHUNK, XorState};
use chronolith_model::{Columns, TimeRange};
use families::{ClockKind, Family};

/// Items of the benchmark's traffic that the families need.
mod traffic {
    pub(crate) const STEP_MS: i64 = 15_000;
    pub(crate) const POD_SERIES: usize = 500;

    /// SplitMix64.
    pub(crate) fn mix(n: u64) -> u64 {
        let mut z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Size of a measurement.
#[derive(Clone, Copy)]
struct Size {
    /// Series per family.
    series_count: usize,
    round_count: usize,
}

const MEASURED: Size = Size { series_count: 200, round_count: 15 };
const TESTED: Size = Size { series_count: 2, round_count: 1 };

const SAMPLES: usize = 20 * SAMPLES_PER_CHUNK;
const START_MS: i64 = 1_699_920_000_000;

/// Encoding and bytes of the chunks of one family, end to end.
#[derive(Default)]
struct Chunks {
    bytes: Vec<u8>,
    /// Encoding and end of each chunk.
    ends: Vec<(u8, usize)>,
    scratch: Columns,
    rewritten: Vec<u8>,
    misfit_count: usize,
}

impl Chunks {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.misfit_count = 0;
    }

    fn push(&mut self, buf: &[u8], state: &OpenState) {
        self.bytes.extend_from_slice(&buf[..state.byte_len()]);
        self.ends.push((state.encoding(), self.bytes.len()));
    }

    fn append_xor(&mut self, samples: &Columns) {
        let mut buf = [0; CHUNK_BYTES_MAX + SAMPLE_BYTES_MAX];
        let mut state = XorState::new();
        for (&time, &value) in samples.times.iter().zip(&samples.values) {
            state.append(&mut buf, time, value);
            if usize::from(state.count()) == SAMPLES_PER_CHUNK {
                self.push(&buf, &state.into());
                state = XorState::new();
            }
        }
    }

    fn append_by_rule(&mut self, samples: &Columns) {
        let mut buf = [0; CHUNK_BYTES_MAX + SAMPLE_BYTES_MAX];
        let mut state = OpenState::from(XorState::new());
        for (&time, &value) in samples.times.iter().zip(&samples.values) {
            if state.append_part(&mut buf, 0, time, value).is_err() {
                state = self.refit(&mut buf, &state, time, value);
            }
            if state.as_xor().is_some_and(|state| is_conversion_due(&state)) {
                state = self.convert(&mut buf, state);
            }
            if usize::from(state.count()) == SAMPLES_PER_CHUNK {
                buf[..2].copy_from_slice(&state.count().to_be_bytes());
                self.push(&buf, &state);
                state = state.next_chunk(value);
            }
        }
    }

    #[cold]
    fn refit(&mut self, buf: &mut [u8], state: &OpenState, time: i64, value: f64) -> OpenState {
        self.misfit_count += 1;
        self.scratch.clear();
        buf[..2].copy_from_slice(&state.count().to_be_bytes());
        let result = decimal_delta::decode(&buf[..state.byte_len()], TimeRange::ALL, &mut self.scratch);
        result.expect("own bytes decode");
        self.scratch.push(time, value);
        let state = reencode(&self.scratch.times, &self.scratch.values, &mut self.rewritten);
        buf[..self.rewritten.len()].copy_from_slice(&self.rewritten);
        state
    }

    #[cold]
    fn convert(&mut self, buf: &mut [u8], state: OpenState) -> OpenState {
        buf[..2].copy_from_slice(&state.count().to_be_bytes());
        let chunk = &buf[..state.byte_len()];
        let converted = convert(chunk, &mut self.scratch, &mut self.rewritten).expect("own bytes decode");
        let Some(converted) = converted else { return state };
        buf[..self.rewritten.len()].copy_from_slice(&self.rewritten);
        converted.into()
    }

    fn decode(&self, found: &mut Columns) {
        let mut start = 0;
        for &(encoding, end) in &self.ends {
            let bytes = &self.bytes[start..end];
            let result = match encoding {
                ENCODING_DECIMAL_DELTA => decimal_delta::decode(bytes, TimeRange::ALL, found),
                _ => xor::decode(bytes, TimeRange::ALL, found),
            };
            result.expect("own bytes decode");
            start = end;
        }
    }
}

/// Bytes, append and decode nanoseconds, each per sample; chunks that are decimal-delta, in percent.
#[derive(Default)]
struct Figures {
    bytes: f64,
    append_ns: f64,
    decode_ns: f64,
    decimal_percent: f64,
    misfit_count: usize,
}

fn measure(series: &[Columns], round_count: usize, append: fn(&mut Chunks, &Columns)) -> Figures {
    let clock = SystemClock::new();
    let (mut chunks, mut found) = (Chunks::default(), Columns::default());
    let mut sum = Figures::default();
    let (mut sample_count, mut chunk_count) = (0, 0);
    for samples in series {
        let (mut append_ns, mut decode_ns) = (u64::MAX, u64::MAX);
        for _ in 0..round_count {
            found.clear();
            chunks.clear();
            let start = clock.mono_ns();
            append(&mut chunks, samples);
            let appended = clock.mono_ns();
            chunks.decode(&mut found);
            append_ns = append_ns.min(appended - start);
            decode_ns = decode_ns.min(clock.mono_ns() - appended);
        }
        let count = samples.len() / SAMPLES_PER_CHUNK * SAMPLES_PER_CHUNK;
        assert_eq!(found.times, samples.times[..count], "times");
        let mut pairs = found.values.iter().zip(&samples.values);
        assert!(pairs.all(|(a, b)| a.to_bits() == b.to_bits()), "values, bit for bit");
        sample_count += count;
        chunk_count += chunks.ends.len();
        sum.bytes += chunks.bytes.len() as f64;
        sum.append_ns += append_ns as f64;
        sum.decode_ns += decode_ns as f64;
        sum.misfit_count += chunks.misfit_count;
        sum.decimal_percent += 100.0
            * chunks.ends.iter().filter(|(encoding, _)| *encoding == ENCODING_DECIMAL_DELTA).count() as f64;
    }
    sum.bytes /= sample_count as f64;
    sum.append_ns /= sample_count as f64;
    sum.decode_ns /= sample_count as f64;
    sum.decimal_percent /= chunk_count as f64;
    sum
}

fn main() {
    let is_measured = std::env::args().any(|argument| argument == "--bench");
    let size = if is_measured { MEASURED } else { TESTED };
    println!("bytes, append ns, decode ns per sample: XOR | by the rule | decimal-delta chunks, misfits");
    for clock in [ClockKind::Regular, ClockKind::Jittered] {
        println!("{} clock", clock.name());
        let mut mix = [0.0; 2];
        for family in Family::ALL {
            let columns = |series_idx| {
                let mut columns = Columns::default();
                let samples = families::samples(family, clock, series_idx, START_MS, SAMPLES);
                samples.into_iter().for_each(|(time, value)| columns.push(time, value));
                columns
            };
            let series: Vec<Columns> = (0..size.series_count).map(columns).collect();
            let xor = measure(&series, size.round_count, Chunks::append_xor);
            let ours = measure(&series, size.round_count, Chunks::append_by_rule);
            println!(
                "{:18} {:5.2} B {:4.1} {:4.1} | {:5.2} B {:4.1} {:4.1} | {:3.0} % {}",
                family.name(),
                xor.bytes,
                xor.append_ns,
                xor.decode_ns,
                ours.bytes,
                ours.append_ns,
                ours.decode_ns,
                ours.decimal_percent,
                ours.misfit_count,
            );
            let part = family.percent() as f64 / 100.0;
            mix = [mix[0] + part * xor.bytes, mix[1] + part * ours.bytes];
        }
        println!("mix                {:5.2} B | {:5.2} B", mix[0], mix[1]);
    }
}
