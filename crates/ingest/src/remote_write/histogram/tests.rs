//! Native histograms of both versions: golden requests, Prometheus's texts, limits, random messages.

use chronolith_base::bytes::put_uvarint;
use chronolith_base::{MemoryBudget, Reservation, Rng};
use chronolith_model::sample::STALE_NAN;
use chronolith_model::{LabelsBuilder, MetricKind};

use super::*;
use crate::remote_write::encode::{RequestEncoder, compress, put_histogram};
use crate::remote_write::tests::{field, samples_of, slow_histogram};
use crate::remote_write::v2::encode::{RequestEncoder as RequestEncoder2, SeriesExtras};
use crate::remote_write::v2::{self, SeriesNaming};
use crate::remote_write::{decode, new_batch, parse_labels};

const LIMIT: usize = 32 << 20;
const GOLDEN_V1: &[u8] = include_bytes!("../../../testdata/remote_write/request-1.0.bin");
const GOLDEN_V2: &[u8] = include_bytes!("../../../testdata/remote_write/request-2.0.bin");
const T0: i64 = 1_700_000_000_000;

fn reservation() -> Reservation {
    MemoryBudget::new("test", 1 << 30).reserve(0).unwrap()
}

fn side<C>(spans: &[(i32, u32)], counts: Vec<C>) -> Buckets<C> {
    let spans = spans.iter().map(|&(offset, length)| Span { offset, length }).collect();
    Buckets { spans, counts }
}

