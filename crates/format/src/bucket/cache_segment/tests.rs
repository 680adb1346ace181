//! Entries and tables round-trip; damage of any byte of either is noticed; the golden segment reads as ever.

use super::*;

const KEYS: [&str; 2] = ["team-a\ns3://b\nteam-a/01/index\ncrc:1", "team-b\ns3://b\nteam-b/02/index\ncrc:2"];

/// A segment with three entries, with its table or without.
fn segment(has_table: bool) -> (Vec<u8>, SegmentTable) {
    let mut bytes = Vec::new();
    put_header(&mut bytes);
    let mut table = SegmentTable::new();
    for key in KEYS {
        table.add_key(key);
    }
    for (key_idx, start, content) in [(0, 0, "abc"), (1, 1 << 40, "defgh"), (0, 3, "i")] {
        let bound = table.segment_len_with(KEYS[key_idx], content.len() as u32);
        table.add_entry(key_idx as u32, start, content.len() as u32);
        put_entry(KEYS[key_idx], start, content.as_bytes(), &mut bytes);
        assert_eq!(table.end(), bytes.len() as u64);
        let mut whole = bytes.clone();
        table.encode(&mut whole);
        assert!(whole.len() as u64 <= bound);
    }
    if has_table {
        table.encode(&mut bytes);
    }
    (bytes, table)
}

fn decode_table(bytes: &[u8]) -> Result<SegmentTable, DecodeError> {
    let trailer_start = bytes.len().saturating_sub(TRAILER_BYTES);
    let trailer = Trailer::decode(&bytes[trailer_start..])?;
    let start = trailer_start.saturating_sub(trailer.table_len as usize);
    SegmentTable::decode(&bytes[start..trailer_start], &trailer, start as u64)
}

#[test]
fn a_segment_round_trips_by_its_table_and_by_its_entries() {
    let (bytes, table) = segment(true);
    check_header(&bytes).unwrap();
    assert_eq!(decode_table(&bytes).unwrap(), table);
    let mut found = Vec::new();
    for position in table.entries() {
        let at = position.offset as usize;
        let header = decode_entry_header(&bytes[at..]).unwrap();
        let entry = decode_entry(&bytes[at..at + header.entry_len() as usize]).unwrap();
        assert_eq!((entry.key, entry.start), (&*table.keys()[position.key_idx], position.start));
        assert_eq!(entry.bytes.len(), position.len as usize);
        found.extend_from_slice(entry.bytes);
    }
    assert_eq!(found, b"abcdefghi");
}

#[test]
fn damage_of_any_byte_is_noticed() {
    let (bytes, table) = segment(true);
    let entries: Vec<_> = table.entries().collect();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let has_header = check_header(&damaged).is_ok();
        let has_table = decode_table(&damaged).is_ok();
        let damaged_count = entries
            .iter()
            .filter(|entry| {
                let start = entry.offset as usize;
                let end = start + entry_len(&table.keys()[entry.key_idx], entry.len) as usize;
                decode_entry(&damaged[start..end]).is_err()
            })
            .count();
        let noticed = usize::from(!has_header) + usize::from(!has_table) + damaged_count;
        assert_eq!(noticed, 1, "byte {at}");
    }
}

#[test]
fn a_segment_that_is_cut_has_no_table() {
    let (bytes, _) = segment(true);
    for len in 0..bytes.len() {
        assert!(decode_table(&bytes[..len]).is_err(), "{len} bytes");
    }
}

#[test]
fn the_golden_segment_reads_as_ever() {
    let (bytes, table) = segment(true);
    let golden = include_bytes!("../../../testdata/bucket/version-1.cache_segment");
    assert_eq!(bytes, golden);
    assert_eq!(decode_table(golden).unwrap(), table);
}
