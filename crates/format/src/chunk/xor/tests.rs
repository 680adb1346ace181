//! The codec against a bit-by-bit twin written from the format's description, and against hostile bytes.

use chronolith_base::Rng;

use super::*;

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

    fn bytes(&self) -> Vec<u8> {
        self.bits
            .chunks(8)
            .map(|c| c.iter().enumerate().map(|(i, &b)| u8::from(b) << (7 - i)).sum())
            .collect()
    }
}

fn twin_encode(samples: &[(i64, u64)]) -> Vec<u8> {
    let mut out = Twin::default();
    out.put(samples.len() as u64, 16);
    let mut window: Option<(u32, u32)> = None;
    for (i, &(t, v)) in samples.iter().enumerate() {
        let step = |i: usize| samples[i].0.wrapping_sub(samples[i - 1].0);
        match i {
            0 => {
                out.put_uvarint(((t << 1) ^ (t >> 63)) as u64);
                out.put(v, 64);
                continue;
            }
            1 => out.put_uvarint(step(1) as u64),
            _ => {
                let dod = step(i).wrapping_sub(step(i - 1));
                let fits = |n: u32| -((1i64 << (n - 1)) - 1) <= dod && dod <= 1 << (n - 1);
                match dod {
                    0 => out.put(0, 1),
                    _ if fits(14) => (out.put(0b10, 2), out.put(dod as u64, 14)).1,
                    _ if fits(17) => (out.put(0b110, 3), out.put(dod as u64, 17)).1,
                    _ if fits(20) => (out.put(0b1110, 4), out.put(dod as u64, 20)).1,
                    _ => (out.put(0b1111, 4), out.put(dod as u64, 64)).1,
                }
            }
        }
        let delta = v ^ samples[i - 1].1;
        let (lead, trail) = (delta.leading_zeros().min(31), delta.trailing_zeros());
        match window {
            _ if delta == 0 => out.put(0, 1),
            Some((l, t)) if lead >= l && trail >= t => {
                out.put(0b10, 2);
                out.put(delta >> t, 64 - l - t);
            }
            _ => {
                window = Some((lead, trail));
                out.put(0b11, 2);
                out.put(u64::from(lead), 5);
                out.put(u64::from((64 - lead - trail) & 63), 6);
                out.put(delta >> trail, 64 - lead - trail);
            }
        }
    }
    out.bytes()
}

/// Samples of mixed habits: steady or wild times, constant, smooth or random bits.
fn random_samples(rng: &Rng, count: usize) -> Vec<(i64, u64)> {
    let (time_habit, value_habit) = (rng.below(5), rng.below(5));
    let mut time =
        if time_habit == 4 { i64::MIN + rng.below(9) as i64 } else { rng.next_u64() as i64 >> rng.below(64) };
    let mut value = rng.next_u64();
    let mut out = Vec::new();
    for i in 0..count {
        out.push((time, value));
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
        value = match value_habit {
            0 => value,
            1 => ((i as f64) * 0.25).to_bits(),
            2 => rng.next_u64(),
            3 => value ^ (rng.next_u64() >> rng.below(64)) << rng.below(64),
            _ => [0, 1, f64::NAN.to_bits(), chronolith_model::sample::STALE_NAN_BITS, u64::MAX]
                [rng.below(5) as usize],
        };
    }
    out
}

fn append_all(samples: &[(i64, u64)]) -> Vec<u8> {
    let mut state = XorState::new();
    let mut buf = Vec::new();
    for &(t, v) in samples {
        // Stale bytes after the chunk, as a reused buffer has, must not show.
        buf.truncate(state.byte_len());
        buf.resize(state.byte_len_needed(), 0xa5);
        let before = state.byte_len();
        state.append(&mut buf, t, f64::from_bits(v));
        assert!(state.byte_len() - before.max(HEADER_BYTES) <= SAMPLE_BYTES_MAX);
    }
    buf.truncate(state.byte_len());
    buf
}

