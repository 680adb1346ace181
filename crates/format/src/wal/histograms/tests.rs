//! Histograms of a frame round-trip bit for bit; cut and flipped bytes never panic, and decode to histograms of a
//! sound shape or to an error. The bytes of a small payload are pinned.

use super::*;
use chronolith_base::Rng;
use chronolith_model::sample::STALE_NAN;

fn int(counts: &[u64], hint: ResetHint) -> Histogram {
    let spans = vec![Span { offset: -2, length: 1 }, Span { offset: 3, length: counts.len() as u32 - 1 }];
    let count = counts.iter().sum::<u64>() + 3;
    Histogram::Int(IntHistogram {
        reset_hint: hint,
        schema: 1,
        zero_threshold: 0.001,
        zero_count: 3,
        count,
        sum: 1.5,
        positive: Buckets { spans, counts: counts.to_vec() },
        ..IntHistogram::default()
    })
}

fn custom(counts: &[f64]) -> Histogram {
    let spans = vec![Span { offset: 0, length: counts.len() as u32 }, Span { offset: 7, length: 0 }];
    Histogram::Float(FloatHistogram {
        schema: SCHEMA_CUSTOM,
        count: counts.iter().sum(),
        sum: -0.0,
        positive: Buckets { spans, counts: counts.to_vec() },
        custom_values: Arc::from([0.5, 1.0, 2.5]),
        ..FloatHistogram::default()
    })
}

fn samples() -> Vec<(u32, i64, Histogram)> {
    let stale = Histogram::Int(IntHistogram { sum: STALE_NAN, ..IntHistogram::default() });
    vec![
        (7, 1000, int(&[4, 0, 9], ResetHint::Unknown)),
        (9, 1000, int(&[5, 1 << 62, 9], ResetHint::Gauge)),
        (9, 1015, stale),
        (u32::MAX - 1, i64::MIN, custom(&[1.0, f64::MIN_POSITIVE])),
        (0, i64::MAX, custom(&[3.25, 2.0])),
        (0, 0, int(&[1, 1], ResetHint::Reset)),
        (3, -5, Histogram::stale()),
    ]
}

fn encode(samples: &[(u32, i64, Histogram)]) -> Vec<u8> {
    let mut out = vec![1, 2, 3];
    let mut writer = HistogramsWriter::begin(77, &mut out);
    samples.iter().for_each(|(id, time, histogram)| writer.put(*id, *time, histogram));
    out
}

fn is_sound(histogram: &Histogram) -> bool {
    fn fits<C>(side: &Buckets<C>) -> bool {
        bucket_count(&side.spans) == side.counts.len() && side.counts.len() <= BUCKET_COUNT_MAX
    }
    match histogram {
        Histogram::Int(one) => fits(&one.positive) && fits(&one.negative),
        Histogram::Float(one) => fits(&one.positive) && fits(&one.negative),
    }
}

#[test]
fn histograms_round_trip_bit_for_bit() {
    let samples = samples();
    let bytes = encode(&samples);
    let mut read = HistogramsRef::default();
    read.decode(&bytes).unwrap();
    assert_eq!(read.arrival_ms, 77);
    assert_eq!(read.histograms.len(), samples.len());
    for (at, (id, time, histogram)) in samples.iter().enumerate() {
        assert_eq!((read.ids[at], read.times[at], &*read.histograms[at]), (*id, *time, histogram));
        // Empty spans count as well: what is encoded again has the same bytes.
        let again: Vec<_> =
            (0..samples.len()).map(|i| (read.ids[i], read.times[i], (*read.histograms[i]).clone())).collect();
        assert_eq!(encode(&again), bytes);
    }
}

/// The layout is on disks: these bytes never change.
#[test]
fn the_bytes_are_pinned() {
    let hex: String = encode(&samples()[..3]).iter().map(|byte| format!("{byte:02x}")).collect();
    let want = concat!(
        "4d00000000000000",
        "0ed00f",
        "00",
        "000000000000f83f",
        "02fca9f1d24d62503f",
        "0203010602",
        "00",
        "00",
        "1003",
        "080712",
        "0400",
        "34",
        "000000000000f83f",
        "9180808080808080401103",
    );
    assert!(hex.starts_with(&want[..want.len() - 22]), "{hex}");
    let tail = concat!("001e", "02", "020000000000f07f");
    assert!(hex.ends_with(tail), "{hex}");
}

#[test]
fn cut_and_flipped_payloads_are_errors_or_sound() {
    let bytes = encode(&samples());
    let mut read = HistogramsRef::default();
    for len in 0..bytes.len() {
        if read.decode(&bytes[..len]).is_ok() {
            assert!(read.histograms.len() < samples().len(), "{len} bytes");
        }
    }
    let rng = Rng::from_seed(7);
    for _ in 0..20_000 {
        let mut bad = bytes.clone();
        for _ in 0..1 + rng.below(3) {
            let at = rng.below(bad.len() as u64) as usize;
            bad[at] ^= 1 << rng.below(8);
        }
        if read.decode(&bad).is_ok() {
            assert!(read.histograms.iter().all(|histogram| is_sound(histogram)));
        }
    }
}

#[test]
fn a_payload_that_claims_too_much_is_refused() {
    let mut out = Vec::new();
    out.extend_from_slice(&0u64.to_le_bytes());
    out.extend_from_slice(&[0, 0, 0]);
    out.extend_from_slice(&[0; 8]);
    put_varint(&mut out, 0);
    out.extend_from_slice(&[0; 8]);
    put_uvarint(&mut out, 1);
    put_varint(&mut out, 0);
    put_uvarint(&mut out, BUCKET_COUNT_MAX as u64 + 1);
    let error = HistogramsRef::default().decode(&out).unwrap_err();
    assert!(error.to_string().contains("histogram spans"), "{error}");
}
