//! Packed chunks: any samples survive bit for bit, with own and with shared times; any bytes end in samples
//! or an error.

use chronolith_base::Rng;

use super::*;
use crate::chunk::dense;
use crate::chunk::dense::tests::{EVERYTHING, random_times, random_values, steady};

/// Offset that stands for the chunk with the times.
const PLACE: u32 = 70_000;

fn packed(place: ChunkTimes<'_>, values: &[f64]) -> (u8, Vec<u8>) {
    let mut out = vec![1, 2, 3];
    let encoding = encode_packed(place, values, &mut DenseScratch::new(), &mut out).encoding;
    (encoding, out.split_off(3))
}

fn decoded(
    (encoding, bytes): (u8, &[u8]),
    range: TimeRange,
    owner: Option<(u8, &[u8])>,
) -> Result<(Vec<i64>, Vec<u64>), DecodeError> {
    let mut out = Columns { times: vec![7], values: vec![7.0], ..Columns::default() };
    let chunk_at = |offset| {
        assert_eq!(offset, PLACE);
        let (encoding, bytes) = owner.expect("the times are shared");
        Ok(RawChunk { encoding, bytes })
    };
    let result = match encoding {
        ENCODING_DENSE => dense::decode(bytes, range, &mut out),
        _ => decode_packed(bytes, range, chunk_at, &mut out),
    };
    assert_eq!((out.times[0], out.values[0], out.times.len()), (7, 7.0, out.values.len()));
    if result.is_err() {
        assert_eq!(out.len(), 1, "a failed chunk leaves nothing");
    }
    assert!(out.times[1..].is_sorted_by(|a, b| a < b));
    result.map(|()| (out.times[1..].to_vec(), out.values[1..].iter().map(|v| v.to_bits()).collect()))
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// A counter with steps of very different sizes, which entropy coding is for.
fn walk(rng: &Rng, count: usize) -> Vec<f64> {
    let mut total = 0.0;
    let step = |_| {
        total += (rng.next_u64() >> (40 + rng.below(24))) as f64;
        total
    };
    (0..count).map(step).collect()
}

/// Requires that any part of a chunk equals the same part of the whole.
fn check_parts(rng: &Rng, chunk: (u8, &[u8]), owner: (u8, &[u8]), (times, bits): (&[i64], &[u64])) {
    for round in 0..12 {
        let first = rng.below(times.len() as u64) as usize;
        let len = if round % 2 == 0 { rng.below(30) } else { rng.below(times.len() as u64) } as usize;
        let last = (first + len).min(times.len() - 1);
        let around = |time: i64| time.saturating_add(rng.below(3) as i64 - 1);
        let range = TimeRange::new(around(times[first]), around(times[last]));
        let inside = times.iter().zip(bits).filter(|(time, _)| range.contains(**time));
        let want: (Vec<i64>, Vec<u64>) = inside.unzip();
        assert!(decoded(chunk, range, Some(owner)).unwrap() == want, "{range:?} from {first} to {last}");
    }
}

#[test]
fn samples_of_all_habits_round_trip() {
    let mut entropy_count = 0;
    for seed in 0..600 {
        let rng = Rng::from_seed(seed);
        let count = if seed % 3 == 0 { 1 + rng.below(300) } else { 500 + rng.below(3000) };
        let times = random_times(&rng, count as usize);
        let values = if seed % 2 == 0 { walk(&rng, times.len()) } else { random_values(&rng, times.len()) };
        let own = packed(ChunkTimes::Own(&times), &values);
        let shared = packed(ChunkTimes::Shared { offset: PLACE }, &values);
        entropy_count += u32::from(own.0 == ENCODING_PACKED);
        assert_eq!(shared.0, ENCODING_PACKED);
        assert_eq!(shared_times_offset(&shared.1), Ok(Some(PLACE)));
        let owner = (own.0, own.1.as_slice());
        let range = TimeRange::new(times[times.len() / 3], times[times.len() / 2]);
        for (encoding, bytes) in [&own, &shared] {
            let found = decoded((*encoding, bytes), EVERYTHING, Some(owner)).unwrap();
            let end = times.len() - usize::from(times.last() == Some(&i64::MAX));
            assert!(found.0 == times[..end] && found.1 == bits(&values)[..end], "seed {seed}");
            let found = decoded((*encoding, bytes), range, Some(owner)).unwrap();
            let part = times.len() / 3..times.len() / 2;
            assert!(found.0 == times[part.clone()] && found.1 == bits(&values)[part], "seed {seed}");
            check_parts(&rng, (*encoding, bytes), owner, (&times, &bits(&values)));
        }
    }
    assert!(entropy_count > 100, "{entropy_count} of 600 were worth entropy coding");
}

#[test]
fn any_bytes_end_in_samples_or_an_error() {
    let rng = Rng::from_seed(1);
    let mut entropy_times_count = 0;
    for round in 0..60 {
        let mut times = steady(600 + 40 * round);
        if round % 3 > 0 {
            times
                .iter_mut()
                .for_each(|time| *time += ((rng.next_u64() >> (50 + rng.below(14))) % 15_000) as i64);
        }
        let values = if round % 2 == 0 { walk(&rng, times.len()) } else { random_values(&rng, times.len()) };
        let own = packed(ChunkTimes::Own(&times), &values);
        let shared = packed(ChunkTimes::Shared { offset: PLACE }, &values).1;
        let owner = Some((own.0, own.1.as_slice()));
        entropy_times_count += u32::from(own.0 == ENCODING_PACKED && own.1[2] & ENTROPY_TIMES != 0);
        for cut in (0..shared.len()).step_by(shared.len() / 40 + 1) {
            assert!(decoded((ENCODING_PACKED, &shared[..cut]), EVERYTHING, owner).is_err(), "cut at {cut}");
        }
        for _ in 0..400 {
            let mut forged = if rng.below(2) == 0 { shared.clone() } else { own.1.clone() };
            for _ in 0..1 + rng.below(3) {
                // Heads and tables stand in front: damage there leads further than damage after them.
                let reach = if rng.below(2) == 0 { forged.len().min(60) } else { forged.len() };
                let at = rng.below(reach as u64) as usize;
                forged[at] =
                    if rng.below(2) == 0 { rng.next_u64() as u8 } else { forged[at] ^ 1 << rng.below(8) };
            }
            let chunk_at = |_| Ok(RawChunk { encoding: own.0, bytes: &own.1 });
            let mut out = Columns::default();
            let _ = decode_packed(&forged, EVERYTHING, chunk_at, &mut out);
            assert!(out.len() <= dense::SAMPLES_MAX);
            out.clear();
            let first = times[rng.below(times.len() as u64) as usize];
            let range = TimeRange::new(first, first.saturating_add(1_000_000));
            let _ = decode_packed(&forged, range, chunk_at, &mut out);
            assert!(out.times.len() == out.values.len() && out.times.is_sorted_by(|a, b| a < b));
            assert!(out.times.iter().all(|&time| range.contains(time)));
        }
    }
    assert!(entropy_times_count > 10, "{entropy_times_count} of 60 with entropy-coded times");
}

#[test]
fn times_are_looked_up_once_and_must_fit() {
    let times = steady(100);
    let values: Vec<f64> = (0..100).map(f64::from).collect();
    let shared = packed(ChunkTimes::Shared { offset: PLACE }, &values);
    let other = packed(ChunkTimes::Own(&times[..99]), &values[..99]);
    let decode = |owner: (u8, &[u8])| decoded((shared.0, &shared.1), EVERYTHING, Some(owner));
    assert!(decode((other.0, &other.1)).is_err(), "another count");
    assert!(decode((shared.0, &shared.1)).is_err(), "one that has no times of its own");
    assert!(decode((1, &other.1)).is_err(), "another encoding");
    let own = packed(ChunkTimes::Own(&times), &values);
    assert_eq!(decode((own.0, &own.1)).unwrap(), (times, bits(&values)));
}

#[test]
fn what_gains_nothing_stays_a_dense_chunk() {
    let values = vec![1.0; 1000];
    let (encoding, bytes) = packed(ChunkTimes::Own(&steady(1000)), &values);
    assert_eq!(encoding, ENCODING_DENSE);
    let mut plain = Vec::new();
    dense::encode(&steady(1000), &values, &mut DenseScratch::new(), &mut plain);
    assert_eq!(bytes, plain);
}

#[test]
fn steps_of_many_sizes_get_smaller() {
    let rng = Rng::from_seed(9);
    let (times, values) = (steady(4000), walk(&rng, 4000));
    let (encoding, bytes) = packed(ChunkTimes::Own(&times), &values);
    let mut plain = Vec::new();
    dense::encode(&times, &values, &mut DenseScratch::new(), &mut plain);
    assert_eq!(encoding, ENCODING_PACKED);
    assert!(bytes.len() * 10 < plain.len() * 9, "{} of {} bytes", bytes.len(), plain.len());
}

/// Samples of the golden files: enough for entropy coding.
const GOLDEN_SAMPLES: usize = 900;

fn golden_times(name: &str) -> Vec<i64> {
    let rng = Rng::from_seed(2028);
    let mut times = steady(GOLDEN_SAMPLES);
    match name {
        "steady" => {}
        "jittered" => times.iter_mut().for_each(|time| *time += (rng.below(9) * rng.below(9)) as i64),
        "late" => {
            times.iter_mut().for_each(|time| *time += (rng.next_u64() >> (50 + rng.below(14))) as i64 / 2)
        }
        other => panic!("no times are called {other}"),
    }
    times
}

fn golden_values(name: &str) -> Vec<f64> {
    let rng = Rng::from_seed(2029);
    let mut total = 0.0;
    let mut value = |_| match name {
        "constant" => 42.5,
        "dice" => (rng.below(7) + rng.below(7) + rng.below(7)) as f64,
        "gauge" => {
            total += rng.below(300) as f64 + rng.below(300) as f64 - 299.0;
            total / 100.0
        }
        "walk" => {
            total += (rng.next_u64() >> (40 + rng.below(24))) as f64;
            total
        }
        "curve" => {
            total += (rng.next_u64() >> (12 + rng.below(40))) as f64;
            total
        }
        other => panic!("no values are called {other}"),
    };
    (0..GOLDEN_SAMPLES).map(&mut value).collect()
}

/// Times, values and the flags of each golden file; bit 0 of them says whether the times are shared. Files
/// with 64-bit numbers in every column were written before columns had narrower ones. A file for a new case
/// is written by `GOLDEN_ADD=1 cargo test -p chronolith-format golden_chunks`; none is ever edited.
const GOLDEN: [(&str, &str, u8); 12] = [
    ("steady", "walk", 2),
    ("steady", "constant", 1),
    ("steady", "walk", 3),
    ("jittered", "walk", 6),
    ("late", "gauge", 4),
    ("late", "curve", 6),
    ("steady", "dice", 0x1a),
    ("steady", "gauge", 0x13),
    ("jittered", "dice", 0x7e),
    ("jittered", "constant", 0x64),
    ("late", "walk", 0x4e),
    ("late", "curve", 0x46),
];

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "golden files are read from the source tree, and added to it on demand"
)]
fn golden_chunks_decode() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/dense");
    for (times_name, values_name, flags) in GOLDEN {
        let (times, values) = (golden_times(times_name), golden_values(values_name));
        let path = dir.join(format!("packed-{flags:02x}-{times_name}-{values_name}.chunk"));
        if std::env::var_os("GOLDEN_ADD").is_some() && !path.exists() {
            let place = match flags & SHARED_TIMES {
                0 => ChunkTimes::Own(&times),
                _ => ChunkTimes::Shared { offset: PLACE },
            };
            let (encoding, bytes) = packed(place, &values);
            assert_eq!((encoding, bytes[2]), (ENCODING_PACKED, flags), "{times_name} {values_name}");
            std::fs::write(&path, bytes).unwrap();
        }
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes[2], flags, "{times_name} {values_name}");
        let owner = packed(ChunkTimes::Own(&times), &[1.0; GOLDEN_SAMPLES]);
        let found = decoded((ENCODING_PACKED, &bytes), EVERYTHING, Some((owner.0, &owner.1)));
        assert_eq!(found.unwrap(), (times, bits(&values)), "{times_name} {values_name}");
    }
}
