//! Dense chunks: any samples survive bit for bit, any bytes end in samples or an error, golden files stay
//! readable.

mod twin;

use std::path::Path;

use chronolith_base::bytes::put_varint;
use chronolith_base::{DecodeError, Rng};
use chronolith_model::sample::STALE_NAN_BITS;
use chronolith_model::{Columns, TimeRange};

use super::*;

pub(super) const EVERYTHING: TimeRange = TimeRange { start: i64::MIN, end: i64::MAX };
const START_MS: i64 = 1_700_000_000_000;

fn encoded(times: &[i64], values: &[f64]) -> Vec<u8> {
    let mut out = Vec::new();
    encode(times, values, &mut DenseScratch::new(), &mut out);
    out
}

fn decoded(bytes: &[u8], range: TimeRange) -> Result<(Vec<i64>, Vec<u64>), DecodeError> {
    let mut out = Columns { times: vec![7], values: vec![7.0], ..Columns::default() };
    let result = decode(bytes, range, &mut out);
    assert_eq!((out.times[0], out.values[0]), (7, 7.0), "earlier samples stay");
    assert_eq!(out.times.len(), out.values.len());
    if result.is_err() {
        assert_eq!(out.len(), 1, "a failed chunk leaves nothing");
    }
    assert!(out.times[1..].is_sorted_by(|a, b| a < b));
    result.map(|()| (out.times[1..].to_vec(), out.values[1..].iter().map(|v| v.to_bits()).collect()))
}

#[track_caller]
fn check(times: &[i64], values: &[f64]) -> usize {
    let bytes = encoded(times, values);
    let bits: Vec<u64> = values.iter().map(|v| v.to_bits()).collect();
    assert_eq!(sample_count(&bytes), Ok(times.len() as u16));
    assert_eq!(time_bounds(&bytes), Ok((times[0], times[times.len() - 1])));
    // A half-open range cannot hold the very last time there is.
    let last_is_out = usize::from(times.last() == Some(&i64::MAX));
    let end = times.len() - last_is_out;
    let found = decoded(&bytes, EVERYTHING).unwrap();
    assert_eq!(found.0, times[..end]);
    assert_eq!(found.1, bits[..end]);
    bytes.len()
}

pub(super) fn steady(count: usize) -> Vec<i64> {
    (0..count as i64).map(|i| START_MS + i * 15_000).collect()
}

/// Times of one of several habits, ascending; as many as fit below the end of time.
pub(super) fn random_times(rng: &Rng, count: usize) -> Vec<i64> {
    let habit = rng.below(9);
    let mut time = match habit {
        6 => i64::MIN + rng.below(9) as i64,
        7 => rng.next_u64().cast_signed(),
        _ => START_MS + rng.below(1 << 40) as i64,
    };
    let step = 1 + rng.below(120) as i64 * 500 + rng.below(3) as i64;
    let mut grid = time;
    let mut out = Vec::with_capacity(count);
    for _ in 0..count {
        out.push(time);
        let missed = if rng.below(60) == 0 { rng.below(9) as i64 } else { 0 };
        grid = grid.wrapping_add(step * (1 + missed));
        let next = match habit {
            0 => time.checked_add(step),
            1 => time.checked_add(step * (1 + missed)),
            2 => Some(grid.max(time) + rng.below(40) as i64),
            3 => Some(grid.max(time) + if rng.below(30) == 0 { rng.below(900) as i64 } else { 5 }),
            4 => time.checked_add(rng.below(60_000) as i64),
            5 => time.checked_add((rng.next_u64() >> (20 + rng.below(44))).cast_signed()),
            6 => time.checked_add((u64::MAX / count as u64 / 2).cast_signed()),
            7 => time.checked_add((rng.next_u64() >> 1 >> rng.below(20)).cast_signed()),
            _ => time.checked_add(step + out.len() as i64 * 3),
        };
        match next {
            Some(next) => time = next.max(time.saturating_add(1)),
            None => break,
        }
        if time == i64::MAX {
            break;
        }
    }
    out
}

