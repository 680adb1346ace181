//! Random series round-trip; random bytes end without a panic.

use proptest::prelude::{Just, Strategy, any, prop, prop_oneof};

use super::*;
use crate::select::frame;

/// Distance to the time before, bits, start, buckets of a histogram.
type AnySample = (i64, u64, i64, Option<(u32, u8)>);

fn any_sample() -> impl Strategy<Value = AnySample> {
    let step = prop_oneof![Just(15_000), 1_i64..100, 1_i64..1_000_000_000_000];
    let bits = prop_oneof![any::<u64>(), (0_u32..500).prop_map(|value| f64::from(value).to_bits())];
    let start = prop_oneof![Just(0), Just(0), Just(5), any::<i64>()];
    (step, bits, start, prop::option::weighted(0.2, (0_u32..20, 0_u8..4)))
}

fn columns_of(samples: &[AnySample]) -> Columns {
    let mut columns = Columns::default();
    let mut time = -1_000_000;
    for (step, bits, start, buckets) in samples {
        time += step;
        match buckets {
            None => columns.push(time, f64::from_bits(*bits)),
            Some((bucket_count, hint)) => {
                let hint = ResetHint::from_number(u64::from(*hint)).unwrap_or_default();
                columns.push_histogram(time, histogram(bits >> 40, *bucket_count, hint));
            }
        }
        if *start != 0 {
            columns.set_start_time(*start);
        }
    }
    columns
}

proptest::proptest! {
    #[test]
    fn random_series_round_trip(
        all in prop::collection::vec(prop::collection::vec(any_sample(), 0..150), 0..12),
        piece_bytes in 1_usize..3000,
    ) {
        let mut encoder = AnswerEncoder::new(header(AnswerForm::Series));
        let mut want = Vec::new();
        for (id, samples) in all.iter().enumerate() {
            let columns = columns_of(samples);
            encoder.start_series(&labels(id), ColumnType::Float).expect("short");
            encoder.put_columns(&columns).expect("ascends");
            encoder.end_series();
            want.push((labels(id), samples_of(&columns)));
        }
        let found = decode_in_pieces(&encoder.finish(), piece_bytes).expect("an answer");
        let found: Vec<_> = found.series.into_iter().map(|one| (one.labels, one.samples)).collect();
        assert_eq!(found, want);
    }

    #[test]
    fn random_payloads_end_without_panic(
        kind in 0_u8..12,
        payload in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut bytes = AnswerEncoder::new(header(AnswerForm::Series)).take();
        frame::put_frame(frame::KIND_TEXTS, b"\x01\x01a\x01b", &mut bytes);
        frame::put_frame(kind, &payload, &mut bytes);
        let _ = decode(&bytes);
    }
}
