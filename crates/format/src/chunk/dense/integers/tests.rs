//! Integer chunks: any words survive in any range, with own and with shared times; damage is an error or
//! other integers.

use std::path::Path;

use chronolith_base::{DecodeError, Rng};
use chronolith_model::kind::{word_of_integer, word_of_unsigned};

use super::super::tests::{EVERYTHING, random_times, steady};
use super::super::{ENCODING_DENSE, encode};
use super::*;

const KINDS: [WordKind; 2] = [WordKind::Integer, WordKind::Unsigned];
/// Offset of the chunk that has shared times.
const OWNER: u32 = 300;

/// Words of integers; unsigned integers have the same bits.
fn words(kind: WordKind, integers: &[i64]) -> Vec<f64> {
    let word = |&integer: &i64| match kind {
        WordKind::Unsigned => word_of_unsigned(integer.cast_unsigned()),
        _ => word_of_integer(integer),
    };
    integers.iter().map(word).map(f64::from_bits).collect()
}

fn encoded(times: ChunkTimes<'_>, values: &[f64], kind: WordKind) -> Vec<u8> {
    let mut out = vec![9];
    let chunk = encode_integers(times, values, kind, &mut DenseScratch::new(), &mut out);
    assert_eq!(chunk.encoding, ENCODING_INTEGERS);
    out.split_off(1)
}

