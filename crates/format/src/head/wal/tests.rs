//! Frames round-trip; cut, flipped, stale and forged bytes are recognized.

use super::*;

const KEY: u128 = 0x1234_5678_9abc_def0_0fed_cba9_8765_4321;
const HEADER: SegmentHeader = SegmentHeader { segment: 7, key: KEY, stale_sequence: 0 };

fn frame(kind: u8, sequence: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    FrameHeader { sequence, ..FrameHeader::for_payload(kind, 3, payload) }.put_frame(KEY, payload, &mut out);
    out
}

fn segment(frames: &[Vec<u8>], unused: usize) -> Vec<u8> {
    let mut out = HEADER.encode().to_vec();
    frames.iter().for_each(|f| out.extend_from_slice(f));
    out.resize(out.len() + unused, 0);
    out
}

fn sequences(scan: &Scan) -> Vec<u64> {
    scan.frames.iter().map(|f| f.header.sequence).collect()
}

#[test]
fn the_segment_header_is_checked_whole() {
    let header = SegmentHeader { segment: 9, key: KEY, stale_sequence: 1 << 40 };
    let bytes = header.encode();
    assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
    for at in 0..bytes.len() {
        assert!(SegmentHeader::decode(&bytes[..at]).is_err());
        let mut bad = bytes;
        bad[at] ^= 4;
        assert!(SegmentHeader::decode(&bad).is_err(), "byte {at}");
    }
}

/// Earlier programs must stop at segments whose frames they do not know, and this one at frames of later
/// programs.
#[test]
fn the_segment_header_tells_versions_apart() {
    let header = SegmentHeader { segment: 9, key: KEY, stale_sequence: 1 << 40 };
    let with = |magic: &[u8; 4], version: u16| {
        let mut bytes = header.encode();
        bytes[..4].copy_from_slice(magic);
        bytes[4..6].copy_from_slice(&version.to_le_bytes());
        let sum = crc32c(&bytes[..36]);
        bytes[36..].copy_from_slice(&sum.to_le_bytes());
        SegmentHeader::decode(&bytes)
    };
    assert_eq!((with(b"CLWS", 3), with(b"CLWL", 2)), (Ok(header), Ok(header)));
    let is_later = |found: Result<SegmentHeader, DecodeError>| {
        SegmentHeader::is_of_later_version(&found.expect_err("not readable"))
    };
    assert_eq!(
        [(b"CLWS", 4), (b"CLWS", 2), (b"CLWL", 0)].map(|(m, v)| is_later(with(m, v))),
        [true, false, false]
    );
    assert!(!is_later(with(b"CLWX", 4)), "a foreign file");
}

#[test]
fn series_round_trip() {
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
}

