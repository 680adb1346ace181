//! Damaged, forged and random bytes; random batches.

use super::*;

fn all_kinds() -> Vec<Vec<u8>> {
    let mut kinds: Vec<Vec<u8>> = [scrape(), lines(), paths()].iter().flat_map(records_of).collect();
    for event in super::golden::events() {
        let mut out = Vec::new();
        encode_event(&event, &mut out).expect("fits");
        kinds.push(out);
    }
    kinds.push(packed_of(&records_of(&scrape())[0]).expect("is packed"));
    kinds
}

/// Packed form of a record; `None` if it is too short for one.
fn packed_of(record: &[u8]) -> Option<Vec<u8>> {
    let mut packer = super::super::packed::RecordPacker::default();
    packer.pack(&record[..record.len() - 4]).map(<[u8]>::to_vec)
}

fn decode(bytes: &[u8]) -> Result<Record, RecordError> {
    decode_record(bytes, source, &mut new_batch())
}

/// Replaces the checksum by the right one.
fn forge(bytes: &mut Vec<u8>) {
    bytes.truncate(bytes.len().saturating_sub(4));
    super::super::frame::finish(bytes);
}

#[test]
fn no_cut_and_no_flipped_bit_goes_unnoticed() {
    for bytes in all_kinds() {
        for at in 0..bytes.len() {
            assert!(decode(&bytes[..at]).is_err(), "cut at {at}");
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert!(matches!(decode(&damaged), Err(RecordError::Bytes(_))), "byte {at}");
        }
        assert!(decode(&[&bytes[..], &[0]].concat()).is_err());
    }
}

/// The same with right checksums: cuts and changed bytes end with an error or another record.
#[test]
fn forged_bytes_end_without_panic_and_leave_no_samples_after_an_error() {
    let mut batch = new_batch();
    for bytes in all_kinds() {
        for at in 5..bytes.len() - 4 {
            for byte in [0, 1, 0x7f, 0x80, 0xff, bytes[at].wrapping_add(1)] {
                let mut forged = bytes.clone();
                forged[at] = byte;
                forge(&mut forged);
                if decode_record(&forged, source, &mut batch).is_err() {
                    assert!(batch.series.is_empty() && batch.raw.is_empty() && batch.times.is_empty());
                }
            }
            let mut cut = bytes[..at].to_vec();
            cut.extend_from_slice(&[0; 4]);
            forge(&mut cut);
            assert!(decode(&cut).is_err(), "cut at {at}");
        }
    }
}

#[test]
fn an_intact_record_of_a_later_version_is_no_damage() {
    let mut later = records_of(&scrape()).remove(0);
    later[4] = RECORD_VERSION + 1;
    assert!(matches!(decode(&later), Err(RecordError::Bytes(_))), "the checksum covers the version");
    later[5] = 200;
    forge(&mut later);
    assert_eq!(decode(&later), Err(RecordError::LaterVersion { found: RECORD_VERSION + 1 }));
    let text = RecordError::LaterVersion { found: 3 }.to_string();
    assert_eq!(text, "record of version 3, this program reads versions up to 2");
    later[4] = 0;
    forge(&mut later);
    assert!(matches!(decode(&later), Err(RecordError::Bytes(_))));
}

/// A short body that claims to unpack to many bytes, and a block that unpacks to others than it claims.
#[test]
fn a_packed_body_unpacks_to_what_it_claims_within_the_limit() {
    let packed = packed_of(&records_of(&scrape())[0]).expect("is packed");
    let mut reader = chronolith_base::ByteReader::at(&packed, 16);
    let len = reader.uvarint("length").expect("a length");
    let block = &packed[reader.offset()..packed.len() - 4];
    for claimed in [0, len - 1, len + 1, 1 << 19, 899_981, u64::from(u32::MAX), u64::MAX] {
        let mut forged = packed[..16].to_vec();
        chronolith_base::bytes::put_uvarint(&mut forged, claimed);
        forged.extend_from_slice(block);
        super::super::frame::finish(&mut forged);
        let mut decoder = RecordDecoder::default();
        let found = decoder.decode(&forged, source, &mut new_batch());
        assert!(matches!(found, Err(RecordError::Bytes(_))), "{claimed}: {found:?}");
    }
    let mut plain = packed;
    plain[4] = 1;
    forge(&mut plain);
    assert!(matches!(decode(&plain), Err(RecordError::Bytes(_))));
}