fn decode_bits(bytes: &[u8], range: TimeRange) -> Result<Vec<(i64, u64)>, DecodeError> {
    let mut out = Columns::default();
    let result = decode(bytes, range, &mut out);
    let samples = out.times.iter().zip(&out.values).map(|(&t, v)| (t, v.to_bits())).collect();
    result.map(|()| samples)
}

const EVERYTHING: TimeRange = TimeRange { start: i64::MIN, end: i64::MAX };

#[test]
fn bytes_equal_the_twin_and_round_trip() {
    for seed in 0..3000 {
        let rng = Rng::from_seed(seed);
        let samples = random_samples(&rng, 1 + rng.below(SAMPLES_PER_CHUNK as u64) as usize);
        let bytes = append_all(&samples);
        assert_eq!(bytes, twin_encode(&samples), "seed {seed}");
        assert_eq!(decode_bits(&bytes, EVERYTHING).unwrap(), samples, "seed {seed}");
        let state = XorState::resume(&bytes).unwrap();
        assert_eq!(
            (state.time(), state.byte_len()),
            (samples[samples.len() - 1].0, bytes.len()),
            "seed {seed}"
        );
    }
}

#[test]
fn a_resumed_chunk_goes_on_as_if_never_stopped() {
    for seed in 0..500 {
        let rng = Rng::from_seed(seed);
        let samples = random_samples(&rng, 100);
        let cut = rng.below(samples.len() as u64 + 1) as usize;
        let mut buf = append_all(&samples[..cut]);
        let mut state = if cut == 0 { XorState::new() } else { XorState::resume(&buf).unwrap() };
        for &(t, v) in &samples[cut..] {
            buf.resize(state.byte_len_needed().max(buf.len()), 0);
            state.append(&mut buf, t, f64::from_bits(v));
        }
        buf.truncate(state.byte_len());
        assert_eq!(buf, append_all(&samples), "seed {seed}");
    }
}

#[test]
fn edges_of_the_time_classes() {
    for edge in [0, 8191, 8192, 8193, 65535, 65536, 65537, 524_287, 524_288, 524_289, 1 << 40] {
        for dod in [edge, -edge] {
            let samples = [(0, 0), (1 << 41, 0), ((2i64 << 41) + dod, 0), ((3i64 << 41) + dod, 0)];
            let bytes = append_all(&samples);
            assert_eq!(bytes, twin_encode(&samples), "dod {dod}");
            assert_eq!(decode_bits(&bytes, EVERYTHING).unwrap(), samples, "dod {dod}");
        }
    }
}

#[test]
fn a_range_gives_the_samples_in_it() {
    let times: Vec<i64> = (0..300).map(|i| i * 10).collect();
    let values: Vec<f64> = times.iter().map(|&t| t as f64).collect();
    let chunks = encode(&times, &values);
    assert_eq!(chunks.iter().map(|c| c.count).collect::<Vec<_>>(), [120, 120, 60]);
    let mut out = Columns::default();
    for chunk in &chunks {
        decode(&chunk.bytes, TimeRange::new(1195, 1231), &mut out).unwrap();
    }
    assert_eq!(out.times, [1200, 1210, 1220, 1230]);
    assert_eq!((chunks[2].min_time, chunks[2].max_time), (2400, 2990));
}

#[test]
fn cut_and_flipped_bytes_give_an_error_or_other_values() {
    for seed in 0..40 {
        let rng = Rng::from_seed(seed);
        let samples = random_samples(&rng, 60);
        let bytes = append_all(&samples);
        for len in 0..bytes.len() {
            assert!(decode_bits(&bytes[..len], EVERYTHING).is_err(), "seed {seed} len {len}");
            assert!(XorState::resume(&bytes[..len]).is_err());
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << bit;
                if let Ok(found) = decode_bits(&bad, EVERYTHING) {
                    assert!(found.is_sorted_by(|a, b| a.0 < b.0), "seed {seed} at {at}");
                }
            }
        }
    }
}

#[test]
fn random_bytes_end() {
    for seed in 0..2000 {
        let rng = Rng::from_seed(seed);
        let mut bytes = vec![0u8; rng.below(400) as usize];
        rng.fill(&mut bytes);
        let _ = decode_bits(&bytes, EVERYTHING);
    }
}
