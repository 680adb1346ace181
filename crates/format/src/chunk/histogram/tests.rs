//! Golden chunks of Prometheus's library, round trips, resuming, and damage of every kind.

use std::sync::Arc;

use chronolith_base::Rng;
use chronolith_model::histogram::{Buckets, Count, HistogramOf, ResetHint, Span};
use chronolith_model::sample::STALE_NAN;
use chronolith_model::{Columns, FloatHistogram, Histogram, IntHistogram, TimeRange};

use super::bits::{BitReader, BitWriter, XorTrack};
use super::*;
use crate::chunk::xor::EncodedChunk;

const GOLDEN: &str = include_str!("../../../testdata/histogram/chunks.txt");

/// Samples and the chunks that Prometheus makes of them.
struct Case<'a> {
    name: &'a str,
    count_max: u16,
    samples: Vec<(i64, Arc<Histogram>)>,
    chunks: Vec<(u8, Vec<u8>)>,
}

fn list<T>(text: &str, parse: impl Fn(&str) -> T) -> Vec<T> {
    text.split(',').filter(|part| !part.is_empty()).map(parse).collect()
}

fn float(text: &str) -> f64 {
    f64::from_bits(u64::from_str_radix(text, 16).unwrap())
}

fn spans(text: &str) -> Vec<Span> {
    list(text, |part| {
        let (offset, length) = part.split_once(':').unwrap();
        Span { offset: offset.parse().unwrap(), length: length.parse().unwrap() }
    })
}

fn histogram_of<C: Count>(
    head: &[&str],
    parts: &[&str],
    count: impl Fn(&str) -> C,
    side: impl Fn(&str, &str) -> Buckets<C>,
) -> HistogramOf<C> {
    HistogramOf {
        reset_hint: ResetHint::from_number(head[2].parse().unwrap()).unwrap(),
        schema: head[3].parse().unwrap(),
        zero_threshold: float(head[4]),
        zero_count: count(head[5]),
        count: count(head[6]),
        sum: float(head[7]),
        positive: side(parts[1], parts[2]),
        negative: side(parts[3], parts[4]),
        custom_values: list(parts[5], float).into(),
    }
}

fn sample(line: &str) -> (i64, Arc<Histogram>) {
    let parts: Vec<&str> = line.split('|').collect();
    let head: Vec<&str> = parts[0].split(' ').collect();
    let histogram = if head[0] == "int" {
        let side = |at: &str, deltas: &str| {
            Buckets::from_deltas(spans(at), list(deltas, |n| n.parse().unwrap())).unwrap()
        };
        Histogram::Int(histogram_of(&head, &parts, |n| n.parse().unwrap(), side))
    } else {
        let side = |at: &str, counts: &str| Buckets { spans: spans(at), counts: list(counts, float) };
        Histogram::Float(histogram_of(&head, &parts, float, side))
    };
    (head[1].parse().unwrap(), Arc::new(histogram))
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

fn golden() -> Vec<Case<'static>> {
    let mut cases: Vec<Case<'_>> = Vec::new();
    for line in GOLDEN.lines() {
        if let Some(rest) = line.strip_prefix("case ") {
            let (name, count_max) = rest.split_once(' ').unwrap();
            let count_max = count_max.parse().unwrap();
            cases.push(Case { name, count_max, samples: Vec::new(), chunks: Vec::new() });
            continue;
        }
        let case = cases.last_mut().unwrap();
        match line.strip_prefix("chunk ").and_then(|rest| rest.split_once(' ')) {
            Some((encoding, hex)) => case.chunks.push((encoding.parse().unwrap(), unhex(hex))),
            None => case.samples.push(sample(line)),
        }
    }
    assert_eq!(cases.len(), 72);
    cases
}

fn encode_samples(samples: &[(i64, Arc<Histogram>)], count_max: u16) -> Vec<EncodedChunk> {
    let (times, histograms): (Vec<_>, Vec<_>) = samples.iter().cloned().unzip();
    encode(&times, &histograms, count_max)
}

