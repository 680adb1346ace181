//! Frames and payloads round-trip; a checkpoint is whole only with its end frame.

use super::*;
use chronolith_base::ByteReader;

fn entry() -> ChunkEntry<'static> {
    let sealed =
        |file| SealedEntry { file, offset: 20, len: 300, count: 120, min_time: -5, span_ms: 1_785_000 };
    ChunkEntry { id: 7, open: b"open", late: b"", last: Some((-9, 1)), sealed: vec![sealed(1), sealed(2)] }
}

fn file() -> Vec<u8> {
    let header = CheckpointHeader { segment: 4, next_id: 1025, sequence: 99, key: 1 << 100 };
    let mut out = header.encode().to_vec();
    let mut payload = Vec::new();
    encode_chunks(&entry(), &mut payload);
    encode_frame(KIND_CHUNKS, &payload, &mut out);
    payload.clear();
    encode_raw_key(5 << 70, 3, &mut payload);
    encode_frame(KIND_RAW_KEYS, &payload, &mut out);
    CheckpointTotals { series_count: 1, frame_count: 2, sample_count: 240 }.encode(&mut payload);
    encode_frame(KIND_END, &payload, &mut out);
    out
}

#[test]
fn payloads_round_trip() {
    let mut payload = Vec::new();
    let bare = ChunkEntry { id: 8, ..ChunkEntry::default() };
    encode_chunks(&entry(), &mut payload);
    encode_chunks(&bare, &mut payload);
    let mut reader = ByteReader::new(&payload);
    assert_eq!(decode_chunks(&mut reader), Ok(Some(entry())));
    assert_eq!(decode_chunks(&mut reader), Ok(Some(bare)));
    assert_eq!(decode_chunks(&mut reader), Ok(None));
    for at in 0..payload.len() {
        for bit in 0..8 {
            let mut bad = payload.clone();
            bad[at] ^= 1 << bit;
            let mut reader = ByteReader::new(&bad);
            while let Ok(Some(_)) = decode_chunks(&mut reader) {}
        }
    }
    let windows = [WindowEntry { start: -7_200_000, first_arrival_ms: 5 }];
    WindowEntry::encode_all("team", &windows, &mut payload);
    assert_eq!(WindowEntry::decode_all(&payload), Ok(("team", windows.to_vec())));
    payload.clear();
    encode_raw_key(5 << 70, 3, &mut payload);
    assert_eq!(RawKeys::new(&payload).collect::<Vec<_>>(), [(5 << 70, 3)]);
}

#[test]
fn only_the_whole_file_is_whole() {
    let bytes = file();
    let (header, totals) = verify(&bytes).unwrap();
    assert_eq!((header.segment, header.next_id, header.sequence, header.key), (4, 1025, 99, 1 << 100));
    assert_eq!((totals.series_count, totals.sample_count), (1, 240));
    for len in 0..bytes.len() {
        assert!(verify(&bytes[..len]).is_err(), "length {len}");
    }
    for at in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 2;
        assert!(verify(&bad).is_err(), "byte {at}");
    }
    assert!(verify(&[bytes.as_slice(), b"x"].concat()).is_err());
}
