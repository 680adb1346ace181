//! Positions round-trip, other lengths are refused, and the golden frame reads as ever.

use super::super::{FRAME_HEADER_BYTES, FrameHeader, KIND_POSITION, STRIPE_NONE};
use super::*;

const KEY: u128 = 0x1234_5678_9abc_def0_0fed_cba9_8765_4321;

fn frame(topic: u8, partition: u32, offset: u64, resumes_after: Option<u64>) -> PositionFrame {
    let next = Position { topic: TopicId([topic; 16]), partition: PartitionId(partition), offset };
    PositionFrame { next, resumes_after }
}

#[test]
fn positions_round_trip() {
    for one in
        [frame(0, 0, 0, None), frame(7, 3, 41, Some(9)), frame(255, u32::MAX, u64::MAX, Some(u64::MAX))]
    {
        assert_eq!(PositionFrame::decode(&one.encode()), Ok(one));
    }
}

#[test]
fn other_lengths_are_refused() {
    let bytes = frame(7, 3, 41, Some(9)).encode();
    for len in 0..bytes.len() {
        assert!(PositionFrame::decode(&bytes[..len]).is_err(), "{len} bytes");
    }
    assert!(PositionFrame::decode(&[&bytes[..], &[0]].concat()).is_err());
}

/// Written by the first version with position frames.
const GOLDEN: &[u8] = include_bytes!("../../../../testdata/wal/version-3.position");

#[test]
fn the_golden_frame_reads_as_ever() {
    let want = PositionFrame {
        next: Position {
            topic: TopicId(*b"topic-id-16bytes"),
            partition: PartitionId(0x0102_0304),
            offset: 0x0102_0304_0506_0708,
        },
        resumes_after: Some(0x1112_1314_1516_1718),
    };
    let header = FrameHeader::decode(GOLDEN, KEY).expect("a frame");
    let payload = &GOLDEN[FRAME_HEADER_BYTES..][..header.payload_len as usize];
    assert_eq!((header.kind, header.stripe, header.sequence), (KIND_POSITION, STRIPE_NONE, 5));
    assert_eq!(PositionFrame::decode(payload), Ok(want));
    let mut again = Vec::new();
    FrameHeader { sequence: 5, ..FrameHeader::for_payload(KIND_POSITION, STRIPE_NONE, payload) }.put_frame(
        KEY,
        &want.encode(),
        &mut again,
    );
    assert_eq!(again, GOLDEN);
}