/// Requires that times and histograms equal `samples`; staleness markers are compared as markers only.
#[track_caller]
fn check_same(found: &Columns, samples: &[(i64, Arc<Histogram>)], name: &str) {
    assert_eq!(found.times, samples.iter().map(|(time, _)| *time).collect::<Vec<_>>(), "{name}");
    for ((_, found), (time, want)) in found.histograms.iter().zip(samples) {
        let stale = chronolith_model::sample::is_stale(want.sum());
        let same = if stale {
            found.sum().to_bits() == want.sum().to_bits()
        } else {
            joined(found).is_identical(&joined(want))
        };
        assert!(same, "{name} at {time}: {found:?} instead of {want:?}");
    }
}

/// Without empty buckets, in the fewest spans: chunks add empty buckets.
fn joined(histogram: &Histogram) -> Histogram {
    fn side<C: Count>(buckets: &Buckets<C>) -> Buckets<C> {
        let full = buckets.walk().filter(|(_, count)| *count != C::default());
        let (at, counts): (Vec<i32>, Vec<C>) = full.unzip();
        let mut next = 0;
        let place = |&idx: &i32| {
            let offset = idx - next;
            next = idx + 1;
            Span { offset, length: 1 }
        };
        Buckets { spans: at.iter().map(place).collect(), counts }
    }
    match histogram.clone() {
        Histogram::Int(h) => {
            Histogram::Int(IntHistogram { positive: side(&h.positive), negative: side(&h.negative), ..h })
        }
        Histogram::Float(h) => {
            Histogram::Float(FloatHistogram { positive: side(&h.positive), negative: side(&h.negative), ..h })
        }
    }
}

#[test]
fn chunks_are_those_of_prometheus() {
    let mut headers = std::collections::BTreeMap::new();
    for case in golden() {
        let found = encode_samples(&case.samples, case.count_max);
        for (at, (found, (encoding, bytes))) in found.iter().zip(&case.chunks).enumerate() {
            assert_eq!(found.encoding, *encoding);
            assert_eq!(found.bytes, *bytes, "{} chunk {at}", case.name);
            *headers.entry((*encoding, bytes[2])).or_insert(0) += 1;
        }
        assert_eq!(found.len(), case.chunks.len(), "{}", case.name);
    }
    assert_eq!(headers.len(), 8, "every header of both kinds is there: {headers:?}");
}

#[test]
fn golden_chunks_are_read_as_they_were_written() {
    for case in golden() {
        let mut columns = Columns::default();
        for (encoding, bytes) in &case.chunks {
            let before = columns.len();
            decode(*encoding, bytes, TimeRange::ALL, &mut columns).unwrap();
            assert_eq!(first_time(*encoding, bytes), Ok(columns.times[before]));
            let hints = columns.histograms[before..].iter().map(|(_, h)| (h.reset_hint(), h.sum()));
            for (at, (hint, sum)) in hints.enumerate() {
                let want = match reset_header(bytes).unwrap() {
                    _ if chronolith_model::sample::is_stale(sum) => ResetHint::Unknown,
                    ResetHeader::Gauge => ResetHint::Gauge,
                    _ if at > 0 => ResetHint::NotReset,
                    _ => ResetHint::Unknown,
                };
                assert_eq!(hint, want, "{}", case.name);
            }
        }
        check_same(&columns, &case.samples, case.name);
        // A range gives the samples in it.
        let (start, end) = (case.samples[3].0, case.samples[9].0);
        let mut part = Columns::default();
        for (encoding, bytes) in &case.chunks {
            decode(*encoding, bytes, TimeRange::new(start, end), &mut part).unwrap();
        }
        check_same(&part, &case.samples[3..9], case.name);
    }
}

#[test]
fn a_resumed_appender_goes_on_as_if_it_had_not_stopped() {
    for case in golden() {
        let mut open: Option<HistogramAppender> = None;
        let mut chunks = Vec::new();
        for (time, histogram) in &case.samples {
            let resumed = open.map(|open| {
                let (encoding, mut bytes) = (open.encoded().encoding, open.bytes().to_vec());
                // Bits after the last one are ignored.
                bytes.push(0xff);
                let resumed = HistogramAppender::resume(encoding, &bytes).unwrap();
                assert_eq!(resumed.encoded(), open.encoded(), "{}", case.name);
                resumed
            });
            open = match resumed {
                Some(mut current) if current.count() < case.count_max => {
                    match current.append(*time, histogram) {
                        Some(next) => {
                            chunks.push(current.encoded());
                            Some(next)
                        }
                        None => Some(current),
                    }
                }
                full => {
                    let next = HistogramAppender::start(full.as_ref(), *time, histogram);
                    chunks.extend(full.map(|full| full.encoded()));
                    Some(next)
                }
            };
        }
        chunks.extend(open.map(|open| open.encoded()));
        let found = chunks.iter().map(|chunk| (chunk.encoding, chunk.bytes.clone())).collect::<Vec<_>>();
        assert!(found == case.chunks, "{}", case.name);
    }
}

