//! Segments: round trip, damage at every byte, forged lengths.

use super::*;

fn chunk(segment: &[u8], offset: u32) -> Result<RawChunk<'_>, DecodeError> {
    decode_chunk(segment.get(offset as usize..).unwrap_or_default(), offset)
}

fn claimed(segment: &[u8], offset: u32) -> Option<u16> {
    sample_count_claimed(segment.get(offset as usize..).unwrap_or_default(), offset)
}

/// Returns true if the header and all chunks can be read.
fn reads(segment: &[u8], offsets: &[u32]) -> bool {
    check_header(segment).is_ok() && offsets.iter().all(|&offset| chunk(segment, offset).is_ok())
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
    check_header(&bytes).unwrap();
    assert_eq!(chunk(&bytes, offsets[0]).unwrap(), RawChunk { encoding: 1, bytes: b"\x00\x02ab" });
    assert_eq!(chunk(&bytes, offsets[1]).unwrap(), RawChunk { encoding: 64, bytes: b"" });
    assert_eq!(chunk(&bytes, offsets[2]).unwrap().bytes.len(), 300);
    assert_eq!(claimed(&bytes, offsets[0]), Some(2));
    assert_eq!(claimed(&bytes, offsets[1]), None);
}

#[test]
fn every_flipped_or_missing_byte_is_noticed() {
    let (bytes, offsets) = sample();
    for at in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 0x55;
        // Padding has no content and is not verified.
        let harmless = (5..8).contains(&at);
        let all_read = reads(&bad, &offsets);
        assert_eq!(all_read, harmless, "byte {at}");
        assert!(!reads(&bytes[..at], &offsets), "cut at {at}");
    }
}

#[test]
fn forged_lengths_and_offsets_are_errors() {
    let mut bytes = Vec::new();
    put_header(&mut bytes);
    bytes.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 1, 2, 3]);
    for offset in [0, 7, 8, 9, 20, 21, u32::MAX] {
        assert!(chunk(&bytes, offset).is_err(), "offset {offset}");
        assert!(claimed(&bytes, offset).is_none());
    }
}

#[test]
fn names_and_refs() {
    assert_eq!(segment_name(0), "000001");
    assert_eq!(segment_name(u32::MAX), "4294967296");
    let chunk_ref = ChunkRef::new(3, 9);
    assert_eq!((chunk_ref.0, chunk_ref.segment_idx(), chunk_ref.offset()), (3 << 32 | 9, 3, 9));
}

#[test]
fn lengths_of_chunks_lead_from_one_to_the_next() {
    let (bytes, offsets) = sample();
    let ends = offsets.iter().skip(1).copied().chain([bytes.len() as u32]);
    for (&offset, end) in offsets.iter().zip(ends) {
        assert_eq!(chunk_len(&bytes[offset as usize..]), Some(u64::from(end - offset)));
    }
    assert_eq!(chunk_len(&[]), None);
    assert_eq!(chunk_len(&[0x80]), None);
}
