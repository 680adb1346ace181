//! Frames round-trip; cut, flipped, stale and forged bytes are told from good ones.

use super::*;

const KEY: u128 = 0x1234_5678_9abc_def0_0fed_cba9_8765_4321;

fn frame(kind: u8, sequence: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    FrameHeader { sequence, ..FrameHeader::for_payload(kind, 3, payload) }.put_frame(KEY, payload, &mut out);
    out
}

fn segment(frames: &[Vec<u8>], unused: usize) -> Vec<u8> {
    let mut out = SegmentHeader { segment: 7, key: KEY }.encode().to_vec();
    frames.iter().for_each(|f| out.extend_from_slice(f));
    out.resize(out.len() + unused, 0);
    out
}

fn sequences(scan: &Scan) -> Vec<u64> {
    scan.frames.iter().map(|f| f.header.sequence).collect()
}

#[test]
fn the_segment_header_is_checked_whole() {
    let header = SegmentHeader { segment: 9, key: KEY };
    let bytes = header.encode();
    assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
    for at in 0..bytes.len() {
        assert!(SegmentHeader::decode(&bytes[..at]).is_err());
        let mut bad = bytes;
        bad[at] ^= 4;
        assert!(SegmentHeader::decode(&bad).is_err(), "byte {at}");
    }
}

#[test]
fn series_and_samples_round_trip() {
    let mut payload = Vec::new();
    encode_series("team", 3, &mut payload);
    let labels = [vec![("__name__", "up"), ("a", "ä")], vec![("__name__", "down")]];
    for (i, pairs) in labels.iter().enumerate() {
        SeriesRecord { id: i as u32, raw_hash: KEY + i as u128 }.encode(pairs.iter().copied(), &mut payload);
    }
    let mut series = SeriesRef::decode(&payload).unwrap();
    assert_eq!((series.tenant, series.protocol), ("team", 3));
    let mut pairs = Vec::new();
    for (i, want) in labels.iter().enumerate() {
        let record = series.next(&mut pairs).unwrap().unwrap();
        assert_eq!((record.id, record.raw_hash, &pairs), (i as u32, KEY + i as u128, want));
    }
    assert_eq!(series.next(&mut pairs), Ok(None));
    let mut samples = SamplesRef::default();
    for times in [[5, 5, 5], [i64::MAX, i64::MIN, 0]] {
        encode_samples(77, &[1, 2, u32::MAX], &times, &[0, u64::MAX, 9], &mut payload);
        samples.decode(&payload).unwrap();
        assert_eq!(
            (samples.arrival_ms, &*samples.ids, &*samples.times),
            (77, &[1, 2, u32::MAX][..], &times[..])
        );
        assert_eq!(samples.values, [0, u64::MAX, 9]);
        for len in 0..payload.len() {
            assert!(samples.decode(&payload[..len]).is_err());
        }
    }
}

#[test]
fn damaged_payloads_end_without_panic() {
    let mut series = Vec::new();
    encode_series("team", 3, &mut series);
    SeriesRecord { id: 1, raw_hash: 2 }.encode([("a", "b")].into_iter(), &mut series);
    let mut samples = Vec::new();
    encode_samples(7, &[1, 2], &[3, 4], &[5, 6], &mut samples);
    for at in 0..series.len().max(samples.len()) {
        for bit in 0..8 {
            let flip = |bytes: &[u8]| {
                let mut bad = bytes.to_vec();
                bad.get_mut(at).into_iter().for_each(|b| *b ^= 1 << bit);
                bad
            };
            let _ = SamplesRef::default().decode(&flip(&samples));
            let bad = flip(&series);
            let Ok(mut found) = SeriesRef::decode(&bad) else { continue };
            while let Ok(Some(_)) = found.next(&mut Vec::new()) {}
        }
    }
}

#[test]
fn a_segment_cut_anywhere_gives_its_whole_frames() {
    let frames = [frame(1, 1, b"one"), frame(2, 2, &[7; 50]), frame(2, 3, b"")];
    let whole = segment(&frames, 0);
    let ends = [0, 1, 2, 3].map(|n| SEGMENT_HEADER_BYTES + frames[..n].iter().map(Vec::len).sum::<usize>());
    for len in SEGMENT_HEADER_BYTES..=whole.len() {
        let mut bytes = whole[..len].to_vec();
        bytes.resize(whole.len() + 100, 0);
        let scan = scan_segment(&bytes, KEY);
        let used = whole[..len].iter().rposition(|&b| b != 0).map_or(0, |at| at + 1);
        // Padding may be missing: it is zeros, as what follows.
        let found = ends
            .iter()
            .rposition(|&end| whole[..end].iter().rposition(|&b| b != 0).map_or(0, |a| a + 1) <= used)
            .unwrap();
        assert_eq!(sequences(&scan), (1..=found as u64).collect::<Vec<_>>(), "length {len}");
        assert_eq!(scan.end, ends[found]);
        assert_eq!(scan.damage.is_empty(), used <= ends[found], "length {len}");
    }
}

#[test]
fn frames_behind_damage_are_found_and_the_gap_is_named() {
    let frames: Vec<Vec<u8>> = (1..=5).map(|i| frame(2, i, &[i as u8; 40])).collect();
    let whole = segment(&frames, 64);
    let len = frames[0].len();
    for at in 2 * len..3 * len {
        let mut bad = whole.clone();
        bad[SEGMENT_HEADER_BYTES + at] ^= 0x10;
        let scan = scan_segment(&bad, KEY);
        assert_eq!(sequences(&scan), [1, 2, 4, 5], "byte {at}");
        let damage = Damage { offset: SEGMENT_HEADER_BYTES + 2 * len, len, followed: true };
        assert_eq!(scan.damage, [damage]);
    }
    let mut hole = whole.clone();
    hole[SEGMENT_HEADER_BYTES + len..SEGMENT_HEADER_BYTES + 3 * len].fill(0);
    assert_eq!(sequences(&scan_segment(&hole, KEY)), [1, 4, 5], "zeros are not the end when frames follow");
}

#[test]
fn foreign_frames_are_not_taken() {
    let mut inner = Vec::new();
    FrameHeader { sequence: 9, ..FrameHeader::for_payload(2, 0, b"forged") }.put_frame(
        KEY ^ 1,
        b"forged",
        &mut inner,
    );
    let mut whole = segment(&[frame(1, 5, b"x"), frame(2, 4, b"stale"), inner], 8);
    let scan = scan_segment(&whole, KEY);
    assert_eq!(sequences(&scan), [5], "neither an older sequence nor another key");
    assert_eq!(scan.damage.len(), 1);
    whole.truncate(SEGMENT_HEADER_BYTES);
    assert!(scan_segment(&whole, KEY).frames.is_empty());
    assert!(scan_segment(&[], KEY).damage.is_empty());
}