#[test]
fn any_numbers_round_trip() {
    let rng = Rng::from_seed(7);
    let mut numbers = vec![0, 1, u64::MAX, 1 << 63];
    for shift in 0..64 {
        numbers.extend([(1u64 << shift) - 1, 1 << shift, (1 << shift) + 1]);
        numbers.push(rng.next_u64() >> shift);
    }
    let mut bits = BitWriter::after_bytes(Vec::new());
    let mut track = XorTrack::new(0);
    for &number in &numbers {
        bits.put_varbit_uint(number);
        bits.put_varbit_int(number.cast_signed());
        bits.put_varbit_int(number.cast_signed().wrapping_neg());
        bits.put_xor(&mut track, number);
    }
    let bytes = bits.bytes;
    let mut reader = BitReader::new(&bytes, 0);
    let mut track = XorTrack::new(0);
    for &number in &numbers {
        assert_eq!(reader.varbit_uint(), Ok(number));
        assert_eq!(reader.varbit_int(), Ok(number.cast_signed()));
        assert_eq!(reader.varbit_int(), Ok(number.cast_signed().wrapping_neg()));
        reader.xor(&mut track).unwrap();
        assert_eq!(track.bits, number);
    }
    assert!(reader.bits_left() < 8);
}

/// A histogram of anything, valid or not but for its shape, and inside the limits.
fn random_histogram(rng: &Rng) -> Histogram {
    let any_float = |rng: &Rng| match rng.below(5) {
        0 => f64::from_bits(rng.next_u64()),
        1 => rng.below(1000) as f64 / 1000.0,
        2 => [0.0, -0.0, f64::INFINITY, f64::NAN, 1e-300, 2f64.powi(-243), 2f64.powi(11)]
            [rng.below(7) as usize],
        _ => rng.below(1 << 20) as f64,
    };
    let random_spans = |rng: &Rng| -> Vec<Span> {
        let span = |_| Span { offset: rng.below(9) as i32, length: rng.below(4) as u32 };
        (0..rng.below(5)).map(span).collect()
    };
    let schema = if rng.below(3) == 0 { -53 } else { rng.below(13) as i32 - 4 };
    let custom = if schema == -53 { (0..rng.below(5)).map(|_| any_float(rng)).collect() } else { Vec::new() };
    let reset_hint = ResetHint::from_number(rng.below(4)).unwrap();
    let (positive, negative) = (random_spans(rng), random_spans(rng));
    let lengths = [&positive, &negative].map(|spans| layout::bucket_count(spans));
    let sum = if rng.below(20) == 0 { STALE_NAN } else { any_float(rng) };
    let zero_threshold = any_float(rng).abs();
    if rng.below(2) == 0 {
        let counts = |n: usize| (0..n).map(|_| rng.next_u64() >> (1 + rng.below(63))).collect();
        return Histogram::Int(IntHistogram {
            reset_hint,
            schema,
            zero_threshold,
            zero_count: rng.next_u64() >> rng.below(64),
            count: rng.next_u64() >> rng.below(64),
            sum,
            positive: Buckets { spans: positive, counts: counts(lengths[0]) },
            negative: Buckets { spans: negative, counts: counts(lengths[1]) },
            custom_values: custom.into(),
        });
    }
    let counts = |n: usize| (0..n).map(|_| any_float(rng)).collect();
    Histogram::Float(FloatHistogram {
        reset_hint,
        schema,
        zero_threshold,
        zero_count: any_float(rng),
        count: any_float(rng),
        sum,
        positive: Buckets { spans: positive, counts: counts(lengths[0]) },
        negative: Buckets { spans: negative, counts: counts(lengths[1]) },
        custom_values: custom.into(),
    })
}

