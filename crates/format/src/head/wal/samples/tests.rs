//! Samples round-trip to the bit; cut and flipped bytes are errors or samples of a valid shape, and never
//! panic. The golden segments of each version read as ever.

use super::*;
use crate::head::wal::{
    FrameHeader, FrameRef, KIND_OLD_FLOATS, KIND_OLD_HISTOGRAMS, KIND_OLD_STARTS, KIND_SAMPLES,
    SEGMENT_HEADER_BYTES, SegmentHeader, decode_samples, is_samples, scan_segment,
};
use chronolith_base::Rng;
use chronolith_model::histogram::{BUCKET_COUNT_MAX, Buckets, HistogramOf, ResetHint, SCHEMA_CUSTOM, Span};
use chronolith_model::sample::STALE_NAN;
use chronolith_model::{FloatHistogram, IntHistogram};

fn int(counts: &[u64], reset_hint: ResetHint) -> Histogram {
    let spans = vec![Span { offset: -2, length: 1 }, Span { offset: 3, length: counts.len() as u32 - 1 }];
    Histogram::Int(IntHistogram {
        reset_hint,
        schema: 1,
        zero_threshold: 0.001,
        zero_count: 3,
        count: counts.iter().sum::<u64>() + 3,
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

/// Histograms as in the golden segment of version 1.
fn histograms() -> Vec<(u32, i64, Histogram)> {
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

fn floats(ids: &[u32], times: &[i64]) -> Samples {
    let mut out = Samples { arrival_ms: 77, ..Samples::default() };
    for (&id, &time) in ids.iter().zip(times) {
        out.push(id, time, u64::from(id) << 40 | 5);
    }
    out
}

/// Floats and histograms in turn, with start timestamps from the third sample on.
fn mixed() -> Samples {
    let mut out = Samples { arrival_ms: -3, duplicates: DuplicatePolicy::LastWins, ..Samples::default() };
    out.push(5, 990, 1);
    for (idx, (id, time, histogram)) in histograms().into_iter().enumerate() {
        out.push_histogram(id, time, Arc::new(histogram));
        if idx % 3 == 1 {
            out.push(id, time.wrapping_add(1), u64::MAX - idx as u64);
            out.set_last_start([i64::MIN, i64::MAX, 0][idx / 3]);
        }
    }
    out
}

/// Payloads of all shapes.
fn all() -> Vec<Samples> {
    let mut with_starts = floats(&[1, 2, 3, 4, 5], &[500; 5]);
    with_starts.start_times = vec![200, 200, 0, 0, 300];
    let mut only_histograms = Samples::default();
    for (id, time, histogram) in histograms() {
        only_histograms.push_histogram(id, time, Arc::new(histogram));
    }
    vec![
        floats(&[1, 2, u32::MAX], &[5, 5, 5]),
        floats(&[1, 2, u32::MAX], &[i64::MAX, i64::MIN, 0]),
        Samples { duplicates: DuplicatePolicy::LastWins, ..floats(&[7, 7, 7, 7], &[1, 2, 3, 4]) },
        floats(&[9], &[0]),
        with_starts,
        only_histograms,
        mixed(),
    ]
}

fn encode(samples: &Samples) -> Vec<u8> {
    let mut frames = Vec::new();
    samples.encode_frames(&mut Vec::new(), |payload| frames.push(payload.to_vec()));
    assert_eq!(frames.len(), 1);
    frames.remove(0)
}

/// The columns as they come back: start timestamps for all samples, if for one.
fn whole(samples: &Samples) -> Samples {
    let mut out = samples.clone();
    if !out.start_times.is_empty() {
        out.start_times.resize(out.ids.len(), 0);
    }
    out
}

fn is_valid(samples: &Samples) -> bool {
    fn fits<C>(one: &HistogramOf<C>) -> bool {
        [&one.positive, &one.negative].iter().all(|side| {
            let count = side.spans.iter().map(|span| span.length as usize).sum::<usize>();
            count == side.counts.len() && count <= BUCKET_COUNT_MAX
        })
    }
    let len = samples.ids.len();
    let is_whole = |column_len: usize| column_len == len || column_len == 0;
    samples.times.len() == len
        && is_whole(samples.values.len())
        && is_whole(samples.start_times.len())
        && samples.histograms.is_sorted_by(|a, b| a.0 < b.0)
        && samples.histograms.iter().all(|(at, one)| {
            (*at as usize) < len
                && match &**one {
                    Histogram::Int(one) => fits(one),
                    Histogram::Float(one) => fits(one),
                }
        })
}

#[test]
fn samples_of_every_kind_round_trip_to_the_bit() {
    let mut read = Samples::default();
    for samples in all() {
        let payload = encode(&samples);
        decode_samples(KIND_SAMPLES, &payload, &mut read).unwrap();
        assert_eq!(read, whole(&samples));
        assert_eq!(encode(&read), payload, "empty spans and hints as well");
    }
}

#[test]
fn cut_and_flipped_payloads_are_errors_or_valid() {
    let mut read = Samples::default();
    for samples in all() {
        let payload = encode(&samples);
        for len in 0..payload.len() {
            assert!(
                decode_samples(KIND_SAMPLES, &payload[..len], &mut read).is_err(),
                "{len} of {} bytes",
                payload.len()
            );
        }
        let longer = [&*payload, &[0]].concat();
        assert!(decode_samples(KIND_SAMPLES, &longer, &mut read).is_err());
        let rng = Rng::from_seed(7);
        for round in 0..20_000 {
            let mut bad = payload.clone();
            // First each bit alone, then several at once.
            let single = round / 8 < bad.len();
            for _ in 0..if single { 1 } else { 1 + rng.below(3) } {
                let at = if single { round / 8 } else { rng.below(bad.len() as u64) as usize };
                bad[at] ^= 1 << if single { round as u64 % 8 } else { rng.below(8) };
            }
            if decode_samples(KIND_SAMPLES, &bad, &mut read).is_ok() {
                assert!(is_valid(&read), "round {round}");
            }
        }
    }
}

/// A scrape is to cost no more than in version 2: ids, one time, eight bytes per value.
#[test]
fn floats_of_one_time_take_no_more_bytes_than_in_version_2() {
    let ids: Vec<u32> = (40..540).collect();
    let payload = encode(&floats(&ids, &[1_700_000_000_000; 500]));
    assert_eq!(payload.len(), 2 + 8 + 8 + 500 + 1 + 500 * 8);
}

#[test]
fn start_timestamps_and_histograms_in_runs_cost_bytes_per_run() {
    let ids: Vec<u32> = (40..540).collect();
    let mut samples = floats(&ids, &[1_700_000_000_000; 500]);
    let plain_len = encode(&samples).len();
    samples.start_times = vec![1_699_999_000_000; 500];
    assert_eq!(encode(&samples).len(), plain_len + 2 + 3);
    let mut histograms = Samples::default();
    ids.iter().for_each(|&id| histograms.push_histogram(id, 0, Arc::new(Histogram::stale())));
    assert_eq!(encode(&histograms).len(), 1 + 2 + 16 + 500 + 1 + 2 + 500 * 9);
}

/// The layout is on disks: these bytes never change.
#[test]
fn the_bytes_are_pinned() {
    let mut samples =
        Samples { arrival_ms: 77, duplicates: DuplicatePolicy::LastWins, ..floats(&[7], &[1000]) };
    samples.push_histogram(9, 990, Arc::new(int(&[4, 9], ResetHint::Gauge)));
    samples.set_last_start(900);
    let hex: String = encode(&samples).iter().map(|byte| format!("{byte:02x}")).collect();
    let want = concat!(
        "0f02",
        "4d00000000000000",
        "e803000000000000",
        "0e04",
        "0013",
        "010500000000070000",
        "01",
        "30",
        "000000000000f83f",
        "02fca9f1d24d62503f",
        "0203010601",
        "00",
        "00",
        "1003",
        "080a",
        "02",
        "03c701",
    );
    assert_eq!(hex, want);
}

#[test]
fn a_frame_that_is_full_ends_and_the_next_one_goes_on() {
    let buckets = |count: usize| Buckets {
        spans: vec![Span { offset: 0, length: 1 }; count],
        counts: (0..count as u64).map(|at| (at % 2) << 62).collect(),
    };
    let (positive, negative) = (buckets(BUCKET_COUNT_MAX), buckets(BUCKET_COUNT_MAX));
    let large = Arc::new(Histogram::Int(IntHistogram { positive, negative, ..IntHistogram::default() }));
    assert!(encoded_len_max(&large) <= HISTOGRAM_BYTES_MAX);
    let mut samples = floats(&[1; FRAME_SAMPLES_MAX + 1], &[3; FRAME_SAMPLES_MAX + 1]);
    (0..5).for_each(|id| samples.push_histogram(id, 4, large.clone()));
    samples.set_last_start(1);
    let (mut read, mut found) = (Samples::default(), Samples { arrival_ms: 77, ..Samples::default() });
    let mut frame_count = 0;
    samples.encode_frames(&mut Vec::new(), |payload| {
        assert!(payload.len() <= FRAME_PAYLOAD_BYTES_MAX);
        decode_samples(KIND_SAMPLES, payload, &mut read).unwrap();
        let first = found.ids.len() as u32;
        found.ids.append(&mut read.ids);
        found.times.append(&mut read.times);
        found.values.append(&mut read.values);
        found.start_times.append(&mut read.start_times);
        found.histograms.extend(read.histograms.drain(..).map(|(at, one)| (first + at, one)));
        frame_count += 1;
    });
    assert!(frame_count > 2, "{frame_count} frames");
    assert_eq!(found, whole(&samples));
}

#[test]
fn a_payload_that_claims_too_much_is_refused() {
    let mut payload = vec![HAS_HISTOGRAMS | ONE_SERIES, 1];
    payload.extend_from_slice(&[0; 16]);
    payload.extend_from_slice(&[0, 0, 1]);
    payload.push(0);
    payload.extend_from_slice(&[0; 8]);
    put_varint(&mut payload, 0);
    payload.extend_from_slice(&[0; 8]);
    put_uvarint(&mut payload, 1);
    put_varint(&mut payload, 0);
    put_uvarint(&mut payload, BUCKET_COUNT_MAX as u64 + 1);
    let error = decode_samples(KIND_SAMPLES, &payload, &mut Samples::default()).unwrap_err();
    assert!(error.to_string().contains("histogram spans"), "{error}");
    let many = [&[ONE_SERIES, 200, 1][..], &[0; 200]].concat();
    let error = decode_samples(KIND_SAMPLES, &many, &mut Samples::default()).unwrap_err();
    assert!(error.to_string().contains("samples at offset 1: 1600 bytes needed"), "{error}");
    assert!(decode_samples(KIND_SAMPLES, &[128], &mut Samples::default()).is_err(), "an unknown flag");
    assert!(decode_samples(1, &[], &mut Samples::default()).is_err(), "another kind of frame");
}

/// Bytes of a frame of floats of version 2: two series, one sample a second earlier.
#[test]
fn frames_of_floats_of_version_2_decode() {
    let mut payload = vec![2];
    payload.extend_from_slice(&77i64.to_le_bytes());
    payload.extend_from_slice(&5000i64.to_le_bytes());
    payload.extend_from_slice(&[14, 1]);
    let columns = [vec![0], vec![1, 0, 0xcf, 0x0f]];
    for (mode, want) in columns.iter().zip([[5000, 5000], [5000, 4000]]) {
        let whole = [&*payload, mode, &9u64.to_le_bytes(), &u64::MAX.to_le_bytes()].concat();
        let mut read = mixed();
        decode_samples(KIND_OLD_FLOATS, &whole, &mut read).unwrap();
        let mut samples =
            Samples { arrival_ms: 77, duplicates: DuplicatePolicy::LastWins, ..Samples::default() };
        samples.push(7, want[0], 9);
        samples.push(6, want[1], u64::MAX);
        assert_eq!(read, samples);
        for len in 0..whole.len() {
            assert!(decode_samples(KIND_OLD_FLOATS, &whole[..len], &mut read).is_err(), "{len} bytes");
        }
    }
}

#[test]
fn frames_of_start_timestamps_of_version_2_decode() {
    let t0 = 1_700_000_000_000;
    let hex = concat!("03", "0e80a0abfef962f69fabfef962", "020000", "09afea01f59fabfef962");
    let payload: Vec<u8> =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
    let mut read = mixed();
    decode_samples(KIND_OLD_STARTS, &payload, &mut read).unwrap();
    assert_eq!((&*read.ids, &*read.times), (&[7, 8, 3][..], &[t0, t0, t0 - 15_000][..]));
    assert_eq!((&*read.start_times, &*read.values), (&[t0 - 5, t0 - 5, 0][..], &[][..]));
    for len in 0..payload.len() {
        assert!(decode_samples(KIND_OLD_STARTS, &payload[..len], &mut read).is_err(), "{len} bytes");
    }
    for at in 0..payload.len() * 8 {
        let mut bad = payload.clone();
        bad[at / 8] ^= 1 << (at % 8);
        assert!(decode_samples(KIND_OLD_STARTS, &bad, &mut read).is_err() || is_valid(&read));
    }
}

const KEY: u128 = 0x1234_5678_9abc_def0_0fed_cba9_8765_4321;
const HEADER: SegmentHeader = SegmentHeader { segment: 7, key: KEY, stale_sequence: 0 };
/// Version 1, frames of histograms: all of them, then those from the fourth on once more.
const GOLDEN_1: &[u8] = include_bytes!("../../../../testdata/wal/histograms.seg");
/// Version 2, written by a head: floats, histograms, start timestamps, deletions.
const GOLDEN_2: &[u8] = include_bytes!("../../../../testdata/wal/version-2.seg");
/// Version 3: the payloads of [`all`].
const GOLDEN_3: &[u8] = include_bytes!("../../../../testdata/wal/version-3.seg");

fn golden_segment() -> Vec<u8> {
    let mut out = HEADER.encode().to_vec();
    for (sequence, samples) in (11..).zip(all()) {
        let payload = encode(&samples);
        let header = FrameHeader { sequence, ..FrameHeader::for_payload(KIND_SAMPLES, 3, &payload) };
        header.put_frame(KEY, &payload, &mut out);
    }
    out
}

fn payloads(segment: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let header = SegmentHeader::decode(segment).unwrap();
    let payload = |frame: &FrameRef| segment[frame.payload.clone()].to_vec();
    let frames = scan_segment(segment, &header).frames;
    frames.iter().map(|frame| (frame.header.kind, payload(frame))).collect()
}

#[test]
fn the_golden_segment_of_version_1_reads_as_ever() {
    assert_eq!(SegmentHeader::decode(GOLDEN_1), Ok(HEADER));
    let found = payloads(GOLDEN_1);
    assert_eq!(found.len(), 2);
    for ((kind, payload), from) in found.iter().zip([0, 3]) {
        let mut want =
            Samples { arrival_ms: 77, duplicates: DuplicatePolicy::LastWins, ..Samples::default() };
        for (id, time, histogram) in histograms().split_off(from) {
            want.push_histogram(id, time, Arc::new(histogram));
        }
        let mut read = Samples::default();
        decode_samples(*kind, payload, &mut read).unwrap();
        assert_eq!((*kind, read), (KIND_OLD_HISTOGRAMS, want));
    }
}

#[test]
fn the_golden_segment_of_version_2_reads_as_ever() {
    let (mut counts, mut read) = ([0; 5], Samples::default());
    for (kind, payload) in payloads(GOLDEN_2) {
        if is_samples(kind) {
            decode_samples(kind, &payload, &mut read).unwrap();
            assert!(is_valid(&read));
            counts[usize::from(kind)] += read.ids.len();
        }
    }
    assert_eq!(counts, [0, 0, 83, 118, 102], "samples by kind of frame");
}

#[test]
fn the_golden_segment_of_version_3_reads_as_ever() {
    assert_eq!(golden_segment(), GOLDEN_3, "the bytes that are written have changed: that needs a version");
    let mut read = Samples::default();
    for ((kind, payload), samples) in payloads(GOLDEN_3).iter().zip(all()) {
        decode_samples(*kind, payload, &mut read).unwrap();
        assert_eq!(read, whole(&samples));
    }
}

/// A frame is there whole or not at all, wherever the file ends and whichever bit is another.
#[test]
fn a_golden_segment_cut_or_flipped_anywhere_gives_whole_frames() {
    let whole = payloads(GOLDEN_3);
    for len in SEGMENT_HEADER_BYTES..GOLDEN_3.len() {
        let mut cut = GOLDEN_3[..len].to_vec();
        for padding in [0, GOLDEN_3.len() - len] {
            cut.resize(len + padding, 0);
            let found = payloads(&cut);
            assert!(found.len() <= whole.len() && found == whole[..found.len()], "length {len}");
        }
    }
    for at in SEGMENT_HEADER_BYTES..GOLDEN_3.len() {
        for bit in 0..8 {
            let mut bad = GOLDEN_3.to_vec();
            bad[at] ^= 1 << bit;
            let found = payloads(&bad);
            assert!(found.iter().all(|frame| whole.contains(frame)), "byte {at}, bit {bit}");
            // A flipped bit of the padding after a frame belongs to none.
            assert!(found.len() + 1 >= whole.len(), "byte {at}, bit {bit}: the other frames stay");
        }
    }
}
