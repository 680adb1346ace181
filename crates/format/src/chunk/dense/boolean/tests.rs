//! Boolean chunks: any booleans survive in any range, damage is an error or other booleans, other floats are
//! refused.

use std::path::Path;

use chronolith_base::{DecodeError, Rng};
use chronolith_model::sample::STALE_NAN;

use super::super::tests::{EVERYTHING, random_times, steady};
use super::*;

fn encoded(times: &[i64], values: &[f64]) -> Option<Vec<u8>> {
    let mut out = vec![9];
    let is_encoded = encode_boolean(times, values, &mut DenseScratch::new(), &mut out);
    assert!(is_encoded || out == [9], "a refusal appends nothing");
    is_encoded.then(|| out.split_off(1))
}

fn decoded(bytes: &[u8], range: TimeRange) -> Result<Columns, DecodeError> {
    let mut out = Columns { times: vec![7], values: vec![7.0], ..Columns::default() };
    let result = decode_boolean(bytes, range, &mut out);
    assert_eq!((out.times.remove(0), out.values.remove(0)), (7, 7.0), "earlier samples stay");
    assert_eq!(out.times.len(), out.values.len());
    assert!(result.is_ok() || out.is_empty(), "a failed chunk leaves nothing");
    assert!(out.values.iter().all(|&value| is_boolean(value)));
    result.map(|()| out)
}

fn values_of(text: &str) -> Vec<f64> {
    text.chars().map(|sign| if sign == '1' { 1.0 } else { 0.0 }).collect()
}

/// Checks the bytes after the times.
#[track_caller]
fn check_values(text: &str, want: &[u8]) {
    let (times, values) = (steady(text.len()), values_of(text));
    let bytes = encoded(&times, &values).expect("booleans");
    assert_eq!(&bytes[bytes.len() - want.len()..], want);
    let mut reader = ByteReader::new(&bytes);
    TimesHead::read(&mut reader).expect("times");
    assert_eq!(reader.remaining(), want.len());
    assert_eq!(decoded(&bytes, EVERYTHING).expect("decodes").values, values);
}

#[test]
fn values_are_runs_or_a_bitmap() {
    check_values("0", &[0, 1]);
    check_values("1", &[1, 1]);
    check_values(&"1".repeat(300), &[1, 0xac, 2]);
    check_values("0000000000000000111", &[0, 16, 3]);
    check_values("0101100000000001", &[2, 0b0001_1010, 0b1000_0000]);
    check_values("101", &[2, 0b101]);
}

#[test]
fn any_booleans_survive_in_any_range() {
    let rng = Rng::from_seed(44);
    for round in 0..400 {
        let times = random_times(&rng, 1 + rng.below(700) as usize);
        let stay = 1 + rng.below([2, 20, 900][round % 3]);
        let mut value = 0.0;
        let mut values = Vec::new();
        for _ in &times {
            value = if rng.below(stay) == 0 { 1.0 - value } else { value };
            values.push(value);
        }
        let bytes = encoded(&times, &values).expect("booleans");
        let (a, b) = (rng.below(times.len() as u64) as usize, rng.below(times.len() as u64) as usize);
        for range in [EVERYTHING, TimeRange::new(times[a.min(b)], times[a.max(b)])] {
            let kept: Vec<usize> = (0..times.len()).filter(|&idx| range.contains(times[idx])).collect();
            let found = decoded(&bytes, range).expect("decodes");
            assert_eq!(found.times, kept.iter().map(|&idx| times[idx]).collect::<Vec<_>>());
            assert_eq!(found.values, kept.iter().map(|&idx| values[idx]).collect::<Vec<_>>());
        }
    }
}

#[test]
fn other_floats_are_refused() {
    for other in [-0.0, 2.0, 0.5, f64::NAN, STALE_NAN, f64::from_bits(1)] {
        assert_eq!(encoded(&steady(3), &[0.0, 1.0, other]), None);
    }
}

#[test]
fn every_cut_and_every_flipped_bit_is_an_error_or_other_booleans() {
    for text in ["0000000000000000000000011111111111111111111100000000001", "0110100110010110"] {
        let bytes = encoded(&steady(text.len()), &values_of(text)).expect("booleans");
        for len in 0..bytes.len() {
            assert!(decoded(&bytes[..len], EVERYTHING).is_err(), "cut at {len}");
        }
        assert!(decoded(&[&bytes[..], &[0]].concat(), EVERYTHING).is_err(), "grown");
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let _ = decoded(&damaged, EVERYTHING);
        }
    }
}

/// A file for a new name is written by `GOLDEN_ADD=1 cargo test -p chronolith-format golden_booleans`; none
/// is ever edited.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "golden files are read from the source tree, and added to it on demand"
)]
fn golden_booleans_decode() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/dense");
    let runs = "1".repeat(100) + &"0".repeat(20) + &"1".repeat(9);
    for (name, text) in [("runs", runs), ("bitmap", "01101".repeat(40)), ("constant", "0".repeat(200))] {
        let path = dir.join(format!("steady-boolean-{name}.chunk"));
        let (times, values) = (steady(text.len()), values_of(&text));
        if std::env::var_os("GOLDEN_ADD").is_some() && !path.exists() {
            std::fs::write(&path, encoded(&times, &values).expect("booleans")).expect("written");
        }
        let found = decoded(&std::fs::read(&path).expect("golden file"), EVERYTHING).expect("decodes");
        assert_eq!((found.times, found.values), (times, values), "{name}");
    }
}