const SPECIALS: [u64; 14] = [
    STALE_NAN_BITS,
    0x7ff8_0000_0000_0001,
    0x7ff8_0000_0000_0000,
    0xfff8_0000_0000_0000,
    0x7ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
    0x8000_0000_0000_0000,
    0,
    1,
    0x8000_0000_0000_0001,
    0x000f_ffff_ffff_ffff,
    0x7fef_ffff_ffff_ffff,
    0x4340_0000_0000_0001,
    0x7ff4_dead_beef_0001,
];

pub(super) fn random_values(rng: &Rng, count: usize) -> Vec<f64> {
    let habit = rng.below(14);
    let special_every = [0, 3, 40][rng.below(3) as usize];
    let power = 10f64.powi(rng.below(18) as i32);
    let mut total = 0f64;
    let mut bits = rng.next_u64();
    let value = |_| {
        let uniform = rng.next_u64();
        let small = rng.below(2000) as f64;
        if special_every > 0 && rng.below(special_every) == 0 {
            return f64::from_bits(SPECIALS[rng.below(SPECIALS.len() as u64) as usize]);
        }
        total += small;
        if rng.below(200) == 0 {
            total = 0.0;
        }
        match habit {
            0 => f64::from_bits(uniform),
            1 => small,
            2 => (small - 1000.0) / power,
            3 => total,
            4 => total / 1000.0,
            5 => total * 4096.0 * 4096.0 * 4096.0 * 4096.0,
            6 => total + (uniform >> 11) as f64 / 9_007_199_254_740_992.0,
            7 => f64::from(uniform as f32),
            8 => small * 10f64.powi(rng.below(40) as i32 - 20),
            9 => f64::from_bits(SPECIALS[rng.below(SPECIALS.len() as u64) as usize]),
            10 => 9_007_199_254_740_992.0 + 2.0 * small,
            11 => -(uniform as f64),
            12 => f64::from_bits(bits),
            _ => {
                bits ^= (uniform >> rng.below(64)) << rng.below(64);
                f64::from_bits(bits)
            }
        }
    };
    (0..count).map(value).collect()
}

#[test]
fn samples_of_all_habits_round_trip() {
    let mut scratch = DenseScratch::new();
    let mut out = Columns::default();
    let mut bytes = Vec::new();
    for seed in 0..6000 {
        let rng = Rng::from_seed(seed);
        let count = if seed % 500 == 0 { 10_000 + rng.below(3000) } else { 1 + rng.below(600) };
        let times = random_times(&rng, count as usize);
        let values = random_values(&rng, times.len());
        // The buffers come from other chunks, as in use.
        bytes.clear();
        encode(&times, &values, &mut scratch, &mut bytes);
        out.clear();
        decode(&bytes, EVERYTHING, &mut out).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(out.times, times, "seed {seed}");
        let same = out.values.iter().zip(&values).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same && out.values.len() == values.len(), "seed {seed}");
        assert_eq!(time_bounds(&bytes), Ok((times[0], times[times.len() - 1])), "seed {seed}");
        assert_eq!(sample_count(&bytes), Ok(times.len() as u16), "seed {seed}");
        if seed % 4 == 0 {
            let bits = values.iter().map(|v| v.to_bits()).collect();
            assert_eq!(twin::decode(&bytes), (times, bits), "seed {seed}: as the document says");
        }
    }
}

#[test]
fn edges_of_float_and_time_survive() {
    let all: Vec<f64> = SPECIALS.iter().map(|&bits| f64::from_bits(bits)).collect();
    check(&steady(all.len()), &all);
    for &special in &all {
        check(&steady(1), &[special]);
        check(&steady(300), &[special; 300]);
        for at in [0, 1, 127, 128, 299] {
            let mut values: Vec<f64> = (0..300).map(|i| f64::from(i % 17) / 100.0).collect();
            values[at] = special;
            check(&steady(300), &values);
        }
    }
    let wide =
        [9_007_199_254_740_992.0, 9_007_199_254_740_994.0, 1e308, -1e308, 5e-324, 1e15, 123_456.789e-3];
    check(&steady(wide.len()), &wide);
    check(&[i64::MIN], &[1.0]);
    check(&[i64::MIN, i64::MAX], &[1.0, 2.0]);
    check(&[i64::MIN, -1, 0, i64::MAX - 1], &[1.0, 2.0, 3.0, 4.0]);
    check(&[i64::MAX - 2, i64::MAX - 1, i64::MAX], &[1.0, 2.0, 3.0]);
}

