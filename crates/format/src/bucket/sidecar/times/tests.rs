//! Ranges are joined whatever their order, and round-trip; damaged ones end without panic.

use super::*;

fn range(segment_idx: u32, start: u32, end: u32) -> SegmentRange {
    SegmentRange { segment_idx, start, end }
}

#[test]
fn touching_and_repeated_chunks_are_joined() {
    let mut times = TimesBuilder::default();
    for (segment_idx, start, len) in [(1, 8, 10), (0, 20, 5), (0, 8, 12), (0, 8, 12), (0, 40, 4), (1, 18, 2)]
    {
        times.push(ChunkRef::new(segment_idx, start), len);
    }
    assert_eq!(times.finish(), [range(0, 8, 25), range(0, 40, 44), range(1, 8, 20)]);
}

#[test]
fn many_repeated_chunks_take_little_memory() {
    let mut times = TimesBuilder::default();
    for idx in 0..100_000u32 {
        times.push(ChunkRef::new(0, 8 + idx % 1000 * 20), 10);
        assert!(times.ranges.len() <= UNJOINED_MIN);
    }
    assert_eq!(times.finish().len(), 1000);
}

#[test]
fn ranges_round_trip() {
    for ranges in [vec![], vec![range(0, 8, 25), range(0, 40, 44), range(3, 8, 20), range(3, 21, u32::MAX)]] {
        let mut bytes = Vec::new();
        put_ranges(&ranges, &mut bytes);
        assert_eq!(read_ranges(&mut ByteReader::new(&bytes)), Ok(ranges));
        for len in 0..bytes.len() {
            assert!(read_ranges(&mut ByteReader::new(&bytes[..len])).is_err());
        }
    }
}

#[test]
fn ranges_beyond_a_segment_are_refused() {
    let mut bytes = Vec::new();
    for value in [1, 0, u64::from(u32::MAX), 1] {
        put_uvarint(&mut bytes, value);
    }
    assert!(read_ranges(&mut ByteReader::new(&bytes)).is_err());
}
