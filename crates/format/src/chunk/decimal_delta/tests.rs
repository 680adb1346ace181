//! The codec against a bit-by-bit twin written from the format's description, against hostile bytes, and its
//! golden chunks.

use chronolith_base::Rng;
use chronolith_model::sample::STALE_NAN_BITS;
use chronolith_model::{Columns, TimeRange};

use super::*;
use crate::chunk::xor::{self, CHUNK_BYTES_MAX};

const EVERYTHING: TimeRange = TimeRange { start: i64::MIN, end: i64::MAX };

/// Bits as a list: slow, and obviously right.
#[derive(Default)]
struct Twin {
    bits: Vec<bool>,
}

impl Twin {
    fn put(&mut self, value: u64, count: u32) {
        self.bits.extend((0..count).rev().map(|i| value >> i & 1 == 1));
    }

    fn put_uvarint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.put(value & 0x7f | 0x80, 8);
            value >>= 7;
        }
        self.put(value, 8);
    }

    fn put_value(&mut self, difference: i64, parameter: &mut u64) {
        let folded = ((difference << 1) ^ (difference >> 63)) as u64;
        let low_bits = *parameter / 4;
        let quotient = (folded >> low_bits).min(12);
        (0..quotient).for_each(|_| self.put(1, 1));
        if quotient < 12 {
            self.put(0, 1);
            self.put(folded, low_bits as u32);
        } else {
            let width = 64 - folded.leading_zeros();
            self.put(u64::from(width), 6);
            self.put(folded, width);
        }
        *parameter = match quotient {
            0 => parameter.saturating_sub(1),
            _ => (*parameter + quotient / 2).min(160),
        };
    }

    fn bytes(&self) -> Vec<u8> {
        self.bits
            .chunks(8)
            .map(|c| c.iter().enumerate().map(|(i, &b)| u8::from(b) << (7 - i)).sum())
            .collect()
    }
}

/// A chunk of integers at a scale.
fn twin_encode(scale: u8, parameter: u8, samples: &[(i64, i64)]) -> Vec<u8> {
    let mut out = Twin::default();
    out.put(samples.len() as u64, 16);
    out.put(u64::from(scale), 8);
    out.put(u64::from(parameter), 8);
    let mut parameter = u64::from(parameter);
    for (i, &(t, integer)) in samples.iter().enumerate() {
        let step = |i: usize| samples[i].0.wrapping_sub(samples[i - 1].0);
        match i {
            0 => {
                out.put_uvarint(((t << 1) ^ (t >> 63)) as u64);
                out.put_uvarint(((integer << 1) ^ (integer >> 63)) as u64);
                continue;
            }
            1 => out.put_uvarint(step(1) as u64),
            _ => {
                let dod = step(i).wrapping_sub(step(i - 1));
                let fits = |n: u32| -(1i64 << (n - 1)) <= dod && dod < 1 << (n - 1);
                match dod {
                    0 => out.put(0, 1),
                    _ if fits(6) => (out.put(0b10, 2), out.put(dod as u64, 6)).1,
                    _ if fits(12) => (out.put(0b110, 3), out.put(dod as u64, 12)).1,
                    _ if fits(20) => (out.put(0b1110, 4), out.put(dod as u64, 20)).1,
                    _ => (out.put(0b1111, 4), out.put(dod as u64, 64)).1,
                }
            }
        }
        out.put_value(integer - samples[i - 1].1, &mut parameter);
    }
    out.bytes()
}