#[test]
fn the_longest_chunk_round_trips() {
    let values: Vec<f64> = (0..SAMPLES_MAX).map(|i| (i * i % 1013) as f64 / 10.0).collect();
    check(&steady(SAMPLES_MAX), &values);
    assert!(check(&steady(SAMPLES_MAX), &vec![1.5; SAMPLES_MAX]) < 20);
}

#[test]
fn common_shapes_stay_small() {
    let size = |values: &[f64]| check(&steady(values.len()), values);
    assert!(size(&[0.0; 120]) <= 13);
    assert!(size(&[21.5; 120]) <= 14);
    assert!(size(&(0..120).map(f64::from).collect::<Vec<_>>()) <= 20);
    let mut stale = vec![3.25; 120];
    stale[119] = f64::from_bits(STALE_NAN_BITS);
    assert!(size(&stale) <= 18);
    assert!(size(&[f64::NAN; 120]) <= 20);
    // Half the values missing: one or two bits for each of them, not eight bytes.
    let holes: Vec<f64> = (0..120).map(|i| if i % 2 == 0 { f64::NAN } else { 7.0 }).collect();
    assert!(size(&holes) <= 80);
    let pages: Vec<f64> = (0..120u32).map(|i| f64::from(i * 7 % 5) * 4096.0 + 1e9 * 4096.0).collect();
    assert!(size(&pages) <= 70);
    let singles: Vec<f64> = (0..120u32).map(|i| f64::from(1.0 / (i as f32 + 1.0))).collect();
    assert!(size(&singles) <= 120 * 4 + 20);
    let big: Vec<f64> = (0..120u32).map(|i| 1.7e18 + f64::from(i) * 256.0 * 7.0).collect();
    assert!(size(&big) <= 40);
}

#[test]
fn missed_scrapes_and_jitter_cost_little() {
    let values = [1.0; 240];
    let mut missed = steady(243);
    for at in [10, 100, 101] {
        missed.remove(at);
    }
    assert!(check(&missed, &values) <= 20);
    let jittered: Vec<i64> = steady(240).iter().map(|t| t + t / 15_000 * 7 % 8).collect();
    assert!(check(&jittered, &values) <= 15 + 240 * 3 / 8 + 10);
    let mut one_late = steady(240);
    one_late[77] += 1234;
    assert!(check(&one_late, &values) <= 24);
    let slower: Vec<i64> = (0..240).map(|i| START_MS + i * 15_000 + (i - 120).max(0) * 15_000).collect();
    assert!(check(&slower, &values) <= 40);
}

#[test]
fn a_range_gives_the_samples_in_it() {
    for seed in 0..400 {
        let rng = Rng::from_seed(seed);
        let count = 1 + rng.below(if seed % 8 == 0 { 5000 } else { 500 }) as usize;
        let times = random_times(&rng, count);
        let values = random_values(&rng, times.len());
        let bytes = encoded(&times, &values);
        for _ in 0..20 {
            let pick = || {
                let time = times[rng.below(times.len() as u64) as usize];
                time.saturating_add(rng.below(5) as i64 - 2)
            };
            let range = TimeRange::new(pick(), pick());
            let want: Vec<_> = times.iter().zip(&values).filter(|(t, _)| range.contains(**t)).collect();
            let (found_times, found_bits) = decoded(&bytes, range).unwrap();
            assert!(found_times.iter().eq(want.iter().map(|s| s.0)), "seed {seed} {range:?}");
            assert!(found_bits.iter().copied().eq(want.iter().map(|s| s.1.to_bits())), "seed {seed}");
        }
    }
}

