//! Tests of the files of a directory log: round trip, golden file, damage at every bit and length.

use super::*;

const TOPIC: [u8; 16] = *b"topic-id-of-test";
const GOLDEN: &[u8] = include_bytes!("../../../testdata/replicated_log/version-1.records");

fn topic_file() -> TopicFile {
    TopicFile { topic: TOPIC, partition_count: 3 }
}

fn segment() -> Vec<u8> {
    let mut bytes = SegmentHeader { topic: TOPIC, partition: 2, first_offset: 40 }.encode().to_vec();
    put_record(&TOPIC, 40, 1_795_132_800_000, b"first", &mut bytes);
    put_record(&TOPIC, 41, 1_795_132_800_001, b"", &mut bytes);
    put_record(&TOPIC, 42, -5, &[7; 300], &mut bytes);
    bytes
}

fn records(bytes: &[u8]) -> Result<Vec<(u64, i64, Vec<u8>)>, DecodeError> {
    let mut at = SEGMENT_HEADER_BYTES;
    let mut found = Vec::new();
    while at < bytes.len() {
        let record = read_record(&TOPIC, bytes, at)?;
        found.push((record.offset, record.timestamp_ms, record.value.to_vec()));
        at += record.len;
    }
    Ok(found)
}

#[test]
fn files_come_back() {
    assert_eq!(TopicFile::decode(&topic_file().encode()), Ok(topic_file()));
    let bytes = segment();
    let header = SegmentHeader::decode(&bytes).unwrap();
    assert_eq!(header, SegmentHeader { topic: TOPIC, partition: 2, first_offset: 40 });
    let found = records(&bytes).unwrap();
    let values: Vec<usize> = found.iter().map(|record| record.2.len()).collect();
    assert_eq!((found[0].0, found[2].1, values), (40, -5, vec![5, 0, 300]));
}

/// Bytes that were written once are read for ever.
#[test]
fn golden_file_is_read_and_written() {
    assert_eq!(segment(), GOLDEN);
    assert_eq!(records(GOLDEN).unwrap().len(), 3);
}

#[test]
fn any_flipped_bit_is_found() {
    let file = topic_file().encode();
    for bit in 0..file.len() * 8 {
        let mut damaged = file;
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(TopicFile::decode(&damaged).is_err(), "bit {bit} of the topic file");
    }
    let bytes = segment();
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(SegmentHeader::decode(&damaged).is_err() || records(&damaged).is_err(), "bit {bit}");
    }
}

#[test]
fn every_cut_is_found() {
    let file = topic_file().encode();
    assert!((0..file.len()).all(|len| TopicFile::decode(&file[..len]).is_err()));
    assert!(TopicFile::decode(&[&file[..], &[0]].concat()).is_err());
    let bytes = segment();
    let whole: Vec<usize> = [0, 37, 32, 332]
        .iter()
        .scan(40, |at, len| {
            *at += len;
            Some(*at)
        })
        .collect();
    for len in 40..bytes.len() {
        assert_eq!(records(&bytes[..len]).is_ok(), whole.contains(&len), "{len} bytes");
    }
    assert!((0..40).all(|len| SegmentHeader::decode(&bytes[..len]).is_err()));
}

#[test]
fn records_after_damage_are_found_by_their_header() {
    let mut bytes = segment();
    bytes[45] ^= 1;
    assert!(read_record(&TOPIC, &bytes, 40).is_err());
    assert_eq!(find_record(&TOPIC, &bytes, 41, 41), Some(77));
    assert_eq!(find_record(&TOPIC, &bytes, 41, 42), Some(109));
    assert_eq!(find_record(&TOPIC, &bytes, 41, 43), None);
    assert_eq!(find_record(&[0; 16], &bytes, 41, 0), None, "records of another topic");
}

/// A client may send the bytes of a segment as a value: without the topic id they are no record.
#[test]
fn values_that_look_like_records_are_none() {
    let mut inner = Vec::new();
    put_record(&[0; 16], 50, 1, b"forged", &mut inner);
    let mut bytes = segment();
    let at = bytes.len();
    put_record(&TOPIC, 43, 1, &inner, &mut bytes);
    assert_eq!(find_record(&TOPIC, &bytes, at + 1, 0), None);
}

#[test]
fn forged_lengths_are_refused() {
    let mut bytes = (u32::MAX).to_le_bytes().to_vec();
    bytes.extend([0; 24]);
    let sum = header_crc(&TOPIC, &bytes);
    bytes.extend(sum.to_le_bytes());
    assert!(matches!(read_record(&TOPIC, &bytes, 0), Err(DecodeError::Invalid { .. })));
    assert!(matches!(read_record(&TOPIC, &bytes, usize::MAX), Err(DecodeError::Short { .. })));
}

#[test]
fn names_of_segments_sort_as_their_offsets() {
    for offset in [0, 7, u64::MAX] {
        assert_eq!(parse_segment_name(&segment_name(offset)), Some(offset));
    }
    assert!(segment_name(9) < segment_name(10));
    for name in ["7.records", "topic", "0000000000000000000x.records", "99999999999999999999.records"] {
        assert_eq!(parse_segment_name(name), None, "{name}");
    }
}