#[test]
fn a_packer_returns_short_and_random_records_as_they_are() {
    assert_eq!(packed_of(&records_of(&paths())[0]), None);
    let mut batch = new_batch();
    let mut bits = 1_u64;
    let key: Vec<u8> = std::iter::repeat_with(|| {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (bits >> 56) as u8
    })
    .take(4_000)
    .collect();
    push_series(&mut batch, &key);
    push_sample(&mut batch, 0, 0.0);
    assert_eq!(packed_of(&records_of(&batch)[0]), None);
}

#[test]
fn one_encoder_and_one_decoder_serve_records_of_all_lengths() {
    let origin = origin();
    let origin = SampleOrigin { request: &origin, duplicates: DuplicatePolicy::LastWins };
    let mut encoder = RecordEncoder::packed();
    let mut decoder = RecordDecoder::default();
    let mut long = new_batch();
    for idx in 0..20_000 {
        push_series(&mut long, format!("{:032x} of pods {idx}", idx * 0x9e37_79b9_7f4a_7c15_u128).as_bytes());
        push_sample(&mut long, idx as i64, 1.0);
    }
    for batch in [scrape(), long, paths(), lines(), scrape()] {
        let mut split = BatchSplit::default();
        split.fill(&batch, 1, |_| 0);
        let mut packed = Vec::new();
        for part in split.parts() {
            encoder.encode(origin, &batch, part, |record| packed.push(record.to_vec())).expect("fits");
        }
        let plain = records_of(&batch);
        assert_eq!(packed.len(), plain.len());
        for (packed, plain) in packed.iter().zip(&plain) {
            assert!(packed.len() <= plain.len());
            let mut found = new_batch();
            decoder.decode(packed, source, &mut found).expect("a record");
            assert_eq!(series_of(&found), series_of(&decoded(plain)));
        }
    }
}

#[test]
fn keys_of_an_unknown_protocol_are_no_damage() {
    let mut batch = scrape();
    batch.source.protocol = 10;
    assert_eq!(decode(&records_of(&batch)[0]), Err(RecordError::Protocol { number: 10 }));
}

/// A few bytes claim a key of 60 kB many times.
#[test]
fn a_record_that_claims_more_memory_than_a_reader_gives_is_refused() {
    let mut batch = new_batch();
    push_series(&mut batch, &[b'x'; 60_000]);
    push_sample(&mut batch, 0, 0.0);
    for idx in 0..250_u8 {
        push_series(&mut batch, &[&[b'x'; 60_000][..], &[idx]].concat());
        push_sample(&mut batch, 0, 0.0);
    }
    let record = records_of(&batch).remove(0);
    let mut lens = Vec::new();
    let mut bytes = Vec::new();
    let mut last: Option<Vec<u8>> = None;
    for idx in 0..300_u32 {
        let key = [&[b'x'; 60_000][..], &idx.to_le_bytes()].concat();
        super::super::keys::put_key(&key, last.as_deref(), &mut lens, &mut bytes);
        last = Some(key);
    }
    let mut raw = Vec::new();
    let mut lens = chronolith_base::ByteReader::new(&lens);
    let mut bytes = chronolith_base::ByteReader::new(&bytes);
    let found = super::super::keys::read_keys(&mut lens, &mut bytes, 300, &mut raw, &mut Vec::new());
    assert!(found.is_err() && raw.len() <= KEY_BYTES_MAX, "{} bytes", raw.len());
    assert!(record.len() < 70_000 && decode(&record).is_ok());
}