#[test]
fn cut_and_lengthened_chunks_are_errors() {
    for seed in 0..300 {
        let rng = Rng::from_seed(seed);
        let times = random_times(&rng, 1 + rng.below(200) as usize);
        let mut bytes = encoded(&times, &random_values(&rng, times.len()));
        for len in 0..bytes.len() {
            assert!(decoded(&bytes[..len], EVERYTHING).is_err(), "seed {seed} len {len}");
        }
        bytes.push(0);
        assert!(decoded(&bytes, EVERYTHING).is_err(), "seed {seed}");
    }
}

#[test]
fn flipped_bits_give_an_error_or_other_samples() {
    for seed in 0..120 {
        let rng = Rng::from_seed(seed);
        let times = random_times(&rng, 1 + rng.below(150) as usize);
        let bytes = encoded(&times, &random_values(&rng, times.len()));
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << bit;
                let _ = (sample_count(&bad), time_bounds(&bad));
                let _ = decoded(&bad, EVERYTHING);
                let _ = decoded(&bad, TimeRange::new(START_MS + 100_000, START_MS + 200_000));
            }
        }
    }
}

#[test]
fn random_bytes_end() {
    for seed in 0..20_000 {
        let rng = Rng::from_seed(seed);
        let mut bytes = vec![0u8; rng.below(300) as usize];
        rng.fill(&mut bytes);
        if let [high, _, flags, ..] = &mut bytes[..] {
            // Few samples and mostly units of one, so that the rest is reached.
            (*high, *flags) = (0, if seed % 4 == 0 { *flags } else { *flags & 0x0f });
        }
        let _ = (sample_count(&bytes), time_bounds(&bytes));
        let _ = decoded(&bytes, EVERYTHING);
    }
}