#[test]
fn anything_round_trips_bit_for_bit() {
    let rng = Rng::from_seed(11);
    let mut shared = 0;
    for round in 0..2000 {
        let mut time = rng.next_u64().cast_signed() / 8;
        let mut current = random_histogram(&rng);
        let mut samples = Vec::new();
        for _ in 0..20 {
            // Mostly the same layout with other counts, so that chunks have more than one sample.
            if rng.below(6) == 0 {
                current = random_histogram(&rng);
            } else if let Histogram::Int(histogram) = &mut current {
                histogram.count = histogram.count.saturating_add(rng.below(100));
                histogram.positive.counts.iter_mut().for_each(|c| *c += rng.below(50));
            } else if let Histogram::Float(histogram) = &mut current {
                histogram.count += rng.below(100) as f64 / 8.0;
                histogram.negative.counts.iter_mut().for_each(|c| *c += rng.below(50) as f64 / 4.0);
            }
            time += 1 + (rng.next_u64() >> (2 + rng.below(62))).cast_signed() / 64;
            samples.push((time, Arc::new(current.clone())));
        }
        let mut columns = Columns::default();
        let chunks = encode_samples(&samples, 120);
        for chunk in &chunks {
            decode(chunk.encoding, &chunk.bytes, TimeRange::ALL, &mut columns).unwrap();
        }
        shared += samples.len() - chunks.len();
        check_exact(&columns, &samples, round);
    }
    assert!(shared > 2000, "only {shared} samples share a chunk");
}

/// As [`check_same`], but every bucket counts, empty ones of negative zero too.
#[track_caller]
fn check_exact(found: &Columns, samples: &[(i64, Arc<Histogram>)], round: u64) {
    let text = |histogram: &Histogram| match histogram {
        Histogram::Int(h) => all_bits(h, |c| c),
        Histogram::Float(h) => all_bits(h, f64::to_bits),
    };
    assert_eq!(found.times, samples.iter().map(|(time, _)| *time).collect::<Vec<_>>(), "round {round}");
    for ((_, found), (time, want)) in found.histograms.iter().zip(samples) {
        assert_eq!(text(found), text(want), "round {round} at {time}");
    }
}

fn all_bits<C: Count>(histogram: &HistogramOf<C>, bits: impl Fn(C) -> u64) -> Vec<u64> {
    if histogram.is_stale() {
        return vec![histogram.sum.to_bits()];
    }
    let mut out = vec![
        i64::from(histogram.schema).cast_unsigned(),
        // The chunk has no room for the sign of a zero threshold, nor for the sign of a zero bound.
        (histogram.zero_threshold + 0.0).to_bits(),
        bits(histogram.zero_count),
        bits(histogram.count),
        histogram.sum.to_bits(),
    ];
    for (side, buckets) in [&histogram.positive, &histogram.negative].into_iter().enumerate() {
        let full = buckets.walk().filter(|(_, count)| bits(*count) != 0);
        out.extend(full.flat_map(|(idx, count)| [side as u64, i64::from(idx).cast_unsigned(), bits(count)]));
    }
    out.extend(histogram.custom_values.iter().map(|bound| (bound + 0.0).to_bits()));
    out
}

#[test]
fn damaged_chunks_are_errors_or_chunks_but_no_panic() {
    let mut columns = Columns::default();
    let mut check = |encoding: u8, bytes: &[u8]| {
        columns.clear();
        let result = decode(encoding, bytes, TimeRange::ALL, &mut columns);
        let _ = HistogramAppender::resume(encoding, bytes);
        let _ = first_time(encoding, bytes);
        assert!(columns.times.is_sorted_by(|a, b| a < b));
        result.is_ok()
    };
    for case in golden().into_iter().step_by(5) {
        let (encoding, bytes) = &case.chunks[case.chunks.len() / 2];
        for end in 0..bytes.len() {
            let cut = check(*encoding, &bytes[..end]);
            assert!(!cut || end + 1 == bytes.len(), "{} cut at {end} of {}", case.name, bytes.len());
            check(5 - *encoding, &bytes[..end]);
        }
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            check(*encoding, &damaged);
        }
    }
    let rng = Rng::from_seed(3);
    for _ in 0..20_000 {
        let mut bytes = vec![0u8; rng.below(200) as usize];
        rng.fill(&mut bytes);
        check(2 + rng.below(2) as u8, &bytes);
    }
    assert!(!check(4, &[0, 1, 0, 0]));
}

