//! Segments: round trip, damage at every byte, forged lengths.

use super::*;

fn segment(bytes: &[u8]) -> Result<Segment, DecodeError> {
    Segment::open(Mapped::from_slice(bytes))
}

fn sample() -> (Vec<u8>, Vec<u32>) {
    let mut out = Vec::new();
    put_header(&mut out);
    let mut offsets = Vec::new();
    for (encoding, bytes) in [(1, &b"\x00\x02ab"[..]), (64, b""), (1, &[7; 300])] {
        offsets.push(out.len() as u32);
        put_chunk(&mut out, encoding, bytes);
    }
    (out, offsets)
}

#[test]
fn chunks_come_back_as_written() {
    let (bytes, offsets) = sample();
    let segment = segment(&bytes).unwrap();
    assert_eq!(segment.chunk(offsets[0]).unwrap(), RawChunk { encoding: 1, bytes: b"\x00\x02ab" });
    assert_eq!(segment.chunk(offsets[1]).unwrap(), RawChunk { encoding: 64, bytes: b"" });
    assert_eq!(segment.chunk(offsets[2]).unwrap().bytes.len(), 300);
    assert_eq!(segment.sample_count_claimed(offsets[0]), Some(2));
    assert_eq!(segment.sample_count_claimed(offsets[1]), None);
}

#[test]
fn every_flipped_or_missing_byte_is_noticed() {
    let (bytes, offsets) = sample();
    for at in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 0x55;
        // Padding carries nothing, so nobody looks at it.
        let harmless = (5..8).contains(&at);
        let all_read = segment(&bad).is_ok_and(|s| offsets.iter().all(|&o| s.chunk(o).is_ok()));
        assert_eq!(all_read, harmless, "byte {at}");
        let cut = segment(&bytes[..at]).is_ok_and(|s| offsets.iter().all(|&o| s.chunk(o).is_ok()));
        assert!(!cut, "cut at {at}");
    }
}

#[test]
fn forged_lengths_and_offsets_are_errors() {
    let mut bytes = Vec::new();
    put_header(&mut bytes);
    bytes.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 1, 2, 3]);
    let segment = segment(&bytes).unwrap();
    for offset in [0, 7, 8, 9, 20, 21, u32::MAX] {
        assert!(segment.chunk(offset).is_err(), "offset {offset}");
        assert!(segment.sample_count_claimed(offset).is_none());
    }
}

#[test]
fn names_and_refs() {
    assert_eq!(segment_name(0), "000001");
    assert_eq!(segment_name(u32::MAX), "4294967296");
    let chunk_ref = ChunkRef::new(3, 9);
    assert_eq!((chunk_ref.0, chunk_ref.segment_idx(), chunk_ref.offset()), (3 << 32 | 9, 3, 9));
}