#[test]
fn forged_heads_are_errors() {
    let first = {
        let mut out = Vec::new();
        put_varint(&mut out, START_MS);
        out
    };
    let chunk = |count: u16, flags: u8, rest: &[u8]| {
        let mut out = count.to_be_bytes().to_vec();
        out.push(flags);
        out.extend_from_slice(&first);
        out.extend_from_slice(rest);
        out
    };
    let refused = |bytes: &[u8]| assert!(decoded(bytes, EVERYTHING).is_err(), "{bytes:?}");
    let constant = [0, 2];
    assert!(decoded(&chunk(1, 0, &constant), EVERYTHING).is_ok());
    refused(&chunk(0, 0, &constant));
    // An exponent above the exponent of a second; times beyond 64 bits.
    refused(&chunk(1, 0xa0, &constant));
    refused(&chunk(1, 0x80, &constant));
    assert!(decoded(&chunk(1, 0x60, &constant), EVERYTHING).is_ok());
    refused(&chunk(1, 2 | 4, &[0, 0, 2]));
    // Step 0, a gap that is no sample, a gap list that is longer than the bytes, gaps that go back.
    refused(&chunk(2, 0, &[0, 0, 2]));
    refused(&chunk(2, 4, &[15, 1, 1, 2, 0, 2]));
    refused(&chunk(2, 4, &[15, 0xff, 0x7f, 0, 2, 0, 2]));
    refused(&chunk(3, 4, &[15, 1, 0, 5, 0, 2]));
    assert!(decoded(&chunk(3, 4, &[15, 1, 0, 2, 0, 2]), EVERYTHING).is_ok());
    // The last time is not what the head says.
    assert!(decoded(&chunk(2, 2, &[15, 0, 30, 0, 2]), EVERYTHING).is_ok());
    refused(&chunk(2, 2, &[16, 0, 30, 0, 2]));
    // Values: shift out of range, exceptions of ordered bits, an exception that is no sample.
    refused(&chunk(1, 0, &[0x40, 52, 2]));
    refused(&chunk(1, 0, &[0x80 | 15 << 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
    refused(&chunk(1, 0, &[0x80, 1, 9, 2]));
    assert!(decoded(&chunk(1, 0, &[0x80, 1, 1, 2]), EVERYTHING).is_ok());
    // The largest number of samples that a few bytes can claim takes no more memory than a full chunk.
    assert_eq!(decoded(&chunk(u16::MAX, 0, &[15, 0, 2]), EVERYTHING).unwrap().0.len(), SAMPLES_MAX);
}

#[test]
#[should_panic(expected = "times ascend strictly")]
fn equal_times_are_the_callers_bug() {
    encoded(&[1, 1], &[0.0, 0.0]);
}

const GOLDEN_SAMPLES: usize = 200;

/// Times of the golden files.
fn golden_times(name: &str) -> Vec<i64> {
    let rng = Rng::from_seed(2026);
    let steady = steady(GOLDEN_SAMPLES + 2);
    let mut missed = steady.clone();
    for at in [3, 150] {
        missed.remove(at);
    }
    let mut time = START_MS;
    let mut event = |_| {
        time += 1 + rng.below(90_000) as i64;
        time
    };
    match name {
        "steady" => steady[..GOLDEN_SAMPLES].to_vec(),
        "missed" => missed,
        "jittered" => missed.iter().map(|t| t + rng.below(16) as i64).collect(),
        "late" => steady[2..].iter().map(|t| t + i64::from(rng.below(20) == 0) * 700).collect(),
        "events" => (0..GOLDEN_SAMPLES).map(&mut event).collect(),
        "slowing" => (0..GOLDEN_SAMPLES as i64).map(|i| START_MS + i * 1000 + i * i * 37).collect(),
        "ns_seconds" => steady[..GOLDEN_SAMPLES].iter().map(|t| t * 1_000_000).collect(),
        "ns_milliseconds" => missed.iter().map(|t| (t + rng.below(16) as i64) * 1_000_000).collect(),
        "ns_events" => (0..GOLDEN_SAMPLES).map(&mut event).map(|t| t * 1_000_000 + t % 999_983).collect(),
        other => panic!("no times are called {other}"),
    }
}

/// Values of the golden files.
fn golden_values(name: &str) -> Vec<f64> {
    let rng = Rng::from_seed(2027);
    let mut total = 0.0;
    let mut value = |i: usize| match name {
        "constant" => 42.5,
        "nan" => f64::from_bits(0x7ff8_0000_0000_0009),
        "counter" => {
            total += rng.below(90) as f64;
            total
        }
        "decimals" if i % 13 == 5 => f64::from_bits(SPECIALS[i / 13 % SPECIALS.len()]),
        "decimals" => rng.below(5000) as f64 / 100.0,
        "roots" => (i as f64).sqrt(),
        "ramp" => (i * i) as f64 * 8192.0,
        "singles" => f64::from(f32::from_bits(0x3f00_0000 | rng.below(1 << 23) as u32)),
        "rare" if i.is_multiple_of(9) => rng.below(1 << 30) as f64,
        "rare" => 0.0,
        "specials" => f64::from_bits(SPECIALS[i * 5 % SPECIALS.len()]),
        "noise" => f64::from_bits(rng.next_u64()),
        other => panic!("no values are called {other}"),
    };
    (0..GOLDEN_SAMPLES).map(&mut value).collect()
}

/// Times and values of each golden file, its name. A file for a new pair is written by
/// `GOLDEN_ADD=1 cargo test -p chronolith-format golden_chunks`; none is ever edited.
const GOLDEN: [(&str, &str); 14] = [
    ("steady", "constant"),
    ("steady", "nan"),
    ("steady", "rare"),
    ("steady", "singles"),
    ("steady", "specials"),
    ("missed", "counter"),
    ("jittered", "decimals"),
    ("late", "noise"),
    ("late", "ramp"),
    ("events", "roots"),
    ("slowing", "ramp"),
    ("ns_seconds", "counter"),
    ("ns_milliseconds", "decimals"),
    ("ns_events", "constant"),
];

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "golden files are read from the source tree, and added to it on demand"
)]
fn golden_chunks_decode() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/dense");
    for (times_name, values_name) in GOLDEN {
        let (times, values) = (golden_times(times_name), golden_values(values_name));
        let path = dir.join(format!("{times_name}-{values_name}.chunk"));
        if std::env::var_os("GOLDEN_ADD").is_some() && !path.exists() {
            let is_ns = times_name.starts_with("ns_");
            let mut scratch = if is_ns { in_nanoseconds() } else { DenseScratch::new() };
            let mut bytes = Vec::new();
            encode(&times, &values, &mut scratch, &mut bytes);
            std::fs::write(&path, bytes).unwrap();
        }
        let bytes = std::fs::read(&path).unwrap();
        let bits: Vec<u64> = values.iter().map(|v| v.to_bits()).collect();
        assert_eq!(decoded(&bytes, EVERYTHING).unwrap(), (times, bits), "{times_name} {values_name}");
    }
}