#[test]
fn what_a_layout_claims_is_bounded_by_what_is_there() {
    let layout = |put: &dyn Fn(&mut BitWriter)| {
        let mut bits = BitWriter::after_bytes(vec![0, 1, 0]);
        bits.put(0, 8);
        put(&mut bits);
        (0..8).for_each(|_| bits.put(0, 64));
        bits.bytes
    };
    let check = |bytes: Vec<u8>, want: &str| {
        for encoding in [ENCODING_HISTOGRAM, ENCODING_FLOAT_HISTOGRAM] {
            let error = decode(encoding, &bytes, TimeRange::ALL, &mut Columns::default()).unwrap_err();
            assert!(error.to_string().contains(want), "{error}");
        }
    };
    check(layout(&|bits| bits.put_varbit_int(53)), "schema");
    check(layout(&|bits| bits.put_varbit_int(-10)), "schema");
    let spans = |bits: &mut BitWriter, spans: &[(u64, i64)]| {
        bits.put_varbit_int(0);
        bits.put_varbit_uint(spans.len() as u64);
        for &(length, offset) in spans {
            bits.put_varbit_uint(length);
            bits.put_varbit_int(offset);
        }
    };
    check(layout(&|bits| spans(bits, &[(1 << 32, 0)])), "span of");
    check(layout(&|bits| spans(bits, &[(1, i64::from(i32::MAX) + 1)])), "span of");
    check(layout(&|bits| spans(bits, &[(u64::from(u32::MAX), 0)])), "buckets of");
    check(layout(&|bits| spans(bits, &[(40_000, 0), (40_000, 0)])), "buckets of");
    check(layout(&|bits| spans(bits, &[(60_000, 0)])), "buckets of");
    let many = |bits: &mut BitWriter| {
        bits.put_varbit_int(0);
        bits.put_varbit_uint(60_000);
    };
    check(layout(&many), "spans of");
    let bounds = |bits: &mut BitWriter| {
        bits.put_varbit_int(-53);
        bits.put_varbit_uint(0);
        bits.put_varbit_uint(0);
        bits.put_varbit_uint(60_000);
    };
    check(layout(&bounds), "custom bounds of");
}

#[test]
fn fine_schemas_are_made_coarser_and_empty_spans_folded() {
    let buckets = Buckets {
        spans: vec![
            Span { offset: 3, length: 0 },
            Span { offset: 2, length: 2 },
            Span { offset: 1, length: 0 },
        ],
        counts: vec![1u64, 2],
    };
    let histogram = IntHistogram { schema: 0, count: 3, positive: buckets, ..IntHistogram::default() };
    let fine = IntHistogram { schema: 9, ..histogram.clone() };
    let one = |histogram: IntHistogram| {
        let chunks = encode_samples(&[(5, Arc::new(Histogram::Int(histogram)))], 120);
        let mut columns = Columns::default();
        decode(2, &chunks[0].bytes, TimeRange::ALL, &mut columns).unwrap();
        let Histogram::Int(found) = &*columns.histograms[0].1 else { panic!("an integer histogram") };
        (found.schema, found.positive.clone())
    };
    let want = Buckets { spans: vec![Span { offset: 5, length: 2 }], counts: vec![1, 2] };
    assert_eq!(one(histogram), (0, want));
    let want = Buckets { spans: vec![Span { offset: 3, length: 1 }], counts: vec![3] };
    assert_eq!(one(fine), (8, want));
}

#[test]
fn counts_below_zero_are_damage() {
    let chunk = encode_samples(&[(5, Arc::new(Histogram::Int(IntHistogram::default())))], 120);
    let mut bits = BitWriter::after_bytes(vec![0, 1, 0]);
    bits.put(0, 8);
    bits.put_varbit_int(0);
    bits.put_varbit_uint(1);
    bits.put_varbit_uint(1);
    bits.put_varbit_int(0);
    bits.put_varbit_uint(0);
    for number in [5, 0, 0] {
        bits.put_varbit_int(number);
    }
    bits.put(0, 64);
    bits.put_varbit_int(-1);
    let error = decode(2, &bits.bytes, TimeRange::ALL, &mut Columns::default()).unwrap_err();
    assert!(error.to_string().contains("negative"), "{error}");
    // The same without buckets is a chunk.
    decode(2, &chunk[0].bytes, TimeRange::ALL, &mut Columns::default()).unwrap();
}