fn decoded(bytes: &[u8], range: TimeRange, owner: RawChunk<'_>) -> Result<(Vec<i64>, Vec<u64>), DecodeError> {
    let mut out = Columns { times: vec![7], values: vec![7.0], ..Columns::default() };
    let chunk_at = |offset| match offset {
        OWNER => Ok(owner),
        _ => Err(DecodeError::Invalid { what: "test", offset: 0, expected: "the owner", found: 0 }),
    };
    let result = decode_integers(bytes, range, chunk_at, &mut out);
    assert_eq!((out.times.remove(0), out.values.remove(0)), (7, 7.0), "earlier samples stay");
    assert_eq!(out.times.len(), out.values.len());
    assert!(result.is_ok() || out.is_empty(), "a failed chunk leaves nothing");
    result.map(|()| (out.times, out.values.iter().map(|value| value.to_bits()).collect()))
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Integers of one of several habits.
fn random_integers(rng: &Rng, count: usize) -> Vec<i64> {
    let habit = rng.below(8);
    let mut sum = rng.next_u64().cast_signed() >> rng.below(64);
    let mut next = || match habit {
        0 => rng.next_u64().cast_signed(),
        1 => [i64::MIN, i64::MAX, 0, -1, 1, 1 << 53, (1 << 53) + 1][rng.below(7) as usize],
        2 => rng.below(9).cast_signed() << 62,
        3 => rng.below(100).cast_signed() * 4096,
        4 => sum,
        5 => rng.below(2000).cast_signed() - 1000,
        _ => {
            let step = rng.below(1 << rng.below(40)).cast_signed();
            sum = sum.wrapping_add(step);
            sum
        }
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn any_integers_survive_in_any_range() {
    let rng = Rng::from_seed(46);
    let mut entropy_count = 0;
    for round in 0..400 {
        let times = random_times(&rng, 1 + rng.below([700, 5000][usize::from(round % 8 == 0)]) as usize);
        let kind = KINDS[round % 2];
        let values = words(kind, &random_integers(&rng, times.len()));
        let mut owner_bytes = Vec::new();
        encode(&times, &values, &mut DenseScratch::new(), &mut owner_bytes);
        let own = encoded(ChunkTimes::Own(&times), &values, kind);
        let shared = encoded(ChunkTimes::Shared { offset: OWNER }, &values, kind);
        assert_eq!(shared_times_offset_of_integers(&own), Ok(None));
        assert_eq!(shared_times_offset_of_integers(&shared), Ok(Some(OWNER)));
        entropy_count += u32::from(own[2] & 2 != 0);
        let owners = [(ENCODING_DENSE, &owner_bytes), (ENCODING_INTEGERS, &own)];
        let (a, b) = (rng.below(times.len() as u64) as usize, rng.below(times.len() as u64) as usize);
        for range in [EVERYTHING, TimeRange::new(times[a.min(b)], times[a.max(b)])] {
            let kept: Vec<usize> = (0..times.len()).filter(|&idx| range.contains(times[idx])).collect();
            let want: (Vec<i64>, Vec<u64>) =
                kept.iter().map(|&idx| (times[idx], values[idx].to_bits())).unzip();
            for (encoding, bytes) in owners {
                let owner = RawChunk { encoding, bytes };
                assert_eq!(decoded(&own, range, owner), Ok(want.clone()));
                assert_eq!(decoded(&shared, range, owner), Ok(want.clone()));
            }
        }
    }
    assert!(entropy_count > 10, "{entropy_count} chunks with entropy coding");
}

/// Checks times and values after the flags, of a chunk of few samples.
#[track_caller]
fn check_values(kind: WordKind, integers: &[i64], want: &[u8]) {
    let (times, values) = (steady(integers.len()), words(kind, integers));
    let bytes = encoded(ChunkTimes::Own(&times), &values, kind);
    assert_eq!(&bytes[bytes.len() - want.len()..], want);
    assert_eq!(bytes[2], if kind == WordKind::Unsigned { 0x80 } else { 0 });
    let owner = RawChunk { encoding: ENCODING_DENSE, bytes: &[] };
    assert_eq!(decoded(&bytes, EVERYTHING, owner), Ok((times, bits(&values))));
}

#[test]
fn extremes_are_exact() {
    check_values(WordKind::Integer, &[-3; 200], &[0, 5]);
    check_values(WordKind::Integer, &[i64::MIN], &[0x40, 63, 1]);
    check_values(WordKind::Unsigned, &[-1; 3], &[0, 1]);
    check_values(WordKind::Integer, &[i64::MIN, i64::MAX, 0, -1, (1 << 53) + 1], &[]);
    check_values(WordKind::Unsigned, &[i64::MIN, i64::MAX, 0, -1, (1 << 53) + 1], &[]);
    // Words that are not-a-number, a staleness marker and an infinity as floats.
    for word in [0x7ff0_0000_0000_0002, 0x7ff8_0000_0000_0001, 0x7ff4_c8d0_4815_7061, 0xfff0_0000_0000_0000] {
        let integer = chronolith_model::kind::integer_of_word(word);
        check_values(WordKind::Integer, &[integer, 1, integer], &[]);
    }
}

#[test]
fn counters_take_less_than_a_quarter_of_their_words() {
    let rng = Rng::from_seed(5);
    let mut sum = 10_000_000_000_000i64;
    let mut next = || {
        sum += rng.below(1000).cast_signed();
        sum
    };
    let counter: Vec<i64> = (0..4096).map(|_| next()).collect();
    let bytes =
        encoded(ChunkTimes::Own(&steady(4096)), &words(WordKind::Integer, &counter), WordKind::Integer);
    assert!(bytes.len() < 4096 * 11 / 8, "{} bytes", bytes.len());
}

#[test]
fn every_cut_and_every_flipped_bit_is_an_error_or_other_integers() {
    let rng = Rng::from_seed(8);
    for round in 0..12 {
        let count = [1, 5, 130, 700][round % 4];
        let times = random_times(&rng, count);
        let kind = KINDS[round % 2];
        let values = words(kind, &random_integers(&rng, times.len()));
        let own = encoded(ChunkTimes::Own(&times), &values, kind);
        let shared = encoded(ChunkTimes::Shared { offset: OWNER }, &values, kind);
        let owner = RawChunk { encoding: ENCODING_INTEGERS, bytes: &own };
        for bytes in [&own, &shared] {
            for len in 0..bytes.len() {
                assert!(
                    decoded(&bytes[..len], EVERYTHING, owner).is_err(),
                    "cut at {len} of {}",
                    bytes.len()
                );
            }
            for bit in 0..bytes.len() * 8 {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                let _ = decoded(&damaged, EVERYTHING, owner);
                let damaged_owner = RawChunk { encoding: ENCODING_INTEGERS, bytes: &damaged };
                let _ = decoded(&shared, EVERYTHING, damaged_owner);
            }
            assert!(decoded(&[&bytes[..], &[0]].concat(), EVERYTHING, owner).is_err(), "grown");
        }
    }
}

/// A file for a new name is written by `GOLDEN_ADD=1 cargo test -p chronolith-format golden_integers`; none
/// is ever edited.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "golden files are read from the source tree, and added to it on demand"
)]
fn golden_integers_decode() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/dense");
    let counter: Vec<i64> = (0..600i64).map(|i| i * i * 977 % 65_537 + i * 100_000).collect();
    let noise: Vec<i64> = (0..700i64).map(|i| (i * i * 7919 % 1009) % 37 * 512).collect();
    let extremes = [i64::MIN, i64::MAX, 0, -1, 1, (1 << 53) + 1, i64::MIN + 1].repeat(3);
    for (name, integers) in [("counter", counter), ("noise", noise), ("extremes", extremes)] {
        for kind in KINDS {
            let path = dir.join(format!("steady-{}-{name}.chunk", kind.label_value()));
            let (times, values) = (steady(integers.len()), words(kind, &integers));
            if std::env::var_os("GOLDEN_ADD").is_some() && !path.exists() {
                std::fs::write(&path, encoded(ChunkTimes::Own(&times), &values, kind)).expect("written");
            }
            let bytes = std::fs::read(&path).expect("golden file");
            let owner = RawChunk { encoding: ENCODING_DENSE, bytes: &[] };
            assert_eq!(decoded(&bytes, EVERYTHING, owner), Ok((times, bits(&values))), "{name}");
        }
    }
}