fn in_nanoseconds() -> DenseScratch {
    let mut scratch = DenseScratch::new();
    scratch.set_time_unit(chronolith_model::TimeUnit::Nano);
    scratch
}

/// Times of whole milliseconds and seconds take no more bytes in nanoseconds than in milliseconds.
#[test]
fn aligned_times_in_nanoseconds_cost_as_much_as_in_milliseconds() {
    type Shape = (&'static str, fn(i64) -> i64);
    let shapes: [Shape; 4] = [
        ("seconds", |i| START_MS / 1000 * 1000 + 15_000 * i),
        ("milliseconds", |i| START_MS + 15_000 * i),
        ("jitter", |i| START_MS + 15_000 * i + (i * 7919) % 40),
        ("gaps", |i| START_MS + 10_000 * (i + i / 50 * 3)),
    ];
    for (what, time) in shapes {
        let ms: Vec<i64> = (0..2000).map(time).collect();
        let ns: Vec<i64> = ms.iter().map(|time| time * 1_000_000).collect();
        let values: Vec<f64> = (0..2000).map(|i| f64::from(i % 7)).collect();
        let (mut in_ms, mut in_ns) = (Vec::new(), Vec::new());
        encode(&ms, &values, &mut DenseScratch::new(), &mut in_ms);
        encode(&ns, &values, &mut in_nanoseconds(), &mut in_ns);
        assert!(in_ns.len() <= in_ms.len(), "{what}: {} bytes, {} in milliseconds", in_ns.len(), in_ms.len());
        assert_eq!(decoded(&in_ns, EVERYTHING).unwrap().0, ns, "{what}");
        assert_eq!(time_bounds(&in_ns).unwrap(), (ns[0], ns[1999]));
        for (start, end) in [(ns[3], ns[7]), (ns[3] + 1, ns[7] + 1), (ns[3] - 1, ns[7] - 1)] {
            let want: Vec<i64> = ns.iter().copied().filter(|time| (start..end).contains(time)).collect();
            assert_eq!(decoded(&in_ns, TimeRange { start, end }).unwrap().0, want, "{what}");
        }
        // In a store of milliseconds the bytes do not depend on how round the times are.
        assert_eq!(in_ms[2] >> 4, 0);
    }
}

#[test]
fn any_nanoseconds_round_trip() {
    let (first, last) = chronolith_model::TimeUnit::Nano.sample_times().into_inner();
    let extremes = vec![first, first + 1, -1_000_000_000, -1, 0, 1, 999, 1_000_000_000, last - 1, last];
    let mut columns =
        vec![extremes, vec![last], vec![first], vec![first, last], vec![0], vec![-5_000, 5_000]];
    for seed in 0..300 {
        let rng = Rng::from_seed(seed);
        let unit = 10i64.pow(rng.below(11) as u32);
        let start = rng.next_u64().cast_signed() / unit / 4 * unit;
        columns.push(
            (0..200)
                .scan(start, |at, _| {
                    *at += unit * (1 + rng.below(50) as i64);
                    Some(*at)
                })
                .collect(),
        );
    }
    for times in columns {
        let values = vec![1.5; times.len()];
        let mut bytes = Vec::new();
        encode(&times, &values, &mut in_nanoseconds(), &mut bytes);
        assert_eq!(decoded(&bytes, TimeRange::ALL).unwrap().0, times);
        for cut in 0..bytes.len() {
            assert!(decoded(&bytes[..cut], TimeRange::ALL).is_err());
        }
    }
}