/// Times and integers of mixed habits: steady, jittered or wild times; constant, noisy or wild integers.
fn random_samples(rng: &Rng, count: usize) -> Vec<(i64, i64)> {
    let (time_habit, value_habit) = (rng.below(5), rng.below(6));
    let limit = scale::INTEGER_LIMIT - 1;
    let any = || (rng.next_u64() as i64 >> (12 + rng.below(52))).clamp(-limit, limit);
    let mut time =
        if time_habit == 4 { i64::MIN + rng.below(9) as i64 } else { rng.next_u64() as i64 >> rng.below(64) };
    let mut integer = any();
    let mut out = Vec::new();
    for _ in 0..count {
        out.push((time, integer));
        let step = match time_habit {
            0 => 15_000,
            1 => 15_000 + rng.below(40) as i64,
            2 => 1 + (rng.next_u64() >> (44 + rng.below(20))) as i64,
            3 => 1 + (rng.next_u64() >> (8 + rng.below(55))) as i64,
            _ => (i64::MAX / 64) >> rng.below(60) << 1,
        };
        match time.checked_add(step.max(1)) {
            Some(next) => time = next,
            None => break,
        }
        integer = match value_habit {
            0 => integer,
            1 => integer + rng.below(200) as i64 - 100,
            2 => any(),
            3 => [0, limit, -limit][rng.below(3) as usize],
            4 => integer + (rng.next_u64() >> 50 >> rng.below(14)) as i64,
            _ => [0, 1][rng.below(2) as usize],
        }
        .clamp(-limit, limit);
    }
    out
}

fn values(scale: Scale, samples: &[(i64, i64)]) -> Vec<f64> {
    let value = |&(_, integer): &(i64, i64)| {
        let value = scale.value_of(integer);
        assert_eq!(scale.integer_of(value), Some(integer), "integers below 2^51 fit every scale");
        value
    };
    samples.iter().map(value).collect()
}

fn append_all(state: &mut DecimalDeltaState, times: &[i64], values: &[f64], buf: &mut Vec<u8>) {
    for (&time, &value) in times.iter().zip(values) {
        // Stale bytes after the chunk, as a reused buffer has, must not show.
        buf.truncate(state.byte_len());
        buf.resize(state.byte_len_needed(), 0xa5);
        let before = state.byte_len().max(xor::HEADER_BYTES);
        state.append(buf, time, value).unwrap();
        assert!(state.byte_len() - before <= SAMPLE_BYTES_MAX);
    }
    buf.truncate(state.byte_len());
}

/// A random chunk: bytes, state, times, values.
fn random_chunk(seed: u64, count: usize) -> (Vec<u8>, DecimalDeltaState, Vec<i64>, Vec<f64>) {
    let rng = Rng::from_seed(seed);
    let scale = Scale::from_code(rng.below(32) as u8).unwrap();
    let samples = random_samples(&rng, 1 + rng.below(count as u64) as usize);
    let values = values(scale, &samples);
    let times: Vec<i64> = samples.iter().map(|s| s.0).collect();
    let parameter = rng.below(161) as u8;
    let mut state = DecimalDeltaState::with_rice(scale, RiceParameter::from_byte(parameter).unwrap());
    let mut buf = Vec::new();
    append_all(&mut state, &times, &values, &mut buf);
    assert_eq!(buf, twin_encode(scale.code(), parameter, &samples), "seed {seed}");
    (buf, state, times, values)
}