fn any_kind() -> impl Strategy<Value = WordKind> {
    prop_oneof![
        Just(WordKind::Float),
        Just(WordKind::Boolean),
        Just(WordKind::Integer),
        Just(WordKind::Unsigned),
        Just(WordKind::Text)
    ]
}

/// Key, field, kind, whether the row goes on, samples with text, start time and buckets.
type AnySeries = (Vec<u8>, Vec<u8>, WordKind, bool, Vec<AnySample>);
type AnySample = (i64, u64, i64, Vec<u8>, Option<u32>);

fn any_series() -> impl Strategy<Value = AnySeries> {
    let key = prop::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), any::<u8>()], 0..40);
    let field = prop::collection::vec(prop_oneof![Just(b'f'), Just(b'g')], 0..3);
    let start = prop_oneof![Just(0), Just(5), any::<i64>()];
    let text = prop::collection::vec(any::<u8>(), 0..5);
    let time = prop_oneof![Just(1_700_000_000_000), any::<i64>()];
    let sample = (time, any::<u64>(), start, text, prop::option::weighted(0.2, 0_u32..20));
    (key, field, any_kind(), any::<bool>(), prop::collection::vec(sample, 0..4))
}

fn batch_of(all: &[AnySeries], has_fields: bool, has_starts: bool) -> WriteBatch {
    let mut batch = new_batch();
    let mut row = 0;
    for (key, field, kind, goes_on, samples) in all {
        push_series(&mut batch, key);
        if has_fields {
            let start = batch.raw.len();
            batch.raw.extend_from_slice(field);
            batch.fields.push(range(start, batch.raw.len()));
            row += u32::from(!goes_on);
            batch.rows.push(row);
        }
        batch.kinds.push(*kind);
        for (time, bits, start_time, text, bucket_count) in samples {
            let at = batch.times.len() as u32;
            let mut value = f64::from_bits(*bits);
            if *kind == WordKind::Text {
                value = f64::from_bits(batch.texts.len() as u64);
                let start = batch.raw.len();
                batch.raw.extend_from_slice(text);
                batch.texts.push(range(start, batch.raw.len()));
            } else if let Some(bucket_count) = bucket_count
                && *kind == WordKind::Float
            {
                let one = histogram(bits >> 40, *bucket_count);
                value = one.sum();
                batch.histograms.push((at, one));
            }
            push_sample(&mut batch, *time, value);
            if has_starts {
                batch.start_times.push(*start_time);
            }
        }
    }
    batch
}

proptest::proptest! {
    #[test]
    fn random_batches_round_trip(
        all in prop::collection::vec(any_series(), 0..12),
        has_fields in any::<bool>(),
        has_starts in any::<bool>(),
    ) {
        let batch = batch_of(&all, has_fields, has_starts);
        let found: Vec<WriteBatch> = records_of(&batch).iter().map(|record| decoded(record)).collect();
        let series: Vec<Series> = found.iter().flat_map(series_of).collect();
        assert_eq!(series, series_of(&batch));
        let rows: Vec<usize> = found.iter().flat_map(rows_of).collect();
        assert_eq!(rows, rows_of(&batch));
        // Parts have the same series in another order.
        let part_of = |key: &[u8]| key.first().map_or(0, |byte| u32::from(*byte) % 3);
        let parts = records(&batch, 3, part_of);
        let count: usize = parts.iter().map(|record| decoded(record).series.len()).sum();
        assert_eq!(count, batch.series.len());
    }

    #[test]
    fn random_bodies_end_without_panic(
        kind in 0_u8..6,
        flags in any::<u16>(),
        body in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let header = super::super::frame::Header { kind, flags: flags & 0xfff, arrival_ms: 0 };
        let mut bytes = Vec::new();
        super::super::frame::start(header, &mut bytes);
        bytes.extend_from_slice(&body);
        super::super::frame::finish(&mut bytes);
        let _ = decode(&bytes);
    }
}