#[test]
fn damaged_series_end_without_panic() {
    let mut series = Vec::new();
    encode_series("team", 3, &mut series);
    SeriesRecord { id: 1, raw_hash: 2 }.encode([("a", "b")].into_iter(), &mut series);
    for at in 0..series.len() {
        for bit in 0..8 {
            let mut bad = series.clone();
            bad[at] ^= 1 << bit;
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
        let scan = scan_segment(&bytes, &HEADER);
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
        let scan = scan_segment(&bad, &HEADER);
        assert_eq!(sequences(&scan), [1, 2, 4, 5], "byte {at}");
        let damage = Damage { offset: SEGMENT_HEADER_BYTES + 2 * len, len, followed: true };
        assert_eq!(scan.damage, [damage]);
    }
    let mut hole = whole.clone();
    hole[SEGMENT_HEADER_BYTES + len..SEGMENT_HEADER_BYTES + 3 * len].fill(0);
    assert_eq!(
        sequences(&scan_segment(&hole, &HEADER)),
        [1, 4, 5],
        "zeros are not the end when frames follow"
    );
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
    let scan = scan_segment(&whole, &HEADER);
    assert_eq!(sequences(&scan), [5], "neither an older sequence nor another key");
    assert_eq!(scan.damage.len(), 1);
    whole.truncate(SEGMENT_HEADER_BYTES);
    assert!(scan_segment(&whole, &HEADER).frames.is_empty());
    assert!(scan_segment(&[], &HEADER).damage.is_empty());
}

/// A segment whose file was used before for frames 1 to 40, then for `frames` from its start on.
fn recycled(frames: &[Vec<u8>]) -> Vec<u8> {
    let old: Vec<Vec<u8>> = (1..=40).map(|i| frame(2, i, &vec![i as u8; 20 + 7 * i as usize])).collect();
    let mut out = segment(&old, 500);
    let header = SegmentHeader { segment: 9, stale_sequence: 40, ..HEADER };
    out[..SEGMENT_HEADER_BYTES].copy_from_slice(&header.encode());
    let mut at = SEGMENT_HEADER_BYTES;
    for frame in frames {
        out[at..at + frame.len()].copy_from_slice(frame);
        at += frame.len();
    }
    out
}

fn scan_recycled_segment(bytes: &[u8]) -> Scan {
    scan_segment(bytes, &SegmentHeader::decode(bytes).unwrap())
}

/// Frames of a file's earlier use are whole, have the right key and stand where frames are looked for.
#[test]
fn frames_of_the_earlier_use_of_a_recycled_file_are_never_taken() {
    let frames: Vec<Vec<u8>> =
        (41..=60).map(|i| frame(3, i, &vec![i as u8; (i as usize * 13) % 90])).collect();
    for count in 0..=frames.len() {
        let bytes = recycled(&frames[..count]);
        let scan = scan_recycled_segment(&bytes);
        assert_eq!(sequences(&scan), (41..41 + count as u64).collect::<Vec<_>>());
        assert_eq!(scan.damage, [], "what follows is left from before");
    }
}

/// Whichever byte is damaged: later frames are found after it, and nothing of the earlier use takes its
/// place.
#[test]
fn a_recycled_file_damaged_anywhere_gives_no_frame_of_its_earlier_use() {
    let frames: Vec<Vec<u8>> =
        (41..=46).map(|i| frame(3, i, &vec![i as u8; (i as usize * 13) % 90])).collect();
    let whole = recycled(&frames);
    let end = SEGMENT_HEADER_BYTES + frames.iter().map(Vec::len).sum::<usize>();
    for at in SEGMENT_HEADER_BYTES..whole.len() {
        let mut bad = whole.clone();
        bad[at] ^= 0x10;
        let found = sequences(&scan_recycled_segment(&bad));
        assert!(found.iter().all(|s| (41..=46).contains(s)), "byte {at}: {found:?}");
        assert!(found.len() + usize::from(at < end) >= 6, "byte {at}: {found:?}");
        for len in [at, at + 1] {
            let found = sequences(&scan_recycled_segment(&whole[..len]));
            assert!(found.iter().all(|s| (41..=46).contains(s)), "cut to {len}: {found:?}");
        }
    }
}

/// A power cut keeps any part of the unsynced bytes: every set of the last frames may be missing.
#[test]
fn every_set_of_torn_frames_in_a_recycled_file_is_survived() {
    let frames: Vec<Vec<u8>> =
        (41..=46).map(|i| frame(3, i, &vec![i as u8; (i as usize * 13) % 90])).collect();
    let (whole, before) = (recycled(&frames), recycled(&[]));
    for missing in 0..1u32 << frames.len() {
        let mut bytes = whole.clone();
        let mut at = SEGMENT_HEADER_BYTES;
        let mut want = Vec::new();
        for (idx, frame) in frames.iter().enumerate() {
            if missing & 1 << idx != 0 {
                bytes[at..at + frame.len()].copy_from_slice(&before[at..at + frame.len()]);
            } else {
                want.push(41 + idx as u64);
            }
            at += frame.len();
        }
        let scan = scan_recycled_segment(&bytes);
        assert_eq!(sequences(&scan), want);
        assert!(scan.damage.iter().all(|damage| damage.followed), "only gaps are damage: {:?}", scan.damage);
    }
}