fn decoded(bytes: &[u8], range: TimeRange) -> Result<(Vec<i64>, Vec<u64>), DecodeError> {
    let mut out = Columns::default();
    decode(bytes, range, &mut out)?;
    Ok((out.times, out.values.iter().map(|v| v.to_bits()).collect()))
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn bytes_equal_the_twin_and_round_trip() {
    for seed in 0..3000 {
        let (bytes, state, times, values) = random_chunk(seed, SAMPLES_PER_CHUNK);
        assert_eq!(decoded(&bytes, EVERYTHING), Ok((times.clone(), bits(&values))), "seed {seed}");
        assert_eq!(DecimalDeltaState::resume(&bytes), Ok(state), "seed {seed}");
        let last = (times[times.len() - 1], values[values.len() - 1].to_bits());
        assert_eq!((state.time(), state.value_bits()), last, "seed {seed}");
        assert_eq!(usize::from(state.count()), times.len());
        assert_eq!(DecimalDeltaState::from_bytes(&state.to_bytes()), Ok(state), "seed {seed}");
        assert!(XorState::from_bytes(&state.to_bytes()).is_err(), "no state is valid in both encodings");
    }
}

#[test]
fn a_resumed_chunk_continues_with_the_same_bytes() {
    for seed in 0..500 {
        let (bytes, _, times, values) = random_chunk(seed, 100);
        let cut = times.len().div_ceil(2);
        let mut samples = Samples::new(&bytes).unwrap();
        samples.by_ref().take(cut).for_each(|sample| assert!(sample.is_ok()));
        let mut state = samples.state();
        // The last byte in use has bits of the sample after the cut, which must not show.
        let mut buf = bytes[..state.byte_len()].to_vec();
        append_all(&mut state, &times[cut..], &values[cut..], &mut buf);
        buf[..2].copy_from_slice(&bytes[..2]);
        assert_eq!(buf, bytes, "seed {seed}");
    }
}

/// As the head keeps a chunk: in links of 60 bytes, of which an append has the last one.
#[test]
fn parts_of_a_chunk_join_to_the_whole() {
    for seed in 0..500 {
        let (bytes, state, times, values) = random_chunk(seed, SAMPLES_PER_CHUNK);
        let rice = RiceParameter::from_byte(bytes[3]).unwrap();
        let mut open = DecimalDeltaState::with_rice(state.scale(), rice);
        let mut buf = vec![0xa5; CHUNK_BYTES_MAX + SAMPLE_BYTES_MAX];
        for (&time, &value) in times.iter().zip(&values) {
            let base = open.byte_len().saturating_sub(1) / 60 * 60;
            open.append_part(&mut buf[base..], base, time, value).unwrap();
        }
        buf[..2].copy_from_slice(&open.count().to_be_bytes());
        assert_eq!(buf[..open.byte_len()], bytes, "seed {seed}");
        assert_eq!(open, state, "seed {seed}");
    }
}

const SPECIAL: [f64; 12] = [
    -0.0,
    f64::NAN,
    f64::from_bits(STALE_NAN_BITS),
    f64::from_bits(0xfff8_dead_beef_0001),
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::MIN_POSITIVE,
    5e-324,
    -5e-324,
    1e300,
    f64::MAX,
    std::f64::consts::PI,
];

#[test]
fn a_misfit_changes_nothing() {
    for code in 0..32 {
        let scale = Scale::from_code(code).unwrap();
        for value in SPECIAL {
            let mut state = DecimalDeltaState::new(scale);
            let mut buf = vec![0; 100];
            for count in 0..4 {
                let (before, bytes) = (state, buf.clone());
                assert_eq!(state.append(&mut buf, count, value), Err(Misfit), "{value} at scale {code}");
                assert_eq!((state, &buf), (before, &bytes), "{value} at scale {code}");
                state.append(&mut buf, count, 0.0).unwrap();
            }
        }
    }
    assert_eq!(Scale::from_code(32), None);
}

#[test]
fn integers_of_any_bits_give_the_same_bits_again() {
    let rng = Rng::from_seed(7);
    for _ in 0..200_000 {
        let value = match rng.below(3) {
            0 => f64::from_bits(rng.next_u64()),
            1 => f64::from_bits(rng.next_u64() >> 12 | (1023 + rng.below(52)) << 52),
            _ => (rng.next_u64() as i64 >> rng.below(64)) as f64 / 10f64.powi(rng.below(20) as i32),
        };
        for code in 0..32 {
            let scale = Scale::from_code(code).unwrap();
            if let Some(integer) = scale.integer_of(value) {
                assert!(integer.abs() < scale::INTEGER_LIMIT);
                assert_eq!(scale.value_of(integer).to_bits(), value.to_bits(), "{value} at scale {code}");
            }
        }
    }
}

#[test]
fn decimal_texts_fit_the_scale_of_their_digits() {
    let rng = Rng::from_seed(8);
    for _ in 0..20_000 {
        let digits = rng.below(15) as usize;
        let integer = rng.next_u64() >> (14 + rng.below(40));
        let text = format!("{integer:0width$}", width = digits + 1);
        let (whole, fraction) = text.split_at(text.len() - digits);
        let value: f64 = format!("{whole}.{fraction}").parse().unwrap();
        let scale = Scale::of(&[value]).unwrap();
        assert!(usize::from(scale.code()) <= digits || scale.code() > 14, "{value}");
        assert!(integer >= 1 << 50 || Scale::from_code(digits as u8).unwrap().integer_of(value).is_some());
    }
}

#[test]
fn the_scale_is_the_smallest_for_all_values() {
    let check = |values: &[f64], want: Option<u8>| assert_eq!(Scale::of(values).map(Scale::code), want);
    check(&[], Some(0));
    check(&[0.0, 1.0, 3.0], Some(0));
    check(&[1.0, 2.5, 2.25, 7.0], Some(2));
    check(&[8192.0, 4096.0, 0.0, -12288.0], Some(14 + 12));
    check(&[8.0, 24.0], Some(0));
    check(&[1e-14, 1.0], Some(14));
    check(&[1e-15], None);
    check(&[1.5, f64::NAN], None);
    check(&[(1u64 << 40) as f64], Some(31));
}

/// Requires that the loop over short codes gives the samples, and the error, of reading one sample at a time.
#[track_caller]
fn check_decode_equals_iterator(bytes: &[u8], range: TimeRange) {
    let (mut out, mut want) = (Columns::default(), Columns::default());
    let found = decode(bytes, range, &mut out);
    let mut read_each = || {
        for sample in Samples::new(bytes)? {
            let (time, value) = sample?;
            if time >= range.end {
                break;
            }
            if range.contains(time) {
                want.push(time, value);
            }
        }
        Ok::<(), DecodeError>(())
    };
    let wanted = read_each();
    assert_eq!(format!("{found:?}"), format!("{wanted:?}"));
    assert_eq!(out.times, want.times);
    assert_eq!(bits(&out.values), bits(&want.values));
}

#[test]
fn a_range_gives_the_samples_in_it() {
    let (times, values): (Vec<i64>, Vec<f64>) = (0..100).map(|i| (i * 10, i as f64 / 4.0)).unzip();
    let mut out = Vec::new();
    append_all(&mut DecimalDeltaState::new(Scale::of(&values).unwrap()), &times, &values, &mut out);
    for start in -10..100 {
        check_decode_equals_iterator(&out, TimeRange::new(10 * start, 10 * start + 35));
    }
    let found = decoded(&out, TimeRange::new(195, 231)).unwrap();
    assert_eq!(found, (vec![200, 210, 220, 230], bits(&values[20..24])));
    assert_eq!(decoded(&out, TimeRange::new(-10, 1)).unwrap().0, [0]);
}

#[test]
fn cut_and_flipped_bytes_give_an_error_or_ascending_times() {
    for seed in 0..40 {
        let (bytes, ..) = random_chunk(seed, 60);
        for len in 0..bytes.len() {
            assert!(decoded(&bytes[..len], EVERYTHING).is_err(), "seed {seed} len {len}");
            assert!(DecimalDeltaState::resume(&bytes[..len]).is_err());
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(DecimalDeltaState::resume(&longer).is_err(), "bytes after the chunk");
        for at in 0..8 * bytes.len() {
            let mut bad = bytes.clone();
            bad[at / 8] ^= 1 << (at % 8);
            if let Ok((times, _)) = decoded(&bad, EVERYTHING) {
                assert!(times.is_sorted_by(|a, b| a < b), "seed {seed} at {at}");
            }
            check_decode_equals_iterator(&bad, EVERYTHING);
        }
    }
}

#[test]
fn random_bytes_end() {
    for seed in 0..4000 {
        let rng = Rng::from_seed(seed);
        let mut bytes = vec![0u8; rng.below(400) as usize];
        rng.fill(&mut bytes);
        if let Some(header) = bytes.get_mut(2..4) {
            header[0] &= 31;
            header[1] = rng.below(161) as u8;
        }
        if seed % 3 == 0 {
            // Runs of ones are escapes and wide deltas.
            bytes.iter_mut().skip(4).for_each(|byte| *byte |= rng.next_u64() as u8 | rng.next_u64() as u8);
        }
        check_decode_equals_iterator(&bytes, EVERYTHING);
        let count = Samples::new(&bytes).map_or(0, Iterator::count);
        assert!(count <= usize::from(u16::MAX));
    }
}

#[test]
fn damaged_headers_and_values_are_named() {
    let check = |bytes: &[u8], want: &str| {
        assert_eq!(decoded(bytes, EVERYTHING).unwrap_err().to_string(), want);
    };
    check(&[0, 1, 0], "decimal-delta chunk at offset 0: 4 bytes needed, 3 left");
    check(&[0, 1, 32, 0], "decimal-delta scale at offset 2: expected a code of this version, found 32");
    check(&[0, 1, 0, 161], "Rice parameter at offset 3: expected a code of this version, found 161");
    check(&[0, 2, 0, 0, 2, 2, 0, 0], "decimal-delta time at offset 7: expected a later time, found 1");
    check(
        &[0, 2, 0, 0, 2, 2, 9, 0xff, 0xf0, 0],
        "decimal-delta width at offset 9: expected 1 to 53 bits, found 0",
    );
    let first = [0, 1, 0, 0, 2, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 8];
    check(&first, "decimal-delta value at offset 13: expected at most 51 bits, found 2251799813685248");
}

#[test]
fn forged_states_are_refused() {
    let (_, state, ..) = random_chunk(1, 50);
    for (at, byte) in [(26, 9), (27, 1), (28, 0), (29, 1), (30, 0xa0), (30, 0xff), (31, 161), (15, 0x7f)] {
        let mut bytes = state.to_bytes();
        bytes[at] = byte;
        if at == 28 {
            bytes[29] = 0;
        }
        assert!(DecimalDeltaState::from_bytes(&bytes).is_err(), "byte {at}");
    }
    assert!(DecimalDeltaState::from_bytes(&state.to_bytes()[..31]).is_err());
}

/// Name, chunk, samples as times and bits.
type Golden = (&'static str, &'static [u8], &'static str);

const GOLDENS: [Golden; 4] = [
    (
        "gauge",
        include_bytes!("../../../testdata/decimal-delta/gauge.chunk"),
        include_str!("../../../testdata/decimal-delta/gauge.txt"),
    ),
    (
        "jitter",
        include_bytes!("../../../testdata/decimal-delta/jitter.chunk"),
        include_str!("../../../testdata/decimal-delta/jitter.txt"),
    ),
    (
        "leaps",
        include_bytes!("../../../testdata/decimal-delta/leaps.chunk"),
        include_str!("../../../testdata/decimal-delta/leaps.txt"),
    ),
    (
        "pages",
        include_bytes!("../../../testdata/decimal-delta/pages.chunk"),
        include_str!("../../../testdata/decimal-delta/pages.txt"),
    ),
];

#[test]
fn golden_chunks_decode_to_their_texts_and_are_written_again() {
    for (name, bytes, text) in GOLDENS {
        let (times, values): (Vec<i64>, Vec<f64>) = text
            .lines()
            .map(|line| {
                let (time, bits) = line.split_once(' ').unwrap();
                let bits = u64::from_str_radix(bits, 16).unwrap();
                (time.parse::<i64>().unwrap(), f64::from_bits(bits))
            })
            .unzip();
        assert_eq!(decoded(bytes, EVERYTHING), Ok((times.clone(), bits(&values))), "{name}");
        let (scale, rice) =
            (Scale::from_code(bytes[2]).unwrap(), RiceParameter::from_byte(bytes[3]).unwrap());
        let mut state = DecimalDeltaState::with_rice(scale, rice);
        let mut written = Vec::new();
        append_all(&mut state, &times, &values, &mut written);
        assert_eq!(written, bytes, "{name}: what is written has changed, which needs an encoding of its own");
        for cut in 0..bytes.len() {
            assert!(decoded(&bytes[..cut], EVERYTHING).is_err(), "{name} cut at {cut}");
        }
    }
}
