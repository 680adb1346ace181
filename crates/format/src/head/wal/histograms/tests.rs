//! Histograms of a frame round-trip bit for bit; cut and flipped bytes never panic, and decode to histograms of a
//! sound shape or to an error. The bytes of a small payload and of a segment (the golden file) are pinned.

use super::*;
use crate::head::wal::{
    FrameHeader, FrameRef, KIND_HISTOGRAMS, SEGMENT_HEADER_BYTES, SegmentHeader, scan_segment,
};
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

const KEY: u128 = 0x1234_5678_9abc_def0_0fed_cba9_8765_4321;
const HEADER: SegmentHeader = SegmentHeader { segment: 7, key: KEY, stale_sequence: 0 };
const GOLDEN: &[u8] = include_bytes!("../../../../testdata/wal/histograms.seg");

/// All samples in one frame, and some of them once more in a second.
fn golden_payloads() -> [Vec<u8>; 2] {
    [encode(&samples()), encode(&samples()[3..])]
}

fn golden_segment() -> Vec<u8> {
    let mut out = GOLDEN[..SEGMENT_HEADER_BYTES].to_vec();
    for (sequence, payload) in (11..).zip(golden_payloads()) {
        let header = FrameHeader { sequence, ..FrameHeader::for_payload(KIND_HISTOGRAMS, 3, &payload) };
        header.put_frame(KEY, &payload, &mut out);
    }
    out
}

fn payloads(segment: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let payload = |frame: &FrameRef| segment[frame.payload.clone()].to_vec();
    let frames = scan_segment(segment, &HEADER).frames;
    frames.iter().map(|frame| (frame.header.kind, payload(frame))).collect()
}

#[test]
fn the_golden_segment_reads_as_ever() {
    assert_eq!(golden_segment(), GOLDEN, "what is written has changed: that needs a version");
    assert_eq!(SegmentHeader::decode(GOLDEN), Ok(HEADER), "of version 1");
    let found = payloads(GOLDEN);
    assert_eq!(found, golden_payloads().map(|payload| (KIND_HISTOGRAMS, payload)));
    for (payload, want) in found.iter().zip([&samples()[..], &samples()[3..]]) {
        let mut read = HistogramsRef::default();
        read.decode(&payload.1).unwrap();
        let places = read.ids.iter().zip(&read.times).zip(&read.histograms);
        let read: Vec<_> = places.map(|((id, time), one)| (*id, *time, (**one).clone())).collect();
        assert_eq!(read, want);
    }
}

/// A frame is there whole or not at all, wherever the file ends and whichever bit is another.
#[test]
fn a_golden_segment_cut_or_flipped_anywhere_gives_whole_frames() {
    let whole = golden_payloads();
    for len in SEGMENT_HEADER_BYTES..GOLDEN.len() {
        let mut cut = GOLDEN[..len].to_vec();
        for padding in [0, GOLDEN.len() - len] {
            cut.resize(len + padding, 0);
            let found = payloads(&cut);
            assert!(found.iter().zip(&whole).all(|(found, want)| found.1 == *want), "length {len}");
            assert!(found.len() <= whole.len());
        }
    }
    for at in SEGMENT_HEADER_BYTES..GOLDEN.len() {
        for bit in 0..8 {
            let mut bad = GOLDEN.to_vec();
            bad[at] ^= 1 << bit;
            let found = payloads(&bad);
            let is_whole = |(kind, bytes): &(u8, Vec<u8>)| *kind == KIND_HISTOGRAMS && whole.contains(bytes);
            assert!(found.iter().all(is_whole), "byte {at}, bit {bit}");
            // What is flipped in the padding behind a frame is nobody's.
            assert!(found.len() + 1 >= whole.len(), "byte {at}, bit {bit}: the other frame stays");
        }
    }
    for at in 0..whole[0].len() {
        for bit in 0..8 {
            let mut bad = whole[0].clone();
            bad[at] ^= 1 << bit;
            let mut read = HistogramsRef::default();
            if read.decode(&bad).is_ok() {
                assert!(read.histograms.iter().all(|one| is_sound(one)), "byte {at}, bit {bit}");
            }
        }
    }
}
