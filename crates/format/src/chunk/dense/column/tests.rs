//! Columns survive, and damaged ones are refused.

use proptest::prelude::*;

use super::*;

/// Values of every coding: constant, decimals with exceptions, noisy bits, a walk, sums of decimals.
fn columns() -> Vec<Vec<f64>> {
    let noisy = |at: u64| f64::from_bits(at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 2);
    let walk = |at: u64| ((at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61) + at / 3) as f64 / 100.0;
    vec![
        vec![7.25],
        vec![360.0; 900],
        vec![0.1, 0.2, f64::NAN, 0.1 + 0.2, -0.0, f64::INFINITY],
        (0..700).map(noisy).collect(),
        (0..1024).map(walk).collect(),
        (0..648).map(|at| (0..360).fold(0.0, |sum, i| sum + walk(at * 360 + i) - 900.0)).collect(),
    ]
}

fn encoded(values: &[f64]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_column(values, &mut DenseScratch::new(), &mut out);
    out
}

#[test]
fn sums_of_decimals_take_half_the_bytes() {
    let sums = columns().pop().expect("the last one");
    let mut plain = Vec::new();
    values::encode(&sums, &mut DenseScratch::new(), &mut plain);
    let bytes = encoded(&sums);
    assert!(bytes.len() < plain.len() * 6 / 10, "{} of {}", bytes.len(), plain.len());
    // Zero of either sign, and values that are next to a decimal on the other side of zero.
    for value in [0.0, -0.0, -0.1 - 0.2, f64::MIN_POSITIVE] {
        assert_eq!(from_ordered(ordered(value)).to_bits(), value.to_bits());
    }
}

#[test]
fn columns_survive() {
    for values in columns() {
        let bytes = encoded(&values);
        let mut out = vec![1.5];
        decode_column(&bytes, values.len(), &mut out).expect("what was written");
        let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&out[1..]), bits(&values));
        // Bytes that are missing or too many, and another number of values.
        for damaged in [&bytes[..bytes.len() - 1], &[&bytes[..], &[0]].concat(), &[]] {
            assert!(decode_column(damaged, values.len(), &mut out).is_err(), "{damaged:?}");
        }
        assert!(decode_column(&bytes, 0, &mut out).is_err());
        assert!(decode_column(&bytes, 1 << 16, &mut out).is_err());
        assert_eq!(out.len(), values.len() + 1, "nothing is left of a failure");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_decoded(bytes in prop::collection::vec(any::<u8>(), 0..200), count in 0usize..3000) {
        let mut out = Vec::new();
        match decode_column(&bytes, count, &mut out) {
            Ok(()) => prop_assert_eq!(out.len(), count),
            Err(_) => prop_assert!(out.is_empty()),
        }
    }
}