/// Name of a series and its histograms, with time and start time.
type Sent = (&'static str, Vec<(i64, i64, Arc<Histogram>)>);

/// The histograms of the golden requests by series, as their generator has them.
fn golden() -> [Sent; 3] {
    let exponential = IntHistogram {
        schema: 3,
        count: 21,
        sum: 18.4,
        zero_threshold: 1e-128,
        zero_count: 2,
        positive: side(&[(-2, 2), (3, 3)], vec![1, 3, 1, 2, 1]),
        negative: side(&[(4, 2)], vec![5, 6]),
        ..IntHistogram::default()
    };
    let stale = IntHistogram { sum: STALE_NAN, ..IntHistogram::default() };
    let custom = IntHistogram {
        schema: -53,
        count: 7,
        sum: -0.5,
        reset_hint: ResetHint::Reset,
        positive: side(&[(0, 2), (1, 1)], vec![1, 3, 3]),
        custom_values: [0.005, 2.5, 1e9].into(),
        ..IntHistogram::default()
    };
    let mut gauge = FloatHistogram { reset_hint: ResetHint::Gauge, ..exponential.to_float() };
    gauge.positive.counts[1] = 2.75;
    let int = |histogram| Arc::new(Histogram::Int(histogram));
    let float = |histogram| Arc::new(Histogram::Float(histogram));
    let custom_float = float(custom.to_float());
    [
        ("latency_seconds", vec![(T0, T0 - 7, int(exponential)), (T0 + 15_000, 0, int(stale))]),
        ("custom_seconds", vec![(T0, 0, int(custom))]),
        ("queue_seconds", vec![(T0, 0, float(gauge)), (T0 + 15_000, 0, custom_float)]),
    ]
}

#[test]
fn golden_histograms_are_read_as_they_were_written() {
    let mut batch = new_batch();
    decode(&compress(GOLDEN_V1), LIMIT, &mut reservation(), &mut batch).unwrap();
    for (name, want) in golden() {
        let of_name = |raw: &[u8]| {
            let mut labels = LabelsBuilder::new();
            parse_labels(raw, &mut labels).unwrap();
            labels.get("__name__") == Some(name)
        };
        let series = batch.series.iter().find(|series| of_name(batch.raw_of(series))).unwrap();
        let found = batch.histograms_of(series);
        let found = found.iter().map(|(idx, histogram)| (batch.times[*idx as usize], histogram));
        assert!(found.eq(want.iter().map(|(time, _, histogram)| (*time, histogram))), "{name}");
    }
    assert_eq!(batch.histograms.len(), 5);
}

#[test]
fn encoders_write_histograms_as_prometheus_does() {
    let (mut one, mut two) = (RequestEncoder::new(), RequestEncoder2::new());
    for (name, histograms) in golden() {
        let samples = histograms.iter().map(|(time, _, h)| (*time, h.clone())).collect::<Vec<_>>();
        one.push_histograms([("__name__", name)], &samples);
        let (kind, help, unit) = match name {
            "latency_seconds" => (MetricKind::Histogram, "Native.", ""),
            "custom_seconds" => (MetricKind::Unknown, "", ""),
            _ => (MetricKind::GaugeHistogram, "", "seconds"),
        };
        let extras = SeriesExtras { histograms: &histograms, kind, help, unit, ..SeriesExtras::default() };
        two.push_series([("__name__", name)], &[], &extras);
    }
    assert!(GOLDEN_V1.ends_with(one.body()));
    // Symbols have other numbers among more series: the histograms themselves are looked for.
    for (_, histograms) in golden() {
        for (time, start, histogram) in histograms {
            let mut out = Vec::new();
            put_histogram(&mut out, time, start, &histogram);
            let message = field(3, 2, &out);
            assert!(GOLDEN_V2.windows(message.len()).any(|window| window == message));
        }
    }
    let mut batch = new_batch();
    let (mut held, mut held_histograms) = (reservation(), reservation());
    v2::decode(&two.compressed(), LIMIT, &mut held, &mut held_histograms, SeriesNaming::AsSent, &mut batch)
        .unwrap();
    let found = batch.histograms.iter().map(|(_, histogram)| histogram.clone()).collect::<Vec<_>>();
    let want = golden().into_iter().flat_map(|(_, samples)| samples.into_iter().map(|(_, _, h)| h));
    assert_eq!(found, want.collect::<Vec<_>>());
    assert_eq!(batch.start_times, [T0 - 7, 0, 0, 0, 0]);
}

/// Requires that a series with `histogram` is refused alone, with this text, next to a good one.
#[track_caller]
fn check_invalid(histogram: &Histogram, want: &str) {
    let good = Arc::new(Histogram::Int(IntHistogram::default()));
    let histogram = Arc::new(histogram.clone());
    let mut one = RequestEncoder::new();
    one.push_histograms([("__name__", "h")], &[(1, histogram.clone()), (2, good.clone())]);
    let mut batch = new_batch();
    let refused = decode(&one.compressed(), LIMIT, &mut reservation(), &mut batch).unwrap();
    assert_eq!((refused.invalid_histogram_count, refused.first.as_deref()), (1, Some(want)));
    assert_eq!(batch.times, [2]);
    let mut two = RequestEncoder2::new();
    let histograms = [(1, 0, histogram), (2, 0, good)];
    let extras = SeriesExtras { histograms: &histograms, ..SeriesExtras::default() };
    two.push_series([("__name__", "h")], &[], &extras);
    let naming = SeriesNaming::AsSent;
    let (mut held, mut held_histograms) = (reservation(), reservation());
    let refused = v2::decode(&two.compressed(), LIMIT, &mut held, &mut held_histograms, naming, &mut batch);
    let refused = refused.unwrap();
    let want = format!(r#"{want} for series {{__name__="h"}}"#);
    assert_eq!((refused.invalid_histogram_count, refused.first), (1, Some(want)));
    assert_eq!(batch.times, [2]);
}

#[test]
fn invalid_histograms_are_refused_in_the_words_of_prometheus() {
    let int = |histogram: IntHistogram| Histogram::Int(histogram);
    let base = IntHistogram { count: 3, positive: side(&[(0, 2)], vec![1, 2]), ..IntHistogram::default() };
    check_invalid(
        &int(IntHistogram { count: 4, ..base.clone() }),
        "3 observations found in buckets, but the Count field is 4: histogram's observation count should equal the \
         number of observations found in the buckets (in absence of NaN)",
    );
    check_invalid(
        &int(IntHistogram { sum: f64::NAN, count: 2, ..base.clone() }),
        "3 observations found in buckets, but the Count field is 2: histogram's observation count should be at \
         least the number of observations found in the buckets",
    );
    check_invalid(
        &int(IntHistogram { schema: -5, ..base.clone() }),
        "histogram has an invalid schema, which must be between -4 and 8 for exponential buckets, or -53 for custom \
         buckets, got schema -5",
    );
    check_invalid(
        &int(IntHistogram { positive: side(&[(0, 3)], vec![1, 2]), ..base.clone() }),
        "positive side: spans need 3 buckets, have 2 buckets: histogram spans specify different number of buckets \
         than provided",
    );
    check_invalid(
        &int(IntHistogram { positive: side(&[(0, 1), (-1, 1)], vec![1, 2]), ..base.clone() }),
        "positive side: span number 2 with offset -1: histogram has a span whose offset is negative",
    );
    check_invalid(
        &int(IntHistogram { negative: side(&[(0, 1)], vec![u64::MAX]), ..base.clone() }),
        "negative side: bucket number 1 has observation count of -1: histogram has a bucket whose observation count \
         is negative",
    );
    let custom = IntHistogram { schema: -53, custom_values: [2.0, 1.0].into(), ..base };
    check_invalid(
        &int(custom.clone()),
        "custom buckets: previous bound is 2.000000 and current is 1.000000: histogram custom bounds must be in \
         strictly increasing order",
    );
    check_invalid(
        &int(IntHistogram { custom_values: [].into(), ..custom }),
        "custom buckets: only 0 custom bounds defined which is insufficient to cover total span length of 2: \
         histogram custom bounds are too few",
    );
    let float = FloatHistogram { count: -1.0, ..FloatHistogram::default() };
    check_invalid(
        &Histogram::Float(float),
        "observation count is  -1: histogram's observation count is negative",
    );
}

/// Bucket indexes beyond 32 bits were stored and wrapped around to buckets near zero, so that quantiles were
/// 0 or NaN, because only lengths and signs of spans were checked. A histogram with one is refused
/// alone, in the words of Prometheus 3.16; the last index of either end is stored.
#[test]
fn bucket_indexes_beyond_32_bits_are_refused() {
    const LAST: i32 = i32::MAX;
    let out = |number: usize, edge: &str, idx: i64| {
        format!(
            "span number {number} {edge} at bucket index {idx}: histogram has a span whose bucket index is out of \
             range"
        )
    };
    let refused: [(&[(i32, u32)], String); 12] = [
        (&[(LAST, 1), (5, 1)], out(2, "ends", 2_147_483_653)),
        (&[(LAST, 2)], out(1, "ends", 2_147_483_648)),
        (&[(i32::MIN, 1)], out(1, "starts", -2_147_483_648)),
        (&[(i32::MIN, 0), (5, 1)], out(1, "starts", -2_147_483_648)),
        (&[(1_500_000_000, 1), (1_500_000_000, 1), (10, 1)], out(2, "ends", 3_000_000_001)),
        (&[(0, 1), (LAST, 1)], out(2, "ends", 2_147_483_648)),
        (&[(-1, 1), (LAST, 1), (0, 1)], out(3, "ends", 2_147_483_648)),
        (&[(LAST / 2, 1), (LAST / 2, 1), (1, 1)], out(3, "ends", 2_147_483_649)),
        (&[(LAST, 0), (1, 1)], out(2, "ends", 2_147_483_648)),
        (&[(LAST, 0), (LAST, 0)], out(2, "ends", 4_294_967_293)),
        (&[(0, 1), (LAST, 0), (0, 1)], out(3, "ends", 2_147_483_648)),
        (&[(-5, 3), (LAST, 1), (2, 1)], out(3, "ends", 2_147_483_648)),
    ];
    for (spans, why) in refused {
        let count = spans.iter().map(|(_, length)| *length as usize).sum::<usize>();
        for is_negative in [false, true] {
            let mut ints =
                IntHistogram { schema: 0, count: count as u64, sum: 1.0, ..IntHistogram::default() };
            let filled = side(spans, vec![1; count]);
            *if is_negative { &mut ints.negative } else { &mut ints.positive } = filled;
            let want = format!("{} side: {why}", if is_negative { "negative" } else { "positive" });
            check_invalid(&Histogram::Float(ints.to_float()), &want);
            check_invalid(&Histogram::Int(ints), &want);
        }
    }
    let custom = IntHistogram {
        schema: -53,
        count: 1,
        positive: side(&[(LAST, 1)], vec![1]),
        custom_values: [1.0].into(),
        ..IntHistogram::default()
    };
    check_invalid(
        &Histogram::Int(custom),
        "custom buckets: only 1 custom bounds defined which is insufficient to cover total span length of \
         2147483648: histogram custom bounds are too few",
    );
    let stored: [&[(i32, u32)]; 5] = [
        &[(LAST, 1)],
        &[(LAST - 1, 2)],
        &[(i32::MIN + 1, 1)],
        &[(i32::MIN + 1, 1), (LAST, 1), (LAST - 2, 1)],
        &[(-1, 1), (LAST, 1)],
    ];
    for spans in stored {
        let count = spans.iter().map(|(_, length)| *length as usize).sum::<usize>();
        let positive = side(spans, vec![1; count]);
        let histogram = IntHistogram { count: count as u64, positive, ..IntHistogram::default() };
        assert_eq!(histogram.validate(), Ok(()), "{spans:?}");
    }
}

#[test]
fn finer_schemas_are_made_coarser_before_they_are_checked() {
    let fine = IntHistogram {
        schema: 9,
        count: 6,
        positive: side(&[(1, 3)], vec![1, 2, 3]),
        ..IntHistogram::default()
    };
    let mut one = RequestEncoder::new();
    one.push_histograms([("__name__", "h")], &[(1, Arc::new(Histogram::Int(fine)))]);
    let mut batch = new_batch();
    decode(&one.compressed(), LIMIT, &mut reservation(), &mut batch).unwrap();
    let Histogram::Int(found) = &*batch.histograms[0].1 else { panic!("an integer histogram") };
    assert_eq!((found.schema, &found.positive), (8, &side(&[(1, 2)], vec![3, 3])));
}

#[test]
fn parts_have_limits_and_memory_is_paid_for() {
    let check = |histogram: &[u8], want: &str| {
        let body = compress(&field(1, 2, &field(4, 2, histogram)));
        let error = decode(&body, LIMIT, &mut reservation(), &mut new_batch()).unwrap_err();
        assert_eq!(error.to_string(), want);
    };
    check(&[0x42, 0].repeat(SPAN_COUNT_MAX + 1), "histogram has more than 65536 spans");
    check(&[0x48, 0].repeat(BUCKET_COUNT_MAX + 1), "histogram has more than 65536 buckets");
    check(&field(12, 2, &[0; BUCKET_COUNT_MAX + 1]), "histogram has more than 65536 buckets");
    check(&field(13, 2, &[0; 8 * (BUCKET_COUNT_MAX + 1)]), "histogram has more than 65536 buckets");
    check(&field(10, 1, &[0; 8]).repeat(BUCKET_COUNT_MAX + 1), "histogram has more than 65536 buckets");
    let bounds = field(16, 2, &vec![0; 8 * (CUSTOM_BOUND_COUNT_MAX + 1)]);
    check(&bounds, "histogram has more than 65536 custom bounds");
    check(&field(13, 2, &[0; 9]), "protobuf: packed numbers are cut off at offset 6");
    check(&[0x0d, 0, 0, 0, 0], "protobuf: field has the wrong wire type at offset 5");
    // Many empty histograms are a small body and much memory.
    let body = compress(&field(1, 2, &[0x22, 0].repeat(100_000)));
    let budget = MemoryBudget::new("write", 4 << 20);
    let mut held = budget.reserve(0).unwrap();
    let error = decode(&body, LIMIT, &mut held, &mut new_batch()).unwrap_err().to_string();
    assert!(error.starts_with("write memory limit of 4194304 bytes reached"), "{error}");
}

#[test]
fn bounds_that_do_not_change_are_shared() {
    let (name, samples) = &golden()[1];
    let (_, _, histogram) = &samples[0];
    let samples = (0..3).map(|time| (time, histogram.clone())).collect::<Vec<_>>();
    let mut one = RequestEncoder::new();
    one.push_histograms([("__name__", *name)], &samples);
    let mut batch = new_batch();
    decode(&one.compressed(), LIMIT, &mut reservation(), &mut batch).unwrap();
    let bounds = |at: usize| match &*batch.histograms[at].1 {
        Histogram::Int(histogram) => histogram.custom_values.clone(),
        Histogram::Float(_) => panic!("an integer histogram"),
    };
    assert!(Arc::ptr_eq(&bounds(0), &bounds(1)) && Arc::ptr_eq(&bounds(1), &bounds(2)));
}

/// The fields of a histogram, most of them what they should be.
fn random_fields(rng: &Rng) -> Vec<u8> {
    let mut out = Vec::new();
    let int = |number: u64, value: u64, out: &mut Vec<u8>| {
        put_uvarint(out, number << 3);
        put_uvarint(out, value);
    };
    for _ in 0..rng.below(8) {
        let number = 1 + rng.below(17);
        let small = rng.below(4);
        match number {
            _ if rng.below(100) == 0 => out.push(rng.next_u64() as u8),
            1 | 6 | 14 | 15 | 17 => int(number, rng.next_u64() >> (40 + rng.below(24)), &mut out),
            4 => int(4, rng.next_u64() >> (58 + rng.below(6)), &mut out),
            2 | 3 | 5 | 7 => out.extend(field(number, 1, &f64::to_le_bytes(rng.below(50) as f64))),
            8 | 11 => {
                let mut span = Vec::new();
                int(1, rng.below(12), &mut span);
                int(2, small, &mut span);
                out.extend(field(number, 2, &span));
                // Spans without as many counts are refused: mostly there are.
                if rng.below(4) > 0 {
                    let deltas = (0..small).map(|_| 2 * rng.below(20) as u8).collect::<Vec<_>>();
                    out.extend(field(number + 1, 2, &deltas));
                    let counts = (0..small).flat_map(|_| f64::to_le_bytes(rng.below(9) as f64));
                    out.extend(field(number + 2, 2, &counts.collect::<Vec<_>>()));
                }
            }
            9 | 12 => int(number, rng.below(40), &mut out),
            10 | 13 | 16 => {
                let values = (0..small).flat_map(|i| f64::to_le_bytes(i as f64));
                out.extend(field(number, 2, &values.collect::<Vec<_>>()));
            }
            _ => {}
        }
    }
    if rng.below(3) > 0 {
        // A sum that is not a number lets integer counts be less than the count.
        out.extend(field(3, 1, &f64::NAN.to_le_bytes()));
        int(1, 1 << 40, &mut out);
    }
    out
}

#[test]
fn random_histograms_are_read_as_the_slow_decoder_reads_them() {
    let rng = Rng::from_seed(5);
    let (mut batch, mut valid, mut invalid) = (new_batch(), 0, 0);
    for _ in 0..50_000 {
        let message = random_fields(&rng);
        let body = compress(&field(1, 2, &field(4, 2, &message)));
        let found = decode(&body, LIMIT, &mut reservation(), &mut batch).ok();
        let want = slow_histogram(&message);
        assert_eq!(found.is_some(), want.is_some(), "{message:02x?}");
        let (Some(refused), Some(want)) = (found, want) else { continue };
        let (_, texts) = samples_of(&batch, &batch.series[0]);
        assert_eq!(texts.first(), want.as_ref().map(|(_, text)| text), "{message:02x?}");
        assert_eq!(refused.invalid_histogram_count, u64::from(want.is_none()));
        valid += u32::from(want.is_some());
        invalid += u32::from(want.is_none());
    }
    assert!(valid > 5_000 && invalid > 5_000, "{valid} valid, {invalid} invalid");
}
